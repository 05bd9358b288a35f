//! `vip` between hosts on a link and behind a router.

use crate::sim::{figure, report, source};
use crate::virtual_world::{ETHER_TYPE, Net, add_route, graph, links, message};
use xk_core::Answer;
use xk_core::object::{OpenError, PushError};
use xk_kit::control::{MaxPacket, OptPacket};

const IP: u16 = 0x0800;

fn plain() -> String {
    graph("vip arp ip name=low", "") + &links("")
}

fn advertised(parameters: &str) -> String {
    let link = format!("vipadv arp {parameters}");
    graph("vip vipadv ip name=low", &link) + &links("")
}

#[test]
fn a_local_peer_is_reached_over_the_link_as_soon_as_its_address_is_known() {
    let mut net = Net::new(&plain(), 1, Some(1500));
    net.pass_ms(3_000);
    net.frames.0.take();
    let session = net.open(0, "10.0.0.2").unwrap();
    let asked = net.frames.0.borrow().len();
    assert_eq!(asked, 0, "nothing arrives before time passes");
    net.pass_ms(50);
    let requests = net.frames.0.take();
    let of_a = requests.iter().filter(|(who, ..)| who == "a").count();
    assert_eq!(of_a, 1, "one request for one open: {requests:?}");
    // The sheet's first vector: 36 octets of header, padded to 60.
    let header = message(1, 36);
    net.push(0, &session, &header).unwrap();
    net.pass_ms(5);
    let (who, kind, frame) = net.frames.0.take().remove(0);
    assert_eq!((who.as_str(), kind), ("a", 0x395a));
    let mut expected = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x39, 0x5a];
    expected.extend(&header);
    expected.extend([0; 10]);
    assert_eq!(frame, expected);
    let got = net.got(1);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].0.to_string(), "10.0.0.1");
    assert_eq!(got[0].1[..36], header[..]);
    // Opened again it is the same, and asks for nothing.
    let again = net.open(0, "10.0.0.2").unwrap();
    assert!(again == session);
    net.pass_ms(50);
    assert!(net.frames.0.take().is_empty());
}

#[test]
fn the_length_decides() {
    let mut net = Net::new(&plain(), 1, None);
    let session = net.open(0, "10.0.0.2").unwrap();
    net.pass_ms(3_000);
    let cx_octets = |net: &mut Net| {
        let id = net.states[0].0;
        let session = session.clone();
        let sizes = net.world.enter(id, |cx| {
            let max = session.ask(cx, MaxPacket::default()).unwrap().octets;
            (max, session.ask(cx, OptPacket::default()).unwrap().octets)
        });
        sizes.unwrap()
    };
    assert_eq!(cx_octets(&mut net), (65_515, 1500));
    net.frames.0.take();
    for (len, kinds) in [(1500, vec![ETHER_TYPE]), (1501, vec![IP, IP]), (46, vec![ETHER_TYPE])] {
        let sent = message(len, len);
        net.push(0, &session, &sent).unwrap();
        net.pass_ms(50);
        assert_eq!(net.sent("a"), kinds, "{len} octets");
        let got = net.got(1);
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].1, sent, "{len} octets arrive as they are");
    }
    assert_eq!(net.states[1].3.made.borrow().len(), 1, "one session for both ways");
}

#[test]
fn a_peer_behind_the_router_is_reached_by_ip() {
    let mut net = Net::new(&plain(), 1, Some(1500));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.1.2").unwrap();
    net.frames.0.take();
    let header = message(2, 36);
    net.push(0, &session, &header).unwrap();
    net.pass_ms(100);
    let frames = net.frames.0.take();
    assert!(frames.iter().all(|(_, kind, _)| *kind == IP || *kind == 0x0806));
    let own = frames.iter().find(|(who, kind, _)| who == "a" && *kind == IP);
    // The sheet's second vector: a header of 20 octets, protocol 90, 56 in all.
    let packet = &own.unwrap().2[14..];
    assert_eq!((packet[0], packet[3], packet[8], packet[9]), (0x45, 0x38, 64, 90));
    assert_eq!(packet[12..20], [10, 0, 0, 1, 10, 0, 1, 2]);
    assert_eq!(packet[20..56], header[..]);
    let got = net.got(2);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].1, header, "IP takes the padding off");
    // The answer goes back the same way, through the session that the message made.
    let made = net.states[2].3.made.borrow()[0].clone();
    net.push(2, &made, b"answer").unwrap();
    net.pass_ms(100);
    let got = net.got(0);
    assert_eq!(got.len(), 1);
    assert_eq!(&got[0].1, b"answer");
    assert_eq!(net.states[0].3.made.borrow().len(), 0, "it came to the open session");
}

