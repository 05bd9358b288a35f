//! All tests of this crate that need no process of their own: one program, linked once.

mod answers;
mod apple;
mod broadcast;
mod call_laws;
mod cut_frames;
mod cut_lists;
mod cut_lowers;
mod dummy;
mod executions;
mod flood;
mod group_calls;
mod group_laws;
mod layer_laws;
mod machines;
mod members;
mod moving;
mod multicast;
mod no_allocation;
mod objects;
mod replicas;
mod secrets;
mod strangers;
mod strangers_apple;
mod ten_thousand_calls;
mod total_order;

use xk_testkit::conformance::CountingAllocator;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;
