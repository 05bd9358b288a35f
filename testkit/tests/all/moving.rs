//! A connection goes from one domain to another, and back: a registry has opened it, a library goes
//! on with it, and the registry takes it for the end, all by questions that cross a cut.

use core::time::Duration;
use std::rc::Rc;
use xk_core::control::ListSessions;
use xk_core::graph::Params;
use xk_core::object::{OpenError, ProtocolId};
use xk_core::{Kernel, Part, Participants, ProtocolRef, SessionRef, Upper};
use xk_domains::{Known, Port, Queue, add_port, lower_proxy, upper_proxy};
use xk_kit::net::moving::{
    HOLD_FOR, HalfOpen, KeepEnds, MOVED, MoveError, bring, ends_of, release, state_of,
};
use xk_kit::net::stream::{StreamInfo, StreamShutdown};
use xk_testkit::kernel::{Bottom, Lower, Sent, TestKernel, Top};

const HERE: [u8; 4] = [10, 0, 0, 1];
const THERE: [u8; 4] = [10, 0, 0, 2];

/// A TCP of this host, and what stands below it.
fn tcp(cx: &TestKernel, name: &str, lower: &str, host: [u8; 4]) -> (Bottom, ProtocolRef) {
    let bottom = Bottom::add(cx, lower, Lower::host(host, 6));
    let entry = xk_catalog::PROTOCOLS.iter().find(|entry| entry.kind == "tcp");
    let entry = entry.expect("tcp is in the catalog");
    let lowers = core::slice::from_ref(bottom.protocol());
    let protocol = entry.add(cx, name, lowers, &Params::default()).expect("it is built");
    (bottom, protocol)
}

/// Both hosts: one with two places, and its peer.
struct Hosts {
    registry: (Bottom, ProtocolRef),
    library: (Bottom, ProtocolRef),
    peer: (Bottom, ProtocolRef),
}

impl Hosts {
    /// Lets segments pass until none is left; those for this host go to the library if it `has` the
    /// connection.
    fn exchange(&self, cx: &TestKernel, has: bool) {
        let pass = |from: &Bottom, to: &Bottom, host: [u8; 4]| {
            let sent = from.take_sent();
            for segment in &sent {
                let octets: Vec<u8> = segment.message.octets().collect();
                to.inject(cx, Some(Part::host(host)), cx.message(&octets));
            }
            !sent.is_empty()
        };
        for _ in 0..20 {
            let here = if has { &self.library.0 } else { &self.registry.0 };
            let went = [&self.registry.0, &self.library.0].map(|b| pass(b, &self.peer.0, HERE));
            let came = pass(&self.peer.0, here, THERE);
            if !went[0] && !went[1] && !came {
                cx.advance(Duration::from_millis(50));
            }
        }
    }
}

/// Lets the connection of `session` go on at `protocol`, for `upper`: the session there.
fn move_session(
    cx: &Kernel,
    session: &SessionRef,
    protocol: &ProtocolRef,
    upper: Upper<'_>,
) -> Result<SessionRef, MoveError> {
    let ends = ends_of(cx, session).ok_or(MoveError::NothingGiven)?;
    let state = state_of(cx, session).ok_or(MoveError::NothingGiven)?;
    if !bring(cx, protocol, &ends, &state) || !release(cx, session, state.len()) {
        return Err(MoveError::NotTaken);
    }
    protocol.open(cx, upper, ends).map_err(MoveError::Open)
}

fn sessions(cx: &TestKernel, tcp: &ProtocolRef) -> usize {
    tcp.ask(cx, ListSessions::first(9)).map_or(0, |list| list.total)
}

fn state(cx: &TestKernel, session: &SessionRef) -> String {
    session.ask(cx, StreamInfo::default()).map_or(String::new(), |info| info.state.to_string())
}

