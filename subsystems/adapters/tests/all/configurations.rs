//! The configurations of AppleTalk's protocols over three subsystems: each graph of its own, and
//! every client with every server on one network.

use std::fs;
use std::path::Path;
use std::time::Duration;
use xk_compose::{
    CheckedGraph, SimulationConfig, check, draw_svg, draw_text, simulate, start_world,
};
use xk_core::Time;
use xk_core::control::Report;
use xk_streams::StreamModules;

const NAMES: [&str; 9] =
    ["xkatalk", "bsdatalk", "stratalk", "bsdstr", "strbsd", "xkstr", "xkbsd", "strxk", "bsdxk"];

fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs");
    fs::read_to_string(path.join(format!("apple-{name}.kdl"))).unwrap()
}

fn checked(name: &str, source: &str) -> CheckedGraph {
    check(source, name, &xk_catalog::standard())
        .unwrap_or_else(|mistakes| panic!("{name}:\n{}", mistakes.to_text()))
}

/// One host of a graph, by its name.
fn host(source: &str, name: &str) -> String {
    let at = source.find(&format!("host {name} ")).unwrap();
    let end = at + source[at..].find("\n}\n").unwrap() + 3;
    source[at..end].to_owned()
}

/// Replies that the client has, and its whole report.
fn run(name: &str, graph: &CheckedGraph) -> (u64, String) {
    let mut world =
        simulate(graph, SimulationConfig::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
    start_world(graph, &mut world).unwrap_or_else(|e| panic!("{name}: {}", e.to_text()));
    world.run_until_finished(Time::ZERO + Duration::from_secs(60));
    let mut all = String::new();
    let mut replies = 0;
    for host in ["client", "server"] {
        let kernel = world.find(host).and_then(|id| world.kernel(id)).unwrap();
        for protocol in kernel.protocols() {
            let drops = protocol.head().drops().list();
            let report = protocol.ask(kernel, Report::default());
            let lines = report.map(|report| report.lines).unwrap_or_default();
            if protocol.name() == "caller" {
                let line = lines.iter().find(|(line, _)| line == "replies");
                replies = line.map_or(0, |(_, count)| count.parse().unwrap());
            }
            all += &format!("{host} {}: {lines:?} {drops:?}\n", protocol.name());
        }
    }
    world.stop();
    (replies, all)
}

#[test]
fn each_configuration_checks_draws_and_runs() {
    let mut wrong = String::new();
    for name in NAMES {
        let graph = checked(name, &source(name));
        assert!(graph.warnings().is_empty(), "{}", graph.warnings().to_text());
        assert!(draw_text(&graph, None, 100).contains("client"));
        assert!(draw_svg(&graph, None).ends_with("</svg>\n"));
        let (replies, all) = run(name, &graph);
        if replies != 20 {
            wrong += &format!("{name}: {replies} replies\n{all}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_client_has_replies_of_every_server() {
    let mut wrong = String::new();
    for client in NAMES {
        for server in NAMES {
            let source = format!(
                "{}{}link lan delay=\"1ms\"\n",
                host(&source(client), "client"),
                host(&source(server), "server")
            );
            let name = format!("{client} and {server}");
            let (replies, all) = run(&name, &checked(&name, &source));
            if replies != 20 {
                wrong += &format!("{name}: {replies} replies\n{all}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A module is pushed on the streams of a line while messages go, counts them, and comes off.
#[test]
fn modules_are_pushed_and_popped_in_a_running_host() {
    let graph = checked("stratalk", &source("stratalk"));
    let mut world = simulate(&graph, SimulationConfig::default()).unwrap_or_else(|e| panic!("{e}"));
    start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{}", e.to_text()));
    world.run_until(Time::ZERO + Duration::from_secs(2));
    let ask = |world: &xk_sim::World, line: &str, push: &str, pops: bool| {
        let kernel = world.find("client").and_then(|id| world.kernel(id)).unwrap();
        let node = kernel.find_protocol("streams").unwrap();
        let (line, push) = (line.to_owned(), push.to_owned());
        let asked = StreamModules { line, push, pops, ..StreamModules::default() };
        let found = node.ask(kernel, asked).unwrap();
        (found.streams, found.error)
    };
    let none = String::new;
    assert_eq!(ask(&world, "ddp", "", false), (vec!["ddp".into()], none()));
    let pushed = ask(&world, "ddp", "count", false);
    assert_eq!(pushed, (vec!["count (0 down, 0 up) ddp".into()], none()));
    world.run_until_finished(Time::ZERO + Duration::from_secs(60));
    // Twenty requests, their replies and releases; before them the wish for a socket of DDP.
    let counted = ask(&world, "ddp", "", false);
    assert_eq!(counted, (vec!["count (41 down, 21 up) ddp".into()], none()));
    assert_eq!(ask(&world, "ddp", "", true), (vec!["ddp".into()], none()));
    assert_eq!(ask(&world, "ddp", "", true).1, "no module is on a stream there");
    let pushed = [(); 10].map(|()| ask(&world, "ddp", "count", false).1);
    assert_eq!((pushed[8].as_str(), pushed[9].as_str()), ("", "at most `push_max` (9) modules"));
    let wanted = "there is no module `none`: there are count, crunch, queue, squeeze";
    assert_eq!(ask(&world, "ddp", "none", false).1, wanted);
    assert_eq!(ask(&world, "sim", "", false).1, "`sim` is no line of this subsystem");
}
