//! The law of mutual calls: two hosts that call one another, with more calls at a time than either
//! has channels, and servers that call back within the call. However they wait for each other,
//! every call ends by its deadline, and once the load is over calls succeed. For every stack of
//! calls.

use crate::sim::{checked, report, started};
use std::time::Duration;
use xk_core::Time;
use xk_testkit::seeds;

/// Longest time for a call of the load.
const DEADLINE: Duration = Duration::from_millis(700);
/// Time by which an end may be late: a timer's tick.
const TICK: Duration = Duration::from_millis(10);
/// Start of the later calls, and end of all.
const LATER: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(120);

/// Layers above the hosts' layer.
struct Stack {
    name: &'static str,
    layers: &'static str,
    /// The layer that is called.
    top: &'static str,
    /// The address between the procedure and the host in the participant to call.
    program: &'static str,
}

const fn stack(
    name: &'static str,
    layers: &'static str,
    top: &'static str,
    program: &'static str,
) -> Stack {
    Stack { name, layers, top, program }
}

const SUN: &str = "version1@program536870913@";
const SUN_PORT: &str = "version1@program536870913@port99@";

const STACKS: &[Stack] = &[
    stack("mrpc", "mrpc ip", "mrpc", ""),
    stack("vmtp", "vmtp ip", "vmtp", ""),
    stack("mrpc on vip", "vip arp ip\nmrpc vip", "mrpc", ""),
    stack("select", "fragment ip\nchannel fragment\nselect channel", "select", ""),
    stack(
        "select, few kept",
        "fragment ip outstanding_max=2\nchannel fragment\nselect channel",
        "select",
        "",
    ),
    stack(
        "select on vipsize",
        "vipaddr arp ip\nfragment vipaddr\nvipsize vipaddr fragment\nchannel vipsize\nselect channel",
        "select",
        "",
    ),
    stack(
        "sunselect on channel",
        "fragment ip\nchannel fragment\nsunselect channel\nsunprog sunselect",
        "sunprog",
        SUN,
    ),
    stack(
        "reqrep on fragment",
        "fragment ip\nreqrep fragment\nsunselect reqrep\nsunprog sunselect",
        "sunprog",
        SUN,
    ),
    stack(
        "reqrep on fragment, few kept",
        "fragment ip outstanding_max=2\nreqrep fragment requests_max=8\nsunselect reqrep\nsunprog sunselect",
        "sunprog",
        SUN,
    ),
    stack(
        "reqrep on rm",
        "tcp ip\nrm tcp\nreqrep rm\nsunselect reqrep\nsunprog sunselect",
        "sunprog",
        SUN_PORT,
    ),
    stack(
        "deadline on select",
        "fragment ip\nchannel fragment\nselect channel\ndeadline select",
        "deadline",
        "",
    ),
];

/// Stacks in which what is sent waits for the peer to deliver it, which may be calling meanwhile.
const REFUSED: &[Stack] = &[
    stack(
        "select on rdgram",
        "channel ip\nrdgram channel\nchannel rdgram name=c2 { number rdgram=102; }\nselect c2",
        "select",
        "",
    ),
    stack(
        "mrpc on rdgram",
        "channel ip\nrdgram channel\nmrpc rdgram { number rdgram=90; }",
        "mrpc",
        "",
    ),
    stack(
        "reqrep on fragment on rdgram",
        "channel ip\nrdgram channel\nfragment rdgram { number rdgram=91; }\nreqrep fragment\n\
         sunselect reqrep\nsunprog sunselect",
        "sunprog",
        SUN,
    ),
];

/// The load of each host.
#[derive(Clone, Copy, Debug)]
struct Load {
    calls: u32,
    octets: u32,
}

impl Stack {
    fn graph(&self, load: Load, link: &str) -> String {
        let Load { calls, octets } = load;
        let Stack { layers, top, program, .. } = self;
        let deadline = DEADLINE.as_millis();
        let later = LATER.as_millis();
        let host = |name: &str, own: u8, peer: u8| {
            let back = format!("procedure1@{program}10.0.0.{peer}");
            let relay = format!("procedure4@{program}10.0.0.{peer}");
            let at = match program.is_empty() {
                true => String::new(),
                false => format!("at=\"*@{}\"", program.trim_end_matches('@')),
            };
            format!(
                "host {name} {{\nsim link=lan\neth sim\narp eth\n\
                 ip arp {{ address \"10.0.0.{own}/24\"; }}\n{layers}\n\
                 procedures {top} {at} relay=\"{back}\"\n\
                 caller {top} name=load to=\"{relay}\" count={calls} concurrency={calls} \
                 size={octets} deadline=\"{deadline}ms\"\n\
                 caller {top} name=later to=\"{relay}\" count=3 interval=\"100ms\" \
                 size={octets} start=\"{later}ms\" deadline=\"30s\"\n}}\n"
            )
        };
        host("a", 1, 2) + &host("b", 2, 1) + "link lan " + link + "\n"
    }
}

/// Describes the fault of a run.
fn judge(stack: &Stack, load: Load, link: &str, seed: u64) -> Option<String> {
    let source = stack.graph(load, link);
    let mut world = started(&checked(&source), seed);
    let mut wrong = Vec::new();
    for (until, caller, name, wanted) in
        [(DEADLINE + TICK, "load", "waiting", "0"), (END, "later", "replies", "3")]
    {
        world.run_until(Time::ZERO + until);
        for host in ["a", "b"] {
            let lines = report(&world, host, caller).lines;
            let is_so = |(line, value): &(String, String)| (&**line, &**value) == (name, wanted);
            if !lines.iter().any(is_so) {
                wrong.push(format!("{host}/{caller}: {lines:?}"));
            }
        }
    }
    let about = format!("{}, {load:?}, {link}, XK_SEED={seed}", stack.name);
    (!wrong.is_empty()).then(|| format!("{about}: {}", wrong.join("; ")))
}

#[test]
fn mutual_calls_end_by_their_deadline() {
    let links = ["delay=\"1ms\"", "delay=\"1ms\" rate=\"10Mbit\" loss=\"5%\""];
    seeds::of(300).run(|seed| {
        let mut wrong = Vec::new();
        for stack in STACKS {
            for octets in [100, 16_000] {
                for calls in [4, 24, 200] {
                    let load = Load { calls, octets };
                    wrong.extend(links.iter().filter_map(|link| judge(stack, load, link, seed)));
                }
            }
        }
        let (count, wrong) = (wrong.len(), wrong.join("\n"));
        assert!(wrong.is_empty(), "{count} wrong:\n{wrong}");
    });
}

#[test]
fn calls_on_layers_that_wait_for_the_peer_are_refused() {
    let load = Load { calls: 1, octets: 100 };
    for stack in REFUSED {
        let source = stack.graph(load, "");
        let mistakes = crate::said::said(&source, &xk_catalog::standard());
        let why = "waits for the peer, who may be waiting for us";
        assert!(mistakes.contains(why), "{}: {mistakes}", stack.name);
    }
}
