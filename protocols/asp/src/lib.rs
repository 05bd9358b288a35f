//! # Synopsis
//! `asp ATP` — ASP: sessions of commands, which are executed in their order, each once.
//!
//! # Participants
//! Those of the layer below, passed through: `socket129@node18@net10` is a server's first socket.
//! Its own is `socket`, whatever the local participant says.
//!
//! # Behaviour
//! One protocol above serves, any number call. Options go beside each call of the transactions
//! below, `atp` of the x-kernel or of another framework.
//!
//! Each `open` makes a session of its own. The session is opened with the server at its first call,
//! and again if the server says that it has ended. A call is a command with the next number; other
//! calls of the session wait for their turn. The next call after one without a reply opens another
//! session.
//!
//! A request of more than 578 octets, up to 4624, is a write: the server asks for its octets. A
//! request is also a write if its attribute `transaction` says by its amount how many of the first
//! octets are the command block, 578 at most, which is sent with the command itself. The request
//! that goes up at the server has both parts again, and the same attribute.
//!
//! The server executes a command if its number is the next one, and drops others as "out of turn".
//! If the protocol above refuses a command, the client gets "system error".
//!
//! Both ends send a sign of life every 30 s, and end a session without one for 2 min. A server has
//! at most `sessions_max` sessions. Beyond that, the oldest session without any command is evicted;
//! if there is none, the new one is refused. A workstation announces once that it closes a session.
//! Status needs no session.
//!
//! A known limit: after a crash of the server, packets of a workstation's old session may be taken
//! for those of a new session of the same node with the same number. The first number is drawn by
//! chance, so this happens in one of 256 cases.
//!
//! It is a `Machine` of the kit and no `CallLayer`: both ends of a session call each other below.
//!
//! # Example
//! ```kdl
//! host server {
//!     sim        link=lan
//!     eth        sim
//!     aarp       eth
//!     ddp        aarp net="10-19" node=18
//!     atp        ddp
//!     asp        atp status="open"
//!     procedures asp
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 11. Not covered: results other than success, which say
//! no more than that there was an error.
#![no_std]

extern crate alloc;

mod protocol;
mod session;
pub mod wire;

pub use protocol::{Asp, AspAttention, NO_SESSION, OUT_OF_TURN, Settings, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("asp", include_str!("lib.rs"), build)
    .summary("ASP: sessions of commands, which are executed in their order, each once")
    .on(&[Realm::Rpc], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::SESSIONS.and(Guarantees::TRANSACTIONS))
    .parameters(Settings::PARAMETERS)
    .questions(&[
        own_question::<AspAttention>("has the workstation of a served session look"),
        question("calls-at-once", "one, of a session that calls"),
        question("max-packet", "the largest request: 4624 octets"),
        question("opt-packet", "the largest request that goes whole: 578 octets"),
    ])
    .reasons(&[&protocol::NO_SESSION, &protocol::OUT_OF_TURN]);
