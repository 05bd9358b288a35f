//! Figure 3: time and instructions of each protocol, send and receive, in each subsystem, and of
//! what lies between it and a program.

use super::configuration::SPARC;
use super::configuration::Subsystem::{self, Bsd, Streams, Xk};
use super::ends::Rig;
use super::ends::desk::{Above, Between, DATAGRAM, Form, REQUEST};
use crate::case::{Case, Goal, Shared};
use crate::papers::quoted::quoted;
use crate::record::Record;
use crate::stopwatch::{Watched, Way};

const OPERATIONS: u64 = 20_000;
/// Largest cost of a socket with the protocol below it, relative to that protocol alone.
const SOCKETS_MAX: f64 = 1.5;

const SYSTEMS: [(&str, Subsystem); 3] = [(XK, Xk), (BSD, Bsd), (STREAMS, Streams)];
const XK: &str = "xk";
const BSD: &str = "xk, BSD";
const STREAMS: &str = "xk, STREAMS";

const SEND: Watched = Watched::One(Way::Down);
const RECEIVE: Watched = Watched::One(Way::Up);

/// A row, and what it watches.
type Row = (&'static str, Watched);

/// Rows of what the same ends watch.
struct Rows {
    above: Above,
    between: Between,
    rows: &'static [Row],
}

const DDP: &str = "DDP, both ways";
const CALL: &str = "ATP, a call";
const SERVE: &str = "ATP, a call served";
const SOCKETS: &str = "sockets, both ways";
const TLI: &str = "TLI, both ways";

const PROTOCOLS: [Rows; 3] = [
    Rows {
        above: Above::Datagrams,
        between: Between::Ddp,
        rows: &[("DDP, send", SEND), ("DDP, receive", RECEIVE), (DDP, Watched::Both)],
    },
    Rows {
        above: Above::Caller,
        between: Between::Atp,
        rows: &[("ATP, send", SEND), ("ATP, receive", RECEIVE), (CALL, Watched::Both)],
    },
    Rows { above: Above::Server, between: Between::Atp, rows: &[(SERVE, Watched::Both)] },
];

/// The layers between a program and the protocol: the system, and its rows.
const PROGRAMS: [(&str, Subsystem, [Row; 3]); 2] = [
    (BSD, Bsd, [("sockets, send", SEND), ("sockets, receive", RECEIVE), (SOCKETS, Watched::Both)]),
    (STREAMS, Streams, [("TLI, send", SEND), ("TLI, receive", RECEIVE), (TLI, Watched::Both)]),
];

/// Computed rows: what is compared with what.
const TLI_BY_SOCKETS: &str = "TLI / sockets, both ways";
const TLI_SHARE: &str = "TLI, of TLI and DDP together";
const SOCKETS_BY_DDP: &str = "sockets and DDP / DDP, both ways";
const TLI_BY_DDP: &str = "TLI and DDP / DDP, both ways";

/// A case of these ends: sends, brings, or does both, one after the other.
fn case(
    rig: &Shared<Rig>,
    (above, between, of): (Above, Between, Subsystem),
    (row, watched): Row,
) -> Case {
    // A small message lies in mbufs of their own octets.
    let form = if of == Bsd { Form::Foreign } else { Form::Own };
    let octets = if between == Between::Atp { REQUEST } else { DATAGRAM };
    let is_down = above == Above::Caller || above != Above::Server && watched != RECEIVE;
    let is_up = above == Above::Server || above != Above::Caller && watched != SEND;
    let make = move || Rig::new(above, between, (of, of));
    let case = Case::on(row, OPERATIONS, rig, make, move |rig, operations| {
        for _ in 0..operations {
            if is_down {
                rig.down(1, octets, form);
            }
            if is_up {
                rig.up(1, octets, form);
            }
        }
    });
    case.watched(watched)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for Rows { above, between, rows } in &PROTOCOLS {
        let rigs = SYSTEMS.map(|_| Shared::default());
        for row in *rows {
            for ((system, of), rig) in SYSTEMS.into_iter().zip(&rigs) {
                let case = case(rig, (*above, *between, of), *row).of(system);
                list.push(match (row.0, of) {
                    (CALL | SERVE, Xk) => {
                        let no_more = Goal::AtMostTimes(1.0);
                        case.beside(BSD).goal(no_more).beside(STREAMS).goal(no_more)
                    }
                    _ => case,
                });
            }
        }
    }
    for (system, of, rows) in PROGRAMS {
        let rig = Shared::default();
        for row in rows {
            list.push(case(&rig, (Above::Program, Between::Edge, of), row).of(system));
        }
    }
    // The figure itself is a drawing; its text tells these proportions.
    list.push(quoted(TLI_BY_SOCKETS, SPARC, 6.0).unit("times"));
    list.push(quoted(TLI_SHARE, SPARC, 95.0).unit("%"));
    list
}

pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let of = |row, system| Record::find(records, row, system);
    let mut list = Vec::new();
    if let (Some(sockets), Some(ddp)) = (of(SOCKETS, BSD), of(DDP, BSD)) {
        let both = sockets.and(ddp, SOCKETS_BY_DDP).by(ddp);
        list.push(Record { goal: Some(Goal::AtMost(SOCKETS_MAX)), ..both });
    }
    if let (Some(tli), Some(ddp)) = (of(TLI, STREAMS), of(DDP, STREAMS)) {
        list.push(tli.and(ddp, TLI_BY_DDP).by(ddp));
        list.push(tli.with(ddp, (TLI_SHARE, "%"), |tli, ddp| tli / (tli + ddp) * 100.0));
    }
    if let (Some(tli), Some(sockets)) = (of(TLI, STREAMS), of(SOCKETS, BSD)) {
        list.push(tli.beyond(TLI_BY_SOCKETS, &[], 1.0).by(sockets));
    }
    list
}
