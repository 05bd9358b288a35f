//! All tests of this crate that need no process of their own: one program, linked once.

use xk_core::graph::Params;
use xk_core::{Entry, Kernel, ProtocolRef};
use xk_kit::net::receivers::LINK_OR_NET;
use xk_testkit::conformance::CountingAllocator;

mod laws;
mod vipaddr;
mod vipsize;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Adds `vip` or `vipaddr` to a kernel without a graph file, over a link and a network.
fn add(cx: &Kernel, entry: &'static Entry, (link, net): (ProtocolRef, ProtocolRef)) -> ProtocolRef {
    LINK_OR_NET.derive(&mut cx.numbers_mut(), xk_vip::ETHER_BASE.into());
    entry.add(cx, entry.kind, &[link, net], &Params::default()).expect("it is built")
}
