//! Packets of netatalk and derived ones; lists; what a router knows.

use super::*;
use crate::addr::NetRange;
use crate::tests::hex;
use core::time::Duration;
use proptest::prelude::*;
use std::format;
use std::vec;
use std::vec::Vec;

fn name(text: &str) -> Name {
    Name::from_text(text).unwrap()
}

fn range(first: u16, last: u16) -> NetRange {
    NetRange::new(first, last).unwrap()
}

#[test]
fn groups() {
    assert_eq!(multicast(&name("XK")), [9, 0, 7, 0, 0, 0xf9], "as atalkd says");
    assert_eq!(multicast(&name("xk")), [9, 0, 7, 0, 0, 0xf9]);
    assert!(is_multicast([9, 0, 7, 0, 0, 252]) && !is_multicast([9, 0, 7, 0, 0, 253]));
    assert!(!is_multicast(crate::aarp::ALL_NODES));
}

#[test]
fn packets_of_others() {
    let info = NetInfo {
        range: range(10, 19),
        asked: name("XK"),
        multicast: Some([9, 0, 7, 0, 0, 0xf9]),
        instead: None,
        is_only: true,
    };
    let none = NetInfo { asked: name("No"), instead: Some(name("XK")), multicast: None, ..info };
    let zones = |total| Reply { total, zones: vec![(10, name("XK")), (20, name("Y"))] };
    let notify =
        Notify { range: range(10, 19), old: name("XK"), new: name("Y"), multicast: info.multicast };
    let table = [
        ("05 00 00000000 00", Packet::NetInfoRequest(NetInfoRequest::default())),
        ("06 20 000a 0013 02 584b 06 0900070000f9", Packet::NetInfo(info)),
        ("06 e0 000a 0013 02 4e6f 00 02 584b", Packet::NetInfo(none)),
        ("01 02 000a 0014", Packet::Query(vec![10, 20])),
        ("02 02 000a 02 584b 0014 01 59", Packet::Reply(zones(None))),
        ("08 02 000a 02 584b 0014 01 59", Packet::Reply(zones(Some(2)))),
        ("07 00 000a 0013 02 584b 06 0900070000f9 01 59", Packet::Notify(notify)),
    ];
    for (text, packet) in table {
        let octets = hex(text);
        assert_eq!(Packet::parse(&octets).as_ref(), Ok(&packet), "{text}");
        assert_eq!(packet.octets(), octets, "{text}");
        for len in 0..octets.len() {
            // An extended reply may end behind any of its zones.
            let may_end = octets[0] == 8 && [2, 7].contains(&len);
            assert_eq!(Packet::parse(&octets[..len]).is_ok(), may_end, "{text} {len}");
        }
    }
    let refused = [
        ("03 00", Error::Function(3)),
        ("06 00 0013 000a 00 00", Error::Range),
        ("06 00 000a 0013 00 05 0000000000", Error::Address(5)),
        ("06 00 000a 0013 21", Error::Truncated),
    ];
    for (text, error) in refused {
        assert_eq!(Packet::parse(&hex(text)), Err(error), "{text}");
    }
}

#[test]
fn lists_go_through_atp() {
    let request = ListRequest { kind: ListKind::All, start: 1 };
    assert_eq!(request.octets(), [8, 0, 0, 1], "as getzones sends it");
    assert_eq!(ListRequest::parse([8, 0, 0, 1]), Ok(request));
    assert_eq!(ListRequest::parse([6, 0, 0, 1]), Err(Error::Function(6)));
    let reply = ListReply { is_last: true, zones: vec![name("XK")] };
    assert_eq!(reply.octets(), ([1, 0, 0, 1], hex("02 584b")), "as atalkd answers");
    assert_eq!(ListReply::parse([1, 0, 0, 1], &hex("02 584b")), Ok(reply));
    assert_eq!(ListReply::parse([1, 0, 0, 2], &hex("02 584b")), Err(Error::Truncated));
    // A long list, part by part.
    let all: Vec<_> = (0..100).map(|i| name(&format!("zone {i:0>25}"))).collect();
    let (mut got, mut parts) = (Vec::new(), 0);
    loop {
        let start = got.len() as u16 + 1;
        let part = ListReply::part(ListRequest { kind: ListKind::All, start }, all.iter());
        let (user, data) = part.octets();
        assert!(data.len() <= 578);
        let part = ListReply::parse(user, &data).unwrap();
        got.extend(part.zones);
        parts += 1;
        if part.is_last {
            break;
        }
    }
    assert_eq!((got, parts), (all.clone(), 6));
    let beyond = ListRequest { kind: ListKind::All, start: 500 };
    assert_eq!(ListReply::part(beyond, all.iter()), ListReply { is_last: true, zones: vec![] });
}

