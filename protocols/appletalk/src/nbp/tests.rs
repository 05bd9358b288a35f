//! Packets of netatalk; matching; names, searches, floods.

use super::*;
use crate::addr::Node;
use crate::tests::hex;
use core::time::Duration;
use proptest::prelude::*;
use std::format;
use std::string::ToString;
use std::vec::Vec;

fn entity(text: &str) -> Entity {
    text.parse().expect(text)
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn name(text: &str) -> Name {
    Name::from_text(text).unwrap()
}

#[test]
fn packets_of_others() {
    let [a, b] = [AtAddr::new(10, 17, 129), AtAddr::new(10, 17, 128)];
    let table = [
        (
            "21 01 000a 11 81 00 056775657374 07584b65726e656c 02584b",
            Function::LkUp,
            1,
            a,
            0,
            "guest:XKernel@XK",
        ),
        (
            "31 07 000a 11 80 00 056775657374 07584b65726e656c 02584b",
            Function::Reply,
            7,
            b,
            0,
            "guest:XKernel@XK",
        ),
        (
            "21 07 000a 11 82 00 04 6563686f 07 584b65726e656c 01 2a",
            Function::LkUp,
            7,
            AtAddr::new(10, 17, 130),
            0,
            "echo:XKernel@*",
        ),
        (
            "31 07 000a 12 90 01 04 6563686f 07 584b65726e656c 01 2a",
            Function::Reply,
            7,
            AtAddr::new(10, 18, 144),
            1,
            "echo:XKernel@*",
        ),
    ];
    for (text, function, id, at, enumerator, name) in table {
        let octets = hex(text);
        let packet = Packet::parse(&octets).unwrap();
        let tuple = Tuple { at, enumerator, entity: entity(name) };
        assert_eq!(packet, Packet { function, id, tuples: [tuple].into() });
        assert_eq!(packet.octets(), octets);
        assert_eq!(packet.tuples[0].entity.to_string(), name);
        for len in 0..octets.len() {
            assert_eq!(Packet::parse(&octets[..len]), Err(Error::Truncated), "{len}");
        }
    }
    let octets = hex(table[0].0);
    let with = |first: u8| Packet::parse(&[&[first], &octets[1..]].concat());
    assert_eq!((with(0x01), with(0x51)), (Err(Error::Function(0)), Err(Error::Function(5))));
    assert_eq!((with(0x20), with(0x22)), (Err(Error::Count(0)), Err(Error::Count(2))));
    assert_eq!(with(0x32), Err(Error::Truncated), "a second tuple that is not there");
    assert!(with(0x30).is_ok_and(|packet| packet.tuples.is_empty()));
    // A name of 33 octets.
    let long = [&hex("21 01 000a 11 81 00 21")[..], &[b'a'; 33], &hex("0141 012a")].concat();
    assert_eq!(Packet::parse(&long), Err(Error::Truncated));
}

#[test]
fn texts() {
    assert_eq!(entity("a:b"), entity("A:B@*"));
    assert_eq!(entity("a:b@"), entity("a:b@*"));
    assert_eq!(entity("a@b:c@d").object, name("a@b"));
    for text in ["", "a", ":b", "a:", "a@b", "@"] {
        assert_eq!(text.parse::<Entity>(), Err(EntityError::Form), "{text}");
    }
    let long = format!("{}:b", "a".repeat(33));
    assert_eq!(long.parse::<Entity>(), Err(EntityError::Name(NameError::TooLong)));
}

#[test]
fn matches() {
    let table = [
        ("echo", "ECHO", true),
        ("echo", "echo ", false),
        ("=", "anything", true),
        ("=", "", true),
        ("a=", "ab", false),
        ("Zoë", "zoë", true),
        ("ÄRGER", "ärger", true),
        ("≈", "anything", true),
        ("pri≈", "Printer", true),
        ("≈ter", "Printer", true),
        ("P≈R", "printer", true),
        ("P≈R", "pr", true),
        ("Pr≈rR", "pr", false),
        ("ab≈ba", "aba", false),
        ("pri≈", "pr", false),
        ("*", "a", false),
    ];
    for (pattern, text, is) in table {
        assert_eq!(is_match(&name(pattern), &name(text)), is, "{pattern} {text}");
    }
    assert!(is_zone(&name("*"), &name("XK")) && is_zone(&Name::EMPTY, &name("XK")));
    assert!(is_zone(&name("xk"), &name("XK")) && !is_zone(&name("other"), &name("XK")));
    assert!(entity("a:b").is_one() && !entity("=:b").is_one() && !entity("a:b≈").is_one());
}

#[test]
fn names_answer() {
    let (me, mut names) = (Node::new(10, 17), Names::new(3));
    assert_eq!(names.add(entity("printer:LaserWriter"), 130), Ok(()));
    assert_eq!(names.add(entity("PRINTER:laserwriter"), 131), Err(NamesError::Exists));
    assert_eq!(names.add(entity("=:LaserWriter"), 131), Err(NamesError::Bad));
    assert_eq!(names.add(entity("a:b"), 0), Err(NamesError::Bad));
    assert_eq!(names.add(entity("spare:LaserWriter"), 130), Ok(()));
    assert_eq!(names.add(entity("echo:XKernel"), 4), Ok(()));
    assert_eq!(names.add(entity("more:XKernel"), 4), Err(NamesError::Full));
    let ask =
        |text: &str| Packet::request(Function::LkUp, 9, AtAddr::new(10, 18, 130), entity(text));
    let zone = name("XK");
    let answer = names.answer(&ask("=:LaserWriter@*"), me, &zone);
    assert_eq!((answer.len(), answer[0].id, answer[0].function), (1, 9, Function::Reply));
    let of = |text, socket, enumerator| Tuple {
        at: me.socket(socket),
        enumerator,
        entity: entity(text),
    };
    let both = [of("printer:LaserWriter@XK", 130, 0), of("spare:LaserWriter@XK", 130, 1)];
    assert_eq!(answer[0].tuples, both);
    assert!(names.answer(&ask("=:LaserWriter@Other"), me, &zone).is_empty());
    assert!(names.answer(&ask("=:Other"), me, &zone).is_empty());
    assert!(names.answer(&answer[0], me, &zone).is_empty(), "an answer gets none");
    assert!(names.remove(&entity("Printer:LASERwriter")) && !names.remove(&entity("printer:b")));
    assert_eq!(names.add(entity("third:LaserWriter"), 130), Ok(()));
    assert_eq!((names.len(), names.holds(&entity("echo:xkernel"))), (3, true));
}

#[test]
fn many_answers_are_several_packets() {
    let mut names = Names::new(300);
    for i in 0..300u16 {
        names.add(entity(&format!("{i:0>32}:{}", "t".repeat(32))), 128 + (i % 2) as u8).unwrap();
    }
    let from = AtAddr::new(10, 18, 130);
    let request = Packet::request(Function::LkUp, 9, from, entity("=:="));
    let replies = names.answer(&request, Node::new(10, 17), &name(&"z".repeat(32)));
    let mut seen = 0;
    for reply in &replies {
        let octets = reply.octets();
        assert!(octets.len() <= DATA_LEN_MAX);
        assert_eq!(Packet::parse(&octets).as_ref(), Ok(reply));
        seen += reply.tuples.len();
    }
    assert_eq!(seen, 300);
    let names = (0..20).fold(Names::new(20), |mut names, i| {
        names.add(entity(&format!("{i}:t")), 128).unwrap();
        names
    });
    let replies = names.answer(&request, Node::new(10, 17), &Name::EMPTY);
    assert_eq!(replies.iter().map(|r| r.tuples.len()).collect::<Vec<_>>(), [15, 5]);
}

#[test]
fn a_search_asks_three_times() {
    let from = AtAddr::new(10, 17, 2);
    let wanted = entity("=:XKernel@*");
    let mut lookup = Lookup::new(7, from, wanted, LookupConfig::default(), at(0));
    let reply = |text: &str, node: u8| Packet {
        function: Function::Reply,
        id: 7,
        tuples: [Tuple { at: AtAddr::new(10, node, 144), enumerator: 0, entity: entity(text) }]
            .into(),
    };
    assert!(!lookup.heard(&reply("early:XKernel", 1), at(0)) && lookup.found().is_empty());
    for (second, has_router) in [(0, false), (1, true), (2, false)] {
        let function = if has_router { Function::BrRq } else { Function::LkUp };
        let request = Packet::request(function, 7, from, wanted);
        assert_eq!(lookup.tick(at(1000 * second), has_router), Some(Step::Send(request)));
        assert_eq!(lookup.tick(at(1000 * second + 999), has_router), None);
        lookup.heard(&reply("echo:XKernel", 18), at(1000 * second + 1));
    }
    lookup.heard(&reply("other:XKernel@Elsewhere", 19), at(2500));
    lookup.heard(&reply("other:Something", 20), at(2500));
    lookup.heard(&reply("all:XKernel", 255), at(2500));
    let mut other = reply("other:XKernel", 21);
    other.id = 8;
    lookup.heard(&other, at(2500));
    let Some(Step::Done(found)) = lookup.tick(at(3000), false) else { panic!("not done") };
    assert_eq!(found.iter().map(|tuple| tuple.at.node).collect::<Vec<_>>(), [18, 19]);
    assert_eq!(lookup.tick(at(90_000), false), None);
}

#[test]
fn a_node_that_moves_asks_again() {
    let wanted = entity("=:XKernel@*");
    let config = LookupConfig::default();
    let mut lookups = Lookups::new(2);
    let [old, new] = [Node::new(0xff01, 7), Node::new(10, 7)];
    lookups.start((wanted, old.socket(2)), config, at(0), ()).unwrap();
    for (ms, node) in [(0, old), (1000, old), (1500, new), (2500, new), (3500, new)] {
        if node == new {
            lookups.moved(new, at(ms));
        }
        let Some(Due::Send(packet)) = lookups.tick(at(ms), false) else { panic!("{ms} ms") };
        assert_eq!(packet.tuples[0].at, node.socket(2), "{ms} ms");
    }
    assert_eq!(lookups.tick(at(4500), false), Some(Due::Done((), Vec::new())));
}

#[test]
fn a_flood_of_answers_ends_a_search() {
    let mut lookups = Lookups::new(2);
    let config = LookupConfig { answers_max: 5, ..LookupConfig::default() };
    let wanted = (entity("=:="), AtAddr::new(10, 17, 2));
    assert_eq!(lookups.start(wanted, config, at(0), "one"), Ok(1));
    assert_eq!(lookups.start(wanted, config, at(0), "two"), Ok(2));
    assert_eq!(lookups.start(wanted, config, at(0), "three"), Err("three"));
    assert!(matches!(lookups.tick(at(0), false), Some(Due::Send(Packet { id: 1, .. }))));
    assert!(matches!(lookups.tick(at(0), false), Some(Due::Send(Packet { id: 2, .. }))));
    assert_eq!(lookups.tick(at(0), false), None);
    for i in 0..10_000u16 {
        let at_ = AtAddr::new(1 + i, 9, 144);
        let tuple = Tuple { at: at_, enumerator: 0, entity: entity("a:b") };
        let reply = Packet { function: Function::Reply, id: 2, tuples: [tuple; 15].into() };
        assert!(lookups.heard(&reply, at(1)));
        let stranger = Packet { id: 77, ..reply };
        assert!(!lookups.heard(&stranger, at(1)));
    }
    let Some(Due::Done("two", found)) = lookups.tick(at(1), false) else { panic!("not done") };
    assert_eq!((found.len(), lookups.len()), (5, 1));
}

fn names() -> impl Strategy<Value = Name> {
    prop::collection::vec(any::<u8>(), 0..=32).prop_map(|octets| Name::new(&octets).unwrap())
}

fn tuples() -> impl Strategy<Value = Tuple> {
    let at = (any::<u16>(), any::<u8>(), any::<u8>());
    (at, any::<u8>(), names(), names(), names()).prop_map(
        |((net, node, socket), enumerator, object, kind, zone)| Tuple {
            at: AtAddr { net, node, socket },
            enumerator,
            entity: Entity { object, kind, zone },
        },
    )
}

proptest! {
    #[test]
    fn packets_round_trip(id: u8, tuple in tuples(), many in prop::collection::vec(tuples(), 0..30)) {
        let request = Packet { function: Function::FwdReq, id, tuples: [tuple].into() };
        prop_assert_eq!(Packet::parse(&request.octets()), Ok(request.clone()));
        let mut all = Vec::new();
        for reply in request.replies(&many) {
            let again = Packet::parse(&reply.octets());
            prop_assert_eq!(again.as_ref(), Ok(&reply));
            all.extend(reply.tuples);
        }
        prop_assert_eq!(all, many);
    }

    #[test]
    fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(packet) = Packet::parse(&octets) {
            let again = packet.octets();
            prop_assert_eq!(&again[..], &octets[..again.len()]);
        }
    }
}
