//! Every edge between two subsystems that the catalog allows to be written: either the check
//! refuses it, with a reason, or the host is built and starts.

use std::time::Duration;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::Report;
use xk_core::graph::Shape;
use xk_core::{Entry, Time};

/// Lines of a host of the x-kernel's IP, and more.
macro_rules! hosts_with {
    ($more:literal) => {
        concat!("eth sim; arp eth; ip arp { address \"10.0.0.1/24\"; }; ", $more)
    };
}

/// Lines of a host up to a lower end, its subsystem, its name.
const LOWERS: [(&str, Option<&str>, &str); 23] = [
    ("", None, "sim"),
    ("eth sim", None, "eth"),
    ("eth sim; arp eth; ip arp { address \"10.0.0.1/24\"; }", None, "ip"),
    ("eth sim; arp eth; ip arp { address \"10.0.0.1/24\"; }; udp ip", None, "udp"),
    ("eth sim; aarp eth; ddp aarp net=\"10-19\" node=9", None, "ddp"),
    ("eth sim; aarp eth; ddp aarp net=\"10-19\" node=9; atp ddp", None, "atp"),
    (hosts_with!("vip arp ip"), None, "vip"),
    (hosts_with!("vipaddr arp ip"), None, "vipaddr"),
    (hosts_with!("fragment ip"), None, "fragment"),
    (hosts_with!("vip arp ip; fragment vip; vipsize vip fragment"), None, "vipsize"),
    (hosts_with!("\"null\" ip name=empty"), None, "empty"),
    (hosts_with!("tracer ip; \"null\" tracer name=quiet"), None, "quiet"),
    (hosts_with!("fragment ip; rdgram fragment"), None, "rdgram"),
    (hosts_with!("udp ip; \"null\" udp name=ports"), None, "ports"),
    (hosts_with!("icmp ip"), None, "icmp"),
    ("ether sim", Some("bsd"), "ether"),
    ("ether sim; ip ether { address \"10.0.0.1/24\"; }", Some("bsd"), "ip"),
    ("ether sim; ip ether { address \"10.0.0.1/24\"; }; udp ip", Some("bsd"), "udp"),
    ("ether sim; ddp ether net=\"10-19\" node=9", Some("bsd"), "ddp"),
    ("ether sim; ddp ether net=\"10-19\" node=9; atp ddp", Some("bsd"), "atp"),
    ("ether sim", Some("streams"), "ether"),
    ("ether sim; ddp ether net=\"10-19\" node=9", Some("streams"), "ddp"),
    ("ether sim; ddp ether net=\"10-19\" node=9; atp ddp", Some("streams"), "atp"),
];

/// Parameters that an upper line needs besides its lower.
fn line(entry: &Entry, lower: &str) -> String {
    let needs = match entry.kind {
        "ip" => "{ address \"10.0.9.1/24\"; }",
        _ => "",
    };
    format!("\"{}\" {lower} name=upper {needs}", entry.kind)
}

fn inside(of: Option<&str>, lines: &str) -> String {
    match of {
        Some(of) => format!("subsystem {of} {{ {lines}; }}\n"),
        None => format!("{lines}\n"),
    }
}

