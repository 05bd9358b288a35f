//! The stacks, and what a seed has in store for them.

use crate::executions::model::MARK;
use core::num::NonZeroU8;
use core::ops::Range;
use core::time::Duration;
use xk_appletalk::atp::{Options, ReleaseTimer, Want};
use xk_core::random::Random;

/// Promise of a stack about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Executed at most once; exactly once if it brought a reply.
    AtMostOnce,
    /// Executed at least once if it brought a reply.
    AtLeastOnce,
    /// Exactly once if it brought a reply, and never twice until its caller has that: a request
    /// that comes after the caller has released it, or to a server that has crashed, is a new one.
    OnceUntilReleased,
}

/// Form of a call over a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Request and reply.
    Call,
    /// A message that is pushed; that it arrived is all that comes back. The protocol above has
    /// this type number.
    Datagram(u32),
}

/// A stack under test.
pub(crate) struct Stack {
    /// The test's name.
    pub(crate) name: &'static str,
    /// The graph: hosts `one`, `two` (clients) and `server`, and the link `lan`, whose properties
    /// are the plan's.
    pub(crate) graph: String,
    /// The node that the applications stand on.
    pub(crate) lower: &'static str,
    /// The peer that the clients open.
    pub(crate) to: &'static str,
    /// Participant that the server enables.
    pub(crate) at: &'static str,
    /// Form of a call.
    pub(crate) form: Form,
    /// Promise about a call.
    pub(crate) promise: Promise,
    /// True if the promise holds only as long as the server does not crash.
    pub(crate) is_of_one_boot: bool,
    /// The largest request and the largest reply, in octets.
    pub(crate) octets_max: [usize; 2],
    /// Options of the transaction that every request asks for; without them the layer's own.
    pub(crate) want: Option<Want>,
}

impl Stack {
    /// The options that go beside a request.
    pub(crate) fn options(&self) -> Option<[u8; 12]> {
        self.want.as_ref().map(|want| Options::request(want, 0).emit())
    }
}

/// The two hosts that call.
pub(crate) const CLIENTS: [&str; 2] = ["one", "two"];
/// The host that serves.
pub(crate) const SERVER: &str = "server";

/// Three hosts with the same layers on IP.
fn graph(layers: &str) -> String {
    let host = |name: &str, address: &str| {
        format!(
            "host {name} {{\n    sim link=lan\n    eth sim\n    arp eth\n    ip arp {{ address \"{address}/24\"; }}\n{layers}}}\n"
        )
    };
    [("one", "10.0.0.1"), ("two", "10.0.0.2"), ("server", "10.0.0.9")]
        .map(|(name, address)| host(name, address))
        .concat()
}

pub(crate) fn mrpc() -> Stack {
    Stack {
        name: "mrpc",
        graph: graph("    mrpc ip\n"),
        lower: "mrpc",
        to: "procedure7@10.0.0.9",
        at: "*",
        form: Form::Call,
        promise: Promise::AtMostOnce,
        is_of_one_boot: false,
        octets_max: [12_000; 2],
        want: None,
    }
}

pub(crate) fn sun_udp() -> Stack {
    Stack {
        name: "sun_udp",
        graph: graph("    udp ip\n    reqrep udp\n    sunselect reqrep\n    sunprog sunselect\n"),
        lower: "sunprog",
        to: "procedure7@version1@program536870913@port2049@10.0.0.9",
        at: "version1@program536870913@port2049",
        form: Form::Call,
        promise: Promise::AtLeastOnce,
        is_of_one_boot: false,
        octets_max: [8000; 2],
        want: None,
    }
}

pub(crate) fn sun_fragment() -> Stack {
    Stack {
        name: "sun_fragment",
        graph: graph(
            "    fragment ip\n    reqrep fragment\n    sunselect reqrep\n    sunprog sunselect\n",
        ),
        to: "procedure7@version1@program536870913@10.0.0.9",
        at: "version1@program536870913",
        ..sun_udp()
    }
}

