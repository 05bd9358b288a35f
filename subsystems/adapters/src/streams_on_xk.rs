//! # Synopsis
//! `streams-on-xk` — joins a line of STREAMS with a protocol or a wire of the x-kernel's below it.
//! The check puts it in.
//!
//! # Participants
//! Address fields of TPI above, which become participants of the protocol below.
//!
//! # Below
//! One protocol of the x-kernel whose addresses are those of `ddp`, `atp`, `udp`, `tcp` or `ip`:
//! these, and whatever takes hosts or ports in their place, such as `vip`; or a wire.
//!
//! # Behaviour
//! On a wire it is the driver of a device: frames are M_DATA.
//!
//! On a protocol it is a driver of its own, on which the line above is linked (`I_PLINK`), and a
//! provider of datagrams. T_BIND_REQ offers the protocol above to all peers at that address, or at
//! all addresses if it names none. T_UNITDATA_REQ finds the session for its two addresses, or opens
//! one, and pushes; on a stream that is bound to all addresses the options say from which one. 256
//! sessions are held open so for each stream, and the one that was used longest ago closes for
//! another. What arrives is T_UNITDATA_IND, with the address for which it came in the options of a
//! stream bound to all.
//!
//! A datagram that the line above gives back (M_CTL with T_UDERROR_IND in front) goes back down
//! refused, so that IP tells its sender. A checksum that was left to others is completed, and a run
//! of segments cut.
//!
//! Upwards it looks at the queue ahead; if that is full the message is dropped as `queue full`, for
//! nothing in the x-kernel waits for a queue. A push that waits, as for the resolution of an
//! address, does so on the shepherd that carries the message, and the scheduler of STREAMS goes on
//! without it.
//!
//! Messages go up without a copy: each slice becomes a block over it. Downwards blocks of the
//! kernel's pool go without one; blocks that another subsystem has lent are copied.
//!
//! On `tcp` it is a provider of connections with orderly release, for programs (`xk help
//! streams/tli`). T_CONN_REQ opens a session, T_BIND_REQ with a number of indications offers the
//! port; T_DATA_REQ goes as far as the session has room, and the rest waits in the write queue;
//! what arrives goes up as far as the queue ahead has room, and only then counts as consumed.
//! T_ORDREL_REQ is the end of the stream, T_DISCON_REQ breaks it off. On `atp` T_UNITDATA_REQ with
//! the options of a transaction is a call, and a call from below is T_UNITDATA_IND, as `bsd-on-xk`
//! has it.
//!
//! What cannot be translated: a connection is there below before T_CONN_IND, so that T_CONN_RES
//! confirms nothing to the peer. The x-kernel's layer below learns nothing of what STREAMS drops,
//! but for a datagram that comes back before the put returns. A push that fails is T_UDERROR_IND,
//! and so is an error that the
//! network reports later, if it names the session; another ends here. Attributes of a message do
//! not go up; priority bands end here.
//!
//! A protocol below that takes no offer for all of its ports, such as `ddp`, gets one for each
//! of the 254.
//!
//! # Control
//! T_INFO_ACK says `max-packet` of the protocol below, T_ADDR_ACK its first host, where it has
//! hosts; `network-error` becomes T_UDERROR_IND. No
//! option is managed (TNOTSUPPORT). Answers `report`; forwards the rest.
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