#[test]
fn answers_go_over_the_link_from_the_first() {
    let mut net = Net::new(&plain(), 1, Some(1500));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.0.2").unwrap();
    net.pass_ms(50);
    net.push(0, &session, &message(1, 100)).unwrap();
    net.pass_ms(50);
    let made = net.states[1].3.made.borrow()[0].clone();
    net.frames.0.take();
    net.push(1, &made, &message(2, 100)).unwrap();
    net.push(1, &made, &message(3, 1501)).unwrap();
    net.pass_ms(50);
    assert_eq!(net.sent("b"), [ETHER_TYPE, IP, IP]);
    let got = net.got(0);
    assert_eq!(got.iter().map(|(_, o)| o.len()).collect::<Vec<_>>(), [100, 1501]);
    assert!(net.states[0].3.made.borrow().is_empty());
}

#[test]
fn who_needs_ip_itself_is_refused() {
    let mut net = Net::new(&plain(), 1, None);
    net.states[0].3.wants_ip.set(true);
    assert_eq!(net.open(0, "10.0.0.2"), Err(OpenError::NotSupported));
    assert_eq!(net.enable(0), Err(OpenError::NotSupported));
    net.states[0].3.wants_ip.set(false);
    assert!(net.open(0, "10.0.0.2").is_ok());
}

#[test]
fn everybody_is_reached_over_the_link_alone() {
    let mut net = Net::new(&plain(), 1, None);
    net.pass_ms(3_000);
    assert_eq!(
        net.open(0, "255.255.255.255"),
        Err(OpenError::NotSupported),
        "long messages could not go"
    );
    net.states[0].3.largest.set(Some(1000));
    let all = net.open(0, "255.255.255.255").unwrap();
    net.frames.0.take();
    net.push(0, &all, &message(1, 200)).unwrap();
    net.pass_ms(50);
    assert_eq!(net.sent("a"), [ETHER_TYPE]);
    assert_eq!(net.got(2), [], "it does not cross the router");
    assert_eq!(net.push(0, &all, &message(1, 1501)), Err(PushError::TooBig));
}

#[test]
fn a_peer_that_vanishes_and_comes_back() {
    let source = graph("vip arp ip name=low", "")
        + &links("{ partition from=\"20s\" until=\"80s\" between=b; }");
    let mut net = Net::new(&source, 1, Some(1500));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.0.2").unwrap();
    let mut kinds = Vec::new();
    // A message every second, for two minutes.
    for n in 0..120 {
        net.frames.0.take();
        // A message that waits for an address in vain is refused.
        let _ = net.push(0, &session, &message(n, 100));
        net.pass_ms(1_000);
        kinds.push(net.sent("a"));
    }
    let got = net.got(1).len();
    assert!(kinds[1..15].iter().all(|k| *k == [ETHER_TYPE]), "{kinds:?}");
    assert!(kinds[45..60].iter().all(|k| !k.contains(&ETHER_TYPE)), "{kinds:?}");
    assert!(kinds[100..].iter().all(|k| *k == [ETHER_TYPE]), "{kinds:?}");
    assert!((50..=60).contains(&got), "{got} arrived");
    assert!(!session.head().is_closed());
}

