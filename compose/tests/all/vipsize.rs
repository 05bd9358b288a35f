//! `vipaddr`, and `vipsize` on it and on `fragment`, between hosts on a link and behind a router
//! ("RPC in the x-Kernel", figure 4b).

use crate::virtual_world::{ETHER_TYPE, Net, graph, links, message};
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::control::ListSessions;
use xk_core::object::OpenError;
use xk_core::{Part, Participants, SessionRef, Upper};
use xk_kit::rpc::retransmit::{AskCopy, CopyState, FreeCopy, LastCopy};

const IP: u16 = 0x0800;
/// Ethernet type of `fragment`: 0x3900 and its number on IP.
const FRAGMENTS: u16 = 0x3900 + 101;

/// A tracer lets a host have shepherds that can wait.
fn waiting(source: &str) -> String {
    source.replace("\n eth sim address", "\n tracer sim name=t\n eth t address")
}

/// Opens on a shepherd that can wait; the result once time has passed.
fn open_waiting(net: &mut Net, at: usize, to: &str, ms: u64) -> Result<SessionRef, OpenError> {
    let (id, small, low, _) = net.states[at].clone();
    let both = Participants::pair(Part::Any, Part::Host(to.parse().unwrap()));
    let found = Rc::new(RefCell::new(None));
    let put = Rc::clone(&found);
    net.world.spawn(id, move |cx| {
        let opened = low.open(cx, Upper::new(&small), both);
        *put.borrow_mut() = Some(opened);
    });
    net.pass_ms(ms);
    found.take().expect("it is open by now")
}

/// Kind of the protocol that has the session.
fn kind(net: &mut Net, at: usize, session: &SessionRef) -> &'static str {
    let id = net.states[at].0;
    let protocol = net.world.enter(id, |cx| session.protocol(cx).unwrap());
    protocol.unwrap().head().kind()
}

#[test]
fn vipaddr_gives_the_session_of_the_layer_below() {
    let source = waiting(&graph("vipaddr arp ip name=low", "")) + &links("");
    let mut net = Net::new(&source, 1, Some(1480));
    net.pass_ms(3_000);
    net.frames.0.take();
    let near = open_waiting(&mut net, 0, "10.0.0.2", 50).unwrap();
    let requests = net.frames.0.take();
    let of_a = requests.iter().filter(|(who, ..)| who == "a").count();
    assert_eq!(of_a, 1, "one request for one open");
    assert_eq!(kind(&mut net, 0, &near), "arp");
    let far = open_waiting(&mut net, 0, "10.0.1.2", 50).unwrap();
    assert_eq!(kind(&mut net, 0, &far), "ip");
    net.frames.0.take();
    net.push(0, &near, &message(1, 100)).unwrap();
    net.push(0, &far, &message(2, 100)).unwrap();
    net.pass_ms(100);
    assert_eq!(net.sent("a"), [ETHER_TYPE, IP]);
    for at in [1, 2] {
        let got = net.got(at);
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].0.to_string(), "10.0.0.1");
        // And back.
        let made = net.states[at].3.made.borrow()[0].clone();
        net.push(at, &made, &message(3, 90)).unwrap();
        net.pass_ms(100);
        let got = net.got(0);
        assert_eq!(got.len(), 1, "host {at}");
        assert_eq!(got[0].1, message(3, 90));
    }
    assert!(net.states[0].3.made.borrow().is_empty());
}

#[test]
fn vipaddr_waits_for_nobody_for_ever() {
    let source = waiting(&graph("vipaddr arp ip name=low wait=\"2s\"", "")) + &links("");
    let mut net = Net::new(&source, 1, Some(1480));
    net.pass_ms(3_000);
    let nobody = open_waiting(&mut net, 0, "10.0.0.77", 2_100).unwrap();
    assert_eq!(kind(&mut net, 0, &nobody), "ip");
    // For a while no call waits again.
    let again = open_waiting(&mut net, 0, "10.0.0.77", 1).unwrap();
    assert!(again == nobody);
    // Where no call can wait, IP's session is given.
    let source = graph("vipaddr arp ip name=low", "") + &links("");
    let mut net = Net::new(&source, 1, None);
    net.pass_ms(3_000);
    let first = net.open(0, "10.0.0.2").unwrap();
    assert_eq!(kind(&mut net, 0, &first), "ip");
    net.pass_ms(21_000);
    net.push(0, &first, &message(1, 50)).unwrap();
    net.pass_ms(100);
    let second = net.open(0, "10.0.0.2").unwrap();
    assert_eq!(kind(&mut net, 0, &second), "arp");
}

