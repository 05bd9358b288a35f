//! # Synopsis
//! `streams-on-bsd` — joins a line of STREAMS with a protocol of BSD's below it. The check puts it
//! in.
//!
//! # Participants
//! Address fields of TPI above, the same octets as socket addresses below.
//!
//! # Below
//! One line of `subsystem bsd`: `ddp`, `udp`, `ip`, `atp`, or an interface, `ether`.
//!
//! # Behaviour
//! The adapter is a driver to which the line above is linked (`I_PLINK`), a provider of datagrams,
//! and has an entry in BSD's protocol switch above the line below. T_UNITDATA_REQ becomes
//! `pr_output`, with its address and, on a stream bound to all addresses, the sender's address from
//! the options. On transactions a socket for each bound stream sends it, with the options in an
//! mbuf of control information. `pr_input` becomes T_UNITDATA_IND.
//!
//! On `ether` it is a provider like that of STREAMS: a stream is bound to the number of the line
//! above, and by T_OPTMGMT_REQ with an address of a link to eight more.
//!
//! BSD's protocols have no flow control, so none is passed downwards. Upwards the adapter checks
//! the queue ahead; if that is full, the packet is dropped as `queue full`.
//!
//! Nothing is copied in either direction. Blocks of the kernel's pool become mbufs, and clusters
//! become blocks, because both lie in the kernel's pool. Other blocks become mbufs that refer to
//! them (`m_ext` with a free function), and small mbufs become blocks that refer to them
//! (`esballoc`).
//!
//! Limits of the translation: ENOBUFS of `pr_output` becomes T_UDERROR_IND, of which the line above
//! may not tell its own user. Later drops of BSD are counted there and not reported. BSD chooses
//! IP's options and the time to live. Priority bands are lost.
//!
//! # Control
//! T_INFO_ACK has the answer of the ioctl SIOCGIFMTU, T_ADDR_ACK the first host (SIOCGIFSRCADDR),
//! if the protocol has hosts; `pr_ctlinput` becomes T_UDERROR_IND. Options are managed only on
//! `ether` (otherwise TNOTSUPPORT), and `pr_ctloutput` of the protocol below cannot be called.
//! Answers `report`; forwards the rest.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ddp ether
//!     }
//!     subsystem streams { atp ddp; }
//! }
//! ```
//!
//! # Standard
//! None; B. Krupczak, M. Ammar and K. Calvert, Multi-Subsystem Protocol Architectures,
//! GIT-CC-95-08, 1995, section 6.

use crate::above::streams::StreamsAbove;
use crate::below::OnLine;
use crate::edge::Traffic;
use crate::joint::Joint;
use alloc::rc::Rc;
use xk_core::control::question;
use xk_core::graph::{Build, BuildError};
use xk_core::{Entry, ProtocolRef};

/// The catalog entry.
pub static ENTRY: Entry =
    Entry::adapter("streams-on-bsd", include_str!("streams_on_bsd.rs"), build)
        .summary("joins a line of STREAMS with a protocol of BSD's below it")
        .questions(&[question("report", "messages lent and copied, each way")])
        .parameters(&crate::BELOW)
        .joins(&crate::form::KINDS_AND_LINKS)
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
    let below = OnLine::new(&bsd, form, lower.id(), &down);
    let below = below.ok_or(BuildError::Lower { at: 0 })?;
    let above = Rc::new(StreamsAbove::new(&streams, form, below.below(), &up));
    let (upper, under) = (Rc::clone(&above) as _, below.below());
    let node = build.add(Joint { lower, above: upper, below: under, down, up })?;
    above.register(&node);
    below.placed(build.cx, &node).map_err(xk_bsd::environment)?;
    Ok(node)
}