#[test]
fn a_peer_that_changes_its_address() {
    let twin = "host twin {\n sim link=lan1\n eth sim address=\"02:00:00:00:00:09\"\n arp eth lifetime=\"10s\"\n \
         ip arp { address \"10.0.0.2/24\"; }\n vip arp ip name=low\n}\n";
    let source = graph("vip arp ip name=low", "")
        + twin
        + &links("{ partition until=\"20s\" between=twin; partition from=\"20s\" between=b; }");
    let mut net = Net::new(&source, 1, Some(1500));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.0.2").unwrap();
    let mut got = Vec::new();
    for n in 0..60 {
        let _ = net.push(0, &session, &message(n, 100));
        net.pass_ms(1_000);
        got.push((net.got(1).len(), net.got(3).len()));
    }
    assert!(got[1..15].iter().all(|g| *g == (1, 0)), "{got:?}");
    assert!(got[45..].iter().all(|g| *g == (0, 1)), "{got:?}");
    // The new station's answers come to the same session.
    let made = net.states[3].3.made.borrow()[0].clone();
    net.got(0);
    net.push(3, &made, &message(7, 80)).unwrap();
    net.pass_ms(50);
    assert_eq!(net.got(0).len(), 1);
    assert!(net.states[0].3.made.borrow().is_empty());
}

#[test]
fn a_peer_that_moves_off_the_link() {
    // The same host is on the other link as well, but not to be reached there at first.
    let moved = "host moved {\n sim link=lan2\n eth sim\n arp eth\n \
         ip arp { address \"10.0.1.9/24\"; address \"10.0.0.2/32\"; route default via=\"10.0.1.254\"; }\n vip arp ip name=low\n}\n";
    let source =
        graph("vip arp ip name=low", "") + moved + &links("{ partition from=\"10s\" between=b; }");
    let mut net = Net::new(&source, 1, Some(1500));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.0.2").unwrap();
    net.pass_ms(50);
    net.push(0, &session, &message(1, 100)).unwrap();
    net.pass_ms(50);
    assert_eq!((net.got(1).len(), net.got(3).len()), (1, 0));
    net.pass_ms(10_000);
    add_route(&mut net, "a", Some("10.0.0.254"), "");
    add_route(&mut net, "router", None, "a2");
    // Within the time after which routes are looked at again.
    net.pass_ms(21_000);
    net.frames.0.take();
    net.push(0, &session, &message(2, 100)).unwrap();
    net.pass_ms(100);
    assert_eq!(net.sent("a"), [IP]);
    assert_eq!((net.got(1).len(), net.got(3).len()), (0, 1));
}

#[test]
fn only_hosts_that_say_so_are_sent_frames() {
    // b says nothing: it has no `vipadv`.
    let source = advertised("").replacen(
        "eth sim address=\"02:00:00:00:00:02\"\n arp eth lifetime=\"10s\"\n vipadv arp ",
        "eth sim address=\"02:00:00:00:00:02\"\n arp eth lifetime=\"10s\"\n tracer arp name=vipadv ",
        1,
    );
    assert_ne!(source, advertised(""));
    let mut net = Net::new(&source, 1, Some(1500));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.0.2").unwrap();
    net.pass_ms(50);
    net.frames.0.take();
    net.push(0, &session, &message(1, 100)).unwrap();
    net.pass_ms(50);
    assert_eq!(net.sent("a"), [IP]);
    assert_eq!(net.got(1).len(), 1);
    for (assume, kind) in [("all", ETHER_TYPE), ("none", IP)] {
        let source = source.replacen("vipadv arp ", &format!("vipadv arp assume={assume} "), 1);
        let mut net = Net::new(&source, 1, Some(1500));
        net.pass_ms(3_000);
        let session = net.open(0, "10.0.0.2").unwrap();
        net.pass_ms(50);
        net.frames.0.take();
        net.push(0, &session, &message(1, 100)).unwrap();
        net.pass_ms(50);
        assert_eq!(net.sent("a"), [kind], "assume={assume}");
    }
}

