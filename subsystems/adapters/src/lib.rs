//! Adapters that join protocols of the x-kernel, BSD and STREAMS in one graph, without a change to
//! any protocol.
//!
//! An adapter has two halves: the lower half stands on the protocol below, in that protocol's
//! subsystem; the protocol above stands on the upper half, in its own subsystem. An adapter adds no
//! octets, and lends a message if the receiving side can refer to it. Its knowledge of protocols is
//! data ([`Form`]). The check of a graph inserts an adapter at each edge between two subsystems.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod above;
mod below;
mod circuit;
mod edge;
mod form;
mod joint;
mod later;
mod locals;
mod pairs;
mod parcel;

pub use below::xk::NO_ANSWER;
pub use edge::NO_WAY;
pub use form::{Addr, Form, Service};
pub use pairs::{
    BSD_ON_STREAMS, BSD_ON_XK, STREAMS_ON_BSD, STREAMS_ON_XK, XK_ON_BSD, XK_ON_STREAMS,
};

use alloc::format;
use alloc::vec::Vec;
use xk_core::graph::{BuildError, Params, Value};
use xk_core::{Entry, Kernel, ProtocolRef};

/// All six.
pub static ENTRIES: [&Entry; 6] =
    [&BSD_ON_STREAMS, &BSD_ON_XK, &STREAMS_ON_BSD, &STREAMS_ON_XK, &XK_ON_BSD, &XK_ON_STREAMS];

/// Puts BSD's sockets above protocols of the x-kernel in a kernel that no graph has built, such as
/// that of a program that is attached: BSD, an adapter for each and the line `sockets`, which is
/// answered. Programs then open sockets as they do above a line of a graph.
///
/// # Errors
/// [`BuildError`], such as of a lower whose addresses no adapter translates.
pub fn add_sockets(cx: &Kernel, lowers: &[ProtocolRef]) -> Result<ProtocolRef, BuildError> {
    let entries = [&xk_bsd::ENTRY, &BSD_ON_XK, &xk_bsd::sockets::ENTRY];
    add_programs(cx, entries, lowers)
}

/// Puts the transport interface of STREAMS there, as [`add_sockets`] does BSD's sockets: the line
/// `tli`, above drivers such as `tli/udp`.
///
/// # Errors
/// As of [`add_sockets`].
pub fn add_tli(cx: &Kernel, lowers: &[ProtocolRef]) -> Result<ProtocolRef, BuildError> {
    let entries = [&xk_streams::ENTRY, &STREAMS_ON_XK, &xk_streams::tli::ENTRY];
    add_programs(cx, entries, lowers)
}

/// Adds a framework, an adapter for each of the lowers, and the line on them for programs.
fn add_programs(
    cx: &Kernel,
    [framework, adapter, line]: [&'static Entry; 3],
    lowers: &[ProtocolRef],
) -> Result<ProtocolRef, BuildError> {
    let none = Params::default();
    framework.add(cx, framework.kind, &[], &none)?;
    let mut adapters = Vec::new();
    for lower in lowers {
        let kind = lower.head().kind();
        if Form::of(kind).is_none() {
            return Err(BuildError::Environment {
                param: None,
                what: format!("no adapter translates the addresses of `{kind}`"),
                help: "stand on `udp`, `tcp`, `ddp` or `atp`".into(),
            });
        }
        let mut params = Params::default();
        params.set("below", Value::Text(kind.into()));
        let name = format!("{}/{}", line.kind, lower.name());
        adapters.push(adapter.add(cx, &name, core::slice::from_ref(lower), &params)?);
    }
    line.add(cx, line.kind, &adapters, &none)
}

/// The examples of the page on subsystems.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/subsystems.md")]
struct Page;
