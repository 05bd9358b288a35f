//! # Synopsis
//! `bsd-on-xk` — joins a protocol or an interface of BSD's with a protocol or a wire of the
//! x-kernel's below it. The check puts it in.
//!
//! # Participants
//! Socket addresses above, which become participants of the protocol below: `sockaddr_at` those of
//! `ddp` and `atp`, `sockaddr_in` those of `udp`, `tcp` and `ip`.
//!
//! # Below
//! One protocol of the x-kernel whose addresses are those of `ddp`, `atp`, `udp`, `tcp` or `ip`:
//! one of these, or another that takes the same hosts or ports, such as `vip`; or a wire.
//!
//! # Behaviour
//! On a wire the adapter passes the interface's operations on: the wire's frames are those of the
//! interface.
//!
//! On a protocol it is the lower neighbour in the protocol switch. `pr_output` finds the session
//! for its two addresses, or opens one, and pushes. It keeps up to 256 sessions open, and then
//! closes the one used longest ago. From the start on it offers the protocol above to all peers.
//! Arrivals go up by `pr_input` with their addresses, at splnet, marked M_BCAST if they were sent
//! to many. Waits on the x-kernel's side, such as address resolution, happen outside the subsystem
//! (`spl0`), so that BSD's other traffic goes on.
//!
//! Messages go up without a copy: each slice becomes an mbuf that refers to it. Downwards, clusters
//! and octets lent by the x-kernel are not copied; small mbufs are, because the x-kernel's messages
//! lie in its pool.
//!
//! Below the line `sockets` it has an entry of the protocol switch for programs instead (`xk help
//! bsd/sockets`). On `tcp` `PRU_CONNECT` opens a session and `PRU_LISTEN` offers the port; the
//! adapter pushes only as much as the session has room for, and `PRU_RCVD` reports consumed octets.
//! A peer may send up to 64 KiB before it learns of a smaller buffer. On `atp` a request is a call,
//! made by an event of the kernel, at most 64 at a time. Its reply, or the report that there was
//! none, comes back with the options of a transaction. A call from below goes up as a request and
//! waits for the answer, at most eight minutes and at most 64 at a time.
//!
//! A datagram for a port that BSD does not have goes back down refused (`pr_unreach`), so that IP
//! tells its sender. A partial checksum is completed, and a run of segments cut.
//!
//! Limits of the translation: BSD counts its other drops at its line, but the x-kernel's layer
//! below is not told of them. `pr_output` returns the result of the push; a later error becomes
//! `pr_ctlinput`, if it names a session of the adapter. The x-kernel chooses IP's options and the
//! time to live of a packet. Attributes of a message do not go up.
//!
//! If a protocol below accepts no offer for all of its ports, such as `ddp`, it gets one for each
//! of the 254.
//!
//! # Control
//! The ioctl SIOCGIFMTU is `max-packet` below, SIOCGIFSRCADDR is `my-host` and `my-port` of a
//! session to the address, or the first host if it is none; `network-error` becomes `pr_ctlinput`
//! of the protocol above. Answers `report`: the numbers of messages lent and copied; forwards the
//! rest.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!     }
//! }
//! ```
//!
//! # Standard
//! None; B. Krupczak, M. Ammar and K. Calvert, Multi-Subsystem Protocol Architectures,
//! GIT-CC-95-08, 1995, section 6.

use crate::above::bsd::BsdAbove;
use crate::below::xk::OnXk;
use crate::edge::Traffic;
use alloc::rc::Rc;
use xk_core::control::question;
use xk_core::graph::{Build, BuildError};
use xk_core::{Entry, ProtocolRef};

/// The catalog entry.
pub static ENTRY: Entry = Entry::adapter("bsd-on-xk", include_str!("bsd_on_xk.rs"), build)
    .summary("joins a protocol or an interface of BSD's with what is the x-kernel's below it")
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
    let bsd = xk_bsd::of(build.cx)?;
    let form = crate::form_of(build);
    let (down, up) = (Rc::new(Traffic::default()), Rc::new(Traffic::default()));
    let below = OnXk::new(form, lower, (&down, &up));
    let half = below.handle();
    let above = Rc::new(BsdAbove::new(&bsd, form, Rc::new(below.clone()), &up));
    let node = build.add(below)?;
    if form.service != crate::Service::Frames {
        above.register(build.cx, node.id()).map_err(xk_bsd::environment)?;
    }
    half.placed(&node, above);
    Ok(node)
}
