//! The law of frames: what sends again sends at most twice what is needed and what the network
//! lost, and that grows linearly with the calls, their octets and their callers. For every stack
//! with retransmission in it, under loss, duplication, reordering, jitter, and many callers at
//! once.
//!
//! `XK_SEED=7` runs one seed, `XK_LONG=1` a hundred times as many as usually.

use crate::sim::{checked, started};
use std::time::Duration;
use xk_core::Time;
use xk_core::control::Report;
use xk_testkit::seeds;

/// A stack above the hosts' layer, and what asks and answers on it.
struct Stack {
    name: &'static str,
    layers: &'static str,
    client: &'static str,
    server: &'static str,
    /// Octets that a frame carries of a message.
    payload: u64,
    /// Frames for each of those frames: more than one where the layer acknowledges on its own.
    share: f64,
    /// The largest message it carries by frames that are sent again one by one; a loss costs those
    /// above all of a larger one's frames.
    octets_max: u64,
}

const SMALL: u64 = 100;
const LARGE: u64 = 16_000;

const fn calls(
    name: &'static str,
    layers: &'static str,
    on: (&'static str, &'static str),
) -> Stack {
    Stack {
        name,
        layers,
        client: on.0,
        server: on.1,
        payload: 1_400,
        share: 1.0,
        octets_max: LARGE,
    }
}

const SELECT: (&str, &str) = ("caller select to=\"procedure1@10.0.0.100\"", "procedures select");
const CHANNEL: (&str, &str) =
    ("caller channel to=\"10.0.0.100\"", "procedures channel procedure=1");
const MRPC: (&str, &str) = ("caller mrpc to=\"procedure1@10.0.0.100\"", "procedures mrpc");
const VMTP: (&str, &str) = ("caller vmtp to=\"procedure1@10.0.0.100\"", "procedures vmtp");
const SUN: (&str, &str) = (
    "caller sunprog to=\"procedure1@version1@program536870913@10.0.0.100\"",
    "procedures sunprog at=\"*@version1@program536870913\"",
);
const SUN_PORT: (&str, &str) = (
    "caller sunprog to=\"procedure1@version1@program536870913@port99@10.0.0.100\"",
    "procedures sunprog at=\"*@version1@program536870913@port99\"",
);

const STACKS: &[Stack] = &[
    Stack { payload: 1_024, ..calls("mrpc", "mrpc ip", MRPC) },
    calls("mrpc, large fragments", "mrpc ip fragment=0", MRPC),
    Stack { payload: 1_024, ..calls("mrpc on vip", "vip arp ip\nmrpc vip", MRPC) },
    Stack { payload: 1_024, ..calls("vmtp", "vmtp ip", VMTP) },
    Stack { payload: 1_024, ..calls("vmtp on vip", "vip arp ip\nvmtp vip", VMTP) },
    calls("select", "fragment ip\nchannel fragment\nselect channel", SELECT),
    Stack {
        payload: 1_470,
        ..calls(
            "select on vipsize",
            "vipaddr arp ip\nfragment vipaddr\nvipsize vipaddr fragment\nchannel vipsize\nselect channel",
            SELECT,
        )
    },
    Stack { octets_max: SMALL, ..calls("channel", "channel ip", CHANNEL) },
    calls(
        "sunselect on channel",
        "fragment ip\nchannel fragment\nsunselect channel\nsunprog sunselect",
        SUN,
    ),
    calls(
        "reqrep on fragment",
        "fragment ip\nreqrep fragment\nsunselect reqrep\nsunprog sunselect",
        SUN,
    ),
    Stack {
        octets_max: SMALL,
        ..calls(
            "reqrep on udp",
            "udp ip\nreqrep udp\nsunselect reqrep\nsunprog sunselect",
            SUN_PORT,
        )
    },
    Stack {
        share: 1.5,
        ..calls(
            "reqrep on rm",
            "tcp ip\nrm tcp\nreqrep rm\nsunselect reqrep\nsunprog sunselect",
            SUN_PORT,
        )
    },
    calls(
        "rdgram",
        "fragment ip\nchannel fragment\nrdgram channel",
        ("probe rdgram to=\"10.0.0.100\"", "echo rdgram"),
    ),
    Stack {
        payload: 1_470,
        ..calls("fragment", "fragment ip", ("probe fragment to=\"10.0.0.100\"", "echo fragment"))
    },
    Stack {
        share: 1.5,
        ..calls("rm", "tcp ip\nrm tcp", ("probe rm to=\"port99@10.0.0.100\"", "echo rm port=99"))
    },
    Stack {
        share: 1.5,
        ..calls("tcp", "tcp ip", ("probe tcp to=\"port99@10.0.0.100\"", "echo tcp port=99"))
    },
];

/// Work of a run.
#[derive(Clone, Copy, Debug)]
struct Work {
    callers: u64,
    /// Messages of each.
    count: u64,
    octets: u64,
}

impl Stack {
    /// Frames for messages there and back; an empty acknowledgement of a datagram is a frame as
    /// well.
    fn needed(&self, work: Work) -> u64 {
        let one = work.octets.div_ceil(self.payload);
        let empty = u64::from(self.name == "rdgram");
        let frames = (2 * (one + empty) * work.count * work.callers) as f64;
        (frames * self.share).ceil() as u64
    }

    /// Frames of every caller besides: two of ARP (each way), the handshake and end of a
    /// connection, a challenge with the message that it makes go again, the last reply's
    /// acknowledgement.
    fn besides(&self, work: Work) -> u64 {
        (12 + work.octets.div_ceil(self.payload)) * work.callers
    }

