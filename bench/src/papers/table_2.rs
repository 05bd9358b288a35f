//! Table II: which part of a UDP round trip is spent where.
//!
//! Valgrind's callgrind counts the instructions of so many round trips of one octet through UDP, IP
//! and ETH in one process, and of twice as many; the difference is theirs alone. Each instruction
//! belongs to the source file that it comes from; one from a library belongs to the function that
//! it was inlined into. So the shares sum to the whole.

use super::quoted::{X_KERNEL, quoted};
use crate::case::{Case, Shared, Trouble};
use crate::child;
use crate::folder;
use crate::many_sessions::{Choice, Chooser, ManySessions};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use xk_core::shepherd::{Flow, Limits, Shepherds};
use xk_run::switch::CoroutineSwitch;

/// The components, with the paper's percentages where it has them.
const COMPONENTS: [(&str, Option<f64>); 12] = [
    ("buffer manager (messages)", Some(21.8)),
    ("id manager (maps, session tables)", Some(1.8)),
    ("ethernet", Some(43.7)),
    ("arp", None),
    ("ip", Some(9.8)),
    ("udp", Some(2.8)),
    ("interface overhead (handles, kernel)", Some(5.3)),
    ("boundary crossing", Some(5.9)),
    ("process management (shepherds)", Some(8.6)),
    ("events", None),
    ("wire (a cable in memory)", None),
    ("other (the user)", Some(0.3)),
];
const BUFFER: usize = 0;
const ID: usize = 1;
const ETHERNET: usize = 2;
const ARP: usize = 3;
const IP: usize = 4;
const UDP: usize = 5;
const INTERFACE: usize = 6;
const BOUNDARY: usize = 7;
const PROCESS: usize = 8;
const EVENTS: usize = 9;
const WIRE: usize = 10;
const OTHER: usize = 11;

/// Part to which a file's instructions belong. The first part of its path that is found decides.
const FILES: &[(&str, usize)] = &[
    ("domains/src/", BOUNDARY),
    ("wires/shm/", BOUNDARY),
    ("bench/src/domain/", BOUNDARY),
    ("core/src/message/", BUFFER),
    ("core/src/map", ID),
    ("core/src/object/table", ID),
    ("core/src/object/slot_unsafe", ID),
    ("hashbrown", ID),
    ("siphasher", ID),
    ("protocols/eth/", ETHERNET),
    ("protocols/arp/", ARP),
    ("protocols/ip/", IP),
    ("protocols/udp/", UDP),
    ("core/src/shepherd/", PROCESS),
    ("run/src/switch/", PROCESS),
    ("corosensei", PROCESS),
    ("core/src/event/", EVENTS),
    ("core/src/object/", INTERFACE),
    ("core/src/kernel", INTERFACE),
    ("bench/src/stack", WIRE),
    ("bench/src/", OTHER),
];

/// Part to which the instructions of a function from a library's file belong.
const FUNCTIONS: &[(&str, usize)] = &[
    ("xk_domains", BOUNDARY),
    ("xk_shm", BOUNDARY),
    ("xk_bench::domain", BOUNDARY),
    ("xk_udp::", UDP),
    ("xk_ip::", IP),
    ("xk_arp::", ARP),
    ("xk_eth::", ETHERNET),
    ("xk_core::message", BUFFER),
    ("xk_core::map", ID),
    ("xk_core::object::table", ID),
    ("xk_core::shepherd", PROCESS),
    ("xk_run::switch", PROCESS),
    ("xk_core::event", EVENTS),
    ("xk_core::", INTERFACE),
    ("xk_bench::stack", WIRE),
];

type Counts = [u64; COMPONENTS.len()];

/// Round trips of the shorter run.
const TRIPS: f64 = 2000.0;

/// A user in the domain of the protocols, and one in a domain of its own: a question crosses the
/// cut down, and its answer up.
const USERS: [(&str, &str); 2] = [("xk", ""), ("xk, user in a domain of its own", " 1 cut")];

pub(crate) fn cases() -> Vec<Case> {
    let shares = USERS.map(|_| Shared::default());
    let mut list = Vec::new();
    for (at, (component, paper)) in COMPONENTS.iter().enumerate() {
        for ((system, user), shares) in USERS.into_iter().zip(&shares) {
            let make = move |effort| measure((TRIPS * effort) as u64 + 1, user);
            let case =
                Case::measured_on(*component, shares, make, move |all, _| Ok(all[at].into()));
            list.push(case.of(system));
        }
        list.extend(paper.map(|paper| quoted(*component, X_KERNEL, paper)));
    }
    list
}

/// The share of each component in percent.
fn measure(trips: u64, user: &str) -> Result<[f64; COMPONENTS.len()], Trouble> {
    let (once, twice) = (count(trips, user)?, count(2 * trips, user)?);
    let mut counts = Counts::default();
    for (at, count) in counts.iter_mut().enumerate() {
        *count = twice[at].saturating_sub(once[at]);
    }
    shares(&counts).ok_or_else(|| Trouble::Failed("no instruction was counted".into()))
}

fn shares(counts: &Counts) -> Option<[f64; COMPONENTS.len()]> {
    let whole = counts.iter().sum::<u64>();
    (whole > 0).then(|| counts.map(|count| count as f64 / whole as f64 * 100.0))
}

