//! # Synopsis
//! `registry MODULE TRANSPORT...` — begins conversations for programs, which carry them on
//! themselves, and ends them for those that are gone; control-only.
//!
//! # Participants
//! None: a session is a program's place.
//!
//! # Above
//! Programs that attach (`domain NAME open`) and are granted the registry and a transport.
//!
//! # Below
//! First the network I/O module, `netio`, then the transports that programs may use, which keep the
//! ends of a conversation that is elsewhere (`keep-ends`): `tcp`. One that does not move its
//! conversations, `udp`, is not named. All lie in one domain but the module, which may have one of
//! its own.
//!
//! # Behaviour
//! A program opens one session, its place, and gets a channel of the module there, with `rate` and
//! `burst`, and where and by which ticket it is fetched. Its library opens and listens at the
//! transport, which has the ports and does the handshakes. Once a conversation has begun the
//! registry has its session tell its headers, grants a right for these at the module, and keeps the
//! ends; the session's whole state then moves to the program's own transport. From there on its
//! frames go through nothing but the module. What a program says is never believed: only which
//! session it means, which must be its own.
//!
//! Where conversations do not move (`udp`) a session keeps its ends at the transport: a port with
//! everybody, or with one peer. The right is to all that fits a frame between them. How a host is
//! reached the program asks here (`find-station`) before it sends there, and again after ten
//! seconds. Through the registry goes what is in fragments, to hosts of which no station is known
//! or to many hosts, and what the network reports. A port that a program enables is one with
//! everybody, too, at the address that programs have; what comes for others makes sessions here.
//!
//! - What happens to a conversation on its way happens in order: octets, then the end or a reset.
//! - One that only waits for late segments (TIME-WAIT) is given back, and ends here; once its
//!   program ends in order, so is each that this has closed.
//! - One that a program passes to another goes with its state as octets, by whatever way these
//!   have. The registry is told twice: by the one that gives, which gets a ticket that is part of
//!   these octets (`pass-on`), and by the one that shows it with them (`take-on`), which then opens
//!   between the ends as it may open any. The peer of one that is not taken in ten seconds is
//!   reset.
//! - When a program dies, its channel is revoked and each of its peers is reset: an open between
//!   the ends finds the connection half open, and the peer's answer says by which numbers it ends.
//! - A registry that is started again learns from the module which rights there are, and keeps
//!   their ends. Their conversations notice nothing. Of those whose right has gone the peers are
//!   reset then. A module that is not there yet is asked again every second.
//!
//! There are 64 programs at most, each with up to 8192 conversations, and 12 MiB of states that are
//! on their way here. A conversation in which more waits is not passed on until less does.
//!
//! # Control
//! The protocol answers `report`; a session `open-channel`, `take-over`, `find-station`,
//! `give-back`, `end-right`, `pass-on`, `take-on`, `describe`. Nothing is forwarded.
//!
//! # Example
//! ```kdl
//! host server {
//!     tap      device="xk0"
//!     netio    tap
//!     eth      netio
//!     arp      eth
//!     ip       arp { address "10.0.0.1/24"; }
//!     tcp      ip
//!     registry netio tcp
//! }
//! ```
//!
//! # Standard
//! "Implementing Network Protocols at User Level" (Thekkath, Nguyen, Moy and Lazowska 1993),
//! sections 3.1 and 3.4; RFC 9293, section 3.5.1.
//!
//! # The program's side
//! A [`Program`] has what stands for a transport and for the registry, across a cut (`xk-share`),
//! and a stack of its own above its channel. Its [`Library`] is what others stand on.

#![no_std]

extern crate alloc;

mod datagrams;
mod library;
mod membership;
mod program;
mod questions;
mod registry;
mod stations;

pub use library::{Library, NOT_MOVED};
pub use program::{Program, ProgramError};
pub use questions::{
    EndRight, FindStation, GiveBack, OpenChannel, PassOn, QUESTIONS, REASONS, StationChanged,
    TakeOn, TakeOver,
};
pub use registry::{PASS_FOR, PROGRAMS_MAX, RIGHTS_MAX, Registry, STATE_OCTETS_MAX, add};

use xk_core::Entry;
use xk_core::control::{own_question, question};
use xk_core::graph::{Family, Guarantees, ParamKind, Realm, Service, Shape, octets, optional};

/// The entry in the catalog.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("registry", include_str!("lib.rs"), registry::build)
    .summary("begins conversations for programs, which carry them on themselves")
    .realm(Realm::Control)
    .shape(Shape::Virtual)
    .above(Family::Link)
    .on(&[Realm::Async, Realm::Wire], &[Family::Any])
    .lowers(2..=5)
    .asks(&["grant-right", "keep-ends"])
    .service(Service::changing(Guarantees::NONE, Guarantees::INSTANT))
    .parameters(&[
        optional("rate", ParamKind::Rate,
            "bits of frames that a program may send in each second; without it, no limit"),
        octets("burst", 256 << 10,
            "octets of frames that a program may send at once after a pause, if there is a `rate`"),
    ])
    .questions(&[
        question("report", "how many programs there are, and what became of others"),
        question("describe", "of a program's session: how many conversations it has"),
        own_question::<OpenChannel>("of a program's session: what its frames go out by"),
        own_question::<TakeOver>("of it: the right to carry a session on"),
        own_question::<FindStation>("of it: how messages of a session of its reach a host"),
        own_question::<GiveBack>("of it: a part of a state that comes back"),
        own_question::<EndRight>("of it: a right is no more"),
        own_question::<PassOn>("of it: the conversation of a right goes to another program"),
        own_question::<TakeOn>("of it: a part of a state that another has passed on"),
    ])
    .reasons(REASONS);
