//! `vipaddr`, and `vipsize` on it and on `fragment`, between hosts on a link and behind a router (paper 001, figure 4b).

mod virtual_world;

use std::cell::RefCell;
use std::rc::Rc;
use virtual_world::{ETHER_TYPE, Net, graph, links};
use xk_core::object::OpenError;
use xk_core::{Part, Participants, SessionRef, Upper};

const IP: u16 = 0x0800;
/// Of `fragment`: 0x3900 and its number on IP.
const FRAGMENTS: u16 = 0x3900 + 101;

/// A tracer lets a host have shepherds that can wait.
fn waiting(source: &str) -> String {
    source.replace("\n eth sim address", "\n tracer sim name=t\n eth t address")
}

fn message(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (n * 31 + at) as u8).collect()
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

/// Whose session it is.
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
    // For a while nobody waits again.
    let again = open_waiting(&mut net, 0, "10.0.0.77", 1).unwrap();
    assert!(again == nobody);
    // Where nobody can wait, IP's session is given.
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
    for (len, kind) in [
        (100, ETHER_TYPE),
        (1500, ETHER_TYPE),
        (1501, FRAGMENTS),
        (6000, FRAGMENTS),
    ] {
        net.frames.0.take();
        net.push(0, &near, &message(len, len)).unwrap();
        net.pass_ms(100);
        let kinds = net.sent("a");
        assert!(
            !kinds.is_empty() && kinds.iter().all(|k| *k == kind),
            "{len}: {kinds:x?}"
        );
        let got = net.got(1);
        assert_eq!(got.len(), 1, "{len} octets");
        assert_eq!(got[0].1, message(len, len), "{len} octets");
    }
    for len in [100, 1480, 1481, 6000] {
        net.frames.0.take();
        net.push(0, &far, &message(len, len)).unwrap();
        net.pass_ms(200);
        let frames = net.frames.0.take();
        let own = frames
            .iter()
            .filter(|(who, kind, _)| who == "a" && *kind == IP);
        let number = if len <= 1480 { 90 } else { 101 };
        assert!(own.clone().count() > 0);
        // No packet is a fragment of IP's.
        assert!(
            own.clone()
                .all(|(.., f)| f[14 + 9] == number && f[14 + 6] & 0x3f == 0)
        );
        let got = net.got(2);
        assert_eq!(got.len(), 1, "{len} octets");
        assert_eq!(got[0].1, message(len, len));
    }
    for at in [1, 2] {
        assert_eq!(
            net.states[at].3.made.borrow().len(),
            1,
            "one session for all ways"
        );
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
    let text = match xk_compose::check(&wrong, "g", &xk_catalog::Catalog::standard()) {
        Ok(_) => String::new(),
        Err(mistakes) => mistakes.to_text(),
    };
    assert!(
        text.contains("rising cutoffs, one for each layer but the last"),
        "{text}"
    );
}