/// With credentials and shorthands, which a server that has crashed knows no more, on a port that
/// the client asks for.
pub(crate) fn sun_auth_portmap() -> Stack {
    Stack {
        name: "sun_auth_portmap",
        graph: graph(
            "    udp ip\n    reqrep udp\n    sunselect reqrep\n    authsys sunselect machine=\"host\" user=1000 group=100\n    \
             authshort sunselect authsys\n    sunprog authshort\n    portmap sunprog\n",
        ),
        lower: "portmap",
        to: "procedure7@version1@program536870913@port0@10.0.0.9",
        ..sun_udp()
    }
}

/// Credentials and shorthands over a layer that executes at most once.
pub(crate) fn sun_auth_channel() -> Stack {
    Stack {
        name: "sun_auth_channel",
        graph: graph(
            "    fragment ip\n    channel fragment\n    sunselect channel\n    authsys sunselect\n    \
             authshort sunselect authsys\n    sunprog authshort\n",
        ),
        ..sun_channel()
    }
}

pub(crate) fn select_channel_fragment() -> Stack {
    Stack {
        name: "select_channel_fragment",
        graph: graph("    fragment ip\n    channel fragment\n    select channel\n"),
        lower: "select",
        ..mrpc()
    }
}

pub(crate) fn select_channel() -> Stack {
    Stack {
        name: "select_channel",
        graph: graph("    channel ip\n    select channel\n"),
        lower: "select",
        ..mrpc()
    }
}

pub(crate) fn vmtp() -> Stack {
    Stack {
        name: "vmtp",
        graph: graph("    vmtp ip\n"),
        lower: "vmtp",
        octets_max: [40_000; 2],
        ..mrpc()
    }
}

pub(crate) fn vmtp_vip() -> Stack {
    Stack { name: "vmtp_vip", graph: graph("    vip arp ip\n    vmtp vip\n"), ..vmtp() }
}

pub(crate) fn rdgram() -> Stack {
    Stack {
        name: "rdgram",
        graph: graph("    fragment ip\n    channel fragment\n    rdgram channel\n"),
        lower: "rdgram",
        to: "10.0.0.9",
        form: Form::Datagram(9),
        ..mrpc()
    }
}

pub(crate) fn sun_channel() -> Stack {
    Stack {
        name: "sun_channel",
        graph: graph(
            "    fragment ip\n    channel fragment\n    sunselect channel\n    sunprog sunselect\n",
        ),
        promise: Promise::AtMostOnce,
        ..sun_fragment()
    }
}

pub(crate) fn sun_vmtp() -> Stack {
    Stack {
        name: "sun_vmtp",
        graph: graph("    vmtp ip\n    sunselect vmtp\n    sunprog sunselect\n"),
        ..sun_channel()
    }
}

/// Transactions of AppleTalk between these hosts, which have `lower` to stand on.
pub(crate) fn transactions(graph: String, lower: &'static str) -> Stack {
    Stack {
        name: "atp_udp",
        graph,
        lower,
        to: "port200@10.0.0.9",
        at: "port200",
        form: Form::Call,
        promise: Promise::OnceUntilReleased,
        is_of_one_boot: false,
        // One packet, and eight.
        octets_max: [578 - MARK, 8 * 578 - MARK],
        want: None,
    }
}

pub(crate) fn atp_udp() -> Stack {
    transactions(graph("    udp ip\n    atp udp\n"), "atp")
}

/// Three hosts with the same layers on DDP.
fn apple(layers: &str) -> String {
    let host = |(name, node)| {
        format!(
            "host {name} {{\n    sim link=lan\n    eth sim\n    aarp eth\n    ddp aarp net=\"10-19\" node={node}\n{layers}}}\n"
        )
    };
    [("one", 1), ("two", 2), ("server", 9)].map(host).concat()
}

pub(crate) fn atp_ddp() -> Stack {
    Stack {
        name: "atp_ddp",
        to: "socket200@node9@net10",
        at: "socket200",
        ..transactions(apple("    atp ddp\n"), "atp")
    }
}

