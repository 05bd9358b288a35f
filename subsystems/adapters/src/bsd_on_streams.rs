//! # Synopsis
//! `bsd-on-streams` — joins a protocol of BSD's with one of STREAMS below it. The check puts it in.
//!
//! # Participants
//! Socket addresses above, the same octets in the address fields of TPI below.
//!
//! # Below
//! One line of `subsystem streams`: `ddp`, `udp`, `ip`.
//!
//! # Behaviour
//! The adapter is the lower neighbour in the protocol switch. It has a stream on the line below,
//! bound to all addresses under the type number of the protocol above. `pr_output` becomes
//! T_UNITDATA_REQ, with the sender's address in the options. Arrivals go up by `pr_input` with
//! their addresses, at splnet.
//!
//! `pr_output` checks the queue ahead. If that is full, the packet waits in the adapter's own
//! queue, whose service procedure sends it when there is room. If 65536 octets are waiting,
//! `pr_output` answers ENOBUFS.
//!
//! Nothing is copied either way: clusters become blocks, and blocks of the kernel's pool mbufs, as
//! its messages are lent to each; small mbufs become blocks whose storage they stay (`esballoc`),
//! and other blocks mbufs whose storage they stay (`m_ext` with a free function).
//!
//! What cannot be translated: `pr_output` answers 0 when the stream has taken the packet, for the
//! true result comes later; that is `pr_ctlinput`. BSD has no flow control between protocols, so
//! that nothing above slows down, and nothing of BSD's holds the stream back: full socket buffers
//! drop. Priority bands are band 0.
//!
//! # Control
//! The ioctl SIOCGIFMTU is the size in T_INFO_ACK, SIOCGIFSRCADDR the address in T_BIND_ACK;
//! T_UDERROR_IND becomes `pr_ctlinput`. Answers `report`; forwards the rest.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams {
//!         ether sim
//!         ddp ether
//!     }
//!     subsystem bsd { atp ddp; }
//! }
//! ```
//!
//! # Standard
//! None; B. Krupczak, M. Ammar and K. Calvert, Multi-Subsystem Protocol Architectures,
//! GIT-CC-95-08, 1995, section 6.

use crate::above::bsd::BsdAbove;
use crate::below::streams::OnStreams;
use crate::edge::Traffic;
use crate::joint::Joint;
use alloc::rc::Rc;
use xk_core::control::question;
use xk_core::graph::{Build, BuildError};
use xk_core::{Entry, ProtocolRef};

/// The catalog entry.
pub static ENTRY: Entry =
    Entry::adapter("bsd-on-streams", include_str!("bsd_on_streams.rs"), build)
        .summary("joins a protocol of BSD's with one of STREAMS below it")
        .questions(&[question("report", "messages lent and copied, each way")])
        .parameters(&crate::BELOW)
        .joins(&crate::form::KINDS)
        .reasons(&[&crate::NO_WAY]);

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Environment`] without one of the subsystems.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let lower = build.lower(0)?;
    let (bsd, streams) = (xk_bsd::of(build.cx)?, crate::streams_of(build)?);
    let form = crate::form_of(build);
    let (down, up) = (Rc::new(Traffic::default()), Rc::new(Traffic::default()));
    let below = OnStreams::new(&streams, form, lower.id(), &down);
    let below = Rc::new(below.ok_or(BuildError::Lower { at: 0 })?);
    let above = Rc::new(BsdAbove::new(&bsd, form, Rc::clone(&below) as _, &up));
    let (upper, under) = (Rc::clone(&above) as _, Rc::clone(&below) as _);
    let node = build.add(Joint { lower, above: upper, below: under, down, up })?;
    above.register(build.cx, node.id()).map_err(xk_bsd::environment)?;
    below.placed(&node);
    Ok(node)
}
