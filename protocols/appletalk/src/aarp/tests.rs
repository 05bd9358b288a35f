//! Packets of Linux and derived ones; claims, defence, resolution; storms.

use super::*;
use crate::addr::{NetRange, START_UP};
use crate::tests::hex;
use proptest::prelude::*;
use std::vec;

const MINE: Hw = [2, 0, 0, 0, 0, 1];
const OTHER: Hw = [2, 0, 0, 0, 0, 2];

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn wish(only: bool) -> Wish {
    let range = NetRange::new(10, 19).unwrap();
    Wish { range, first: Some(Node::new(10, 17)), only }
}

/// A counter in place of chance: node and network rise with each draw.
fn counter() -> impl FnMut() -> u32 {
    let mut count = 0;
    move || {
        count += 1;
        count
    }
}

/// A station that has 10.17.
fn settled() -> Aarp {
    let mut aarp = Aarp::new(MINE, Config { nodes_max: 4, ..Config::default() });
    aarp.wish(wish(true), at(0), &mut counter());
    let mut ms = 0;
    while aarp.me().is_none() {
        ms += 50;
        aarp.tick(at(ms), &mut counter());
    }
    assert!((2000..=2100).contains(&ms), "ten probes, 200 ms apart, and a little: {ms}");
    aarp
}

fn from_other(function: Function, from: Node, to: Node) -> Packet {
    Packet { function, from_hw: OTHER, from, to_hw: [0; 6], to }
}

#[test]
fn packets_of_others() {
    // From Linux, and derived.
    let table = [
        ("0001809b0604 0003 d283bc534bad 00000a11 000000000000 00000a11", Function::Probe),
        ("0001809b0604 0003 020000000001 00ff0011 000000000000 00ff0011", Function::Probe),
        ("0001809b0604 0002 020000000002 00000a12 020000000001 00000a11", Function::Response),
    ];
    for (text, function) in table {
        // The second has its network in the second and third octets, as all have.
        let octets = hex(text);
        let packet = Packet::parse(&octets).unwrap();
        assert_eq!(packet.function, function);
        let mut again = packet.octets();
        // The first octet of an address is 0 and not looked at.
        (again[14], again[24]) = (octets[14], octets[24]);
        assert_eq!(again[..], octets[..], "{text}");
        for len in 0..PACKET_LEN {
            assert_eq!(Packet::parse(&octets[..len]), Err(Error::Truncated));
        }
        let padded = [&octets[..], &[0xff; 18]].concat();
        assert_eq!(Packet::parse(&padded), Ok(packet));
    }
    let octets = hex(table[0].0);
    let with = |at: usize, octet: u8| {
        let mut octets = octets.clone();
        octets[at] = octet;
        Packet::parse(&octets)
    };
    assert_eq!(with(1, 2), Err(Error::Family(2, 0x809b)));
    assert_eq!(with(3, 0), Err(Error::Family(1, 0x8000)));
    assert_eq!(with(4, 8), Err(Error::Lengths(8, 4)));
    assert_eq!(with(5, 3), Err(Error::Lengths(6, 3)));
    assert_eq!((with(7, 0), with(7, 4)), (Err(Error::Function(0)), Err(Error::Function(4))));
}

#[test]
fn an_address_is_probed_for_ten_times() {
    let mut aarp = Aarp::new(MINE, Config::default());
    assert_eq!((aarp.next(), aarp.me()), (None, None));
    assert_eq!(aarp.resolve(Node::new(10, 18), at(0)), (Resolution::NoAddress, None));
    let mut random = || 0;
    aarp.wish(wish(false), at(0), &mut random);
    let node = Node::new(10, 17);
    for probe in 0..10 {
        assert_eq!(aarp.next(), Some(at(200 * probe)));
        let sent = aarp.tick(at(200 * probe), &mut random);
        assert_eq!(sent, [Action::Send(ALL_NODES, Packet::probe(MINE, node))]);
        assert_eq!(aarp.tick(at(200 * probe + 199), &mut random), []);
        assert_eq!(aarp.claim().trying(), Some(node));
    }
    assert_eq!(aarp.tick(at(2000), &mut random), [Action::Claimed(node)]);
    assert_eq!((aarp.me(), aarp.next()), (Some(node), None));
}

