//! What passes the check starts: the hosts are started in its rehearsal.

use std::time::Duration;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;

/// One host, with these layers on top of IP.
fn host(above: &str) -> String {
    format!(
        "host a {{\nsim link=lan\neth sim\narp eth\n\
         ip arp {{ address \"10.0.0.1/24\"; }}\n{above}\n}}\nlink lan\n"
    )
}

#[test]
fn what_cannot_start_is_refused() {
    let catalog = xk_catalog::standard();
    for (above, why) in [
        ("icmp ip\necho icmp", "takes no enables"),
        ("udp ip\n\"null\" udp", "takes ports"),
        ("udp ip\necho udp port=7\necho udp name=e2 port=7", "in use"),
        ("mrpc ip\nprocedures mrpc\nprocedures mrpc name=p2", "in use"),
        ("channel ip\nselect channel\nprocedures select\nprocedures select name=p2", "in use"),
        (
            "udp ip\nreqrep udp\nsunselect reqrep\nsunprog sunselect\nsunprog sunselect name=s2",
            "the same type number",
        ),
        ("vip arp ip\nvipsize vip ip\ndiscard vipsize", "in use"),
        (
            "vipaddr arp ip\nfragment ip\nvipsize vipaddr fragment ip\ndiscard vipsize",
            "the smallest messages first",
        ),
    ] {
        let source = host(above);
        let Err(mistakes) = check(&source, "g", &catalog) else {
            panic!("accepted: {above}");
        };
        let text = mistakes.to_string();
        assert!(text.contains(why), "{above}: {text}");
    }
}

/// Two hosts with so many layers one on another, of the kind that takes most of a stack. `fragment`
/// waits, so that messages pass on stacks of shepherds.
fn tower(layers: usize) -> String {
    let host = |name: &str, last: u8, top: &str| {
        let mut text = format!(
            "host {name} {{\nsim link=lan\neth sim\narp eth\n\
             ip arp {{ address \"10.0.0.{last}/24\"; }}\nfragment ip\n\
             discard fragment {{ number fragment=99; }}\nudp ip\n"
        );
        // Five are below, one is on top.
        let mut lower = "udp".to_owned();
        for n in 0..layers - 6 {
            text += &format!("fault {lower} name=f{n}\n");
            lower = format!("f{n}");
        }
        text + &top.replace("LOWER", &lower) + "\n}\n"
    };
    let probe = "probe LOWER to=\"port7@10.0.0.2\" count=3 size=300";
    host("a", 1, probe) + &host("b", 2, "echo LOWER port=7") + "link lan\n"
}

#[test]
fn the_highest_tower_is_carried_and_a_higher_one_refused() {
    let catalog = xk_catalog::standard();
    let Err(mistakes) = check(&tower(25), "g", &catalog) else {
        panic!("25 layers are accepted");
    };
    let text = mistakes.to_string();
    assert!(text.contains("is layer 25 of its host"), "{text}");
    assert!(text.contains("at most 24 layers"), "{text}");
    let graph = check(&tower(24), "g", &catalog).unwrap_or_else(|e| panic!("{e}"));
    let mut world = simulate(&graph, SimulationConfig::default()).unwrap_or_else(|e| panic!("{e}"));
    start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
    world.run_until_finished(Time::ZERO + Duration::from_secs(5));
    let kernel = world.kernel(world.find("a").unwrap()).unwrap();
    let probe = kernel.find_protocol("probe").unwrap();
    let report = probe.ask(kernel, Report::default()).unwrap();
    assert!(report.finished && !report.failed, "{:?}", report.lines);
}