#[test]
fn a_connection_goes_to_another_domain_and_back() -> Result<(), MoveError> {
    let cx = TestKernel::new(1);
    let hosts = Hosts {
        registry: tcp(&cx, "registry", "below-registry", HERE),
        library: tcp(&cx, "library", "below-library", HERE),
        peer: tcp(&cx, "peer", "below-peer", THERE),
    };
    let (app, echo) = (Top::add(&cx, "app"), Top::add(&cx, "echo"));
    echo.echo(true);
    // The application's domain has the library; the registry lies behind a cut.
    let (down, up) = Queue::pair(64);
    let [above, below] =
        [down.clone(), up.clone()].map(|side| Port::new(Box::new(side), Known::of(&[])));
    let turn = |port: &Port, cx: &Kernel| {
        port.poll(cx, 64);
    };
    down.on_put(&below, turn);
    up.on_put(&above, turn);
    below.grant(&hosts.registry.1);
    below.admit(|cx: &Kernel, port: &Rc<Port>, of: ProtocolId| {
        Some(upper_proxy(cx, port, of, "app", "above the registry"))
    });
    let proxy = lower_proxy(&cx, &above, hosts.registry.1.id(), "tcp", "proxy");
    let ports: Vec<_> = [("above", &above), ("below", &below)]
        .map(|(name, port): (_, &Rc<Port>)| add_port(&cx, port, name))
        .into();
    cx.start().expect("it starts");
    let local = Participants::local(Part::port(7));
    let _ = echo.enable(&cx, &hosts.peer.1, local).expect("port 7 is free");

    let ends = "port5000@10.0.0.1, port7@10.0.0.2".parse().expect("participants");
    let opened = app.open(&cx, &proxy, ends).expect("it opens");
    hosts.exchange(&cx, false);
    assert_eq!(state(&cx, &opened), "ESTABLISHED");
    opened.push(&cx, cx.message(b"by the registry, ")).expect("it is taken");
    hosts.exchange(&cx, false);

    // Octets are on their way in either direction while it moves.
    opened.push(&cx, cx.message(b"on the way, ")).expect("it is taken");
    let moved = move_session(&cx, &opened, &hosts.library.1, Upper::new(app.protocol()))?;
    assert_eq!([&hosts.registry.1, &hosts.library.1].map(|tcp| sessions(&cx, tcp)), [0, 1]);
    // One segment still comes to the registry, which answers nothing.
    hosts.exchange(&cx, true);
    moved.push(&cx, cx.message(b"by the library, ")).expect("it is taken");
    hosts.exchange(&cx, true);
    assert_eq!(state(&cx, &moved), "ESTABLISHED");

    // The application has said all, and leaves the rest to the registry.
    let _ = moved.ask(&cx, StreamShutdown);
    let left = move_session(&cx, &moved, &proxy, Upper::new(app.protocol()))?;
    assert_eq!([&hosts.registry.1, &hosts.library.1].map(|tcp| sessions(&cx, tcp)), [1, 0]);
    hosts.exchange(&cx, false);
    assert_eq!(state(&cx, &left), "TIME-WAIT");

    let octets: Vec<u8> = app.take_received().iter().flat_map(|r| r.message.octets()).collect();
    let text = String::from_utf8_lossy(&octets).into_owned();
    assert_eq!(text, "by the registry, on the way, by the library, ");
    opened.close(&cx);
    moved.close(&cx);
    left.close(&cx);
    drop((opened, moved, left, ports));
    cx.stop();
    Ok(())
}

/// A peer that has our SYN and has not answered it is connected at the other place.
#[test]
fn a_connection_that_has_just_begun_moves() -> Result<(), MoveError> {
    let cx = TestKernel::new(3);
    let hosts = Hosts {
        registry: tcp(&cx, "registry", "below-registry", HERE),
        library: tcp(&cx, "library", "below-library", HERE),
        peer: tcp(&cx, "peer", "below-peer", THERE),
    };
    let (app, echo) = (Top::add(&cx, "app"), Top::add(&cx, "echo"));
    echo.echo(true);
    cx.start().expect("it starts");
    let local = Participants::local(Part::port(7));
    let _ = echo.enable(&cx, &hosts.registry.1, local).expect("port 7 is free");
    let ends = "port5000@10.0.0.2, port7@10.0.0.1".parse().expect("participants");
    let opened = app.open(&cx, &hosts.peer.1, ends).expect("it opens");
    let inject = |to: &Bottom, segments: Vec<Sent>, host: [u8; 4]| {
        for segment in &segments {
            let octets: Vec<u8> = segment.message.octets().collect();
            to.inject(&cx, Some(Part::host(host)), cx.message(&octets));
        }
        segments.len()
    };
    assert_eq!(inject(&hosts.registry.0, hosts.peer.0.take_sent(), THERE), 1, "a SYN");
    let answer = hosts.registry.0.take_sent();
    assert_eq!(sessions(&cx, &hosts.registry.1), 0);

    let asked = hosts.registry.1.ask(&cx, HalfOpen::default());
    assert_eq!(asked.map(|asked| asked.left), Some(0));
    let list = hosts.registry.1.ask(&cx, ListSessions::first(9)).expect("it has a list");
    let begun = list.here().next().expect("it has a session now").clone();
    let moved = move_session(&cx, &begun, &hosts.library.1, Upper::new(echo.protocol()))?;
    moved.ease(&cx);
    assert_eq!([&hosts.registry.1, &hosts.library.1].map(|tcp| sessions(&cx, tcp)), [0, 1]);
    assert_eq!(inject(&hosts.peer.0, answer, HERE), 1, "our SYN");
    assert_eq!(state(&cx, &opened), "ESTABLISHED");
    // Its answer comes to the place that knows nothing of it any more, which says nothing.
    let _ = inject(&hosts.registry.0, hosts.peer.0.take_sent(), THERE);
    assert_eq!(hosts.registry.0.take_sent().len(), 0);
    opened.push(&cx, cx.message(b"brief")).expect("it is taken");
    hosts.exchange(&cx, true);
    let octets: Vec<u8> = app.take_received().iter().flat_map(|r| r.message.octets()).collect();
    assert_eq!(octets, b"brief");
    opened.close(&cx);
    cx.stop();
    Ok(())
}

