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
//! `open` makes a session, whose `push` is `pr_output` of the protocol below; `open_enable` notes
//! an offer, and `pr_input` finds the session by our port and the peer's address, or makes one for
//! the offer. One that names no port of ours gets one that no other session or offer has. On `ip`
//! a session has one of our hosts, and answers what was sent to many from that.
//!
//! On `ether` it takes the frames of the numbers of the protocols above, with their stations, and
//! those to all groups; a number that a protocol of BSD's takes is refused.
//!
//! On `udp` one that is opened to no peer takes all that is for its port, and each of its messages
//! says in an attribute where it goes or came from, as those of the x-kernel's `udp` do.
//!
//! Where ports tell apart, each is a socket below, which the sessions and the offer with that port
//! have in common. On `udp` it may send to all, and the longest datagram, unless `sb_max` of the
//! subsystem is less. On `atp` `call` is a request there with the options of a transaction: the
//! attribute `transaction` if the request bears it, or else what ATP there is set to. A reply is
//! found by the number that goes with it. A request that arrives is executed by an event of the
//! kernel, on a shepherd, so that it may wait: 64 wait for that at most, and the next is dropped
//! as `queue full`. A request that is dropped or refused above is told to the protocol below,
//! which offers it again when it comes again. A call ends when the protocol below says so, or
//! half a second for each try after it must have said so.
//!
//! Messages go down without a copy: each slice becomes an mbuf that refers to it. Upwards clusters
//! and what the x-kernel has lent go without one; small mbufs are copied, for the x-kernel's
//! messages lie in its pool.
//!
//! What a layer above refuses on `ip`, such as a datagram for no port, is `pr_unreach` there, so
//! that the sender is told. A checksum that was left to others is completed, and a run of segments
//! cut.
//!
//! What cannot be translated: elsewhere a refusal above tells no sender. A queue of BSD's that is
//! full drops what is in it
//! later, and no push hears of that. Errors of `pr_ctlinput` that no session can be found for end
//! here; on `udp` none comes, for BSD tells connected sockets only. Attributes of a message do not
//! go down.
//!
//! # Control
//! `max-packet` and `opt-packet` are the ioctl SIOCGIFMTU below, `my-host` is SIOCGIFSRCADDR; on
//! `ip` `pseudo-header` and `specific-destination` are answered, for checksums above; on `ether`
//! `my-ether` and `peer-ether`; `min-packet` is an Ethernet's there, and elsewhere 0;
//! `peer-host`, `my-port`, `peer-port` and `describe` are answered from the addresses.
//! `pr_ctlinput` becomes `network-error` of the sessions with that peer, and the error of their
//! next push. Answers `list-sessions`, `list-maps`, and `report`: how many messages were lent and
//! copied.
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