#[test]
fn an_address_of_another_is_left() {
    let functions = [Function::Request, Function::Response, Function::Probe];
    for (function, only) in functions.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let mut aarp = Aarp::new(MINE, Config::default());
        let mut random = counter();
        aarp.wish(wish(only), at(0), &mut random);
        aarp.tick(at(0), &mut random);
        let node = Node::new(10, 17);
        let heard = from_other(function, node, node);
        let answer = aarp.input(&heard, at(100), &mut random);
        assert_eq!(answer, Ok(vec![Action::Conflict(node)]), "{function:?}");
        let next = aarp.next().unwrap();
        if only {
            assert!(next >= at(10_100) && next <= at(20_100));
            assert_eq!(aarp.claim().trying(), Some(node));
        } else {
            assert_eq!(next, at(100), "another one at once");
            assert!(aarp.claim().trying().is_some_and(|other| other != node));
        }
    }
    // A request for the address that is tried proves nothing.
    let mut aarp = Aarp::new(MINE, Config::default());
    aarp.wish(wish(true), at(0), &mut counter());
    let asked = from_other(Function::Request, Node::new(10, 18), Node::new(10, 17));
    assert_eq!(aarp.input(&asked, at(1), &mut counter()), Err(Refusal::NotMine));
}

#[test]
fn a_station_that_answers_every_probe_gets_few() {
    let mut aarp = Aarp::new(MINE, Config::default());
    let mut random = counter();
    aarp.wish(Wish { range: START_UP, first: None, only: false }, at(0), &mut random);
    let (mut probes, mut ms) = (0, 0);
    while ms < 60_000 {
        for action in aarp.tick(at(ms), &mut random) {
            let Action::Send(_, probe) = action else { panic!("{action:?}") };
            probes += 1;
            assert!(START_UP.contains(probe.to.net) && (1..=253).contains(&probe.to.node));
            let answer = from_other(Function::Response, probe.to, probe.from);
            aarp.input(&answer, at(ms), &mut random).unwrap();
        }
        ms += 1;
    }
    assert!((10..=16).contains(&probes), "{probes} probes in a minute");
}

#[test]
fn ones_own_address_is_defended() {
    let mut aarp = settled();
    let me = Node::new(10, 17);
    let probe = from_other(Function::Probe, me, me);
    let response =
        Packet { function: Function::Response, from_hw: MINE, from: me, to_hw: OTHER, to: me };
    let answer = aarp.input(&probe, at(5000), &mut counter());
    assert_eq!(answer, Ok(vec![Action::Send(OTHER, response)]));
    assert_eq!(aarp.claim().conflicts(), 0, "it only asks");
    let stolen = from_other(Function::Response, me, Node::new(10, 18));
    assert_eq!(aarp.input(&stolen, at(5000), &mut counter()), Ok(vec![Action::Conflict(me)]));
    assert_eq!((aarp.claim().conflicts(), aarp.me()), (1, Some(me)));
    // Looking for another address, the one at hand is kept.
    let range = NetRange::new(20, 29).unwrap();
    aarp.wish(Wish { range, first: None, only: false }, at(6000), &mut counter());
    assert_eq!(aarp.me(), Some(me));
    assert!(aarp.input(&probe, at(6000), &mut counter()).is_ok_and(|sent| sent.len() == 1));
    // What is its own already needs no probes.
    aarp.wish(wish(true), at(7000), &mut counter());
    assert_eq!(aarp.tick(at(7000), &mut counter()), [Action::Claimed(me)]);
}

#[test]
fn nodes_are_asked_for_and_given_up() {
    let mut aarp = settled();
    let (me, node) = (Node::new(10, 17), Node::new(10, 18));
    let request = Packet::request(MINE, me, node);
    let asked = aarp.resolve(node, at(5000));
    assert_eq!(asked, (Resolution::Asked, Some(Action::Send(ALL_NODES, request))));
    assert_eq!(aarp.resolve(node, at(5001)), (Resolution::Asked, None));
    for tries in 1..10 {
        let sent = aarp.tick(at(5000 + 200 * tries), &mut counter());
        assert_eq!(sent, [Action::Send(ALL_NODES, request)]);
    }
    assert_eq!(aarp.tick(at(7000), &mut counter()), [Action::Unresolved(node)]);
    assert!(aarp.table().is_empty());
    aarp.resolve(node, at(8000));
    let response = request.response(OTHER);
    let heard = aarp.input(&response, at(8001), &mut counter());
    assert_eq!(heard, Ok(vec![Action::Resolved(node, OTHER)]));
    assert_eq!(aarp.resolve(node, at(60_000)), (Resolution::Known(OTHER), None));
    // Used for a minute, it is asked directly; it keeps silent, and is forgotten.
    let stale = aarp.resolve(node, at(68_001));
    assert_eq!(stale, (Resolution::Known(OTHER), Some(Action::Send(OTHER, request))));
    for tries in 1..10 {
        let sent = aarp.tick(at(68_001 + 200 * tries), &mut counter());
        assert_eq!(sent, [Action::Send(OTHER, request)]);
    }
    assert_eq!(aarp.tick(at(70_001), &mut counter()), [], "nothing waits for it");
    assert!(aarp.table().is_empty());
}