#[test]
fn a_router_asks_for_zones() {
    let mut zones = Zones::new(3);
    zones.set_own(range(10, 19), &[name("XK"), name("Other")]).unwrap();
    let behind = [range(20, 29), range(30, 30)];
    assert_eq!(zones.keep(behind.into_iter()), Ok(()));
    assert_eq!(zones.missing().collect::<Vec<_>>(), behind);
    assert_eq!(zones.keep([behind[0], behind[1], range(40, 49)].into_iter()), Err(ZoneError::Full));
    let reply = |total, zones: &[(u16, &str)]| Reply {
        total,
        zones: zones.iter().map(|(net, zone)| (*net, name(zone))).collect(),
    };
    assert_eq!(zones.heard(&reply(None, &[(30, "Far"), (99, "No")])), Err(ZoneError::Unsolicited));
    assert_eq!(zones.of(30), [name("Far")]);
    // Two packets, the first twice.
    assert_eq!(zones.heard(&reply(Some(3), &[(20, "A"), (20, "B")])), Ok(2));
    assert_eq!(zones.heard(&reply(Some(3), &[(20, "A"), (20, "b")])), Ok(0));
    assert_eq!((zones.of(25), zones.missing().count()), (&[][..], 1));
    assert_eq!(zones.heard(&reply(Some(3), &[(20, "Far")])), Ok(1));
    assert_eq!(zones.missing().count(), 0);
    assert_eq!(zones.heard(&reply(None, &[(20, "Late")])), Err(ZoneError::Unsolicited));
    assert_eq!(zones.of(25).len(), 3);
    assert_eq!(zones.cables_of(&name("FAR")).collect::<Vec<_>>(), behind);
    let all = ["XK", "Other", "A", "B", "Far"].map(name);
    assert_eq!(zones.list(ListKind::All, 10), all);
    assert_eq!(zones.list(ListKind::Local, 12), all[..2]);
    assert_eq!(zones.list(ListKind::MyZone, 30), all[4..]);
    // Answers to others.
    let replies = zones.answer(&[30, 10, 40, 30]);
    assert_eq!(
        replies,
        [
            reply(None, &[(30, "Far")]),
            reply(Some(2), &[(10, "XK"), (10, "Other")]),
            reply(None, &[(30, "Far")]),
        ]
    );
    assert_eq!(zones.keep([range(30, 30)].into_iter()), Ok(()));
    assert!(zones.of(20).is_empty() && !zones.of(10).is_empty());
    let info = zones.net_info(12, &NetInfoRequest { zone: name("other") }).unwrap();
    assert_eq!((info.zone(), info.instead, info.is_only), (name("Other"), None, false));
    assert_eq!(info.multicast, Some(multicast(&name("Other"))));
    let info = zones.net_info(12, &NetInfoRequest { zone: name("gone") }).unwrap();
    assert_eq!((info.zone(), info.range), (name("XK"), range(10, 19)));
    assert_eq!(info.multicast, Some(multicast(&name("XK"))));
    assert_eq!(zones.net_info(99, &NetInfoRequest::default()), None);
}

#[test]
fn a_node_asks_three_times() {
    let mut wait = NetInfoWait::new(name("XK"), Duration::ZERO);
    let zones = {
        let mut zones = Zones::new(1);
        zones.set_own(range(10, 19), &[name("XK")]).unwrap();
        zones
    };
    let info = |zone| zones.net_info(10, &NetInfoRequest { zone: name(zone) }).unwrap();
    assert!(!wait.heard(&info("XK")), "nothing was asked");
    for second in 0..3 {
        let now = Duration::from_secs(second);
        let request = NetInfoRequest { zone: name("XK") };
        assert_eq!(wait.tick(now), Some(NetInfoStep::Ask(request)));
        assert_eq!(wait.tick(now), None);
        assert!(wait.heard(&info("xk")) && !wait.heard(&info("other")));
    }
    assert_eq!(wait.tick(Duration::from_secs(3)), Some(NetInfoStep::NoRouter));
    assert_eq!((wait.tick(Duration::from_secs(9)), wait.heard(&info("XK"))), (None, false));
}

proptest! {
    #[test]
    fn any_octets_are_read_or_refused(
        function in 1u8..9,
        octets in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let octets = [&[function], &octets[..]].concat();
        if let Ok(packet) = Packet::parse(&octets) {
            let again = Packet::parse(&packet.octets());
            if packet.octets().len() < 550 {
                prop_assert_eq!(again, Ok(packet));
            }
        }
    }

    #[test]
    fn floods_are_bounded(replies in prop::collection::vec(
        prop::collection::vec((0u16..50, "[a-z]{0,3}"), 0..40), 0..40))
    {
        let mut zones = Zones::new(4);
        let _ = zones.keep((0..50).filter_map(|net| NetRange::new(net, net)));
        for reply in replies {
            let zones_of = reply.iter().map(|(net, zone)| (*net, name(zone))).collect();
            let _ = zones.heard(&Reply { total: Some(200), zones: zones_of });
        }
        prop_assert!(zones.all().len() <= 4 * 255);
    }
}
