use super::*;
use core::fmt::Debug;
use std::string::String;
use std::vec::Vec;
use xk_testkit::vectors::onc_rpc;

/// Octets of a call's header with empty credentials, and of a reply's (RFC 5531, section 9).
const CALL_HEAD: usize = 40;
const REPLY_HEAD: usize = 24;

/// Checks that the octets behind the header in rpcbind's own message are this value, both ways, and
/// that no shorter ones are.
fn is<T: Xdr + PartialEq + Debug>(name: &str, kind: &str, value: &T) {
    let head = if kind == "call" { CALL_HEAD } else { REPLY_HEAD };
    let octets = onc_rpc(name, kind);
    let octets = &octets[head..];
    let mut decoder = Decoder::new(octets).strict();
    assert_eq!(T::decode(&mut decoder).as_ref(), Ok(value), "{name} {kind}");
    assert_eq!(decoder.finish(), Ok(()), "{name} {kind}");
    assert_eq!(xk_xdr::to_vec(value).as_deref(), Ok(octets), "{name}");
    for len in 0..octets.len() {
        let cut = T::decode(&mut Decoder::new(&octets[..len]));
        assert!(cut.is_err(), "{name} {kind} of {len} octets");
    }
}

const TRIAL: u32 = 0x2000_0101;

fn mapping(program: u32, version: u32, protocol: u32, port: u32) -> Mapping {
    Mapping { program, version, protocol, port }
}

fn binding(program: u32, version: u32, netid: &str, address: &str, owner: &str) -> Binding {
    Binding { program, version, netid: netid.into(), address: address.into(), owner: owner.into() }
}

#[test]
fn version_2_is_that_of_rpcbind() {
    is("pmap-getport", "call", &mapping(TRIAL, 1, 17, 0));
    is("pmap-getport", "reply", &2049_u32);
    is("pmap-getport-unknown", "reply", &0_u32);
    is("pmap-set", "call", &mapping(0x2000_0999, 1, 17, 77));
    is("pmap-set", "reply", &true);
    is("pmap-unset", "call", &mapping(0x2000_0999, 1, 17, 77));
    let own = [6, 17].map(|protocol| [4, 3, 2].map(|v| mapping(PROGRAM, v, protocol, 111)));
    let trial = [17, 6].map(|protocol| [1, 2].map(|v| mapping(TRIAL, v, protocol, 2049)));
    let all: List<Mapping> = own.into_iter().flatten().chain(trial.into_iter().flatten()).collect();
    is("pmap-dump", "reply", &all);
    let add = CallArguments {
        program: TRIAL,
        version: 1,
        procedure: 2,
        arguments: (&[0, 0, 0, 2, 0xff, 0xff, 0xff, 0xfb]).into(),
    };
    is("pmap-callit-silent", "call", &add);
    is("rpcb4-bcast-silent", "call", &add);
    is("rpcb4-indirect-unknown", "call", &CallArguments { program: 0x2000_0999, ..add });
}

#[test]
fn versions_3_and_4_are_those_of_rpcbind() {
    let asked = binding(TRIAL, 1, "udp", "127.0.0.1.0.111", "");
    is("rpcb3-getaddr", "call", &asked);
    is("rpcb3-getaddr", "reply", &Name::from("127.0.0.1.8.1"));
    is("rpcb4-getversaddr-unknown", "reply", &Name::default());
    let set = binding(0x2000_0999, 1, "udp", "127.0.0.1.8.1", "me");
    is("rpcb4-set", "call", &set);
    is("rpcb4-uaddr2taddr", "call", &Name::from("127.0.0.1.8.1"));
    let address = NetBuf {
        octets_max: 16,
        octets: (&[2, 0, 8, 1, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]).into(),
    };
    is("rpcb4-uaddr2taddr", "reply", &address);
    is("rpcb4-uaddr2taddr-junk", "reply", &NetBuf::default());
    is("rpcb4-taddr2uaddr", "reply", &Name::from("127.0.0.1.8.10"));
    let entry = |name: &str, semantics| Entry {
        address: "127.0.0.1.8.1".into(),
        netid: name.into(),
        semantics,
        family: "inet".into(),
        protocol: name.into(),
    };
    let entries: List<Entry> = [entry("udp", 1), entry("tcp", 3)].into_iter().collect();
    is("rpcb4-getaddrlist", "reply", &entries);
}

#[test]
fn all_mappings_of_rpcbind_are_read() {
    let octets = onc_rpc("rpcb3-dump", "reply");
    let all: List<Binding> = xk_xdr::from_slice(&octets[REPLY_HEAD..]).expect("a list");
    let line = |b: &Binding| std::format!("{} {} {} {}", b.program, b.version, b.netid, b.address);
    let lines: Vec<String> = all.iter().map(line).collect();
    assert_eq!(lines.len(), 16);
    assert_eq!(lines[0], "100000 4 tcp6 ::.0.111");
    assert_eq!(lines[10], "100000 4 local /run/rpcbind.sock");
    assert_eq!(lines[15], "536871169 2 tcp 0.0.0.0.8.1");
    assert_eq!(xk_xdr::to_vec(&all).as_deref(), Ok(&octets[REPLY_HEAD..]));
}

#[test]
fn statistics_of_rpcbind_are_read() {
    let octets = onc_rpc("rpcb4-getstat", "reply");
    let [two, three, four]: [Statistics; 3] =
        xk_xdr::from_slice(&octets[REPLY_HEAD..]).expect("statistics");
    assert_eq!((two.set, two.unset), (1, 1));
    assert_eq!(two.requests, [1, 1, 1, 4, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(three.set, 4);
    assert_eq!(four.calls.len(), 3);
    let calls: Vec<_> = four.calls.iter().map(|c| (c.procedure, c.failures, c.indirect)).collect();
    assert_eq!(calls, [(2, 1, 1), (99, 0, 1), (2, 0, 1)]);
    let again = xk_xdr::to_vec(&[two, three, four]);
    assert_eq!(again.as_deref(), Ok(&octets[REPLY_HEAD..]));
}

#[test]
fn names_without_end_are_garbage() {
    let mut octets = std::vec![0, 0, 1, 0];
    octets.resize(260, b'x');
    assert!(xk_xdr::from_slice::<Name>(&octets).is_err());
}
