//! Datagrams of a port that a program opens.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::object::Refused;
use xk_core::{
    Kernel, Message, Participant, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
    reason,
};
use xk_sim::{LinkConfig, LinkKind};
use xk_testkit::seeds;

use crate::app::Plan;
use crate::moves::COST;
use crate::world::Hosts;

/// Arrivals at a program.
#[derive(Default)]
struct Seen {
    /// Result of `open`.
    port: RefCell<Option<SessionRef>>,
    /// Datagrams of that session, and of one that the program does not have.
    known: Cell<u32>,
    unknown: Cell<u32>,
}

struct Receiver(Rc<Seen>);

impl Protocol for Receiver {
    fn demux(
        &self,
        _: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let is_known = self.0.port.borrow().as_ref() == Some(lower);
        let count = if is_known { &self.0.known } else { &self.0.unknown };
        count.set(count.get() + 1);
        match is_known {
            true => Ok(()),
            false => Err(this.refuse(message, &reason::NO_PROTOCOL)),
        }
    }
}

/// A server of a program's: the sessions that it was told of, and the octets of each message that
/// came by each.
#[derive(Default)]
struct Served(RefCell<Vec<(SessionRef, Vec<usize>)>>);

impl Served {
    /// The octets of each datagram, session by session.
    fn octets(&self) -> Vec<Vec<usize>> {
        self.0.borrow().iter().map(|(_, octets)| octets.clone()).collect()
    }
}

/// Answers each datagram with what it says.
struct Server(Rc<Served>);

impl Protocol for Server {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        ends: Participants,
    ) -> Result<(), &'static Reason> {
        let mut ends = ends.iter().cloned();
        let (Some(mut local), Some(mut peer)) = (ends.next(), ends.next()) else {
            return Err(&reason::MALFORMED);
        };
        let is_named = |end: &mut Participant| end.pop_port().is_ok() && end.pop_host().is_ok();
        assert!(is_named(&mut local) && is_named(&mut peer), "both ends are told");
        lower.hold();
        self.0.0.borrow_mut().push((lower.clone(), Vec::new()));
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let mut served = self.0.0.borrow_mut();
        match served.iter_mut().find(|(session, _)| session == lower) {
            Some((_, octets)) => octets.push(message.len()),
            None => return Err(this.refuse(message, &reason::NO_PROTOCOL)),
        }
        drop(served);
        let _ = lower.push(cx, message);
        Ok(())
    }
}

/// A program has the session of a port before datagrams come by it, however long the registry and
/// the module take to give the right to them.
#[test]
fn a_port_that_opens_has_its_session_before_its_datagrams() {
    seeds::of(COST).run(|seed| {
        let what = format!("XK_SEED={seed}");
        let plan = Plan { octets: 0, ends_first: true };
        let link = LinkConfig::new("lan", LinkKind::Hub);
        let mut hosts = Hosts::new(seed, link, plan);
        let program = hosts.program(plan);
        let seen = Rc::<Seen>::default();
        let cx = Rc::clone(hosts.world.kernel(program.id).expect("a kernel"));
        let receiver = cx.add_protocol("receiver", "receiver", Receiver(Rc::clone(&seen)));
        let (peer, _, _) = hosts.peer;
        // A peer that sends all the time.
        let peer_cx = Rc::clone(hosts.world.kernel(peer).expect("a kernel"));
        let udp = peer_cx.find_protocol("udp").expect("a node");
        let sender = peer_cx.add_protocol("sender", "sender", Receiver(Rc::default()));
        let session = Rc::<RefCell<Option<SessionRef>>>::default();
        let (opened, to) = (Rc::clone(&session), "port8, port9@10.0.0.1");
        hosts.world.spawn(peer, move |cx| {
            let ends: Participants = to.parse().expect("participants");
            *opened.borrow_mut() = udp.open(cx, Upper::new(&sender), ends).ok();
        });
        hosts.run(Duration::from_millis(10));
        let session = session.take().expect("it opens");
        let (datagrams, opens) = (program.datagrams.clone(), Rc::clone(&seen));
        hosts.world.spawn(program.id, move |cx| {
            let ends: Participants = "port9, *".parse().expect("participants");
            let port = datagrams.open(cx, Upper::new(&receiver), ends).expect("it opens");
            *opens.port.borrow_mut() = Some(port);
        });
        for _ in 0..200 {
            hosts.world.enter(peer, |cx| {
                let message = cx.pool().copy_from(128, b"hello").expect("a buffer");
                let _ = session.push(cx, message);
            });
            hosts.run(Duration::from_micros(3));
        }
        hosts.run(Duration::from_millis(100));
        assert_eq!(seen.unknown.get(), 0, "{what}: of {}: {}", seen.known.get(), hosts.told());
        assert!(seen.known.get() > 100, "{what}: {}: {}", seen.known.get(), hosts.told());
        drop((seen.port.take(), session, program));
        hosts.finish(&what);
    });
}

