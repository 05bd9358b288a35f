//! All tests of this crate that need no process of their own: one program, linked once.

mod coverage;
mod flood;
mod laws;
mod scripts;
mod simulation;
mod steady;

use xk_testkit::conformance::CountingAllocator;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;
