//! Every layer below may let each operation of a start wait: hosts start all the same, and work.

use crate::filters::{Edge, difference, told, with_filter};
use core::time::Duration;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use xk_compose::{CheckedGraph, check};
use xk_core::control::Report;
use xk_core::graph::{Build, BuildError, Catalog, Guarantees, Realm, Service, Shape};
use xk_core::object::{Enable, OpenError};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Answer, Ask, Entry, Kernel, Participants, Protocol, ProtocolRef, SessionRef, Upper};

/// For how long an operation waits at most.
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Graphs with more hosts are left out: theirs are alike.
const HOSTS_FEW: usize = 20;

/// The one kind that no graph of the repository has.
const DISCARD: &str = "host a {\nloopback\ndiscard loopback\n}";

/// A layer that lets each operation of what stands on it wait, and hands on what the one below
/// answers.
struct Waits(ProtocolRef);

static WAITS: Entry = Entry::filter("waits", "//! ...", build)
    .service(Service { keeps: Guarantees::ALL.without(Guarantees::INSTANT), ..Service::SAME });

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(Waits(build.lower(0)?))
}

fn pause(cx: &Kernel) -> Result<(), OpenError> {
    let time = Duration::from_nanos(1 + cx.random().below(PAUSE_MAX.as_nanos() as u64));
    match cx.wait(&Semaphore::new(0), Some(time)) {
        Err(WaitError::TimedOut) => Ok(()),
        // On no shepherd, say.
        _ => Err(OpenError::NoLower),
    }
}

impl Protocol for Waits {
    fn open(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        pause(cx)?;
        self.0.open(cx, upper, participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        pause(cx)?;
        self.0.open_enable(cx, upper, participants)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.0.open_disable(cx, enable);
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        // What is asked from outside is answered at once.
        let _ = pause(cx);
        match ask.get::<Report>() {
            Some(_) => Answer::Unknown,
            None => self.0.control(cx, ask),
        }
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0)
    }

    fn passes_numbers(&self) -> bool {
        true
    }
}

/// An edge without a waiting layer.
fn bare_edge(graph: &CheckedGraph) -> Option<Edge> {
    let hosts = graph.graph().hosts.iter().enumerate();
    let mut edges = hosts.flat_map(|(host, of)| {
        let nodes = of.nodes.iter().enumerate().filter(|(_, node)| *node.kind != *"waits");
        nodes.flat_map(move |(at, node)| {
            let waits = |name: &str| {
                of.nodes.iter().any(|node| *node.name == *name && *node.kind == *"waits")
            };
            let bare = node.lowers.iter().position(|lower| !waits(&lower.value));
            bare.map(|place| (host, at, place))
        })
    });
    edges.next()
}

#[test]
fn every_layer_starts_above_layers_that_let_it_wait() {
    let standard = xk_catalog::standard();
    let entries: Vec<&'static Entry> = standard.entries().iter().copied().chain([&WAITS]).collect();
    let catalog = Catalog::new(&entries).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|kind| kind == "kdl"));
    files.sort();
    let (mut started, mut wrong) = (BTreeSet::new(), Vec::new());
    let files = files.iter().map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy();
        (name.into_owned(), fs::read_to_string(path).unwrap())
    });
    for (name, source) in files.chain([("discard".into(), DISCARD.into())]) {
        let mut source = source.replace("\"faults.pcapng\"", "\"/dev/./null\"");
        let checked = |source: &str| {
            check(source, &name, &catalog).unwrap_or_else(|mistakes| panic!("{mistakes}"))
        };
        let mut graph = checked(&source);
        // What waits is the x-kernel's, and lies on none of another framework's edges.
        if graph.host_count() > HOSTS_FEW || source.contains("subsystem ") {
            continue;
        }
        let Ok(before) = told(&graph, false) else {
            // It reaches outside of the simulation.
            continue;
        };
        let mut count = 0;
        while let Some(edge) = bare_edge(&graph) {
            count += 1;
            let waits = ("waits", &*format!("waits{count}"));
            source = with_filter((&source, &graph), edge, waits);
            graph = checked(&source);
        }
        wrong
            .extend(difference(&before, told(&graph, false)).map(|what| format!("{name}: {what}")));
        let nodes = graph.graph().hosts.iter().flat_map(|host| &host.nodes);
        started.extend(nodes.map(|node| node.kind.value.clone()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What is only asked waits for nothing when it starts.
    let shapes = |entry: &&&Entry| entry.shape != Shape::Wire && entry.realm != Realm::Control;
    let is_own = |entry: &&&Entry| entry.subsystem.is_none() && entry.shape != Shape::Adapter;
    let all =
        standard.entries().iter().filter(is_own).filter(shapes).map(|entry| entry.kind.to_owned());
    let missing: Vec<String> = all.filter(|kind| !started.contains(kind)).collect();
    assert_eq!(missing, [""; 0], "kinds that no graph has");
}