/// Datagrams between a program and one peer go by the program's own protocol: the registry's sees
/// what came before the right was given, and nothing else. If the port is then opened to all, both
/// go by that.
#[test]
fn datagrams_of_one_peer_go_by_the_programs_own_protocol() {
    seeds::of(COST).run(|seed| {
        let what = format!("XK_SEED={seed}");
        let plan = Plan { octets: 0, ends_first: true };
        let mut hosts = Hosts::new(seed, LinkConfig::new("lan", LinkKind::Hub), plan);
        let program = hosts.program(plan);
        let (peer, _, _) = hosts.peer;
        let open =
            |hosts: &mut Hosts, (host, lower): (_, &ProtocolRef), name, ends: &'static str| {
                let seen = Rc::<Seen>::default();
                let cx = Rc::clone(hosts.world.kernel(host).expect("a kernel"));
                let this = cx.add_protocol("receiver", name, Receiver(Rc::clone(&seen)));
                let (opens, lower) = (Rc::clone(&seen), lower.clone());
                hosts.world.spawn(host, move |cx| {
                    let ends: Participants = ends.parse().expect("participants");
                    let opened = lower.open(cx, Upper::new(&this), ends).expect("it opens");
                    *opens.port.borrow_mut() = Some(opened);
                });
                hosts.run(Duration::from_millis(10));
                seen
            };
        let udp = hosts.world.kernel(peer).expect("a kernel").find_protocol("udp");
        let udp = udp.expect("a node");
        let library = (program.id, &program.datagrams);
        let mine = open(&mut hosts, library, "mine", "port9, port8@10.0.0.2");
        let theirs = open(&mut hosts, (peer, &udp), "theirs", "port8, port9@10.0.0.1");
        let talk = |hosts: &mut Hosts, count: u32| {
            for _ in 0..count {
                for (host, from) in [(program.id, &mine), (peer, &theirs)] {
                    let session = from.port.borrow().clone().expect("it is open");
                    hosts.world.spawn(host, move |cx| {
                        let message = cx.pool().copy_from(128, b"hello").expect("a buffer");
                        let _ = session.push(cx, message);
                    });
                    hosts.run(Duration::from_micros(200));
                }
            }
        };
        // The first finds the station, by the registry.
        talk(&mut hosts, 1);
        hosts.run(Duration::from_millis(200));
        talk(&mut hosts, 1);
        let trusted = hosts.trusted.udp.clone();
        let before = trusted.head().received();
        program.sent.take();
        talk(&mut hosts, 50);
        let asked = (trusted.head().received() - before, program.sent.take().len());
        let counts = || [mine.known.get(), theirs.known.get(), mine.unknown.get()];
        let told = format!("{what}: {:?} {asked:?}", counts());
        assert_eq!((counts(), asked), ([52, 52, 0], (0, 0)), "{told}");
        let all = open(&mut hosts, library, "all", "port9, *");
        talk(&mut hosts, 50);
        let told = format!("{what}: {:?} {}: {}", counts(), all.known.get(), hosts.told());
        assert_eq!((counts(), all.known.get()), ([102, 102, 0], 0), "{told}");
        let sessions = [&mine, &all].map(|seen| seen.port.take().expect("it is open"));
        hosts.world.spawn(program.id, move |cx| sessions.iter().for_each(|one| one.close(cx)));
        hosts.run(Duration::from_secs(1));
        let left = hosts.device.module.rights();
        assert_eq!(left, 0, "{what}: {left} rights: {}", hosts.told());
        drop((theirs.port.take(), mine, program));
        hosts.finish(&what);
    });
}