#[test]
fn both_know_after_one_exchange() {
    // No broadcast for an hour: the exchange of addresses alone tells.
    let mut net = Net::new(&advertised("interval=\"1h\" lifetime=\"1h\""), 1, Some(1500));
    net.pass_ms(3_000);
    let broadcasts = net.frames.0.take();
    let vector: Vec<u8> = [
        &[0xff; 6][..],
        &[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 0x39, 0, 6, 4, 0, 2],
        &[2, 0, 0, 0, 0, 1, 10, 0, 0, 1],
        &[0xff; 6],
        &[10, 0, 0, 1],
        &[0; 18],
    ]
    .concat();
    // The sheet's third vector.
    assert!(broadcasts.iter().any(|(_, _, frame)| *frame == vector));
    let session = net.open(0, "10.0.0.2").unwrap();
    net.pass_ms(20);
    net.push(0, &session, &message(1, 100)).unwrap();
    net.pass_ms(20);
    assert_eq!(net.sent("a"), [ETHER_TYPE]);
    let made = net.states[1].3.made.borrow()[0].clone();
    net.push(1, &made, &message(2, 100)).unwrap();
    net.pass_ms(20);
    assert_eq!(net.sent("b"), [ETHER_TYPE]);
    assert_eq!((net.got(0).len(), net.got(1).len()), (1, 1));
}

#[test]
fn a_peer_that_stops_saying_so_and_begins_again() {
    // What a hears lasts ten seconds; b says it every 40, and when addresses are exchanged.
    let source = advertised("lifetime=\"10s\" interval=\"40s\"")
        .replace("arp eth lifetime=\"10s\"", "arp eth lifetime=\"1h\"");
    let mut net = Net::new(&source, 1, Some(1500));
    net.pass_ms(3_000);
    let session = net.open(0, "10.0.0.2").unwrap();
    let mut kinds = Vec::new();
    for n in 0..100 {
        net.frames.0.take();
        net.push(0, &session, &message(n, 100)).unwrap();
        net.pass_ms(1_000);
        kinds.push(net.sent("a")[0]);
    }
    assert_eq!(net.got(1).len(), 100, "nothing is lost on the way from one to the other");
    let changes: Vec<u16> = kinds.iter().copied().fold(Vec::new(), |mut all, kind| {
        if all.last() != Some(&kind) {
            all.push(kind);
        }
        all
    });
    assert!(changes.len() >= 4, "{kinds:?}");
    assert!(!session.head().is_closed());
}

#[test]
fn under_loss_all_that_the_links_carry_arrives_once() {
    for seed in 1..=100 {
        let source = graph("vip vipadv ip name=low", "vipadv arp interval=\"3s\" lifetime=\"9s\"")
            + "link lan1 delay=\"1ms\" jitter=\"3ms\" loss=\"20%\" { partition from=\"12s\" until=\"30s\" between=b; }\n\
               link lan2 delay=\"1ms\" loss=\"20%\"\n";
        let mut net = Net::new(&source, seed, None);
        let near = net.open(0, "10.0.0.2").unwrap();
        let far = net.open(0, "10.0.1.2").unwrap();
        for n in 0..60 {
            let len = if n % 3 == 0 { 3000 } else { 60 + n };
            let _ = net.push(0, &near, &message(n, len));
            let _ = net.push(0, &far, &message(n, len));
            net.pass_ms(1_000);
        }
        for at in [1, 2] {
            let mut got = net.got(at);
            let all = got.len();
            assert!(got.iter().all(|(from, octets)| {
                let known = (0..60).any(|n| {
                    let len = if n % 3 == 0 { 3000 } else { 60 + n };
                    *octets == message(n, len)
                });
                from.to_string() == "10.0.0.1" && known
            }));
            got.sort();
            got.dedup();
            assert_eq!(got.len(), all, "seed {seed}: nothing comes twice");
            assert!(all >= 8, "seed {seed}: {all} arrived");
            let made = net.states[at].3.made.borrow().len();
            assert_eq!(made, 1, "seed {seed}: one session for one peer");
        }
    }
}

