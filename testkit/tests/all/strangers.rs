//! No stranger pins anything: after first messages from many more strangers than a table holds, in
//! forged names, a whole stack serves those that it served before and those that come later,
//! whatever takes the messages. All frames come from one seed, which a failure names.
//!
//! The attacker repeats what an honest host sends, each time from another address, or completes
//! handshakes of TCP and says nothing more. So it needs to know nothing of what it attacks, and
//! every layer of the catalog that takes messages from below can be put in.

use std::collections::BTreeSet;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::{ListSessions, Report};
use xk_core::object::{SessionId, SessionRef};
use xk_core::reason::Class;
use xk_core::{ProtocolRef, Time};
use xk_sim::World;
use xk_testkit::everything;

/// Seed of all frames and of the simulation.
const SEED: u64 = 20_261_122;
/// More than IP's table has idle sessions, by half; the long form has more than any table holds.
const STRANGERS: u64 = 6500;
const STRANGERS_LONG: u64 = 100_000;
/// Frames a second.
const RATE: u64 = 20_000;
/// Milliseconds between two questions of an honest client.
const INTERVAL: u64 = 50;

/// A stack under attack: the layers above IP at the server and at the clients, the server, and the
/// client.
struct Stack<'a> {
    name: &'static str,
    layers: &'a str,
    server: &'static str,
    /// The client without its name, times and counts.
    client: &'static str,
}

const SUN: &str = "procedure1@version1@program536870913@port2049@10.0.0.1";

const STACKS: &[Stack<'static>] = &[
    Stack {
        name: "icmp",
        layers: "",
        server: "",
        client: r#"probe icmp to="10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "udp",
        layers: "udp ip",
        server: "echo udp port=7",
        client: r#"probe udp to="port7@10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "null",
        layers: r#""null" ip sessions_max=16384"#,
        server: r#"echo "null""#,
        client: r#"probe "null" to="10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "filters",
        layers: "tracer ip; fault tracer; udp fault",
        server: "echo udp port=7",
        client: r#"probe udp to="port7@10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "fragment",
        layers: "fragment ip sessions_max=16384",
        server: "echo fragment",
        client: r#"probe fragment to="10.0.0.1" size=3000 timeout="1s""#,
    },
    Stack {
        name: "rdgram",
        layers: "fragment ip; channel fragment; rdgram channel",
        server: "echo rdgram",
        client: r#"probe rdgram to="10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "psync",
        layers: "psync ip",
        server: "echo psync local=process7",
        client: r#"probe psync to="process7@10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "order",
        layers: "psync ip; order psync",
        server: "echo order local=process7",
        client: r#"probe order to="process7@10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "groupcall",
        layers: "psync ip; groupcall psync",
        server: r#"procedures groupcall at="*@process7""#,
        client: r#"caller groupcall to="procedure1@process7@10.0.0.1""#,
    },
    Stack {
        name: "membership",
        layers: "psync ip; membership psync; order membership",
        server: "echo order local=process7",
        client: r#"probe order to="process7@10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "fanout",
        layers: "fanout ip joins=#true",
        server: "echo fanout",
        client: r#"probe fanout to="10.0.0.1" timeout="1s""#,
    },
    Stack {
        name: "channel",
        layers: "channel ip",
        server: "procedures channel procedure=1",
        client: r#"caller channel to="10.0.0.1""#,
    },
    Stack {
        name: "select",
        layers: "fragment ip; channel fragment; select channel; deadline select",
        server: "procedures deadline",
        client: r#"caller deadline to="procedure1@10.0.0.1""#,
    },
    Stack {
        name: "forward",
        layers: "channel ip; forward channel",
        server: "procedures forward",
        client: r#"caller forward to="procedure1@10.0.0.1""#,
    },
    Stack {
        name: "objects",
        layers: "channel ip; objloc channel; objinv objloc",
        server: r#"procedures objinv at="*@eid7""#,
        client: r#"caller objinv to="procedure1@eid7@10.0.0.1""#,
    },
    Stack {
        name: "objects on udp",
        layers: "udp ip; reqrep udp; objloc reqrep at=port2005; objinv objloc",
        server: r#"procedures objinv at="*@eid7""#,
        client: r#"caller objinv to="procedure1@eid7@10.0.0.1""#,
    },
    Stack {
        name: "sr",
        layers: "udp ip; reqrep udp; sr reqrep vm=VM at=port2006",
        server: "procedures sr",
        client: r#"caller sr to="procedure1@vm1@10.0.0.1""#,
    },
    Stack {
        name: "mrpc",
        layers: "mrpc ip",
        server: "procedures mrpc",
        client: r#"caller mrpc to="procedure1@10.0.0.1""#,
    },
    Stack {
        name: "vmtp",
        // The checksum covers the client that a replay changes.
        layers: "vmtp ip checksum=#false",
        server: "procedures vmtp",
        client: r#"caller vmtp to="procedure1@10.0.0.1""#,
    },
    Stack {
        name: "reqrep",
        layers: "udp ip; reqrep udp; sunselect reqrep; sunprog sunselect",
        server: r#"procedures sunprog at="*@version1@program536870913@port2049""#,
        client: "caller sunprog to=SUN",
    },
    Stack {
        name: "auth",
        layers: "udp ip; reqrep udp; sunselect reqrep; authsys sunselect; authshort sunselect authsys; \
                 authnone sunselect; sunprog authshort authnone",
        server: r#"procedures sunprog at="*@version1@program536870913@port2049""#,
        client: "caller sunprog to=SUN",
    },
    Stack {
        name: "portmap",
        layers: "udp ip; reqrep udp; sunselect reqrep; sunprog sunselect; portmap sunprog",
        server: r#"procedures portmap at="*@version1@program536870913@port2049""#,
        client: "caller portmap to=SUN",
    },
    Stack {
        name: "vip",
        layers: "vip arp ip; mrpc vip",
        server: "procedures mrpc",
        client: r#"caller mrpc to="procedure1@10.0.0.1""#,
    },
    Stack {
        name: "vipsize",
        layers: "vipaddr arp ip; fragment vipaddr; vipsize vipaddr fragment; channel vipsize; select channel",
        server: "procedures select",
        client: r#"caller select to="procedure1@10.0.0.1""#,
    },
    Stack {
        name: "tcp",
        layers: "tcp ip sessions_max=6000",
        server: "echo tcp port=7",
        client: r#"probe tcp to="port7@10.0.0.1" timeout="2s""#,
    },
    Stack {
        name: "rm",
        layers: "tcp ip sessions_max=6000; rm tcp; reqrep rm; sunselect reqrep; sunprog sunselect",
        server: r#"procedures sunprog at="*@version1@program536870913@port2049""#,
        client: "caller sunprog to=SUN",
    },
];