/// Frameworks of ATP and DDP in a configuration; nothing is the x-kernel.
type Configuration = [Option<&'static str>; 2];

/// The nine: ATP and DDP, each in the x-kernel, in BSD and in STREAMS.
const NINE: [Configuration; 9] = {
    let of = [None, Some("bsd"), Some("streams")];
    let mut nine = [[None; 2]; 9];
    let mut at = 0;
    while at < 9 {
        nine[at] = [of[at / 3], of[at % 3]];
        at += 1;
    }
    nine
};

/// A host with ATP and DDP of this configuration.
fn apple_of([atp, ddp]: Configuration, (name, node): (&str, u8)) -> String {
    let address = format!("net=\"10-19\" node={node}");
    let below = match ddp {
        None => format!("    eth sim\n    aarp eth\n    ddp aarp {address}\n"),
        Some(of) if atp == ddp => {
            format!("    subsystem {of} {{ ether sim; ddp ether {address}; atp ddp; }}\n")
        }
        Some(of) => format!("    subsystem {of} {{ ether sim; ddp ether {address}; }}\n"),
    };
    let above = match atp {
        None => "    atp ddp\n".to_owned(),
        Some(_) if atp == ddp => String::new(),
        Some(of) => format!("    subsystem {of} {{ atp ddp; }}\n"),
    };
    // What stands on ATP is of the x-kernel, and so an adapter is between.
    format!("host {name} {{\n    sim link=lan\n{below}{above}    tracer atp ring=1\n}}\n")
}

/// Transactions between hosts whose ATP and DDP are of any of three subsystems: 81 seeds in a row
/// have each of the nine configurations call each, and the second client is of any.
pub(crate) fn atp_nine(seed: u64) -> Stack {
    let any = Random::new(seed).fork(0x6e69_6e65).below(9);
    nine([seed % 9, any, seed / 9 % 9])
}

/// Exactly once, between clients and a server of these configurations.
pub(crate) fn nine(of: [u64; 3]) -> Stack {
    let hosts = [("one", 1), ("two", 2), ("server", 9)];
    let hosts = of.iter().zip(hosts);
    let graph = hosts.map(|(of, host)| apple_of(NINE[*of as usize % NINE.len()], host)).collect();
    let once = Some(ReleaseTimer::HalfMinute);
    let (tries, interval) = (NonZeroU8::new(8), Duration::from_secs(1));
    Stack {
        name: "atp_nine",
        to: "socket200@node9@net10",
        at: "socket200",
        want: Some(Want { once, tries, interval, ..Want::DEFAULT }),
        ..transactions(graph, "tracer")
    }
}

/// Stack of requests that are executed at least once.
pub(crate) fn atp_nine_at_least_once(seed: u64) -> Stack {
    let stack = atp_nine(seed);
    Stack {
        name: "atp_nine_at_least_once",
        promise: Promise::AtLeastOnce,
        want: stack.want.map(|want| Want { once: None, ..want }),
        ..stack
    }
}

/// Some replies have more than eight packets: such a call fails.
pub(crate) fn atp_nine_too_big(seed: u64) -> Stack {
    Stack { name: "atp_nine_too_big", octets_max: [578 - MARK, 16 * 578], ..atp_nine(seed) }
}

/// Stack whose options stand in the graph alone.
pub(crate) fn atp_nine_as_the_graph_says(seed: u64) -> Stack {
    let stack = atp_nine(seed);
    Stack {
        name: "atp_nine_as_the_graph_says",
        graph: stack.graph.replace("atp ddp", "atp ddp tries=8 interval=\"1s\""),
        want: None,
        ..stack
    }
}

/// Sessions of commands: at most once. Eight bits tell sessions apart, so that nothing holds for
/// those of before a server's crash.
pub(crate) fn asp() -> Stack {
    Stack {
        name: "asp",
        promise: Promise::AtMostOnce,
        is_of_one_boot: true,
        to: "socket129@node9@net10",
        at: "*",
        // Beyond one packet it is a write.
        octets_max: [8 * 578 - MARK; 2],
        ..transactions(apple("    atp ddp\n    asp atp\n"), "asp")
    }
}

pub(crate) fn atp_udp_at_least_once() -> Stack {
    Stack {
        name: "atp_udp_at_least_once",
        promise: Promise::AtLeastOnce,
        ..transactions(graph("    udp ip\n    atp udp xo=#false\n"), "atp")
    }
}

pub(crate) fn select_channel_fragment_vip() -> Stack {
    Stack {
        name: "select_channel_fragment_vip",
        graph: graph(
            "    vip arp ip\n    fragment vip\n    channel fragment\n    select channel\n",
        ),
        lower: "select",
        ..mrpc()
    }
}

pub(crate) fn select_channel_vipsize() -> Stack {
    Stack {
        name: "select_channel_vipsize",
        graph: graph(
            "    vipaddr arp ip\n    fragment vipaddr\n    vipsize vipaddr fragment\n    channel vipsize\n    select channel\n",
        ),
        lower: "select",
        ..mrpc()
    }
}

/// Time of a host's crash, and of its return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    /// Name of the host.
    pub(crate) host: &'static str,
    /// When.
    pub(crate) at: Duration,
    /// For how long.
    pub(crate) down: Duration,
}

