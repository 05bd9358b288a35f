//! Figure 8: what an adapter costs, each way, by octets of the message.

use super::configuration::SPARC;
use super::configuration::Subsystem::{self, Bsd, Streams, Xk};
use super::ends::Rig;
use super::ends::desk::{Above, Bare, Between, Form};
use crate::case::{Case, Goal, Shared};
use crate::papers::quoted::quoted;
use crate::record::Record;
use crate::stopwatch::{Watched, Way};

/// Octets of a message: the paper's request, and replies of 1, 2, 4 and 8 packets.
const OCTETS: [usize; 5] = [45, 578, 1156, 2312, 4624];
const OPERATIONS: u64 = 20_000;
/// Nanoseconds that a message may take that is lent.
const LENT_NS_MAX: f64 = 60.0;
/// Largest time for the octets that must be copied, relative to the bare copy.
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

/// The figure itself is a drawing; of its times the text tells those from STREAMS to BSD.
const PAPER: [(&str, f64); 2] =
    [("STREAMS to BSD, one place", 145.0), ("STREAMS to BSD, the other place", 128.0)];
const NS_PER_US: f64 = 1000.0;

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

fn row(octets: usize) -> String {
    format!("{octets} octets")
}

impl Crossing {
    fn case(&self, rig: &Shared<Rig>, octets: usize, form: Form) -> Case {
        let (way, (_, upper, lower)) = (self.way, self.adapter);
        let make = move || Rig::new(Above::Datagrams, Between::Edge, (upper, lower));
        let case = Case::on(row(octets), OPERATIONS, rig, make, move |rig, operations| match way {
            Way::Down => rig.down(operations, octets, form),
            Way::Up => rig.up(operations, octets, form),
        });
        case.watched(Watched::One(way))
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let adapters =
        [XK_ON_BSD, BSD_ON_XK, XK_ON_STREAMS, STREAMS_ON_XK, BSD_ON_STREAMS, STREAMS_ON_BSD];
    let rigs = adapters.map(|(name, ..)| (name, Shared::default()));
    let mut list = Vec::new();
    for octets in OCTETS {
        for crossing in &CROSSINGS {
            let Some((_, rig)) = rigs.iter().find(|(name, _)| *name == crossing.adapter.0) else {
                continue;
            };
            let lent = crossing.case(rig, octets, Form::Own).of(crossing.lent);
            list.push(lent.goal(Goal::AtMost(LENT_NS_MAX)));
            if let Some(copied) = crossing.copied {
                let case = crossing.case(rig, octets, Form::Foreign).of(copied);
                list.push(case.beside(crossing.bare));
            }
        }
        for (system, is_mbufs) in [(BARE_MBUFS, true), (BARE_BLOCKS, false)] {
            let case = Case::new(row(octets), OPERATIONS, move || {
                let bare = Bare::new(is_mbufs);
                move |operations| bare.copies(operations, octets)
            });
            list.push(case.of(system).watched(Watched::Both));
        }
    }
    list.extend(PAPER.map(|(row, us)| quoted(row, SPARC, us * NS_PER_US)));
    list
}

/// Ratio of the time that a copy adds to the crossing of a lent message, to the bare copy.
pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let mut list = Vec::new();
    for octets in OCTETS {
        let row = row(octets);
        let found = |system| Record::find(records, &row, system);
        for crossing in &CROSSINGS {
            let copied = crossing.copied.and_then(found);
            let (Some(copied), Some(lent), Some(bare)) =
                (copied, found(crossing.lent), found(crossing.bare))
            else {
                continue;
            };
            let name = format!("{row}, what the copy adds, by the bare copy");
            let added = copied.beyond(name, &[lent], 1.0).by(bare);
            list.push(Record { goal: Some(Goal::AtMost(COPY_MAX)), ..added });
        }
    }
    list
}
