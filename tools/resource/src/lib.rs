//! # Synopsis
//! `resource LOWER part=producer to="vm0@*"` — a part of a program in SR: a bounded buffer with its
//! producers and consumers, or a table with dining philosophers.
//!
//! # Participants
//! `buffer` and `table` serve operations 1 and 2 of their machine. The other parts call those of
//! the machine `to`, as process `process` of their own machine.
//!
//! # Behaviour
//! The parts are those of two programs from books about SR:
//!
//! - `buffer` has room for `capacity` items. Operation 1 takes an item, in a rendezvous that is
//!   permitted while there is room; operation 2 gives the oldest item, while there is one.
//! - `producer` calls operation 1 with `count` items, one after the other, and ends.
//! - `consumer` calls operation 2 until the program ends. The items of each producer must arrive in
//!   order, none of them twice.
//! - `table` has `capacity` seats with a fork between neighbours. Operation 1 gives the philosopher
//!   of a seat both forks, in a rendezvous that is permitted while neither neighbour eats; of those
//!   that may eat, the one that has eaten least goes first. Operation 2 takes the forks back.
//! - `philosopher` thinks, calls operation 1 of the table for the seat `process`, eats, and returns
//!   the forks by a send to operation 2, `count` times.
//!
//! Producing, consuming, thinking and eating take random times of up to `pause` each. A part that
//! calls is a process of its machine from its start on. While the machine that it calls is dead and
//! has not replied before, it calls again every 100 ms for `patience`: hosts do not start at once.
//!
//! Its `report` has the numbers `taken` and `given`, the `most` at one time, what is `left` at the
//! end, for a consumer the `producers`, `wrong` for breaches of the rules above, and the `error` of
//! a call that failed. A part that calls has finished when it has ended, the others when the
//! program has. It has failed if something was wrong, a call failed, or something was left.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim      link=lan
//!     eth      sim
//!     arp      eth
//!     ip       arp { address "10.0.0.1/24"; }
//!     fragment ip
//!     channel  fragment
//!     sr       channel vm=1 coordinator="10.0.0.9"
//!     resource sr part=producer to="vm0@*" count=100
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;

mod protocol;

pub use protocol::{Resource, build};

use protocol::Settings;
use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Realm};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("resource", include_str!("lib.rs"), build)
    .summary("a bounded buffer and dining philosophers, as programs in SR")
    .on(&[Realm::Rpc], &[Family::Other("operations on virtual machines")])
    .needs(Guarantees::SESSIONS)
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("guard", "whether an operation is permitted now"),
        question("report", "items or meals, and what was wrong"),
    ])
    .reasons(&[&protocol::WRONG]);
