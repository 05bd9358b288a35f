//! # Synopsis
//! `xk-on-streams` — joins a protocol of the x-kernel with one of STREAMS below it. The check puts
//! it in.
//!
//! # Participants
//! Those of the x-kernel's protocol of the kind below, which become sixteen octets in the address
//! fields of TPI: `socket4@node18@net10` on `ddp` and `atp`, `port7@10.0.0.2` on `udp`.
//!
//! # Below
//! One line of `subsystem streams`: `ddp`, `atp`, `udp`, `ip`, or `ether`.
//!
//! # Behaviour
//! The adapter has streams on the line below, in place of their heads, and is a transport user
//! there. On `ddp`, `ip` and `ether` it has one stream for the protocol above, opened for its type
//! number and bound to all addresses; on `udp` and `atp` it has one for each port. A push becomes
//! T_UNITDATA_REQ. On a stream bound to all addresses, the options of T_UNITDATA_REQ have the
//! source, and those of T_UNITDATA_IND the destination. `open`, `open_enable`, ports and calls work
//! as in `xk-on-bsd`.
//!
//! A push checks the queue ahead. If that is full, the message waits in the adapter's own queue,
//! whose service procedure sends it when there is room. If 65536 octets are waiting, the push is
//! refused because the queue is full. Arrivals go up on the shepherd that served the queue. A
//! request of a transaction is executed by a separate event, so that the scheduler of STREAMS never
//! waits for it.
//!
//! Messages go down without a copy: each slice becomes a block over it. Upwards, blocks of the
//! kernel's pool are not copied; blocks lent by another subsystem (`esballoc`) are. A partial
//! checksum is completed.
//!
//! Limits of the translation: `T_UNITDATA_REQ` has no answer, so `Ok` of a push means only that the
//! stream took the message; a later T_UDERROR_IND is the error of the next push. There is no flow
//! control upwards: the x-kernel has no queue to check, so nothing above slows the stream down.
//! Priority bands are band 0. A refusal above is counted, and the sender is not told.
//!
//! # Control
//! `my-ether` and `peer-ether` are answered on `ether`, where `min-packet` is that of a link and
//! elsewhere 0; `max-packet` is the size in T_INFO_ACK,
//! `my-host` and `my-port` are of the address in T_BIND_ACK; T_UDERROR_IND becomes `network-error`
//! of the sessions with that peer, or of transactions the end of the call whose options it has.
//! M_ERROR and M_HANGUP end the sessions. Answers `list-sessions`, `list-maps` and `report`.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams {
//!         ether sim
//!         ddp ether
//!     }
//!     atp ddp
//! }
//! ```
//!
//! # Standard
//! None; B. Krupczak, M. Ammar and K. Calvert, Multi-Subsystem Protocol Architectures,
//! GIT-CC-95-08, 1995, section 6.

use crate::above::xk::XkAbove;
use crate::below::streams::OnStreams;
use crate::edge::Traffic;
use alloc::rc::Rc;
use xk_core::control::question;
use xk_core::graph::{Build, BuildError};
use xk_core::{Entry, ProtocolRef};

/// The catalog entry.
pub static ENTRY: Entry = Entry::adapter("xk-on-streams", include_str!("xk_on_streams.rs"), build)
    .summary("joins a protocol of the x-kernel with one of STREAMS below it")
    .questions(&[
        question("max-packet", "the largest message: what the provider says"),
        question("opt-packet", "the largest message: what the provider says"),
        question("list-sessions", "the sessions of the protocol above"),
        question("list-maps", "the table of sessions"),
        question("report", "messages lent and copied, each way"),
    ])
    .parameters(&crate::BELOW)
    .joins(&crate::form::KINDS_AND_LINKS)
    .reasons(&[&crate::NO_WAY]);

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Environment`] if the lower is not of the subsystem, or its addresses are not
/// known.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let lower = build.lower(0)?;
    let streams = crate::streams_of(build)?;
    let form = crate::form_of(build);
    let (down, up) = (Rc::new(Traffic::default()), Rc::new(Traffic::default()));
    let below = OnStreams::new(&streams, form, lower.id(), &down);
    let below = Rc::new(below.ok_or(BuildError::Lower { at: 0 })?);
    let above = XkAbove::new(build.cx, form, Rc::clone(&below) as _, lower, (&down, &up));
    let half = above.handle();
    let node = build.add(above)?;
    half.placed(&node);
    below.placed(&node);
    Ok(node)
}
