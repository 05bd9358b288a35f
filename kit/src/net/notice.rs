//! Words to the operator of the graph, about what seldom happens outside of it: a peer came or
//! went.

use alloc::boxed::Box;
use alloc::string::String;
use xk_core::Kernel;

/// Takes notices, a line each; put beside the kernel by a program that can show them.
pub struct Notices(pub Box<dyn Fn(&str)>);

/// Tells the operator of the graph, if a program shows notices. Not for what a peer can make happen
/// without end.
pub fn notice(cx: &Kernel, text: impl FnOnce() -> String) {
    if let Some(notices) = cx.surroundings::<Notices>() {
        (notices.0)(&text());
    }
}