#[test]
fn what_was_not_used_for_long_is_asked_for_again() {
    let mut aarp = settled();
    let node = Node::new(10, 18);
    let asks = from_other(Function::Request, node, Node::new(10, 17));
    let sent = aarp.input(&asks, at(5000), &mut counter()).unwrap();
    assert_eq!(sent, [Action::Send(OTHER, asks.response(MINE))]);
    assert_eq!(aarp.resolve(node, at(5001)).0, Resolution::Known(OTHER));
    assert_eq!(aarp.resolve(node, at(65_001)).0, Resolution::Asked);
}

#[test]
fn nothing_is_learnt_from_probes_and_gossip() {
    let mut aarp = settled();
    let [me, node, third] = [17, 18, 19].map(|node| Node::new(10, node));
    let refused = [
        (from_other(Function::Request, node, third), Refusal::NotMine),
        (from_other(Function::Response, node, me), Refusal::Unsolicited),
        (from_other(Function::Request, Node::new(0, 18), me), Refusal::BadSource),
        (from_other(Function::Request, Node::new(10, 255), me), Refusal::BadSource),
    ];
    for (packet, refusal) in refused {
        assert_eq!(aarp.input(&packet, at(5000), &mut counter()), Err(refusal));
    }
    let mut group = from_other(Function::Request, node, me);
    group.from_hw[0] = 3;
    assert_eq!(aarp.input(&group, at(5000), &mut counter()), Err(Refusal::BadSource));
    group.from_hw = MINE;
    assert_eq!(aarp.input(&group, at(5000), &mut counter()), Err(Refusal::Looped));
    assert_eq!(
        aarp.input(&from_other(Function::Probe, node, node), at(5000), &mut counter()),
        Ok(vec![])
    );
    assert!(aarp.table().is_empty());
    // A probe by another station makes a known node doubtful.
    aarp.resolve(node, at(5000));
    aarp.input(&from_other(Function::Response, node, me), at(5000), &mut counter()).unwrap();
    let mut probe = from_other(Function::Probe, node, node);
    aarp.input(&probe, at(5000), &mut counter()).unwrap();
    assert_eq!(aarp.table().len(), 1, "its own probe");
    probe.from_hw[5] = 9;
    aarp.input(&probe, at(5000), &mut counter()).unwrap();
    assert!(aarp.table().is_empty());
}

#[test]
fn a_storm_of_strangers_fills_no_more_than_the_table() {
    let mut aarp = settled();
    let me = Node::new(10, 17);
    for stranger in 0..10_000u32 {
        let [_, _, high, low] = stranger.to_be_bytes();
        let mut packet =
            from_other(Function::Request, Node::new(11, 1 + (stranger % 253) as u8), me);
        packet.from_hw[3] = 9;
        (packet.from_hw[4], packet.from_hw[5], packet.from.net) = (high, low, 11 + high as u16);
        let answer = aarp.input(&packet, at(5000 + u64::from(stranger)), &mut counter());
        assert!(answer.is_ok_and(|actions| actions.len() == 1));
    }
    assert_eq!(aarp.table().len(), 4);
    // Half of the places are for those that are asked for; the one goes that has waited longest.
    for node in 1..=4 {
        let asked = aarp.resolve(Node::new(19, node), at(60_000 + u64::from(node)));
        assert_eq!(asked.0, Resolution::Asked);
    }
    let asked: Vec<_> = aarp.table().iter().filter(|(_, hw)| hw.is_none()).collect();
    assert_eq!(asked, [3, 4].map(|node| (Node::new(19, node), None)));
    assert_eq!(aarp.next(), Some(Duration::ZERO), "what waits for the others is told at once");
    let told = aarp.tick(at(60_010), &mut counter());
    assert_eq!(told, [1, 2].map(|node| Action::Unresolved(Node::new(19, node))));
    let asks = from_other(Function::Request, Node::new(10, 99), me);
    let answer = aarp.input(&asks, at(60_010), &mut counter()).unwrap();
    assert_eq!(answer.len(), 1, "it is answered");
    assert_eq!(
        aarp.resolve(Node::new(10, 99), at(60_011)).0,
        Resolution::Known(OTHER),
        "and known"
    );
    // What gave way in one turn is bounded, too.
    for node in 0..100 {
        let asked = aarp.resolve(Node::new(18, 1 + node), at(60_012)).0;
        assert_eq!(asked, if node < 4 { Resolution::Asked } else { Resolution::Full });
    }
}

