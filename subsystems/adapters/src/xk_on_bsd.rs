//! # Synopsis
//! `xk-on-bsd` — joins a protocol of the x-kernel with one of BSD's below it. The check puts it in.
//!
//! # Participants
//! Those of the x-kernel's protocol of the kind below, which become socket addresses:
//! `socket4@node18@net10` on `ddp` and `atp`, `port7@10.0.0.2` on `udp`, `10.0.0.2` on `ip`.
//!
//! # Below
//! One line of `subsystem bsd`: `ddp`, `atp`, `udp`, `ip`, or an interface, `ether`.
//!
//! # Behaviour
//! `open` makes a session, whose `push` calls `pr_output` of the protocol below. `open_enable`
//! records an offer; `pr_input` finds the session by the local port and the peer's address, or
//! makes one for the offer. An open without a local port gets one that no other session or offer
//! has. On `ip` a session has one local host, which is also the source of answers to packets that
//! were sent to many.
//!
//! On `ether` the adapter receives frames with the numbers of the protocols above, for this station
//! and for all groups; a number that a protocol of BSD uses is refused.
//!
//! On `udp` a session opened without a peer receives everything for its port. An attribute of each
//! message has its destination or source, as in the x-kernel's `udp`.
//!
//! Where ports distinguish sessions, each port is a socket below, shared by the sessions and the
//! offer with that port. On `udp` it may send broadcasts, and datagrams of any length up to
//! `sb_max` of the subsystem. On `atp` `call` makes a request with the options of a transaction:
//! those in the attribute `transaction` of the request, or else the settings of that ATP. A reply
//! is found by the number that goes with it. An arriving request is executed by an event of the
//! kernel, on a shepherd, so that it may wait. At most 64 wait for execution, and more are dropped
//! as `queue full`. The protocol below is told of a request that is dropped or refused, and offers
//! it again when it comes again. A call ends when the protocol below says so, or half a second for
//! each try after it should have said so.
//!
//! Messages go down without a copy: each slice becomes an mbuf that refers to it. Upwards, clusters
//! and octets lent by the x-kernel are not copied; small mbufs are, because the x-kernel's messages
//! lie in its pool.
//!
//! On `ip` a refusal by a layer above, for example of a datagram for an unused port, becomes
//! `pr_unreach`, so that the sender is told. A partial checksum is completed, and a run of segments
//! cut.
//!
//! Limits of the translation: on other protocols the sender is not told of a refusal above. A full
//! queue of BSD drops messages later, and no push is told of it. Errors of `pr_ctlinput` without a
//! matching session are lost; on `udp` there are none, because BSD reports them only to connected
//! sockets. Attributes of a message do not go down.
//!
//! # Control
//! `max-packet` and `opt-packet` are the ioctl SIOCGIFMTU below, `my-host` is SIOCGIFSRCADDR; on
//! `ip` `pseudo-header` and `specific-destination` are answered, for checksums above; on `ether`
//! `my-ether` and `peer-ether`; `min-packet` is an Ethernet's there, and elsewhere 0; `peer-host`,
//! `my-port`, `peer-port` and `describe` are answered from the addresses. `pr_ctlinput` becomes
//! `network-error` of the sessions with that peer, and the error of their next push. Answers
//! `list-sessions`, `list-maps`, and `report`: the numbers of messages lent and copied.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!     }
//!     atp ddp
//! }
//! ```
//!
//! # Standard
//! None; B. Krupczak, M. Ammar and K. Calvert, Multi-Subsystem Protocol Architectures,
//! GIT-CC-95-08, 1995, section 6.

use crate::above::xk::XkAbove;
use crate::below::OnLine;
use crate::edge::Traffic;
use alloc::rc::Rc;
use xk_core::control::question;
use xk_core::graph::{Build, BuildError};
use xk_core::{Entry, ProtocolRef};

/// The catalog entry.
pub static ENTRY: Entry = Entry::adapter("xk-on-bsd", include_str!("xk_on_bsd.rs"), build)
    .summary("joins a protocol of the x-kernel with one of BSD's below it")
    .questions(&[
        question("max-packet", "the largest message: what BSD's protocol says"),
        question("opt-packet", "the largest message: what BSD's protocol says"),
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
    let bsd = xk_bsd::of(build.cx)?;
    let form = crate::form_of(build);
    let (down, up) = (Rc::new(Traffic::default()), Rc::new(Traffic::default()));
    let below = OnLine::new(&bsd, form, lower.id(), &down);
    let below = below.ok_or(BuildError::Lower { at: 0 })?;
    let above = XkAbove::new(build.cx, form, below.below(), lower, (&down, &up));
    let half = above.handle();
    let node = build.add(above)?;
    half.placed(&node);
    below.placed(build.cx, &node).map_err(xk_bsd::environment)?;
    Ok(node)
}