#[test]
fn vipaddr_waits_for_a_host_to_say_that_it_runs_virtual_protocols() {
    let link = "vipadv arp interval=\"1h\" lifetime=\"1h\"";
    let source = waiting(&graph("vipaddr vipadv ip name=low", link)) + &links("");
    let mut net = Net::new(&source, 1, Some(1480));
    net.pass_ms(10);
    let near = open_waiting(&mut net, 0, "10.0.0.2", 50).unwrap();
    assert_eq!(kind(&mut net, 0, &near), "arp");
}

fn sized() -> String {
    let lower = "vipaddr arp ip\n fragment vipaddr\n vipsize vipaddr fragment name=low";
    waiting(&graph(lower, "")) + &links("")
}

#[test]
fn vipsize_takes_apart_only_what_is_too_long() {
    let mut net = Net::new(&sized(), 1, None);
    net.pass_ms(3_000);
    let near = open_waiting(&mut net, 0, "10.0.0.2", 100).unwrap();
    let far = open_waiting(&mut net, 0, "10.0.1.2", 100).unwrap();
    for (len, kind) in [(100, ETHER_TYPE), (1500, ETHER_TYPE), (1501, FRAGMENTS), (6000, FRAGMENTS)]
    {
        net.frames.0.take();
        net.push(0, &near, &message(len, len)).unwrap();
        net.pass_ms(100);
        let kinds = net.sent("a");
        assert!(!kinds.is_empty() && kinds.iter().all(|k| *k == kind), "{len}: {kinds:x?}");
        let got = net.got(1);
        assert_eq!(got.len(), 1, "{len} octets");
        assert_eq!(got[0].1, message(len, len), "{len} octets");
    }
    for len in [100, 1480, 1481, 6000] {
        net.frames.0.take();
        net.push(0, &far, &message(len, len)).unwrap();
        net.pass_ms(200);
        let frames = net.frames.0.take();
        let own = frames.iter().filter(|(who, kind, _)| who == "a" && *kind == IP);
        let number = if len <= 1480 { 90 } else { 101 };
        assert!(own.clone().count() > 0);
        // No packet is a fragment of IP's.
        assert!(own.clone().all(|(.., f)| f[14 + 9] == number && f[14 + 6] & 0x3f == 0));
        let got = net.got(2);
        assert_eq!(got.len(), 1, "{len} octets");
        assert_eq!(got[0].1, message(len, len));
    }
    for at in [1, 2] {
        assert_eq!(net.states[at].3.made.borrow().len(), 1, "one session for all ways");
        let made = net.states[at].3.made.borrow()[0].clone();
        net.push(at, &made, &message(9, 3000)).unwrap();
        net.pass_ms(200);
        let got = net.got(0);
        assert_eq!(got.len(), 1, "host {at}");
        assert_eq!(got[0].1, message(9, 3000));
    }
}

#[test]
fn vipsize_takes_its_cutoffs_from_the_graph() {
    let source = sized().replace("name=low", "name=low { cutoff 500; }");
    let mut net = Net::new(&source, 1, None);
    net.pass_ms(3_000);
    let near = open_waiting(&mut net, 0, "10.0.0.2", 100).unwrap();
    for (len, kind) in [(500, ETHER_TYPE), (501, FRAGMENTS)] {
        net.frames.0.take();
        net.push(0, &near, &message(len, len)).unwrap();
        net.pass_ms(100);
        assert_eq!(net.sent("a")[0], kind, "{len}");
        assert_eq!(net.got(1).len(), 1);
    }
    let wrong = sized().replace("name=low", "name=low { cutoff 500; cutoff 600; }");
    let text = match xk_compose::check(&wrong, "g", &xk_catalog::standard()) {
        Ok(_) => String::new(),
        Err(mistakes) => mistakes.to_text(),
    };
    assert!(text.contains("rising cutoffs, one for each layer but the last"), "{text}");
}

/// Pushes on a shepherd that can wait.
fn push_waiting(net: &mut Net, at: usize, session: &SessionRef, octets: Vec<u8>) {
    let (id, session) = (net.states[at].0, session.clone());
    net.world.spawn(id, move |cx| {
        let message = cx.pool().copy_from(128, &octets).unwrap();
        // A call that waits for an address in vain fails.
        let _ = session.push(cx, message);
    });
}

