//! # Synopsis
//! `streams-on-xk` — joins a line of STREAMS with a protocol or a wire of the x-kernel's below it.
//! The check puts it in.
//!
//! # Participants
//! Address fields of TPI above, which become participants of the protocol below.
//!
//! # Below
//! One protocol of the x-kernel whose addresses are those of `ddp`, `atp`, `udp`, `tcp` or `ip`:
//! one of these, or another that takes the same hosts or ports, such as `vip`; or a wire.
//!
//! # Behaviour
//! On a wire the adapter is the driver of a device: frames are M_DATA.
//!
//! On a protocol it is a driver to which the line above is linked (`I_PLINK`), and a provider of
//! datagrams. T_BIND_REQ offers the protocol above to all peers at that address, or at all
//! addresses if it names none. T_UNITDATA_REQ finds the session for its two addresses, or opens
//! one, and pushes; on a stream bound to all addresses the options have the sender's address. Each
//! stream keeps up to 256 sessions open, and then closes the one used longest ago. Arrivals become
//! T_UNITDATA_IND; on a stream bound to all addresses the options have the destination.
//!
//! A datagram that the line above returns (M_CTL with T_UDERROR_IND in front) goes back down
//! refused, so that IP tells its sender. A partial checksum is completed, and a run of segments
//! cut.
//!
//! Upwards the adapter checks the queue ahead; if that is full, the message is dropped as `queue
//! full`, because nothing in the x-kernel waits for a queue. A push that waits, for example for
//! address resolution, does so on the shepherd that carries the message, and the scheduler of
//! STREAMS goes on without it.
//!
//! Messages go up without a copy: each slice becomes a block over it. Downwards, blocks of the
//! kernel's pool are not copied; blocks lent by another subsystem are.
//!
//! On `tcp` it is a provider of connections with orderly release, for programs (`xk help
//! streams/tli`). T_CONN_REQ opens a session, and T_BIND_REQ with a number of indications offers
//! the port. T_DATA_REQ pushes as much as the session has room for, and the rest waits in the write
//! queue. Arrivals go up as far as the queue ahead has room, and count as consumed only then.
//! T_ORDREL_REQ ends the stream, T_DISCON_REQ resets it. On `atp` T_UNITDATA_REQ with the options
//! of a transaction is a call, and a call from below becomes T_UNITDATA_IND, as in `bsd-on-xk`.
//!
//! Limits of the translation: a connection exists below before T_CONN_IND, so T_CONN_RES confirms
//! nothing to the peer. The x-kernel's layer below is not told of drops of STREAMS, except for a
//! datagram that comes back before the put returns. A failed push becomes T_UDERROR_IND, and so
//! does a later error from the network, if it names the session. Attributes of a message do not go
//! up, and priority bands are lost.
//!
//! If a protocol below accepts no offer for all of its ports, such as `ddp`, it gets one for each
//! of the 254.
//!
//! # Control
//! T_INFO_ACK has `max-packet` of the protocol below, T_ADDR_ACK its first host, if it has hosts;
//! `network-error` becomes T_UDERROR_IND. Options are not managed (TNOTSUPPORT). Answers `report`;
//! forwards the rest.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams {
//!         ether sim
//!         ddp ether
//!     }
//! }
//! ```
//!
//! # Standard
//! None; B. Krupczak, M. Ammar and K. Calvert, Multi-Subsystem Protocol Architectures,
//! GIT-CC-95-08, 1995, section 6.

use crate::above::streams::StreamsAbove;
use crate::below::xk::OnXk;
use crate::edge::Traffic;
use alloc::rc::Rc;
use xk_core::control::question;
use xk_core::graph::{Build, BuildError};
use xk_core::{Entry, ProtocolRef};

/// The catalog entry.
pub static ENTRY: Entry = Entry::adapter("streams-on-xk", include_str!("streams_on_xk.rs"), build)
    .summary("joins a line of STREAMS with what is the x-kernel's below it")
    .questions(&[question("report", "messages lent and copied, each way")])
    .parameters(&crate::BELOW)
    .joins(&crate::form::KINDS)
    .reasons(&[&crate::NO_WAY, &crate::NO_ANSWER]);

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Environment`] without the subsystem.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let lower = build.lower(0)?;
    let streams = crate::streams_of(build)?;
    let form = crate::form_of(build);
    let (down, up) = (Rc::new(Traffic::default()), Rc::new(Traffic::default()));
    let below = OnXk::new(form, lower, (&down, &up));
    let half = below.handle();
    let above = Rc::new(StreamsAbove::new(&streams, form, Rc::new(below.clone()), &up));
    let node = build.add(below)?;
    above.register(&node);
    half.placed(&node, above);
    Ok(node)
}