#[test]
fn what_it_does_not_know_goes_on_down() {
    let mut net = Net::new(&plain(), 1, None);
    let (id, _, low, _) = net.states[0].clone();
    let found = net.world.enter(id, |cx| {
        let mut question = xk_kit::rpc::call::LargestPush::default();
        let asked = low.control(cx, &mut xk_core::Ask::new(&mut question));
        let mine = low.ask(cx, xk_kit::control::MyHost::default());
        (asked, mine.unwrap().host.to_string())
    });
    assert_eq!(found, Some((Answer::Unknown, "10.0.0.1".into())));
}

#[test]
fn the_example_reaches_the_near_host_in_frames_and_the_far_one_by_ip() {
    let mut net = Net::new(&source("vip.kdl"), 1, None);
    net.pass_ms(6_000);
    let reports = ["near", "far"].map(|name| report(&net.world, "alice", name));
    assert!(reports.iter().all(|report| report.finished && !report.failed));
    let kinds = net.sent("alice");
    // The type on Ethernet follows from FRAGMENT's number on IP.
    let near = kinds.iter().filter(|kind| **kind == 0x3900 + 101).count();
    let far = kinds.iter().filter(|kind| **kind == IP).count();
    assert!(near >= 19 && far >= 20 && near + far >= 40, "{near} and {far}");
}

/// A world in which `a` probes the others through UDP on `vip`, and they echo.
fn udp(probes: &str, link: &str) -> Net {
    let echoes = graph("vip arp ip name=low\n udp low\n echo udp port=7", "");
    let source = echoes.replacen("echo udp port=7", probes, 1) + &links(link);
    let mut net = Net::new(&source, 1, None);
    net.pass_ms(20_000);
    net
}

/// Paper 001, section 3.1: IP is taken out from below UDP where the host is on the link.
#[test]
fn udp_goes_in_frames_to_the_link_and_by_ip_beyond_it() {
    let probes = "probe udp name=near to=\"port7@10.0.0.2\" count=20 interval=\"50ms\" start=\"1s\" size=10 size_max=1400\n \
                  probe udp name=large to=\"port7@10.0.0.2\" count=20 interval=\"50ms\" start=\"3s\" size=3000\n \
                  probe udp name=far to=\"port7@10.0.1.2\" count=20 interval=\"50ms\" start=\"5s\" size=10 size_max=3000";
    let net = udp(probes, "");
    for probe in ["near", "large", "far"] {
        assert_eq!(figure(&report(&net.world, "a", probe), "received"), 20, "{probe}");
        assert_eq!(figure(&report(&net.world, "a", probe), "corrupt"), 0, "{probe}");
    }
    let frames = net.frames.0.take();
    let straight = |who: &str| {
        let own = frames.iter().filter(|(from, kind, _)| from == who && *kind == 0x3900 + 17);
        own.map(|(.., frame)| frame.clone()).collect::<Vec<_>>()
    };
    // The first goes by IP: the neighbour's address is not known yet.
    assert!(straight("a").len() >= 19, "{}", straight("a").len());
    assert!(straight("b").len() >= 19, "{}", straight("b").len());
    assert!(straight("far").is_empty());
    for frame in straight("a") {
        let length = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
        let mut sum = xk_kit::Checksum::new();
        sum.add(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 17, frame[18], frame[19]]);
        sum.add(&frame[14..14 + length]);
        assert!(frame[20..22] != [0, 0] && sum.is_valid(), "{frame:?}");
    }
}

#[test]
fn udp_on_frames_sees_damage() {
    let probe = "probe udp name=near to=\"port7@10.0.0.2\" count=300 interval=\"20ms\" size=100";
    let mut net = udp(probe, "corrupt=\"20%\"");
    assert_eq!(figure(&report(&net.world, "a", "near"), "corrupt"), 0);
    assert!(figure(&report(&net.world, "a", "near"), "received") > 100);
    let refused = net.world.enter(net.states[0].0, |cx| {
        let udp = cx.find_protocol("udp").unwrap();
        udp.head().drops().of(&xk_core::reason::BAD_CHECKSUM)
    });
    assert!(refused.unwrap() > 10, "{refused:?}");
}
