//! The laws that every protocol keeps, checked for `pcap` on a link and on a layer that takes
//! hosts.

use xk_core::graph::{Params, Value};
use xk_testkit::conformance::{CountingAllocator, through};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

#[test]
fn keeps_the_laws_on_any_edge() {
    let mut params = Params::default();
    // A file that takes everything and keeps nothing.
    params.set("file", Value::Text("/dev/null".into()));
    through::keeps_the_laws(&xk_pcap::ENTRY, &params);
}