/// Instructions of each component in a run of so many round trips of a user.
fn count(trips: u64, user: &str) -> Result<Counts, Trouble> {
    let folder = folder::own()?;
    let path = folder.path().join("callgrind");
    child::ask_under_callgrind("round-trips", &format!("{trips}{user}"), &path)?;
    read(&path)
}

fn read(path: &Path) -> Result<Counts, Trouble> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| Trouble::Failed(format!("callgrind left nothing: {error}")))?;
    Ok(attribute(&text))
}

/// Adds the costs in a file of callgrind's up by component ("Callgrind Format", Valgrind manual).
fn attribute(text: &str) -> Counts {
    let mut counts = Counts::default();
    // Names are given once, and their numbers afterwards: of files and of functions apart.
    let (mut files, mut functions) = (HashMap::new(), HashMap::new());
    let (mut file, mut function) = (None, OTHER);
    let mut is_call = false;
    for line in text.lines() {
        if let Some((key, name)) = line.split_once('=') {
            match key {
                "fl" | "fi" | "fe" => file = number(name, FILES, &mut files),
                "cfi" | "cfl" => drop(number(name, FILES, &mut files)),
                "fn" => function = number(name, FUNCTIONS, &mut functions).unwrap_or(OTHER),
                "cfn" => drop(number(name, FUNCTIONS, &mut functions)),
                "calls" => is_call = true,
                _ => {}
            }
            continue;
        }
        // A position and a cost. After `calls=` it is the callee's, which is counted there.
        let mut words = line.split(' ');
        let position = words.next().unwrap_or_default();
        let is_cost = position.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c));
        if !is_cost || std::mem::take(&mut is_call) {
            continue;
        }
        let cost: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        counts[file.unwrap_or(function)] += cost;
    }
    counts
}

/// The component of a name such as `(12) path` or `(12)`, which refers back.
fn number(
    name: &str,
    table: &[(&str, usize)],
    known: &mut HashMap<String, Option<usize>>,
) -> Option<usize> {
    let (id, name) = name.split_once(' ').unwrap_or((name, ""));
    if name.is_empty() {
        return known.get(id).copied().flatten();
    }
    let found = table.iter().find(|(part, _)| name.contains(part));
    let component = found.map(|(_, component)| *component);
    known.insert(id.to_owned(), component);
    component
}

/// So many round trips of one octet, each frame dispatched to a shepherd as the real poll loop
/// does. The argument may name besides among how many open sessions each is through one at random:
/// for profiles; and that the user lies beyond a `cut`.
pub(crate) fn round_trips(argument: &str) -> Result<Vec<f64>, String> {
    let mut words = argument.split(' ');
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let trips = number().ok_or("not a number of round trips")?;
    let open = number().unwrap_or(1) as usize;
    let across =
        RefCell::new((words.next() == Some("cut")).then(crate::domain::operations::across));
    let many = ManySessions::new(open)?;
    let chooser = RefCell::new(Chooser::new(Choice::Random, open));
    let shepherds = Shepherds::new(Box::new(CoroutineSwitch::new()), Limits::default());
    // Every trip is two frames, and each is a message that a shepherd carries.
    let left = Cell::new(2 * trips);
    let body = move || {
        let turn = left.get();
        left.set(turn.saturating_sub(1));
        match turn {
            0 => return Flow::Stop,
            n if n.is_multiple_of(2) => {
                if let Some(across) = &mut *across.borrow_mut() {
                    across(1);
                }
                many.ask(chooser.borrow_mut().next(), 1);
            }
            _ => many.answer(),
        }
        Flow::Continue
    };
    shepherds.run(Rc::new(body)).map_err(|error| error.to_string())?;
    Ok(vec![trips as f64])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: &str = "\
events: Ir

fl=(1) /src/protocols/udp/src/session.rs
fn=(1) <xk_udp::session::UdpSession as xk_core::object::Session>::push
10 5
fi=(2) /rustc/library/core/src/cell.rs
+2 7
fe=(1)
* 3
cfn=(2) xk_core::message::pool_unsafe::take
calls=1 40
20 100

fl=(3) /src/core/src/message/pool_unsafe.rs
fn=(2)
-5 60
fl=(4) ???
fn=(3) main
1 25
";

    #[test]
    fn every_instruction_belongs_somewhere_and_the_shares_sum_to_the_whole() {
        let counts = attribute(FOUND);
        assert_eq!(counts[UDP], 15, "the library's seven are the session's");
        assert_eq!((counts[BUFFER], counts[OTHER]), (60, 25));
        assert_eq!(counts.iter().sum::<u64>(), 100, "the callee's 100 count once");
        let shares = shares(&counts).unwrap();
        assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9);
        assert!(shares[UDP] == 15.0 && super::shares(&Counts::default()).is_none());
    }

    #[test]
    fn the_papers_shares_sum_to_the_whole() {
        let sum: f64 = COMPONENTS.iter().filter_map(|(_, paper)| *paper).sum();
        assert!((sum - 100.0).abs() < 0.01, "{sum}");
    }

    #[test]
    fn the_measured_trips_come_back() {
        for argument in ["20", "20 3", "20 1 cut"] {
            assert_eq!(round_trips(argument).unwrap(), [20.0], "{argument}");
        }
    }
}
