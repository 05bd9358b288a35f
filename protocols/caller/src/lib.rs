//! # Synopsis
//! `caller LOWER to="..."` — calls a procedure of a peer again and again, checks, counts and times the replies.
//!
//! # Realm
//! top (an anchor: no header, no sessions of its own)
//!
//! # Participants
//! It opens the layer below with `local` and `to`, with `procedure` on top if it is given: `procedure=1 to="10.0.0.2"` is
//! `procedure1@10.0.0.2`. A `local` that is not given is a wildcard at every layer.
//!
//! # Above
//! Nothing.
//!
//! # Below
//! One protocol of the rpc realm.
//!
//! # Behaviour
//! From `start` on it makes `count` calls, each on a shepherd that waits for the reply, and each through a session that no other
//! call is using: it opens one more when all are in use. With an interval of zero, `concurrency` shepherds each make the next call as soon as the one before is over; one that failed is
//! followed by a pause of a millisecond. Else a call begins every `interval`, unless `concurrency` are waiting already.
//!
//! What it calls is meant to be a server of `procedures`: null and sleep get no octets and `time`, source an argument of
//! `size`, the others a request of `size` octets. With `check` the replies must be what these procedures reply: nothing, the
//! octets of the request, or those of the source. To a procedure of any other number it sends `size` octets and takes any reply.
//!
//! A request of octets whose number is a multiple of four, at least four, is an XDR `opaque<>`: its length, then a pattern that
//! follows from the number of the call. Any other is the pattern alone.
//!
//! With `deadline` each call bears that time as a `call-options` attribute; without it the layers below decide alone when to
//! give up.
//!
//! # Control
//! Answers `report`: `calls`, `replies`, `octets` of replies, `wrong` replies, each kind of error by the layer that gave up and
//! its cause, `waiting`, `waiting at most`, and `rtt min`, `rtt avg`, `rtt p50`, `rtt max`. It has finished when every call is
//! over; it has failed if then there was no reply, or a wrong one. Forwards the rest.
//!
//! # Parameters
//! - `to`: the peer.
//! - `local`: the local participant.
//! - `procedure`: the procedure's number, on top of `to`.
//! - `count`: how many calls; 0 for no end.
//! - `interval`: from the beginning of one call to the next.
//! - `concurrency`: how many calls wait at a time.
//! - `size`: octets of a request, or of what source replies.
//! - `size_max`: if it is more than `size`, sizes are random from `size` to it.
//! - `time`: how long the procedure sleeps, in whole milliseconds.
//! - `deadline`: how long after its beginning a call is given up; 0 for never.
//! - `check`: whether replies are compared with what they must be.
//! - `start`: the delay before the first call.
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
//!     select   channel
//!     caller   select to="procedure1@10.0.0.2" count=10 interval="100ms" size="8KiB" deadline="2s"
//! }
//! ```
//!
//! # Standard
//! None; RFC 4506 for the arguments of the procedures.
#![no_std]

extern crate alloc;

mod octets;
mod protocol;
mod tally;

pub use protocol::{Caller, Settings, add, build};

use xk_core::Entry;
use xk_core::control::QuestionInfo;
use xk_core::graph::{Below, Family, Guarantees, ParamKind, ParamSpec, Realm, Service};
use xk_core::numbers::Number;

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "caller",
    summary: "calls a procedure of a peer again and again, counts and times the replies",
    manual: include_str!("lib.rs"),
    realm: Realm::Top,
    above: Family::Any,
    below: Below {
        min: 1,
        max: 1,
        realms: &[Realm::Rpc],
        families: &[Family::Any],
        needs: Guarantees::OPEN,
    },
    service: Service::TOP,
    header_octets: 0,
    stacking_rules: None,
    // The number of `procedures`, on a layer that tells by number who is above.
    numbers: &[Number {
        upper: "caller",
        lower: "channel",
        number: 253,
    }],
    parameters: PARAMETERS,
    blocks: &[],
    questions: &[QuestionInfo {
        name: "report",
        meaning: "calls, replies, errors by layer and cause; round-trip times",
    }],
    probe: None,
    build,
};

const PARTICIPANT: ParamKind = ParamKind::Text("a participant, such as procedure1@10.0.0.2");

const PARAMETERS: &[ParamSpec] = &[
    ParamSpec::optional("to", PARTICIPANT, "the peer"),
    ParamSpec::optional("local", PARTICIPANT, "the local participant"),
    ParamSpec::optional(
        "procedure",
        ParamKind::Integer {
            min: 0,
            max: u32::MAX as i64,
        },
        "the procedure's number, on top of `to`",
    ),
    ParamSpec::new(
        "count",
        ParamKind::Integer {
            min: 0,
            max: i64::MAX,
        },
        "5",
        "how many calls; 0 for no end",
    ),
    ParamSpec::new(
        "interval",
        ParamKind::Duration,
        "0s",
        "from the beginning of one call to the next; 0s: as soon as the one before is over",
    ),
    ParamSpec::new(
        "concurrency",
        ParamKind::Integer {
            min: 1,
            max: 65_536,
        },
        "1",
        "how many calls wait at a time",
    ),
    ParamSpec::new(
        "size",
        ParamKind::Octets,
        "0",
        "octets of a request, or of what source replies",
    ),
    ParamSpec::new(
        "size_max",
        ParamKind::Octets,
        "0",
        "if more than `size`: sizes are random up to it, in octets",
    ),
    ParamSpec::new(
        "time",
        ParamKind::Duration,
        "1ms",
        "how long the procedure sleeps, in whole milliseconds",
    ),
    ParamSpec::new(
        "deadline",
        ParamKind::Duration,
        "0s",
        "how long after its beginning a call is given up; 0s: never",
    ),
    ParamSpec::new(
        "check",
        ParamKind::Bool,
        "#true",
        "whether replies are compared with what they must be",
    ),
    ParamSpec::new(
        "start",
        ParamKind::Duration,
        "0s",
        "the delay before the first call",
    ),
];
