//! Operations that wait on a real host wait in the simulator as well.

use crate::sim::{checked, figure, started};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use xk_core::Time;
use xk_core::control::Report;
use xk_core::graph::{Catalog, Shape};

/// Two hosts, `above` on IP on both, and on top of it a client or a server.
fn pair(above: &str, client: &str, server: &str) -> String {
    let host = |name: &str, last: u8, top: &str| {
        format!(
            "host {name} {{\nsim link=lan\neth sim\narp eth\n\
             ip arp {{ address \"10.0.0.{last}/24\"; }}\n{above}\n{top}\n}}\n"
        )
    };
    format!("{}{}link lan delay=\"1ms\"\n", host("a", 1, client), host("b", 2, server))
}

/// Report of the client of a graph.
fn report(source: &str) -> Report {
    let mut world = started(&checked(source), 1);
    world.run_until_finished(Time::ZERO + Duration::from_secs(60));
    crate::sim::report(&world, "a", "probe")
}

/// `fragment` keeps so many messages: a sender of more waits until one of them may go.
#[test]
fn messages_wait_for_a_place_without_a_layer_of_calls() {
    let source = pair(
        "fragment ip",
        "probe fragment to=\"10.0.0.2\" count=200 interval=\"5ms\" size=16000 timeout=\"30s\"",
        "echo fragment",
    );
    let report = report(&source);
    assert_eq!(figure(&report, "received"), 200, "{:?}", report.lines);
}

/// The sources of a kind: a crate of its own, or a module of a family.
pub(crate) fn sources(kind: &str) -> Option<PathBuf> {
    let protocols = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocols");
    let crates = fs::read_dir(&protocols).unwrap();
    let mut modules = crates.map(|folder| folder.unwrap().path().join("src").join(kind));
    let own = protocols.join(kind).join("src");
    if own.exists() { Some(own) } else { modules.find(|module| module.exists()) }
}

/// Words for a semaphore, or a part of the kit that has one.
const WAITS: [&str; 4] = ["Semaphore", "WaitQueue", "Pushes,", "Pending::begun()"];

/// Whether a file in the folder or below has something in it that makes a shepherd wait. Modules of
/// other kinds do not count.
fn has_semaphore(folder: &Path, standard: &Catalog) -> bool {
    fs::read_dir(folder).unwrap().any(|file| {
        let path = file.unwrap().path();
        match path.is_dir() {
            true if standard.find(path.file_name().unwrap().to_str().unwrap()).is_some() => false,
            true => has_semaphore(&path, standard),
            false => {
                let text = fs::read_to_string(path).unwrap();
                WAITS.iter().any(|waits| text.contains(waits))
            }
        }
    })
}

/// Every protocol with a semaphore has calls, or says that it waits.
#[test]
fn who_waits_says_so() {
    let mut waiting = Vec::new();
    let standard = xk_catalog::standard();
    for entry in standard.entries().iter().filter(|entry| entry.subsystem.is_none()) {
        let calls = entry.shape == Shape::Calls;
        // A wire, or a second name of one of these, has no folder.
        if calls || sources(entry.kind).is_none_or(|folder| !has_semaphore(&folder, &standard)) {
            continue;
        }
        waiting.push(entry.kind);
        assert!(entry.may_wait(), "`{}` waits, and its entry does not say so", entry.kind);
    }
    assert_eq!(
        waiting,
        ["fragment", "membership", "nbp", "order", "psync", "rdgram", "vipaddr", "zip"]
    );
}
