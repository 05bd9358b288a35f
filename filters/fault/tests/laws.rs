//! The laws that every protocol keeps, checked for `fault` on a link and on a layer that takes
//! hosts.

use xk_core::graph::Params;
use xk_testkit::conformance::{CountingAllocator, through};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

#[test]
fn keeps_the_laws_on_any_edge() {
    through::keeps_the_laws(&xk_fault::ENTRY, &Params::default());
}
