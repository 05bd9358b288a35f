//! Psync: the list of members, the graph by itself, and the layer between two others.

use crate::harness::{Rig, Script, integers};
use core::time::Duration;
use xk_core::message::{Pool, PoolConfig};
use xk_core::{Part, Participant, Participants};
use xk_kit::group::{NodeId, PROCESS};
use xk_psync::graph::{BaseOf, Graph, MEMBERS_MAX};
use xk_psync::wire::{self, Opening};
use xk_testkit::kernel::{Lower, Top};

/// Reads `data` as a list of members, writes it again and compares.
pub(crate) fn list(data: &[u8]) {
    let pool = Pool::new(&PoolConfig::with_octets_max(1 << 16)).expect("a pool");
    let Some(opening) = pool.copy_from(0, data).ok().and_then(|list| Opening::read(&list, 0))
    else {
        return;
    };
    let octets = opening.emit();
    assert_eq!(octets, data[..Opening::octets(opening.members.len())], "the list changed");
}

/// Reads `data` as a window and a base, writes it again and compares, and has a member come back on
/// it.
pub(crate) fn base(data: &[u8]) {
    let pool = Pool::new(&PoolConfig::with_octets_max(1 << 16)).expect("a pool");
    let Some((window, octets)) = data.split_first() else {
        return;
    };
    let Ok(message) = pool.copy_from(0, octets) else {
        return;
    };
    let (mut at, mut all) = (0, Vec::new());
    while all.len() < MEMBERS_MAX
        && let Some((of, length)) = wire::base::read(&message, at, (*window).into())
    {
        let mut again = Vec::new();
        wire::base::emit(&of, &mut again);
        assert_eq!(again, octets[at..at + length], "the base changed");
        at += length;
        all.push(of);
    }
    if !all.is_empty() {
        let graph: Graph<u8> = Graph::resume(0, (*window).into(), 1, &all);
        let is_there = |(at, of): (usize, &BaseOf)| graph.seen(at) == of.seq;
        assert!(all.iter().enumerate().all(is_there), "it begins behind the base");
    }
}

/// Members of the graph, this one included, and its window.
const MEMBERS: usize = 4;
const WINDOW: u32 = 4;

/// Lets `data` act on a graph: messages with any predecessors arrive, upcalls begin and return,
/// members tell leaves. What is kept stays within its bounds, and nothing comes up twice or before
/// what precedes it.
pub(crate) fn graph(data: &[u8]) {
    let mut graph: Graph<u8> = Graph::new(MEMBERS, 0, WINDOW, 2);
    let script = Script::new(data);
    let (mut seen, mut running) = ([0_u32; MEMBERS], Vec::new());
    let id = |octet: u8| NodeId { sender: octet & 7, seq: u32::from(octet >> 3) };
    while let Some(act) = script.octet() {
        match act & 7 {
            0 => {
                if let Some(sent) = graph.send(act & 8 != 0, 0) {
                    seen[0] = sent.id.seq;
                }
            }
            1..=3 => {
                let message = id(script.octet_or_zero());
                let before: Vec<NodeId> =
                    script.take(usize::from(act >> 5)).iter().map(|octet| id(*octet)).collect();
                let _ = graph.arrive(message, &before, act & 8 != 0, 0);
            }
            4 => {
                let copy = |body: &u8| (act & 32 == 0).then_some(*body);
                if let Some((begun, _)) = graph.begin(act & 8 != 0, act & 16 != 0, copy) {
                    let before = graph.predecessors(begun.id).to_vec();
                    let has_come = |id: &NodeId| graph.seen(id.sender.into()) >= id.seq;
                    assert!(before.iter().all(has_come), "it comes after what precedes it");
                    let last = &mut seen[usize::from(begun.id.sender)];
                    assert!(begun.id.seq > *last, "a message comes up once");
                    *last = begun.id.seq;
                    running.push(begun.id);
                }
            }
            5 => running.drain(..).for_each(|id| graph.returned(id)),
            6 => {
                let leaves: Vec<NodeId> =
                    script.take(usize::from(act >> 5)).iter().map(|octet| id(*octet)).collect();
                let _ = graph.note_leaves(usize::from(act >> 3 & 3), &leaves);
            }
            _ if act & 8 != 0 => graph.give_up(id(script.octet_or_zero())),
            _ => {
                let member = 1 + usize::from(act >> 4) % (MEMBERS - 1);
                let base: Vec<u32> = (0..MEMBERS).map(|at| graph.seen(at)).collect();
                match act >> 6 {
                    0 | 1 => drop(graph.mask_out(member)),
                    2 => drop(graph.keep_for(member)),
                    _ if graph.let_in(member, graph.incarnation(member) + 1, &base) => {
                        let all: Vec<_> = (0..MEMBERS).map(|at| graph.base_of(at, &base)).collect();
                        let back: Graph<u8> = Graph::resume(member, WINDOW, 2, &all);
                        assert_eq!(back.seen(member), base[member], "it is on its base");
                    }
                    _ => {}
                }
            }
        }
        let (ready, waiting) = graph.outstanding();
        assert!(ready + waiting <= 2 * MEMBERS * WINDOW as usize, "what waits is bounded");
        assert!(running.len() <= 2 && graph.unheld() <= WINDOW, "so are upcalls and the window");
    }
}