/// Datagrams for a port that a program has enabled go by its own protocol, and so do the replies:
/// once it knows by which station the peer is reached, the registry's protocol sees none. Each peer
/// has one session, by which datagrams too long for a frame come, too. With the enable the right
/// ends.
#[test]
fn datagrams_of_an_enabled_port_go_by_the_programs_own_protocol() {
    const SHORT: usize = 5;
    const LONG: usize = 4000;
    seeds::of(COST).run(|seed| {
        let port = ["port9", "port9@10.0.0.1"][seed as usize % 2];
        let what = format!("XK_SEED={seed} {port}");
        let plan = Plan { octets: 0, ends_first: true };
        let mut hosts = Hosts::new(seed, LinkConfig::new("lan", LinkKind::Hub), plan);
        let program = hosts.program(plan);
        let served = Rc::<Served>::default();
        let cx = Rc::clone(hosts.world.kernel(program.id).expect("a kernel"));
        let server = cx.add_protocol("server", "server", Server(Rc::clone(&served)));
        let enabled = Rc::<RefCell<_>>::default();
        let (enables, datagrams) = (Rc::clone(&enabled), program.datagrams.clone());
        hosts.world.spawn(program.id, move |cx| {
            let local: Participant = port.parse().expect("a port");
            let enable = datagrams.open_enable(cx, Upper::new(&server), Participants::local(local));
            *enables.borrow_mut() = Some(enable.expect("it is free"));
        });
        hosts.run(Duration::from_millis(10));
        assert_eq!(hosts.device.module.rights(), 1, "{what}: {}", hosts.told());
        let (peer, _, _) = hosts.peer;
        let udp = hosts.world.kernel(peer).expect("a kernel").find_protocol("udp");
        let udp = udp.expect("a node");
        let clients = [8, 18, 28].map(|own| {
            let seen = Rc::<Seen>::default();
            let cx = Rc::clone(hosts.world.kernel(peer).expect("a kernel"));
            let client = Receiver(Rc::clone(&seen));
            let this = cx.add_protocol("receiver", &format!("client {own}"), client);
            let (opens, udp) = (Rc::clone(&seen), udp.clone());
            hosts.world.spawn(peer, move |cx| {
                let ends = format!("port{own}, port9@10.0.0.1");
                let ends: Participants = ends.parse().expect("participants");
                let opened = udp.open(cx, Upper::new(&this), ends).expect("it opens");
                *opens.port.borrow_mut() = Some(opened);
            });
            hosts.run(Duration::from_millis(10));
            seen
        });
        let call = |hosts: &mut Hosts, octets: usize| {
            for client in &clients {
                let session = client.port.borrow().clone().expect("it is open");
                hosts.world.spawn(peer, move |cx| {
                    let message = cx.pool().copy_from(128, &vec![7; octets]).expect("a buffer");
                    let _ = session.push(cx, message);
                });
                hosts.run(Duration::from_millis(1));
            }
        };
        // The first has the registry find the station.
        call(&mut hosts, SHORT);
        hosts.run(Duration::from_millis(200));
        let trusted = hosts.trusted.udp.clone();
        let before = trusted.head().received();
        program.sent.take();
        (0..50).for_each(|_| call(&mut hosts, SHORT));
        let asked = (trusted.head().received() - before, program.sent.take().len());
        call(&mut hosts, LONG);
        hosts.run(Duration::from_millis(200));
        let answers = clients.each_ref().map(|client| client.known.get());
        let told = format!("{what}: {answers:?} {asked:?}: {}", hosts.told());
        assert_eq!((answers, asked), ([52; 3], (0, 0)), "{told}");
        let expected: Vec<usize> = [[SHORT; 51].as_slice(), &[LONG]].concat();
        assert_eq!(served.octets(), vec![expected; 3], "{told}");

        // Without the enable those that are held go on, and others find nothing.
        let (enable, datagrams) =
            (enabled.take().expect("it is enabled"), program.datagrams.clone());
        hosts.world.spawn(program.id, move |cx| datagrams.open_disable(cx, enable));
        hosts.run(Duration::from_millis(10));
        call(&mut hosts, SHORT);
        let answers = clients.each_ref().map(|client| client.known.get());
        assert_eq!(answers, [53; 3], "{what}: {}", hosts.told());
        let all = served.0.take();
        hosts.world.spawn(program.id, move |cx| all.iter().for_each(|(one, _)| one.close(cx)));
        hosts.run(Duration::from_secs(1));
        let left = hosts.device.module.rights();
        assert_eq!(left, 0, "{what}: {left} rights: {}", hosts.told());
        call(&mut hosts, SHORT);
        let answers = clients.each_ref().map(|client| client.known.get());
        assert_eq!((answers, served.0.borrow().len()), ([53; 3], 0), "{what}: {}", hosts.told());
        clients.iter().for_each(|client| drop(client.port.take()));
        drop(program);
        hosts.finish(&what);
    });
}