/// Not attacked here by messages of their own: tops, wires, what lies below in each, what takes no
/// enables, and AppleTalk, whose hosts are no IP addresses (`strangers_apple` attacks it).
const ELSEWHERE: &[&str] = &[
    "aarp",
    "aep",
    "asp",
    "atp",
    "bsd",
    "bsd-on-streams",
    "bsd-on-xk",
    "caller",
    "chatter",
    "ddp",
    "directory",
    "discard",
    "echo",
    "eth",
    "host-eth",
    "host-tcp",
    "host-udp",
    "igmp",
    "llap",
    "loopback",
    "ltoudp",
    "nbp",
    "netio",
    "noise",
    "objmove",
    "packet",
    "pcap",
    "print",
    "printer",
    "probe",
    "procedures",
    "registry",
    "replica",
    "replica-client",
    "resource",
    "rtmp",
    "shm",
    "sim",
    "sockets",
    "streams",
    "streams-on-bsd",
    "streams-on-xk",
    "tap",
    "tli",
    "vipadv",
    "xdp",
    "xk-on-bsd",
    "xk-on-streams",
    "zip",
];

fn lines(stack: &Stack<'_>) -> String {
    stack.layers.replace(';', "\n   ")
}

/// A client of a stack that asks each `interval` from `start` until `end`, in milliseconds.
fn client(stack: &Stack<'_>, name: &str, interval: u64, times: (u64, u64)) -> String {
    let asks = stack.client.replace("SUN", &format!("{SUN:?}"));
    format!("{asks} name={name} {}", client_times(interval, times))
}

/// Line of a client that works from `start` to `end`.
pub(crate) fn client_times(interval: u64, (start, end): (u64, u64)) -> String {
    let count = (end - start) / interval;
    format!("count={count} interval=\"{interval}ms\" start=\"{start}ms\"")
}