#[test]
fn what_the_check_lets_pass_is_built_and_starts() {
    let catalog = xk_catalog::standard();
    let (mut wrong, mut joined, mut refused) = (String::new(), 0, 0);
    for (lines, of, lower) in LOWERS {
        for entry in catalog.entries() {
            let is_line = !matches!(entry.shape, Shape::Wire | Shape::Framework | Shape::Adapter);
            if !is_line || entry.subsystem == of || of.is_none() && entry.subsystem.is_none() {
                continue;
            }
            let upper = inside(entry.subsystem, &line(entry, lower));
            let source =
                format!("host h {{\nsim link=lan\n{}{upper}}}\nlink lan\n", inside(of, lines));
            let what = format!(
                "{}/{} on {}/{lower}",
                entry.subsystem.unwrap_or("xk"),
                entry.kind,
                of.unwrap_or("xk")
            );
            let graph = match check(&source, "edges", &catalog) {
                Ok(graph) => graph,
                // The reason is the graph's, and not that something else went wrong.
                Err(mistakes) => {
                    let text = mistakes.to_text();
                    let is_reason = [
                        "cannot stand on",
                        "opens",
                        "has no type number",
                        "needs `local` on",
                        "needs the parameter",
                        "needs the block",
                        "cannot do with its `to`",
                        "does not say whom it asks",
                        "stands on too few protocols",
                    ];
                    if !is_reason.iter().any(|words| text.contains(words)) {
                        wrong += &format!("{what} is refused: {text}\n");
                    }
                    refused += 1;
                    continue;
                }
            };
            let mut world = match simulate(&graph, SimulationConfig::default()) {
                Ok(world) => world,
                Err(e) => {
                    wrong += &format!("{what} is not built: {}\n", e.to_text());
                    continue;
                }
            };
            match start_world(&graph, &mut world) {
                Ok(()) => joined += 1,
                Err(e) => wrong += &format!("{what} does not start: {}\n", e.to_text()),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    println!("{joined} edges are joined, {refused} refused");
    assert!(joined > 50, "{joined} edges are joined, {refused} refused");
}

/// Whatever has a number on `eth`, or one that follows there, has it on a framework's Ethernet.
#[test]
fn what_stands_on_eth_has_its_number_on_ether() {
    let catalog = xk_catalog::standard();
    let numbers = catalog.numbers();
    let on_eth: Vec<_> = numbers.kinds().iter().filter(|number| number.lower == "eth").collect();
    assert!(on_eth.len() > 8, "{on_eth:?}");
    for number in on_eth {
        let found = numbers.find_kinds(number.upper, "ether");
        assert_eq!(found, Some(number.number), "{}", number.upper);
    }
    let ip = "ip arp { address \"10.0.0.1/24\"; }";
    for of in ["bsd", "streams"] {
        for (lines, figure) in [
            ("mrpc vip; caller mrpc to=\"procedure1@10.0.0.2\" count=5 start=\"500ms\"", "replies"),
            ("udp vip; probe udp to=\"port7@10.0.0.2\" count=5 start=\"500ms\"", "received"),
        ] {
            let source = format!(
                "host a {{ sim link=lan; subsystem {of} {{ ether sim; }}
                 arp ether; {ip}; vip arp ip; {lines} }}
                 host b {{ sim link=lan; eth sim; arp eth; ip arp {{ address \"10.0.0.2/24\"; }}
                 vip arp ip; mrpc vip; procedures mrpc; udp vip; echo udp port=7 }}
                 link lan delay=\"1ms\"\n"
            );
            let graph = check(&source, "edges", &catalog).unwrap_or_else(|e| panic!("{e}"));
            let mut world = simulate(&graph, SimulationConfig::default()).unwrap();
            start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
            world.run_until_finished(Time::ZERO + Duration::from_secs(30));
            let kernel = world.find("a").and_then(|id| world.kernel(id)).unwrap();
            let reports = kernel.protocols().into_iter().filter_map(|protocol| {
                matches!(protocol.name(), "caller" | "probe")
                    .then(|| protocol.ask(kernel, Report::default()).unwrap().lines)
            });
            let lines: Vec<_> = reports.flatten().collect();
            let line = lines.iter().find(|(name, _)| name == figure);
            assert!(line.is_some_and(|(_, text)| text == "5"), "{of}: {lines:?}");
        }
    }
}

/// BSD's own takes the frames: what asks for them besides is refused, and nothing is taken away.
#[test]
fn frames_that_a_protocol_of_bsd_takes_are_no_others() {
    let source = |more: &str| {
        format!(
            "host h {{ sim link=lan; subsystem bsd {{ ether sim; \
             ip ether {{ address \"10.0.0.1/24\"; }}; }}; arp ether; {more} }}\nlink lan\n"
        )
    };
    let said = |more: &str| match check(&source(more), "edges", &xk_catalog::standard()) {
        Ok(_) => panic!("{more}"),
        Err(mistakes) => mistakes.to_text(),
    };
    let text = said("ip arp name=other { address \"10.0.1.1/24\"; }");
    assert!(text.contains("`other` has the same type number on `ether` as `ip`"), "{text}");
    // What the check tries before it says that a graph is right.
    let text = said("");
    let wanted = "`arp` on host `h` cannot start: the participants are in use";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn an_edge_of_addresses_that_no_adapter_translates_is_refused_with_that_reason() {
    for (lines, of, lower, upper, upper_of) in [
        ("eth sim", None, "eth", "ddp", Some("bsd")),
        ("eth sim", None, "eth", "ip", Some("bsd")),
        ("eth sim", None, "eth", "ddp", Some("streams")),
        ("ether sim", Some("streams"), "ether", "ddp", Some("bsd")),
        ("ether sim", Some("streams"), "ether", "ip", Some("bsd")),
    ] {
        let needs = if upper == "ip" { "{ address \"10.0.9.1/24\"; }" } else { "" };
        let upper = inside(upper_of, &format!("{upper} {lower} name=upper {needs}"));
        let source = format!("host h {{\nsim link=lan\n{}{upper}}}\nlink lan\n", inside(of, lines));
        let text = match check(&source, "edges", &xk_catalog::standard()) {
            Ok(_) => panic!("{source}"),
            Err(mistakes) => mistakes.to_text(),
        };
        let wanted = format!("no adapter translates the addresses of `{lower}`");
        assert!(text.contains(&wanted), "{source}{text}");
    }
}
