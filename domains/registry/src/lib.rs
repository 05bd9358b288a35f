//! # Synopsis
//! `registry MODULE TRANSPORT...` — begins conversations for programs, which then continue them
//! alone, and ends those of dead programs; control-only.
//!
//! # Participants
//! None: a session is a program's place.
//!
//! # Behaviour
//! Programs attach (`domain NAME open`) and are granted the registry and a transport. Below stand
//! first the network I/O module, `netio`, then the transports that programs may use and that can
//! reserve the ends of a conversation that is elsewhere (`keep-ends`): `tcp`. A transport that does
//! not move its conversations, such as `udp`, is not listed. All lie in one domain, except the
//! module, which may have a domain of its own. No question is forwarded.
//!
//! A program opens one session, its place, which gives it a channel of the module with `rate` and
//! `burst`: the answer says where the channel is fetched, and by which ticket. The program's
//! library opens and listens at the transport, which has the ports and does the handshakes. When a
//! conversation has begun, the registry asks its session for the headers, has the module grant a
//! right for these, and reserves the ends; then the session's whole state moves to the program's
//! own transport. From then on its frames pass only the module. The registry trusts no statement of
//! a program, except which of its own sessions it means.
//!
//! Conversations of `udp` do not move. A session reserves its ends at the transport: a port for any
//! peer, or for one. The right covers everything between these ends that fits a frame. The program
//! asks the registry for the station of a host (`find-station`) before it sends there, and again
//! after ten seconds. Some datagrams pass through the registry: fragments, those to hosts without a
//! known station or to many hosts, and ICMP errors. A port that a program enables is for any peer
//! as well, at the address that programs have; datagrams for other addresses make sessions here.
//!
//! - Events of a conversation on its way keep their order: octets, then the end or a reset.
//! - A conversation that only waits for late segments (TIME-WAIT) is given back, and ends here.
//!   When a program ends in order, so do all conversations that it has closed.
//! - A conversation that one program passes to another travels as octets, in any way. The registry
//!   is told twice: by the giver, which gets a ticket that is part of the octets (`pass-on`), and
//!   by the taker, which shows the ticket (`take-on`) and then opens between the ends as for any
//!   conversation. If none takes it in ten seconds, its peer is reset.
//! - When a program dies, its channel is revoked and each of its peers is reset: an open between
//!   the ends finds the connection half open, and the peer's answer has the sequence numbers for
//!   the reset.
//! - A registry that is restarted asks the module for its rights, and reserves their ends. Their
//!   conversations notice nothing. Peers of conversations whose right has gone are then reset. A
//!   module that does not answer yet is asked again every second.
//!
//! There are 64 programs at most, each with up to 8192 conversations, and 12 MiB of states on their
//! way here. A conversation with more waiting octets is not passed on until there are fewer.
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
//! A [`Program`] has proxies of a transport and of the registry, across a cut (`xk-domains`), and a
//! stack of its own above its channel. Other protocols stand on its [`Library`].

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