fn host(name: &str, address: &str, stack: &Stack<'_>, tops: &str) -> String {
    // What the victim answers to forged hosts goes along the link, where the attacker hears it.
    let route = match name {
        "victim" => r#"route default via="10.0.0.2";"#,
        _ => "",
    };
    // Each has a number of its own.
    let vm = address.rsplit_once('.').map_or("", |(_, vm)| vm);
    format!(
        r#"
host {name} {{
    sim link=lan
    eth sim
    arp eth
    ip arp {{ address "{address}/8"; {route} }}
    icmp ip
    {}
    {tops}
}}
"#,
        lines(stack).replace("VM", vm)
    )
}

/// One attack: `kind` of noise from `sources`, by so many strangers.
struct Attack {
    kind: &'static str,
    sources: &'static str,
    port: u16,
    strangers: u64,
    /// Milliseconds between two questions of the client that asks from before the attack.
    interval: u64,
}

/// Lets the attack happen, and sees that clients that asked before it and those that come while it
/// lasts are served.
fn serves(stack: &Stack<'_>, attack: &Attack) {
    let what = format!("{} under {} from {}, seed {SEED}", stack.name, attack.kind, attack.sources);
    // The old client talks before, waits the attack out but for its middle, and talks after it.
    let begins = 1000;
    let ends = begins + attack.strangers * 1000 / RATE;
    let old = client(stack, "old", attack.interval, (1, ends + 1000));
    let new = client(stack, "new", INTERVAL, (ends - 100, ends + 1000));
    let strangers = attack.strangers;
    let source = format!(
        r#"
{}{}{}
host attacker {{
    sim link=lan
    noise sim to="10.0.0.1" ether="02:00:00:00:00:01" port={} sources="{}" kind={} rate={RATE} count={strangers} start="{begins}ms" seed={SEED}
}}
link lan kind=hub delay="50us" rate="1Gbit" queue=1000
"#,
        host("victim", "10.0.0.1", stack, stack.server).replacen(
            "link=lan",
            "link=lan address=\"02:00:00:00:00:01\"",
            1
        ),
        host("old", "10.0.0.2", stack, &old),
        host("fresh", "10.0.0.3", stack, &new),
        attack.port,
        attack.sources,
        attack.kind,
    );
    let checked = check(&source, stack.name, &xk_catalog::standard());
    let checked = checked.unwrap_or_else(|mistakes| panic!("{what}: {mistakes}"));
    let config = SimulationConfig { seed: SEED, ..SimulationConfig::default() };
    let mut world = simulate(&checked, config).unwrap_or_else(|e| panic!("{what}: {e}"));
    start_world(&checked, &mut world).unwrap_or_else(|e| panic!("{what}: {e}"));
    world.run_until(Time::from_ms(begins));
    let before = connections(&world, "old");
    world.run_until(Time::from_ms(ends + 900));
    assert_eq!(connections(&world, "old"), before, "{what}: broken off");
    world.run_until(Time::from_ms(ends + 4000));
    let sent = figure(&world, "attacker", "noise", "sent");
    assert_eq!(sent, Some(strangers), "{what}: not all frames were sent");
    if attack.kind == "connects" {
        let completed = figure(&world, "attacker", "noise", "answered");
        assert!(completed > Some(strangers * 9 / 10), "{what}: {completed:?} handshakes");
    }
    // What is not heard attacks no table. A challenge is an answer; and some of what is repeated
    // are acknowledgements, which begin nothing.
    let mut wrong = drops(&world, "victim");
    wrong.retain(|(_, why, class, _)| *class == Class::Bad && *why != "challenged");
    let all: u64 = wrong.iter().map(|(_, _, _, count)| count).sum();
    assert!(all < strangers * 2 / 3, "{what}: not heard: {wrong:?}");
    for (host, name) in [("old", "old"), ("fresh", "new")] {
        let of = |line| figure(&world, host, name, line);
        let asked = of("sent").or(of("calls")).unwrap_or(0);
        let answered = of("received").or(of("replies")).unwrap_or(0);
        assert!(
            asked > 9 && asked == answered,
            "{what}: of {asked} of the {name} client's, {answered} were answered"
        );
    }
}

/// The connections of TCP that a host has.
fn connections(world: &World, host: &str) -> Option<Vec<SessionId>> {
    let kernel = world.kernel(world.find(host)?)?;
    let list = kernel.find_protocol("tcp")?.ask(kernel, ListSessions::first(99))?;
    Some(list.here().map(SessionRef::id).collect())
}

