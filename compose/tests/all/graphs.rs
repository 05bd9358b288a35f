//! The graphs of the repository: the good ones check, draw and run; the broken ones say what they
//! should.

use crate::sim::{checked, config, example, folder, source, started};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use xk_compose::{
    CheckedGraph, check, check_environment, draw_svg, draw_text, report_environment, simulate,
    start_world,
};
use xk_core::Time;
use xk_core::control::Report;
use xk_core::graph::{BuildError, Realm};
use xk_lang::{Diagnostics, Severity};
use xk_sim::World;

/// The graph files of a folder, by name.
fn files(name: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(folder(name))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "kdl"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// A graph in a file of this name.
fn named(name: &str, source: &str) -> CheckedGraph {
    check(source, name, &xk_catalog::standard()).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

#[test]
fn every_example_checks_and_draws() {
    for (name, source) in files("graphs") {
        let graph = checked(&source);
        assert!(graph.warnings().is_empty(), "{}", graph.warnings());
        let text = draw_text(&graph, None, 100);
        let svg = draw_svg(&graph, None);
        for host in &graph.graph().hosts {
            assert!(text.contains(host.name.as_str()), "{name}: {text}");
            assert!(svg.contains(host.name.as_str()), "{name}");
        }
        assert!(svg.ends_with("</svg>\n"), "{name}");
    }
}

/// The upper ends of all hosts, each with its host's name, its own and its report.
fn reports(graph: &CheckedGraph, world: &World) -> Vec<(String, String, Report)> {
    let catalog = xk_catalog::standard();
    let mut reports = Vec::new();
    for host in graph.graph().expand() {
        let kernel = world.find(&host.name).and_then(|id| world.kernel(id));
        let kernel = kernel.unwrap();
        for protocol in kernel.protocols() {
            // A subsystem's kinds are no upper ends, and may be none of the x-kernel's.
            let entry = catalog.find(protocol.head().kind());
            if entry.is_some_and(|entry| entry.realm == Realm::Top)
                && let Some(report) = protocol.ask(kernel, Report::default())
            {
                reports.push((host.name.to_string(), protocol.name().to_string(), report));
            }
        }
    }
    reports
}

/// Runs a graph until its probes have finished; every one of them must have heard its echo.
fn run(graph: &CheckedGraph) -> Vec<(String, String, Report)> {
    let mut world = started(graph, 1);
    world.run_until_finished(Time::ZERO + Duration::from_secs(50));
    let reports = reports(graph, &world);
    assert!(!reports.is_empty());
    for (host, name, report) in &reports {
        assert!(!report.failed, "{host} {name}: {:?}", report.lines);
    }
    reports
}

/// Graphs that go on without end, that show calls which fail, or that have tests of their own for
/// files or devices that they need or write.
const OTHERWISE: [&str; 5] =
    ["faults.kdl", "flood.kdl", "loopback.kdl", "rpc-deadline.kdl", "thousand.kdl"];

#[test]
fn every_example_of_a_simulation_does_what_it_asks_for() {
    let mut simulated = 0;
    for (name, source) in files("graphs") {
        if OTHERWISE.contains(&name.as_str()) {
            continue;
        }
        let graph = checked(&source);
        // What has a device is no simulation.
        let Ok(mut world) = simulate(&graph, config(1)) else { continue };
        start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{name}: {e}"));
        world.run_until_finished(Time::ZERO + Duration::from_secs(60));
        for (host, upper, report) in reports(&graph, &world) {
            let is_done = report.finished && !report.failed;
            assert!(is_done, "{name}, {host}, {upper}: {:?}", report.lines);
        }
        simulated += 1;
    }
    assert!(simulated > 30, "{simulated}");
}

/// A figure of a report.
fn figure(reports: &[(String, String, Report)], name: &str, line: &str) -> u64 {
    let report = reports.iter().find(|(_, n, _)| n == name).unwrap();
    let found = report.2.lines.iter().find(|(n, _)| n == line);
    found.unwrap().1.parse().unwrap()
}

#[test]
fn the_internet_carries_pings_and_fragments_in_spite_of_losses() {
    let reports = run(&example("internet.kdl"));
    assert!(reports.iter().all(|(_, _, report)| report.finished));
    for name in ["ping", "client"] {
        assert!(figure(&reports, name, "received") > 5, "{name}");
        assert_eq!(figure(&reports, name, "corrupt"), 0);
    }
    assert!(figure(&reports, "client", "lost") > 0);
}

#[test]
fn layered_calls_run() {
    for name in ["rpc-l-vip.kdl", "rpc-l-vipsize.kdl"] {
        let reports = run(&example(name));
        assert_eq!(figure(&reports, "null", "replies"), 200, "{name}");
        assert_eq!(figure(&reports, "large", "replies"), 20, "{name}");
    }
    let reports = run(&example("rpc-forward.kdl"));
    let replies = ["echo", "source", "sleep"].map(|name| figure(&reports, name, "replies"));
    assert_eq!(replies, [50, 50, 10]);
    // The front executes what it does not forward, the host behind it the rest.
    let sources = |host: &str| {
        let of = reports.iter().find(|(h, name, _)| h == host && name == "procedures");
        of.is_some_and(|(_, _, report)| report.lines.iter().any(|(line, _)| line == "source"))
    };
    assert!(!sources("front") && sources("back"));
}

#[test]
fn reliable_datagrams_are_not_lost() {
    let reports = run(&example("rdgram.kdl"));
    let counts =
        ["received", "lost", "corrupt", "duplicates"].map(|line| figure(&reports, "probe", line));
    assert_eq!(counts, [50, 0, 0, 0]);
}

#[test]
fn streams_are_complete_on_a_bad_link() {
    let reports = run(&example("tcp.kdl"));
    let counts =
        ["sent", "received", "lost", "corrupt"].map(|line| figure(&reports, "probe", line));
    assert_eq!(counts, [200, 200, 0, 0]);
    let (_, _, report) = reports.iter().find(|(_, name, _)| name == "probe").unwrap();
    let refused = report.lines.iter().find(|(line, _)| line.starts_with("not "));
    assert_eq!(refused, None);
}

#[test]
fn one_seed_is_one_run() {
    let lines = || {
        let reports = run(&example("internet.kdl"));
        reports.into_iter().map(|r| r.2.lines).collect::<Vec<_>>()
    };
    assert_eq!(lines(), lines());
}

#[test]
fn null_layers_and_loopback_run() {
    let reports = run(&example("null.kdl"));
    assert_eq!(figure(&reports, "probe", "received"), 100);
    let reports = run(&example("netio.kdl"));
    assert_eq!(figure(&reports, "probe", "received"), 100);
    let reports = run(&example("loopback.kdl"));
    assert!(figure(&reports, "probe", "received") > 100);
}

#[test]
fn a_thousand_hosts_talk() {
    let reports = run(&example("thousand.kdl"));
    assert_eq!(reports.len(), 2000);
    let lost = |report: &Report| report.lines.iter().any(|(n, v)| n == "lost" && v != "0");
    assert!(!reports.iter().any(|(_, _, report)| lost(report)));
}

#[test]
fn faults_are_felt_and_captured() {
    let capture = std::env::temp_dir().join(format!("xk-faults-{}.pcapng", std::process::id()));
    let source = source("faults.kdl");
    let source = source.replace("\"faults.pcapng\"", &format!("{capture:?}"));
    let reports = run(&checked(&source));
    assert!(figure(&reports, "probe", "lost") > 0);
    assert!(fs::metadata(&capture).unwrap().len() > 10_000);
    fs::remove_file(capture).unwrap();
}

#[test]
fn wires_to_the_outside_stay_out_of_simulations() {
    let Err(mistakes) = simulate(&example("tap.kdl"), config(1)) else {
        panic!("a device in a simulation");
    };
    assert!(mistakes.to_text().contains("`tap` reaches outside the simulation"), "{mistakes}");
    let source = source("netio.kdl");
    let source = source.replace("netio sim\n", "netio sim door=\"/no/such/folder/door\"\n");
    let graph = named("netio.kdl", &source);
    let Err(mistakes) = simulate(&graph, config(1)) else {
        panic!("a socket in a simulation");
    };
    let text = mistakes.to_text();
    assert!(text.starts_with("netio.kdl:8:20: ") && text.contains("leave `door` out"), "{text}");
    let found = xk_compose::check_environment(&graph, None, Severity::Warning).to_text();
    assert!(
        found.starts_with("netio.kdl:8:20: ") && found.contains("there is no folder"),
        "{found}"
    );
}

/// The error on a machine without the device, or without the right to use it.
fn lacking(name: &str) -> Option<BuildError> {
    let (what, help) = match name {
        "no_device.kdl" => (
            "no interface nosuch0",
            "list those there are: ip link; the wires `sim` and `loopback` need none",
        ),
        "no_privilege.kdl" => (
            "not permitted to make the TAP device xk0",
            "grant it once: sudo setcap cap_net_admin+ep $(which xk); the wires `sim` and `loopback` need no privilege",
        ),
        _ => return None,
    };
    Some(BuildError::Environment { param: Some("device"), what: what.into(), help: help.into() })
}

fn said(name: &str, source: &str) -> String {
    let Some(lacking) = lacking(name) else {
        return match check(source, name, &xk_catalog::standard()) {
            Ok(_) => panic!("{name} has no mistake"),
            Err(mistakes) => mistakes.to_text(),
        };
    };
    let graph = named(name, source);
    let mut mistakes = Diagnostics::new(name, source);
    let node = &graph.graph().hosts[0].nodes[0];
    report_environment(&mut mistakes, Severity::Error, node, &lacking);
    mistakes.to_text()
}

/// Every broken graph has the text that `xk check` prints beside it. After a change that is meant,
/// look at what `XK_BLESS=1 cargo test -p xk-compose` writes.
#[test]
fn broken_graphs_are_told_so() {
    let bless = std::env::var_os("XK_BLESS").is_some();
    for (name, source) in files("graphs/broken") {
        let text = said(&name, &source);
        let path = folder("graphs/broken").join(name.replace(".kdl", ".txt"));
        if bless {
            fs::write(&path, &text).unwrap();
        }
        let wanted = fs::read_to_string(&path).unwrap_or_default();
        assert!(text == wanted, "{name} says\n{text}and not\n{wanted}");
    }
}

/// A user and a port may be numbers, in quotes or without.
#[test]
fn numbers_need_no_quotes() {
    let source = |user: &str, port: &str| {
        format!(
            r#"
host one {{
    loopback
    ip loopback {{ address "10.0.0.1/24"; }}
    domain net user={user} {{ udp ip; }}
    domain users open path="/run/xk/users.sock" {{ grant udp port={port}; }}
}}
"#
        )
    };
    let read = |source: &str| {
        let graph = checked(source);
        let host = graph.host("one").expect("the host");
        graph.domains(&host)
    };
    let domains = read(&source("65534", "7"));
    assert_eq!(domains, read(&source("\"65534\"", "\"7\"")));
    assert_eq!(domains[1].user.as_deref(), Some("65534"));
    assert_eq!(domains[2].grants[0].ports, Some(7..=7));
}

#[test]
fn domains_are_framed() {
    let source = r#"
host one {
    loopback
    domain net thread core=1 { ip loopback { address "10.0.0.1/24"; }; udp ip; }
    domain apps user=nobody crossing=messages { echo udp port=7; }
    domain users open path="/run/xk/users.sock" { grant udp port="5000..5999" uid=1000; }
}
"#;
    let graph = checked(source);
    let text = draw_text(&graph, None, 200);
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("no `{words}` in\n{text}"));
    let frames =
        ["first domain", "net: thread, core 1", "apps: process, user nobody, crossing messages"];
    let [first, net, apps] = frames.map(at);
    assert!(apps < net && net < first, "each above what it stands on:\n{text}");
    assert!(apps < at("(udp)") && at("(udp)") < net, "what stands for another's node:\n{text}");
    assert!(at("udp, port 5000..5999, uid 1000") < net, "what is granted:\n{text}");
    let svg = draw_svg(&graph, None);
    for words in frames.iter().chain(&["(loopback)", "users: open"]) {
        assert!(svg.contains(words), "{words} in {svg}");
    }
}

/// A pool is shown to a neighbour that gets all that lies in it anyway, and to no other.
#[test]
fn a_domain_shows_its_messages_to_its_only_neighbour() {
    let lends = |name: &str, from: &str, to: &str| {
        let graph = example(name);
        let host = graph.graph().expand().remove(0);
        let domains = graph.domains(&host);
        let place = |name: &str| domains.iter().position(|domain| domain.name == name).unwrap();
        graph.lends(&host, place(from), place(to))
    };
    // Several applications, of which none may see what another gets.
    assert!(lends("org-server.kdl", "echod", "server"));
    assert!(!lends("org-server.kdl", "server", "echod"));
    assert!(lends("org-per-protocol.kdl", "ip", "eth"));
    assert!(lends("org-per-protocol.kdl", "eth", "ip"));
    assert!(!lends("org-per-protocol.kdl", "ip", "udp"));
    assert!(!lends("org-per-protocol.kdl", "eth", "udp"), "they are no neighbours");
    // The module has frames of programs.
    assert!(lends("org-library.kdl", "server", "device"));
    assert!(!lends("org-library.kdl", "device", "server"));
    // So has a node that programs attach to.
    let graph = checked(
        "host one {\n    loopback\n    domain net { ip loopback { address \"10.0.0.1/24\"; }; udp ip; }\n    \
         domain app { echo udp port=7; }\n    domain open1 open path=\"/tmp/x\" { grant udp; }\n}\n",
    );
    let host = graph.graph().expand().remove(0);
    assert!(!graph.lends(&host, 1, 2) && graph.lends(&host, 2, 1));
}

#[test]
fn a_domain_of_an_unknown_user_is_told() {
    let source =
        "host one {\n    loopback\n    domain net user=\"no such\" { discard loopback; }\n}\n";
    let graph = named("users.kdl", source);
    let told = check_environment(&graph, None, Severity::Error).to_text();
    assert!(
        told.starts_with("users.kdl:3:21: error: this machine has no user `no such`"),
        "{told}"
    );
    let graph = named("users.kdl", &source.replace("no such", "70000"));
    assert!(!check_environment(&graph, None, Severity::Error).has_errors(), "a number is a user");
}

/// The drawings in the documentation are those of the graphs as they are now: NAME.svg that of
/// rpc-NAME.kdl. After a change that is meant, look at what `XK_BLESS=1 cargo test -p xk-compose`
/// draws.
#[test]
fn the_drawings_are_of_these_graphs() {
    let bless = std::env::var_os("XK_BLESS").is_some();
    let svg = |path: &PathBuf| path.extension().is_some_and(|e| e == "svg");
    let drawings = fs::read_dir(folder("docs/rpc")).unwrap();
    let drawings = drawings.map(|file| file.unwrap().path()).filter(svg);
    let all: Vec<PathBuf> = drawings.chain([folder("docs/internet.svg")]).collect();
    assert!(all.len() > 10, "{all:?}");
    for path in all {
        let stem = path.file_stem().unwrap().to_string_lossy();
        let name = match stem.as_ref() {
            "internet" => "internet.kdl".to_owned(),
            stem => format!("rpc-{stem}.kdl"),
        };
        let drawn = draw_svg(&example(&name), None);
        if bless {
            fs::write(&path, &drawn).unwrap();
        }
        let shown = fs::read_to_string(&path).unwrap();
        assert!(shown == drawn, "{} is no picture of {name}", path.display());
    }
}

/// The device cannot exist, whatever this process may do.
#[test]
fn the_environment_is_asked() {
    let source = source("broken/no_device.kdl");
    let graph = named("no_device.kdl", &source);
    let found = xk_compose::check_environment(&graph, None, Severity::Warning);
    let text = found.to_text();
    assert!(text.starts_with("no_device.kdl:3:19: warning: "), "{text}");
    assert!(text.contains("help: "), "{text}");
    assert!(!found.has_errors());
    let of = |host| xk_compose::check_environment(&graph, Some(host), Severity::Error);
    assert!(of("one").has_errors());
    assert!(of("two").is_empty());
}