#[test]
fn an_address_that_another_station_keeps_using_is_left() {
    // A node that was told its address, and one that has it by chance.
    for only in [true, false] {
        let mut aarp = Aarp::new(MINE, Config::default());
        let range = NetRange::new(10, 10).unwrap();
        let me = Node::new(10, 17);
        aarp.wish(Wish { range, first: Some(me), only }, at(0), &mut counter());
        let until_claimed = |aarp: &mut Aarp, from: u64| {
            let mut claimed = None;
            for ms in (from..from + 5000).step_by(50) {
                for action in aarp.tick(at(ms), &mut counter()) {
                    if let Action::Claimed(node) = action {
                        claimed = Some(node);
                    }
                }
            }
            claimed
        };
        assert_eq!(until_claimed(&mut aarp, 0), Some(me));
        let used = |node| from_other(Function::Request, node, Node::new(10, 99));
        let hear = |aarp: &mut Aarp, node: Node, ms| {
            let heard = aarp.input(&used(node), at(ms), &mut counter());
            assert_eq!(heard, Ok(vec![Action::Conflict(node)]), "{ms}");
        };
        // Once, and again much later, is no reason to leave it; nor is what comes soon after it was
        // had.
        for ms in [6000, 7000, 100_000, 120_000] {
            hear(&mut aarp, me, ms);
            assert_eq!(until_claimed(&mut aarp, ms), None, "{ms}");
        }
        hear(&mut aarp, me, 140_000);
        hear(&mut aarp, me, 141_000);
        assert_eq!(aarp.me(), Some(me), "kept until there is another");
        let other = until_claimed(&mut aarp, 141_000);
        assert_eq!(other.is_some(), !only);
        assert_ne!(other, Some(me));
        let Some(other) = other else { continue };
        // It is not driven on at once.
        for ms in [147_000, 148_000, 149_000] {
            hear(&mut aarp, other, ms);
        }
        assert_eq!((until_claimed(&mut aarp, 149_000), aarp.me()), (None, Some(other)));
    }
}

proptest! {
    #[test]
    fn packets_round_trip(octets: [u8; PACKET_LEN]) {
        let mut octets = octets;
        octets[..6].copy_from_slice(&[0, 1, 0x80, 0x9b, 6, 4]);
        (octets[6], octets[7]) = (0, octets[7] % 4);
        if let Ok(packet) = Packet::parse(&octets) {
            (octets[14], octets[24]) = (0, 0);
            prop_assert_eq!(packet.octets(), octets);
        }
    }

    /// Stations that begin at any times on one cable that loses nothing have different addresses
    /// in the end.
    #[test]
    fn stations_get_different_addresses(starts in prop::collection::vec(0u64..500, 2..8), seed: u32) {
        let range = NetRange::new(10, 10).unwrap();
        let mut state = seed;
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Few nodes to choose from.
            (state >> 16) % 9
        };
        let mut stations: Vec<Aarp> = (0..starts.len())
            .map(|i| Aarp::new([2, 0, 0, 0, 0, i as u8], Config::default()))
            .collect();
        for ms in 0..120_000u64 {
            for i in 0..stations.len() {
                if starts[i] == ms {
                    stations[i].wish(Wish { range, first: None, only: false }, at(ms), &mut random);
                }
                if stations[i].next().is_none_or(|next| next > at(ms)) {
                    continue;
                }
                let mut sent: Vec<(usize, Action)> =
                    stations[i].tick(at(ms), &mut random).into_iter().map(|a| (i, a)).collect();
                while let Some((from, action)) = sent.pop() {
                    let Action::Send(_, packet) = action else { continue };
                    for to in (0..stations.len()).filter(|to| *to != from) {
                        let heard = stations[to].input(&packet, at(ms), &mut random);
                        sent.extend(heard.unwrap_or_default().into_iter().map(|a| (to, a)));
                    }
                }
            }
            if ms % 1000 == 999 && stations.iter().all(|station| station.me().is_some()) {
                break;
            }
        }
        let mut nodes: Vec<_> = stations.iter().filter_map(Aarp::me).collect();
        nodes.sort();
        nodes.dedup();
        prop_assert_eq!(nodes.len(), stations.len());
    }
}