#[test]
fn vipsize_follows_a_peer_that_moves_off_the_link() {
    // The same host is on the other link as well, but not to be reached there at first.
    let moved = waiting(
        "host moved {\n sim link=lan2\n eth sim address=\"02:00:00:00:00:07\"\n arp eth\n \
         ip arp { address \"10.0.1.9/24\"; address \"10.0.0.2/32\"; route default via=\"10.0.1.254\"; }\n \
         vipaddr arp ip\n fragment vipaddr\n vipsize vipaddr fragment name=low\n}\n",
    );
    let lower = "vipaddr arp ip\n fragment vipaddr\n vipsize vipaddr fragment name=low";
    let source =
        waiting(&graph(lower, "")) + &moved + &links("{ partition from=\"10s\" between=b; }");
    let mut net = Net::new(&source, 1, None);
    net.pass_ms(3_000);
    let session = open_waiting(&mut net, 0, "10.0.0.2", 100).unwrap();
    for len in [100, 4000] {
        push_waiting(&mut net, 0, &session, message(len, len));
        net.pass_ms(100);
        assert_eq!(net.got(1).len(), 1, "{len} octets");
    }
    net.pass_ms(8_000);
    crate::virtual_world::add_route(&mut net, "a", Some("10.0.0.254"), "");
    crate::virtual_world::add_route(&mut net, "router", None, "a2");
    let mut arrived = Vec::new();
    for n in 0..60 {
        push_waiting(&mut net, 0, &session, message(n, 100));
        push_waiting(&mut net, 0, &session, message(n, 4000));
        net.pass_ms(1_000);
        arrived.push(net.got(3).len());
    }
    assert!(arrived[40..].iter().all(|n| *n == 2), "{arrived:?}");
    assert!(!session.head().is_closed());
}

#[test]
fn vipsize_asks_the_way_that_a_message_went_for_its_copy() {
    let mut net = Net::new(&sized(), 1, None);
    net.pass_ms(3_000);
    let near = open_waiting(&mut net, 0, "10.0.0.2", 100).unwrap();
    let id = net.states[0].0;
    let last = |net: &mut Net| {
        let near = near.clone();
        let asked = net.world.enter(id, |cx| near.ask(cx, LastCopy::default()));
        asked.unwrap().unwrap().ticket
    };
    net.push(0, &near, &message(1, 100)).unwrap();
    assert_eq!(last(&mut net), 0, "it went whole");
    net.push(0, &near, &message(2, 4000)).unwrap();
    let ticket = last(&mut net);
    assert_ne!(ticket, 0);
    net.push(0, &near, &message(3, 100)).unwrap();
    assert_eq!(last(&mut net), 0, "it went another way");
    let state = net.world.enter(id, |cx| {
        let outstanding = |cx: &xk_core::Kernel| {
            let fragment = cx.find_protocol("fragment").unwrap();
            let figures = fragment.ask(cx, xk_fragment::FragmentFigures::default());
            figures.unwrap().outstanding
        };
        assert_eq!(outstanding(cx), 1);
        let asked = near.ask(cx, AskCopy::about(ticket)).unwrap();
        assert!(near.ask(cx, FreeCopy { ticket }).is_some());
        assert_eq!(outstanding(cx), 0, "it is gone early");
        let gone = near.ask(cx, AskCopy::about(ticket)).unwrap();
        (asked.state, gone.state)
    });
    assert_eq!(state, Some((CopyState::Silent, CopyState::Gone)));
}

#[test]
fn a_session_closed_while_a_way_is_sought_leaves_nothing_open() {
    let source =
        sized().replacen("delay=\"1ms\"", "delay=\"1ms\" { partition from=\"5s\" between=a; }", 1);
    let mut net = Net::new(&source, 1, None);
    net.pass_ms(3_000);
    let near = open_waiting(&mut net, 0, "10.0.0.2", 100).unwrap();
    net.push(0, &near, &message(1, 100)).unwrap();
    // Until it has forgotten whose address it is.
    net.pass_ms(60_000);
    let made = net.states[1].3.made.borrow()[0].clone();
    push_waiting(&mut net, 1, &made, message(2, 100));
    net.pass_ms(1_000);
    let id = net.states[1].0;
    net.world.enter(id, |cx| made.abort(cx));
    net.pass_ms(10_000);
    let held = net.world.enter(id, |cx| {
        let mut held = Vec::new();
        for name in ["ip", "fragment", "arp"] {
            let mut asked = ListSessions::first(usize::MAX);
            let protocol = cx.find_protocol(name).unwrap();
            asked = protocol.ask(cx, asked).unwrap();
            let open = asked.here().filter(|s| s.head().opens() > 0);
            held.push((name, open.count()));
        }
        held
    });
    let held = held.unwrap();
    // What the offers of the upper layers hold by themselves is not there before a session is.
    assert!(held.iter().all(|(name, open)| *open == 0 || *name == "arp"), "{held:?}");
}