/// Why the protocols of a host have dropped messages, and how many.
pub(crate) fn drops(world: &World, host: &str) -> Vec<(String, &'static str, Class, u64)> {
    let kernel = world.find(host).and_then(|id| world.kernel(id));
    let protocols = kernel.map_or(Vec::new(), |kernel| kernel.protocols());
    let of = |protocol: &ProtocolRef| {
        let name = protocol.name().to_owned();
        let list = protocol.head().drops().list().into_iter();
        list.map(move |(reason, count)| (name.clone(), reason.name, reason.class, count))
    };
    protocols.iter().flat_map(of).collect()
}

pub(crate) fn figure(world: &World, host: &str, protocol: &str, line: &str) -> Option<u64> {
    let kernel = world.kernel(world.find(host)?)?;
    let report = kernel.find_protocol(protocol)?.ask(kernel, Report::default())?;
    let (_, value) = report.lines.iter().find(|(name, _)| name == line)?;
    value.parse().ok()
}

fn strangers() -> u64 {
    match std::env::var_os("XK_LONG") {
        Some(_) => STRANGERS_LONG,
        None => STRANGERS,
    }
}

fn stack(name: &str) -> &'static Stack<'static> {
    let found = STACKS.iter().find(|stack| stack.name == name);
    found.unwrap_or_else(|| panic!("no stack {name}"))
}

#[test]
fn every_layer_that_takes_messages_is_tried() {
    let words: Vec<_> = STACKS
        .iter()
        .flat_map(|stack| stack.layers.split(|c: char| !c.is_alphanumeric()))
        .collect();
    let named: BTreeSet<&str> = words.into_iter().chain(["icmp"]).collect();
    // What is written for another framework has the kinds of the x-kernel's, and its own tests.
    for entry in xk_catalog::PROTOCOLS.iter().filter(|entry| entry.subsystem.is_none()) {
        let is_elsewhere = ELSEWHERE.contains(&entry.kind);
        assert!(
            named.contains(entry.kind) != is_elsewhere,
            "`{}` stands in none of the stacks, or in the list of others too",
            entry.kind
        );
    }
}

#[test]
fn a_host_of_everything_has_every_kind_that_is_not_excused() {
    let kinds: BTreeSet<&str> = everything::kinds().collect();
    for entry in xk_catalog::PROTOCOLS.iter().filter(|entry| entry.subsystem.is_none()) {
        let excuse = everything::ELSEWHERE.iter().find(|(kind, _)| *kind == entry.kind);
        assert!(
            kinds.contains(entry.kind) != excuse.is_some(),
            "`{}` stands in no host of everything, or is excused too",
            entry.kind
        );
    }
}

#[test]
fn first_messages_of_forged_hosts() {
    let port = 7;
    for stack in STACKS {
        let attack = Attack {
            kind: "replays",
            sources: "11.0.0.0/8",
            port,
            strangers: strangers(),
            interval: INTERVAL,
        };
        serves(stack, &attack);
    }
}

#[test]
fn connections_that_say_nothing() {
    for (name, port) in [("tcp", 7), ("rm", 2049)] {
        for sources in ["11.0.0.0/8", "11.7.0.0/16"] {
            let attack = Attack {
                kind: "connects",
                sources,
                port,
                strangers: strangers(),
                interval: INTERVAL,
            };
            serves(stack(name), &attack);
        }
    }
}

/// A connection in use is not broken off for ones that say nothing, however often the table is
/// filled between two of its messages.
#[test]
fn connections_that_are_used_now_and_then() {
    for (name, port, layers) in [
        ("tcp", 7, "tcp ip sessions_max=400"),
        ("rm", 2049, "tcp ip sessions_max=400; rm tcp; RPC"),
        ("rm", 2049, "tcp ip; rm tcp sessions_max=400; RPC"),
    ] {
        let rpc = "reqrep rm; sunselect reqrep; sunprog sunselect";
        let stack = Stack { layers: &layers.replace("RPC", rpc), ..*stack(name) };
        let attack = Attack {
            kind: "connects",
            sources: "11.0.0.0/8",
            port,
            strangers: strangers().max(40_000),
            interval: 250,
        };
        serves(&stack, &attack);
    }
}

#[test]
fn one_network_that_is_loud() {
    for name in ["udp", "reqrep", "fragment"] {
        let attack = Attack {
            kind: "replays",
            sources: "11.7.0.0/16",
            port: 7,
            strangers: strangers(),
            interval: INTERVAL,
        };
        serves(stack(name), &attack);
    }
}
