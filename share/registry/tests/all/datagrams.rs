//! Datagrams of a port that a program opens.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::object::Refused;
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper, reason};
use xk_sim::{LinkConfig, LinkKind};

use crate::app::Plan;
use crate::moves::seeds;
use crate::world::Hosts;

/// What arrives at a program.
#[derive(Default)]
struct Seen {
    /// What `open` has answered.
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

/// A program has the session of a port before datagrams come by it, however long the registry and
/// the module take to give the right to them.
#[test]
fn a_port_that_opens_has_its_session_before_its_datagrams() {
    for seed in seeds() {
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
    }
}
