//! ASP of the x-kernel on ATP of each framework, and with a layer that looks on between: its
//! transactions have options, which everything between passes on.

use std::time::Duration;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;

/// Layers below ASP, and the name of the topmost one.
const BELOW: [(&str, &str); 6] = [
    ("atp ddp", "atp"),
    ("atp ddp; tracer atp", "tracer"),
    ("subsystem bsd { atp ddp; }", "atp"),
    ("subsystem streams { atp ddp; }", "atp"),
    ("subsystem bsd { atp ddp; }; tracer atp", "tracer"),
    ("subsystem streams { atp ddp; }; fault atp", "fault"),
];

fn host(name: &str, node: u8, (lines, below): (&str, &str), top: &str) -> String {
    let (lines, top) = (lines.replace("; ", "\n"), top.replace("; ", "\n"));
    let lines = lines.replace("{ atp ddp\n}", "{ atp ddp; }");
    format!(
        "host {name} {{\nsim link=lan\neth sim\naarp eth\nddp aarp net=\"10\" node={node}\n{lines}\nasp {below}\n{top}\n}}\n"
    )
}

fn run(client: (&str, &str), server: (&str, &str), work: &str, link: &str) -> Result<(), String> {
    let to = format!("caller asp to=\"socket129@node2@net10\" start=\"3s\" {work}");
    let source = host("client", 1, client, &to)
        + &host("server", 2, server, "procedures asp")
        + &format!("link lan delay=\"1ms\" {link}\n");
    let graph = check(&source, "asp.kdl", &xk_catalog::standard()).map_err(|m| m.to_text())?;
    let mut world =
        simulate(&graph, SimulationConfig::default()).map_err(|mistakes| mistakes.to_text())?;
    start_world(&graph, &mut world).map_err(|mistakes| mistakes.to_text())?;
    world.run_until_finished(Time::ZERO + Duration::from_secs(300));
    let mut all = String::new();
    let mut replies = 0;
    for name in ["client", "server"] {
        let kernel = world.find(name).and_then(|id| world.kernel(id)).expect("a host");
        for protocol in kernel.protocols() {
            let lines = protocol.ask(kernel, Report::default()).map(|report| report.lines);
            let lines = lines.unwrap_or_default();
            let own = lines.iter().find(|(line, _)| line == "replies");
            replies += own.map_or(0, |(_, count)| count.parse::<u32>().unwrap_or(0));
            let drops = protocol.head().drops().list();
            all += &format!("{name} {}: {lines:?} {drops:?}\n", protocol.name());
        }
    }
    world.stop();
    if replies == 20 { Ok(()) } else { Err(format!("{replies} replies\n{all}")) }
}

#[test]
fn sessions_of_commands_stand_on_transactions_of_each_framework() {
    let mut wrong = String::new();
    for client in BELOW {
        for server in BELOW {
            // Long requests are writes, for which the server asks.
            for work in ["count=20 interval=\"100ms\" size=45", "count=20 size=2000"] {
                if let Err(why) = run(client, server, work, "loss=\"2%\" duplicate=\"1%\"") {
                    wrong += &format!("{client:?} to {server:?}, {work}: {why}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A layer without transactions is refused below ASP, whatever lies below it.
#[test]
fn what_has_no_transactions_is_refused() {
    let source = host("h", 1, ("atp ddp; deadline atp", "deadline"), "procedures asp");
    let source = source + "link lan\n";
    let mistakes = check(&source, "asp.kdl", &xk_catalog::standard()).err().expect("a mistake");
    let text = mistakes.to_text();
    assert!(text.contains("it has no transactions: nothing goes beside a call on it"), "{text}");
}
