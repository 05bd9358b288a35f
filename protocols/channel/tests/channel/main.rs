//! Channels on a client and a server with a network between them: each alone over a test bottom,
//! over FRAGMENT and over a link.

mod calls;
mod simulation;
mod steady;
mod world;

use xk_testkit::conformance::CountingAllocator;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;
