//! Packets of atalkd; the stub; routers in rows and rings.

use super::*;
use crate::tests::hex;
use proptest::prelude::*;
use std::vec;

fn range(first: u16, last: u16) -> NetRange {
    NetRange::new(first, last).unwrap()
}

fn route(first: u16, last: u16, distance: u8) -> Route {
    Route { range: range(first, last), is_extended: true, distance }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn packets_of_others() {
    let sender = Node::new(10, 17);
    let cable = Some(range(10, 19));
    let table = [
        ("000a 08 11 000a 80 0013 82 000a 80 0013 82", vec![route(10, 19, 0)], sender),
        ("000a 08 fe 000a 80 0013 82 0014 81 001d 82", vec![route(20, 29, 1)], Node::new(10, 254)),
        ("000a 08 11 000a 80 0013 82", vec![], sender),
    ];
    for (text, routes, sender) in table {
        let octets = hex(text);
        let data = Data::parse(&octets).unwrap();
        let header_len = 10;
        assert_eq!(data, Data { sender, range: cable, routes });
        assert_eq!(data.packets(), vec![octets.clone()]);
        assert_eq!(data.response(), octets[..header_len]);
        for len in (0..octets.len()).filter(|len| ![4, header_len].contains(len)) {
            assert_eq!(Data::parse(&octets[..len]), Err(Error::Truncated), "{text} {len}");
        }
    }
    // Not extended: data, and a response.
    let data = Data::parse(&hex("0005 08 01 000082 0007 02 0014 81 001d 82")).unwrap();
    let single = Route { range: range(7, 7), is_extended: false, distance: 2 };
    assert_eq!(data.routes, [single, route(20, 29, 1)]);
    assert_eq!((data.range, data.cable()), (None, Some(range(5, 5))));
    assert_eq!(data.packets(), [hex("0005 08 01 000082 0007 02 0014 81 001d 82")]);
    assert_eq!(Data::parse(&hex("0005 08 01")).unwrap().response(), hex("0005 08 01"));
    let refused = [
        ("000a 10 11 000a 80 0013 82", Error::NodeLength(16)),
        ("0000 08 11 000a 80 0013 82", Error::Sender),
        ("000a 08 ff 000a 80 0013 82", Error::Sender),
        ("000a 08 11 000a 80 0013 81", Error::Version(0x81)),
        ("000a 08 11 0000 81", Error::Version(0x81)),
        ("000a 08 11 000a 81 0013 82", Error::Route),
        ("000a 08 11 000a 00", Error::Route),
        ("000a 08 11 0013 80 000a 82", Error::Route),
        ("000a 08 11 000a 80 0013 82 0014 20", Error::Route),
        ("000a 08 11 000a 80 0013 82 0000 01", Error::Route),
    ];
    for (text, error) in refused {
        assert_eq!(Data::parse(&hex(text)), Err(error), "{text}");
    }
    let requests = [Request::Networks, Request::RoutesBeyond, Request::Routes];
    assert!(requests.iter().all(|request| Request::parse(&[*request as u8]) == Ok(*request)));
    assert_eq!(Request::parse(&[]), Err(Error::Truncated));
    assert_eq!(Request::parse(&[4]), Err(Error::Function(4)));
}

#[test]
fn a_node_hears_its_router() {
    let data = Data::parse(&hex("000a 08 11 000a 80 0013 82 000a 80 0013 82")).unwrap();
    let mut stub = Stub::new(None);
    assert_eq!(stub.heard(&data, at(0)), Heard::Networks(range(10, 19), data.sender));
    assert_eq!(stub.heard(&data, at(10)), Heard::Known);
    let other = Data { sender: Node::new(11, 3), ..data.clone() };
    assert_eq!(stub.heard(&other, at(20)), Heard::Router(other.sender));
    let lying = [
        Data { range: Some(range(10, 20)), ..data.clone() },
        Data { sender: Node::new(20, 3), ..data.clone() },
        Data { range: None, ..data },
    ];
    for data in lying {
        assert_eq!(stub.heard(&data, at(30)), Heard::Refused);
    }
    assert_eq!((stub.tick(at(69)), stub.router()), (None, Some(other.sender)));
    assert_eq!((stub.next(), stub.tick(at(70))), (Some(at(70)), Some(other.sender)));
    assert_eq!((stub.router(), stub.range(), stub.next()), (None, Some(range(10, 19)), None));
}

/// A router on cables of ten networks each, 10-19 and so on, by their tens.
fn router(cables: &[u16], node: u8) -> Table {
    let port = |cable: &u16| Port {
        me: Node::new(10 * cable, node),
        range: range(10 * cable, 10 * cable + 9),
        is_extended: true,
    };
    Table::new(cables.iter().map(port).collect(), 64)
}

/// All routers tell one another what they know.
fn exchange(routers: &mut [Table]) {
    for from in 0..routers.len() {
        for port in 0..routers[from].ports().len() {
            let update = routers[from].update(port, true).unwrap();
            let cable = routers[from].ports()[port].range;
            for to in (0..routers.len()).filter(|to| *to != from) {
                let port = routers[to].ports().iter().position(|port| port.range == cable);
                for packet in port.map(|_| update.packets()).unwrap_or_default() {
                    let data = Data::parse(&packet).unwrap();
                    routers[to].heard(port.unwrap(), &data).unwrap();
                }
            }
        }
    }
}

/// Port and router by which a table leads to a network behind others.
fn way(table: &Table, net: u16) -> Option<(usize, Node)> {
    let leads = |entry: &&Entry| entry.range.contains(net) && entry.state.is_used();
    table.entries().iter().find(leads).map(|entry| (entry.port, entry.next))
}

#[test]
fn routers_in_a_row_learn_and_forget() {
    let mut routers = [router(&[1, 2], 1), router(&[2, 3], 2), router(&[3, 4], 3)];
    for _ in 0..3 {
        exchange(&mut routers);
    }
    let first = &routers[0];
    assert_eq!(way(first, 45), Some((1, Node::new(20, 2))));
    assert_eq!(way(first, 50), None);
    let distances: Vec<_> = first.entries().iter().map(|e| (e.range.first(), e.distance)).collect();
    assert_eq!(distances, [(30, 1), (40, 2)]);
    // Split horizon: what was learnt over a cable is not told there.
    let told = |port| -> Vec<u16> {
        let routes = first.update(port, true).unwrap().routes;
        routes.iter().map(|route| route.range.first()).collect()
    };
    assert_eq!((told(0), told(1)), (vec![20, 30, 40], vec![10]));
    assert_eq!(first.update(0, false).unwrap().routes.len(), 4);
    assert_eq!(first.response(0).unwrap().response(), hex("000a 08 01 000a 80 0013 82"));
    // The last router falls silent.
    let silent = routers.split_at_mut(2).0;
    let mut bad_after = None;
    for period in 1..=8 {
        exchange(silent);
        exchange(silent);
        silent.iter_mut().for_each(|router| drop(router.age()));
        exchange(silent);
        if way(&silent[0], 45).is_none() && bad_after.is_none() {
            bad_after = Some(period);
        }
    }
    assert_eq!(bad_after, Some(2), "bad news is told at once");
    assert!(silent.iter().all(|router| router.entries().iter().all(|e| e.range.first() != 40)));
    assert_eq!(way(&silent[0], 31), Some((1, Node::new(20, 2))), "all else is kept");
}

#[test]
fn a_ring_finds_the_other_way_and_does_not_count_to_infinity() {
    let mut routers =
        [router(&[1, 2], 1), router(&[2, 3], 2), router(&[3, 4], 3), router(&[4, 1], 4)];
    for _ in 0..4 {
        exchange(&mut routers);
    }
    assert_eq!(way(&routers[0], 30), Some((1, Node::new(20, 2))));
    assert_eq!(way(&routers[0], 40), Some((0, Node::new(10, 4))));
    // The second one is gone: 30 is reached by the other side.
    let mut left = [routers[0].clone(), routers[2].clone(), routers[3].clone()];
    for _ in 0..6 {
        exchange(&mut left);
        exchange(&mut left);
        left.iter_mut().for_each(|router| drop(router.age()));
    }
    exchange(&mut left);
    assert_eq!(way(&left[0], 30), Some((0, Node::new(10, 4))));
    let distances = left.iter().flat_map(Table::entries).map(|entry| entry.distance);
    assert!(distances.max().unwrap() <= 3);
}

#[test]
fn what_cannot_be_is_not_believed() {
    let mut table = router(&[1, 2], 1);
    let data = |routes| Data { sender: Node::new(11, 9), range: Some(range(10, 19)), routes };
    let some = table.heard(0, &data(vec![route(15, 35, 0), route(10, 19, 0), route(20, 29, 3)]));
    assert_eq!(some, Some(Merged { conflicts: 1, ..Merged::default() }));
    assert_eq!(table.heard(0, &data(vec![route(50, 59, 15), route(60, 69, 31)])).unwrap().added, 0);
    assert_eq!(table.heard(0, &data(vec![route(50, 59, 14)])).unwrap().added, 1);
    assert_eq!(table.heard(0, &data(vec![route(55, 65, 0)])).unwrap().conflicts, 1);
    let refused = [
        Data { range: Some(range(10, 18)), ..data(vec![]) },
        Data { sender: Node::new(20, 9), ..data(vec![]) },
        Data { sender: Node::new(10, 1), ..data(vec![]) },
        Data { range: None, ..data(vec![]) },
    ];
    assert!(refused.iter().all(|data| table.heard(0, data).is_none()));
    assert_eq!((table.heard(2, &data(vec![])), table.update(2, true)), (None, None));
    // Another router cannot withdraw what it did not tell.
    let other = Data { sender: Node::new(12, 8), ..data(vec![route(50, 59, 31)]) };
    table.heard(0, &other);
    assert_eq!(way(&table, 55), Some((0, Node::new(11, 9))));
    table.heard(0, &data(vec![route(50, 59, 31)]));
    assert_eq!(way(&table, 55), None);
    table.set_port(1, Port { range: range(50, 51), ..table.ports()[1] });
    assert!(table.entries().is_empty());
}

#[test]
fn a_flood_of_networks_is_bounded() {
    let mut table = router(&[1], 1);
    let routes = (0..60_000).map(|net| route(1000 + net, 1000 + net, 1)).collect();
    let all = Data { sender: Node::new(11, 9), range: Some(range(10, 19)), routes };
    let (mut added, mut full) = (0, 0);
    for packet in all.packets() {
        assert!(packet.len() <= DATA_LEN_MAX);
        let merged = table.heard(0, &Data::parse(&packet).unwrap()).unwrap();
        (added, full) = (added + merged.added, full + merged.full);
    }
    assert_eq!((added, full, table.entries().len()), (64, 60_000 - 64, 64));
}

proptest! {
    #[test]
    fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..80)) {
        let octets = [&[0, 10, 8, 17, 0, 10, 0x80, 0, 19, 0x82], &octets[..]].concat();
        if let Ok(data) = Data::parse(&octets) {
            prop_assert_eq!(&data.packets().concat(), &octets);
        }
        let _ = Data::parse(&octets[4..]);
    }

    #[test]
    fn data_round_trips(routes in prop::collection::vec((1u16..0xfffe, 0u16..9, 0u8..32), 0..300)) {
        let routes: Vec<_> = routes
            .into_iter()
            .filter_map(|(first, more, distance)| {
                let range = NetRange::new(first, first.checked_add(more)?)?;
                Some(Route { range, is_extended: more != 0, distance })
            })
            .collect();
        let data = Data { sender: Node::new(7, 1), range: None, routes };
        let mut again = vec![];
        for packet in data.packets() {
            prop_assert!(packet.len() <= DATA_LEN_MAX);
            again.extend(Data::parse(&packet).unwrap().routes);
        }
        prop_assert_eq!(again, data.routes);
    }
}