#[test]
fn ends_that_are_kept_are_refused_to_others_until_they_are_given_back() -> Result<(), MoveError> {
    let cx = TestKernel::new(2);
    let hosts = Hosts {
        registry: tcp(&cx, "registry", "below-registry", HERE),
        library: tcp(&cx, "library", "below-library", HERE),
        peer: tcp(&cx, "peer", "below-peer", THERE),
    };
    let (app, echo) = (Top::add(&cx, "app"), Top::add(&cx, "echo"));
    echo.echo(true);
    cx.start().expect("it starts");
    let local = Participants::local(Part::port(7));
    let _ = echo.enable(&cx, &hosts.peer.1, local).expect("port 7 is free");
    let registry = &hosts.registry.1;
    let ends: Participants = "port5000@10.0.0.1, port7@10.0.0.2".parse().expect("participants");
    let keep = |keep| {
        let asked = KeepEnds { ends: ends.clone(), keep, ..KeepEnds::default() };
        registry.ask(&cx, asked).is_some_and(|answer| answer.done)
    };
    let counted = || registry.head().drops().of(&MOVED);
    let open = || registry.open(&cx, Upper::new(app.protocol()), ends.clone());

    let opened = open().expect("it opens");
    hosts.exchange(&cx, false);
    let known = ends_of(&cx, &opened);
    assert_eq!(known.map(|known| known.to_string()), Some(ends.to_string()));
    assert!(keep(true), "the ends of a connection that is still here");
    opened.push(&cx, cx.message(b"here")).expect("it goes on");
    hosts.exchange(&cx, false);
    let moved = move_session(&cx, &opened, &hosts.library.1, Upper::new(app.protocol()))?;
    // Long after all that only holds a connection on its way.
    for _ in 0..3 {
        cx.advance(HOLD_FOR);
        assert_eq!(open().err(), Some(OpenError::InUse), "another one's ends");
        let before = counted();
        moved.push(&cx, cx.message(b"there")).expect("it goes on");
        // Its answers stray to the registry, which says nothing to them.
        hosts.exchange(&cx, false);
        assert!(counted() > before && state(&cx, &moved) == "ESTABLISHED");
        hosts.exchange(&cx, true);
    }
    assert!(keep(true) && keep(true), "it may be said again");
    // A state that comes back goes on, and the ends are its own.
    let back = move_session(&cx, &moved, registry, Upper::new(app.protocol()))?;
    hosts.exchange(&cx, false);
    assert_eq!(state(&cx, &back), "ESTABLISHED");
    let again = move_session(&cx, &back, &hosts.library.1, Upper::new(app.protocol()))?;
    assert!(keep(true) && keep(false), "nothing is elsewhere any more");
    // What comes now is of no connection, and its sender hears so.
    again.push(&cx, cx.message(b"and on")).expect("it goes on");
    hosts.exchange(&cx, false);
    assert_eq!(sessions(&cx, &hosts.peer.1), 0, "the peer was told");
    let next = open().expect("the ends are free");
    hosts.exchange(&cx, false);
    assert_eq!(state(&cx, &next), "ESTABLISHED");
    [opened, moved, back, again, next].iter().for_each(|session| session.close(&cx));
    cx.stop();
    Ok(())
}