    fn graph(&self, work: Work, link: &str) -> String {
        let host = |name: &str, address: u64, top: &str| {
            format!(
                "host {name} {{\nsim link=lan\neth sim\narp eth\nip arp {{ address \"10.0.0.{address}/24\"; }}\n{}\n{top}\n}}\n",
                self.layers
            )
        };
        let each = match self.client.starts_with("caller") {
            true => "interval=\"20ms\"",
            false => "interval=\"20ms\" timeout=\"60s\"",
        };
        let client = format!("{} count={} size={} {each}", self.client, work.count, work.octets);
        let clients = (1..=work.callers).map(|n| host(&format!("c{n}"), n, &client));
        host("server", 100, self.server) + &clients.collect::<String>() + "link lan " + link + "\n"
    }
}

/// Cost of a run.
#[derive(Debug)]
struct Cost {
    sent: u64,
    lost: u64,
    overflowed: u64,
    answered: u64,
}

fn run(stack: &Stack, work: Work, link: &str, seed: u64) -> Cost {
    let source = stack.graph(work, link);
    let graph = checked(&source);
    let mut world = started(&graph, seed);
    world.run_until_finished(Time::ZERO + Duration::from_secs(120));
    let network = world.network();
    let stats = network.stats(network.link("lan").unwrap()).unwrap();
    let mut answered = 0;
    for host in graph.graph().expand() {
        let id = world.find(&host.name).unwrap();
        let kernel = world.kernel(id).unwrap();
        for protocol in kernel.protocols() {
            let is_client = matches!(protocol.head().kind(), "caller" | "probe");
            if is_client && let Some(report) = protocol.ask(kernel, Report::default()) {
                let of = |(name, value): &(String, String)| match name.as_str() {
                    "replies" | "received" => value.parse::<u64>().unwrap(),
                    "wrong" | "corrupt" => {
                        assert_eq!(value, "0", "{}: {:?}", stack.name, report.lines);
                        0
                    }
                    _ => 0,
                };
                answered += report.lines.iter().map(of).sum::<u64>();
            }
        }
    }
    Cost {
        sent: stats.sent,
        lost: stats.lost,
        overflowed: stats.queue_full + stats.no_buffers + stats.in_flight_full,
        answered,
    }
}

/// Runs work, and holds the law against it.
fn judge(stack: &Stack, work: Work, link: &str, seed: u64) -> Cost {
    let about = format!("{}, {work:?}, link {link}, seed {seed}", stack.name);
    let cost = run(stack, work, link, seed);
    let (needed, besides) = (stack.needed(work), stack.besides(work));
    let max = 2 * needed + cost.lost + besides;
    println!("{about}: {needed} needed, {cost:?}");
    assert!(
        cost.sent + cost.overflowed <= max,
        "{about}: {needed} frames are needed and {max} the most, {cost:?}"
    );
    // FRAGMENT gives a message up, all others bring it through.
    let may_lose = stack.name == "fragment" && cost.lost + cost.overflowed > 0;
    assert!(cost.answered == work.count * work.callers || may_lose, "{about}: {cost:?}");
    cost
}

fn sizes(stack: &Stack) -> impl Iterator<Item = u64> {
    [SMALL, LARGE].into_iter().filter(|octets| *octets <= stack.octets_max)
}

/// The figures of needed frames are honest: a fair network sees no fewer, and hardly more.
#[test]
fn a_fair_network_sees_what_is_needed() {
    for stack in STACKS {
        for octets in sizes(stack) {
            let work = Work { callers: 1, count: 40, octets };
            let cost = judge(stack, work, "delay=\"1ms\" rate=\"100Mbit\"", 1);
            let (needed, besides) = (stack.needed(work), stack.besides(work));
            assert!(
                cost.sent <= needed + needed / 10 + besides,
                "{}: {needed} needed, {cost:?}",
                stack.name
            );
            let least = (needed as f64 / stack.share) as u64;
            assert!(cost.sent >= least, "{}: {needed} needed, {cost:?}", stack.name);
        }
    }
}

#[test]
fn a_bad_network_costs_twice_the_needed_and_the_lost() {
    let links = [
        "delay=\"10ms\" rate=\"100Mbit\" loss=\"3%\"",
        "delay=\"1ms\" duplicate=\"20%\"",
        "delay=\"1ms\" duplicate=\"100%\"",
        "delay=\"1ms\" rate=\"100Mbit\" reorder=\"10%\" reorder_delay=\"3ms\"",
        "delay=\"10ms\" rate=\"100Mbit\" jitter=\"2ms\"",
        "delay=\"10ms\" rate=\"100Mbit\" jitter=\"2ms\" loss=\"0.5%\"",
        "delay=\"1ms\" jitter=\"3ms\" duplicate=\"5%\" loss=\"2%\"",
    ];
    seeds::of(150).run(|seed| {
        for stack in STACKS {
            for octets in sizes(stack) {
                for link in links {
                    judge(stack, Work { callers: 1, count: 30, octets }, link, seed);
                }
            }
        }
    });
}

#[test]
fn many_callers_at_once_cost_what_they_cost_one_by_one() {
    for stack in STACKS {
        for octets in sizes(stack) {
            for callers in [1, 8, 24] {
                judge(
                    stack,
                    Work { callers, count: 1, octets },
                    "kind=switch delay=\"50us\" rate=\"10Mbit\"",
                    1,
                );
            }
        }
    }
}