/// Lets `data` arrive as packets of two hosts, each behind an octet that says of which, and one of
/// its length, at an echo; a length of 0 lets as many hundredths of a second pass as the octet
/// behind it says.
pub(crate) fn stack(data: &[u8]) {
    let own = [10, 0, 0, 1];
    let params = integers(&[("sessions_max", 4), ("window", 4)]);
    let rig = Rig::new(Lower::host(own, 253), 64, &xk_psync::ENTRY, &params);
    let top = Top::add(&rig.cx, "top");
    top.forget(true);
    top.echo(true);
    rig.start();
    let process = Participants::local(Participant::of(Part::Number(PROCESS, 7)));
    assert!(top.enable(&rig.cx, &rig.layer, process).is_ok(), "the process is free");
    let script = Script::new(data);
    while let Some((from, packet)) = script.step() {
        if packet.is_empty() {
            rig.cx.advance(Duration::from_millis(10) * u32::from(script.octet_or_zero()));
            continue;
        }
        rig.arrive(Some(Part::Host([10, 0, 0, 2 + from % 2].into())), packet);
    }
    rig.stop();
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::random::Random;
    use xk_kit::net::attribute::Peer;
    use xk_psync::wire::{Address, Entry, Header, LISTED, kind};

    fn packet(kind: u8, flags: u8, sender: u16, seq: u32, before: &[(u16, u32)]) -> Vec<u8> {
        let address =
            |at: u8| Address { process: 7, peer: Peer { host: [10, 0, 0, at].into(), port: 0 } };
        let list = Opening { window: 4, members: [2, 1, 3].map(address).to_vec() };
        let header = Header {
            version: 1,
            kind,
            flags,
            entries: before.len() as u8,
            conversation: 9,
            sender,
            incarnation: 1,
            seq,
            length: if seq > 0 { 3 } else { 0 },
        };
        let mut octets = header.emit().to_vec();
        for (sender, seq) in before {
            octets.extend(Entry { sender: *sender, incarnation: 1, seq: *seq }.emit());
        }
        if flags & LISTED != 0 {
            octets.extend(list.emit());
        }
        octets.extend(&b"abc"[..header.length as usize]);
        [&[(sender / 2) as u8, octets.len() as u8], octets.as_slice()].concat()
    }

    fn script() -> Vec<u8> {
        [
            packet(kind::OPEN, LISTED, 0, 0, &[]),
            packet(kind::DATA, LISTED, 0, 1, &[]),
            packet(kind::DATA, 0, 2, 2, &[(2, 1)]),
            vec![0, 0, 9],
            packet(kind::RESENT, 0, 2, 1, &[(0, 1)]),
            packet(kind::DATA, 0, 0, 2, &[(1, 1), (2, 2)]),
            packet(kind::LEAVES, 2, 0, 0, &[(0, 2)]),
            packet(kind::REQUEST, 0, 2, 0, &[(1, 1), (0, 1)]),
            vec![0, 0, 200],
        ]
        .concat()
    }

    #[test]
    fn damaged_conversations_do_no_harm() {
        let script = script();
        stack(&script);
        let random = Random::new(1);
        for _ in 0..300 {
            let mut damaged = script.clone();
            for _ in 0..=random.below(12) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.next_u64() as u8;
            }
            stack(&damaged);
            list(&damaged[22..]);
            base(&damaged[22..]);
            graph(&damaged);
        }
        let noise: Vec<u8> = (0..20_000).map(|_| random.next_u64() as u8).collect();
        noise.chunks(200).for_each(graph);
    }
}
