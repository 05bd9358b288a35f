use super::*;
use core::net::Ipv4Addr;
use core::str::FromStr;
use proptest::prelude::*;
use std::string::{String, ToString};

#[test]
fn parses_and_prints_the_papers_path_name() {
    let mut p = Participant::from_str("port2005@10.0.0.2").unwrap();
    assert_eq!(p.to_string(), "port2005@10.0.0.2");
    assert_eq!(p.pop_port(), Ok(Wild::Is(2005)));
    assert_eq!(p.pop_host(), Ok(Wild::Is(HostAddr::v4(Ipv4Addr::new(10, 0, 0, 2)))));
    assert_eq!(p.pop_host(), Err(AddressError::Missing));
}

#[test]
fn wildcards_stand_at_any_layer() {
    let mut p = Participant::from_str("*@10.0.0.2").unwrap();
    assert_eq!(p.pop_port(), Ok(Wild::Any));
    let mut q = Participant::from_str("port7@*").unwrap();
    q.pop();
    assert_eq!(q.pop_host(), Ok(Wild::Any));
    assert_eq!(Wild::<u16>::Any.definite(), Err(AddressError::Wildcard));
}

#[test]
fn another_family_is_refused() {
    let mut p = Participant::from_str("10.0.0.2").unwrap();
    assert_eq!(p.pop_port(), Err(AddressError::WrongFamily));
    let mut p = Participant::from_str("port70000").unwrap();
    assert_eq!(p.pop_port(), Err(AddressError::OutOfRange));
}

#[test]
fn a_list_keeps_the_local_one_first() {
    let mut set = Participants::from_str("port7@10.0.0.1, port2005@10.0.0.2").unwrap();
    assert_eq!(set.local_mut().unwrap().pop_port(), Ok(Wild::Is(7)));
    assert_eq!(set.peer_mut().unwrap().pop_port(), Ok(Wild::Is(2005)));
    assert_eq!(set.to_string(), "10.0.0.1, 10.0.0.2");
    assert_eq!(Participants::local(Part::Any).peer_mut(), Err(AddressError::Count));
}

#[test]
fn several_peers_are_popped_one_by_one() {
    let mut set = Participants::from_str("*, port7@10.0.0.2, port9@10.0.0.3").unwrap();
    assert_eq!(set.peer_mut(), Err(AddressError::Count));
    assert_eq!(set.check_one_peer(), Err(AddressError::Count));
    let ports = set.peers_mut().iter_mut().map(Participant::pop_port);
    assert_eq!(ports.collect::<std::vec::Vec<_>>(), [Ok(Wild::Is(7)), Ok(Wild::Is(9))]);
    let local = Participant::of(Part::Any);
    assert_eq!(Participants::among(local, set.peers().iter().cloned()), set);
    assert!(Participants::default().peers().is_empty());
}

#[test]
fn bad_text_is_an_error() {
    for text in [
        "port",
        "port7@@x",
        "10.0.0.1:7",
        "7",
        "0:1:2",
        "aa:bb:cc:dd:ee:fg",
        "port7x",
        "é7",
        "[::g]",
        "[10.0.0.1]",
        "[2001:db8::1%2]",
        "fe80::1",
        "[fe80::1]:7",
        "+:0",
        "port99999999999999999999",
    ] {
        assert!(Participant::from_str(text).is_err(), "{text}");
    }
    let deep = "*@".repeat(PARTS_MAX) + "*";
    assert_eq!(Participant::from_str(&deep), Err(ParseError::TooMany));
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        Just(Part::Any),
        any::<[u8; 6]>().prop_map(Part::Ether),
        any::<u32>().prop_map(|n| Part::host(Ipv4Addr::from(n))),
        (any::<u128>(), 0u32..9).prop_map(|(n, s)| Part::Host(HostAddr::v6(n.into(), s))),
        any::<u64>()
            .prop_map(|n| Part::Host(HostAddr::v6((0xfe80 << 112 | u128::from(n)).into(), 2))),
        ("[a-zA-Z]{1,12}", any::<u64>())
            .prop_map(|(l, n)| Part::Number(Label::parse(&l).unwrap(), n)),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(parts in proptest::collection::vec(part(), 1..PARTS_MAX)) {
        let mut p = Participant::new();
        for part in parts { p.push(part); }
        prop_assert_eq!(Participant::from_str(&p.to_string()), Ok(p));
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = Participants::from_str(&text);
    }
}
