//! Figure 8: what an adapter costs, each way, by octets of the message.

use super::Subsystem::{self, Bsd, Streams, Xk};
use super::ends::{Above, Between, Form, Rig, copy};
use super::{PAPER, SPARC};
use crate::case::{Benchmark, Case, Goal};
use crate::papers::quoted;
use crate::plot::Plot;
use crate::record::Record;
use crate::stopwatch::{Watched, Way};
use std::cell::OnceCell;
use std::rc::Rc;

/// Octets of a message: the paper's request, and replies of 1, 2, 4 and 8 packets.
const OCTETS: [usize; 5] = [45, 578, 1156, 2312, 4624];
const OPERATIONS: u64 = 20_000;
/// Nanoseconds that a message may take that is lent.
const LENT_NS_MAX: f64 = 60.0;
/// What the octets that must be copied may take, beside the bare copy.
const COPY_MAX: f64 = 1.2;

/// An adapter: its name, what is above, and what is below.
type Adapter = (&'static str, Subsystem, Subsystem);

/// One way through an adapter.
struct Crossing {
    adapter: Adapter,
    way: Way,
    /// As systems of the benchmark: of messages that are lent, and of those that must be copied,
    /// if there are such.
    lent: &'static str,
    copied: Option<&'static str>,
    /// The system of the bare copy of the latter.
    bare: &'static str,
}

const XK_ON_BSD: Adapter = ("xk-on-bsd", Xk, Bsd);
const BSD_ON_XK: Adapter = ("bsd-on-xk", Bsd, Xk);
const XK_ON_STREAMS: Adapter = ("xk-on-streams", Xk, Streams);
const STREAMS_ON_XK: Adapter = ("streams-on-xk", Streams, Xk);
const BSD_ON_STREAMS: Adapter = ("bsd-on-streams", Bsd, Streams);
const STREAMS_ON_BSD: Adapter = ("streams-on-bsd", Streams, Bsd);

const BARE_MBUFS: &str = "bare copy of mbufs";
const BARE_BLOCKS: &str = "bare copy of blocks";

const fn lent(adapter: Adapter, way: Way, lent: &'static str) -> Crossing {
    Crossing { adapter, way, lent, copied: None, bare: "" }
}

const fn both(
    adapter: Adapter,
    way: Way,
    lent: &'static str,
    copied: &'static str,
    bare: &'static str,
) -> Crossing {
    Crossing { adapter, way, lent, copied: Some(copied), bare }
}

#[rustfmt::skip]
const CROSSINGS: [Crossing; 12] = [
    lent(XK_ON_BSD, Way::Down, "xk, xk-on-bsd down"),
    both(XK_ON_BSD, Way::Up, "xk, xk-on-bsd up", "xk, xk-on-bsd up, copied", BARE_MBUFS),
    both(BSD_ON_XK, Way::Down, "xk, bsd-on-xk down", "xk, bsd-on-xk down, copied", BARE_MBUFS),
    lent(BSD_ON_XK, Way::Up, "xk, bsd-on-xk up"),
    lent(XK_ON_STREAMS, Way::Down, "xk, xk-on-streams down"),
    both(XK_ON_STREAMS, Way::Up, "xk, xk-on-streams up", "xk, xk-on-streams up, copied", BARE_BLOCKS),
    both(STREAMS_ON_XK, Way::Down, "xk, streams-on-xk down", "xk, streams-on-xk down, copied", BARE_BLOCKS),
    lent(STREAMS_ON_XK, Way::Up, "xk, streams-on-xk up"),
    lent(BSD_ON_STREAMS, Way::Down, "xk, bsd-on-streams down"),
    lent(BSD_ON_STREAMS, Way::Up, "xk, bsd-on-streams up"),
    lent(STREAMS_ON_BSD, Way::Down, "xk, streams-on-bsd down"),
    lent(STREAMS_ON_BSD, Way::Up, "xk, streams-on-bsd up"),
];
