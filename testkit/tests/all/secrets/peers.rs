//! Packets to one peer tell nothing of those to another.
//!
//! A host talks to two peers in the same way, in many boots. A number in its first packet that is
//! another one in each boot is there to be unknown to others: then the distance between what the
//! two peers are shown must be another one in each boot as well, or either of them could tell the
//! other's.

use crate::secrets::world::{self, CLIENT, Sent};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Number of boots compared.
const BOOTS: u64 = 24;
/// So many different values in them are of chance. Of words of sixteen bits, hardly two in all
/// boots are equal.
const CHANCE: usize = 20;

/// A stack of the client on `ip`, what the servers have on theirs, what stands for a peer's `HOST`,
/// and how many words of sixteen bits in the first packet name the boot: those are the same to
/// both.
struct Stack {
    name: &'static str,
    client: &'static str,
    server: &'static str,
    names: usize,
}

const STACKS: [Stack; 8] = [
    Stack {
        name: "icmp",
        client: "icmp ip; probe icmp to=\"HOST\" count=1",
        server: "icmp ip",
        names: 0,
    },
    Stack {
        name: "udp",
        client: "udp ip; probe udp to=\"port7@HOST\" count=1",
        server: "udp ip; echo udp port=7",
        names: 0,
    },
    Stack {
        name: "tcp",
        client: "tcp ip; probe tcp to=\"port7@HOST\" count=1",
        server: "tcp ip; echo tcp port=7",
        names: 0,
    },
    Stack {
        name: "reqrep",
        client: "udp ip; reqrep udp; sunselect reqrep; sunprog sunselect; \
                 caller sunprog to=\"procedure0@version1@program9@port2049@HOST\" count=1",
        server: "udp ip; reqrep udp; sunselect reqrep; sunprog sunselect; \
                 procedures sunprog at=\"*@version1@program9@port2049\"",
        names: 0,
    },
    Stack {
        name: "authsys",
        client: "udp ip; reqrep udp; sunselect reqrep; authsys sunselect; sunprog authsys; \
                 caller sunprog to=\"procedure0@version1@program9@port2049@HOST\" count=1",
        server: "udp ip; reqrep udp; sunselect reqrep; authsys sunselect; sunprog authsys; \
                 procedures sunprog at=\"*@version1@program9@port2049\"",
        // The stamp of its credentials (RFC 5531, appendix A).
        names: 2,
    },
    Stack {
        name: "channel",
        client: "fragment ip; channel fragment; caller channel to=\"HOST\" count=1 { number channel=NUMBER }",
        server: "fragment ip; channel fragment; procedures channel procedure=1",
        // Its boot id.
        names: 2,
    },
    Stack {
        name: "fragment",
        client: "fragment ip; probe fragment to=\"HOST\" count=1 size=4000 { number fragment=NUMBER }",
        server: "fragment ip; echo fragment",
        names: 0,
    },
    Stack {
        name: "mrpc",
        client: "mrpc ip; caller mrpc to=\"procedure0@HOST\" count=1",
        server: "mrpc ip; procedures mrpc",
        // Its boot id.
        names: 2,
    },
];

/// The graph: one client, with its anchor twice, and two servers.
fn graph(stack: &Stack) -> String {
    let (below, anchor) = stack.client.rsplit_once("; ").unwrap_or_default();
    let anchors = [("10.0.0.2", "7"), ("10.0.0.3", "8")].map(|(host, number)| {
        let anchor = anchor.replace("count=1", &format!("count=1 name=to{number}"));
        anchor.replace("HOST", host).replace("NUMBER", number)
    });
    let ours = format!("{below}; {}; {}", anchors[0], anchors[1]);
    let hosts = [
        ("client", CLIENT, ours.as_str()),
        ("one", "10.0.0.2", stack.server),
        ("two", "10.0.0.3", stack.server),
    ];
    world::graph(&hosts)
}

/// The first packets to either peer, as words of sixteen bits.
fn first_packets(source: &str, seed: u64, name: &str) -> [Vec<u16>; 2] {
    let sent = world::run(source, seed, 5);
    ["10.0.0.2", "10.0.0.3"].map(|host| {
        let host: Ipv4Addr = host.parse().unwrap();
        let first = sent.iter().find(|Sent { to, .. }| *to == host);
        let Some(first) = first else {
            panic!("{name}, seed {seed}: nothing was sent to {host}");
        };
        let (words, _) = first.packet.as_chunks::<2>();
        words.iter().map(|word| u16::from_be_bytes(*word)).collect()
    })
}

#[test]
fn what_one_peer_is_shown_tells_nothing_of_another() {
    for stack in &STACKS {
        let source = graph(stack);
        let boots: Vec<_> =
            (1..=BOOTS).map(|seed| first_packets(&source, seed, stack.name)).collect();
        let words = boots[0][0].len();
        let (mut unknown, mut names) = (0, 0);
        for at in 0..words {
            let shown = |peer: usize| boots.iter().map(move |boot| boot[peer].get(at).copied());
            let values: BTreeSet<_> = shown(0).collect();
            if values.len() < CHANCE {
                continue;
            }
            let distance = |(a, b): (Option<u16>, Option<u16>)| Some(a?.wrapping_sub(b?));
            let distances: BTreeSet<_> = shown(0).zip(shown(1)).map(distance).collect();
            if distances == BTreeSet::from([Some(0)]) {
                names += 1;
                continue;
            }
            assert!(
                distances.len() >= CHANCE,
                "{}: octets {} of the first packet differ in {} boots of {BOOTS}, \
                 their distance to what another peer is shown in {}: {distances:04x?}",
                stack.name,
                2 * at,
                values.len(),
                distances.len(),
            );
            unknown += 1;
        }
        println!("{}: {unknown} words unknown, {names} a name", stack.name);
        assert_eq!(names, stack.names, "{}: the same to both", stack.name);
        assert!(unknown > 0, "{}: nothing is drawn", stack.name);
    }
}