/// A call to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// Number of the client that makes it.
    pub(crate) client: usize,
    /// When.
    pub(crate) at: Duration,
    /// Octets of the request and of the reply.
    pub(crate) sizes: [usize; 2],
    /// Time that the procedure takes.
    pub(crate) takes: Duration,
}

/// Events of a seed.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Properties of the link, as text of a graph.
    pub(crate) link: String,
    /// Crashes, in order.
    pub(crate) crashes: Vec<Crash>,
    /// Calls, in order.
    pub(crate) calls: Vec<Planned>,
    /// Whether the network gets better in the end, so that a call must get through.
    pub(crate) is_mild: bool,
}

/// End of the last fault.
pub(crate) const FAULTS_END: Duration = Duration::from_secs(20);

fn between(chance: &Random, range: Range<u64>) -> u64 {
    range.start + chance.below(range.end - range.start)
}

fn ms(chance: &Random, range: Range<u64>) -> Duration {
    Duration::from_millis(between(chance, range))
}

impl Plan {
    /// One call, whose reply is lost: the network is away while it would come.
    pub(crate) fn of_a_lost_reply() -> Self {
        let link = "link lan delay=\"1ms\" {\n    \
                    partition from=\"5200ms\" until=\"6s\" between=\"server\"\n}\n";
        let (at, takes) = (Duration::from_secs(5), Duration::from_millis(500));
        let calls = Vec::from([Planned { client: 0, at, sizes: [45, 578], takes }]);
        Self { link: link.to_owned(), crashes: Vec::new(), calls, is_mild: false }
    }

    /// The plan of a seed.
    pub(crate) fn new(seed: u64, octets_max: [usize; 2]) -> Self {
        let chance = Random::new(seed).fork(0x706c_616e);
        let is_mild = chance.below(2) == 0;
        let shares = match is_mild {
            true => [0, 5, 5],
            false => [25, 20, 30],
        };
        let [loss, duplicate, reorder] = shares.map(|most| chance.below(most + 1));
        let delay = between(&chance, 20..3000);
        let late = between(&chance, 1..400);
        let mut link = format!(
            "link lan kind=hub delay=\"{delay}us\" jitter=\"{}us\" loss=\"{loss}%\" duplicate=\"{duplicate}%\" \
             reorder=\"{reorder}%\" reorder_delay=\"{late}ms\" {{\n",
            chance.below(2000)
        );
        for _ in 0..chance.below(3) {
            let from = between(&chance, 0..15_000);
            let until = from + between(&chance, 10..4000);
            link += &format!(
                "    partition from=\"{from}ms\" until=\"{until}ms\" between=\"server\"\n"
            );
        }
        link += "}\n";
        let mut crashes: Vec<Crash> = (0..chance.below(4))
            .map(|_| Crash {
                host: match chance.below(3) {
                    0 => CLIENTS[chance.below(2) as usize],
                    _ => SERVER,
                },
                at: ms(&chance, 100..15_000),
                down: ms(&chance, 1..3000),
            })
            .collect();
        crashes.sort_by_key(|crash| crash.at);
        let size = |max: usize| match chance.below(4) {
            0 => chance.below(max as u64),
            _ => chance.below(200),
        };
        let mut calls: Vec<Planned> = (0..between(&chance, 6..24))
            .map(|_| Planned {
                client: chance.below(2) as usize,
                at: ms(&chance, 1000..16_000),
                sizes: octets_max.map(|max| size(max) as usize),
                takes: match chance.below(4) {
                    0 => ms(&chance, 1..1500),
                    1 => ms(&chance, 0..50),
                    _ => Duration::ZERO,
                },
            })
            .collect();
        calls.sort_by_key(|call| call.at);
        Self { link, crashes, calls, is_mild }
    }
}
