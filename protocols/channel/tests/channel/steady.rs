//! In a steady conversation nothing is allocated; what strangers send makes no state.

use crate::world::{Below, Way, World};
use core::time::Duration;
use std::rc::Rc;
use xk_channel::Limits;
use xk_core::control::ListSessions;
use xk_core::numbers::Number;
use xk_core::object::{Enable, OpenError, PushError, Refused, SessionSlot};
use xk_core::{
    Kernel, Message, Part, Participants, Protocol, ProtocolRef, Session, SessionRef, Upper,
};
use xk_testkit::conformance::allocations;
use xk_testkit::kernel::{TestKernel, Top};

/// One end of a pipe: what is pushed comes up at the other, at once.
struct Pipe {
    here: Rc<SessionSlot>,
    there: Rc<SessionSlot>,
}

struct PipeSession {
    upper: ProtocolRef,
    there: Rc<SessionSlot>,
}

impl Pipe {
    fn session(&self, cx: &Kernel, this: &ProtocolRef, upper: &ProtocolRef) -> SessionRef {
        self.here.get().unwrap_or_else(|| {
            let there = Rc::clone(&self.there);
            let upper_too = upper.clone();
            let body = PipeSession { upper: upper_too, there };
            let session = cx.new_session(this, upper, body);
            self.here.replace(Some(session.clone()));
            session
        })
    }
}

impl Protocol for Pipe {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let session = self.session(cx, this, upper.receiver);
        session.hold();
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.session(cx, this, upper.receiver);
        Ok(Enable(0))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.here.take());
    }
}

impl Session for PipeSession {
    fn push(&self, cx: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        let there = self.there.get().ok_or(PushError::Unreachable)?;
        // It was counted where it was refused.
        let _ = there.pop(cx, message);
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }
}

#[test]
fn calls_allocate_nothing() {
    let cx = TestKernel::with_stacks(1);
    for number in xk_channel::ENTRY.type_numbers() {
        cx.numbers_mut().add(number).expect("numbers that agree");
    }
    let number = Number { upper: "top", lower: "channel", number: 0x65 };
    cx.numbers_mut().add(number).expect("a number of its own");
    let slots = [Rc::new(SessionSlot::default()), Rc::new(SessionSlot::default())];
    let nodes: Vec<_> = [(0, 1), (1, 0)]
        .into_iter()
        .map(|(here, there)| {
            let [here, there] = [here, there].map(|n: usize| Rc::clone(&slots[n]));
            let pipe = cx.add_protocol("pipe", "pipe", Pipe { here, there });
            let channel = xk_channel::add(&cx, "channel", pipe, Limits::default());
            (Top::add(&cx, "top"), channel)
        })
        .collect();
    cx.start().expect("it starts");
    let any = Participants::local(Part::Any);
    let _ = nodes[1].0.enable(&cx, &nodes[1].1, any).expect("enabled");
    let session = nodes[0].0.open(&cx, &nodes[0].1, Participants::default());
    let session = session.expect("a channel");
    let calls = |count: u32| {
        for _ in 0..count {
            let request = cx.pool().copy_from(128, &[7; 40]).expect("a buffer");
            let reply = session.call(&cx, request).expect("a reply");
            assert_eq!(reply.len(), 40);
        }
    };
    calls(100);
    let before = allocations();
    calls(1000);
    assert_eq!(allocations() - before, 0, "a thousand calls allocate nothing");
    assert_eq!(nodes[1].0.served(), 1100);
    drop((session, nodes));
    cx.finish();
    assert_eq!(cx.live(), (0, 0));
}

/// A request of the steady conversation.
fn capture(world: &World) -> Vec<u8> {
    let seen: Rc<std::cell::RefCell<Vec<u8>>> = Rc::default();
    let note = Rc::clone(&seen);
    world.set_network(Rc::new(move |way, _, octets| {
        if way == Way::ToServer {
            *note.borrow_mut() = octets.to_vec();
        }
        vec![Duration::ZERO]
    }));
    let session = world.open();
    world.call(&session, b"one").expect("a reply");
    world.call(&session, b"two").expect("a reply");
    world.set_network(crate::world::perfect());
    let octets = seen.borrow().clone();
    session.close(&world.client().cx);
    octets
}

fn sessions(world: &World) -> usize {
    let server = world.server();
    let list = ListSessions::first(0);
    server.channel.ask(&server.cx, list).expect("a list").total
}

#[test]
fn a_flood_of_strangers_makes_no_state() {
    let world = World::new(2, Below::Hosts);
    let octets = capture(&world);
    let server = world.server();
    let before = (sessions(&world), server.top.served());
    server.bottom.keep(false);
    for n in 0..20_000_u32 {
        let peer = core::net::Ipv4Addr::from_bits(0x0b00_0000 + n);
        let peer = Some(xk_core::Part::host(peer));
        let _ = server.bottom.inject(&server.cx, peer, server.cx.message(&octets));
    }
    assert_eq!((sessions(&world), server.top.served()), before);
    // Its challenges, and the one that the client saw at first.
    assert_eq!(server.figures().challenges, 20_001);
    world.finish();
}

#[test]
fn every_truncation_and_flipped_bit_is_counted_and_executes_nothing() {
    let world = World::new(3, Below::Hosts);
    let octets = capture(&world);
    let last = u32::from_be_bytes(*octets[8..].first_chunk().expect("four octets"));
    let server = world.server();
    let served = server.top.served();
    server.bottom.keep(false);
    let drops = || server.channel.head().drops().total();
    for len in 0..18 {
        let before = drops();
        world.inject(Way::ToServer, &octets[..len]);
        assert_eq!(drops(), before + 1, "{len} octets");
        let client = world.client();
        let before = client.channel.head().drops().total();
        world.inject(Way::ToClient, &octets[..len]);
        assert_eq!(client.channel.head().drops().total(), before + 1);
    }
    // A duplicate is answered, everything else is none of this conversation: flags, channel,
    // protocol, an older number, ticket, boot id.
    for bit in 0..18 * 8 {
        let mut octets = octets.clone();
        octets[bit / 8] ^= 0x80 >> (bit % 8);
        if (64..96).contains(&bit) {
            // A newer number is a new request.
            octets[8..12].copy_from_slice(&last.wrapping_sub(1).to_be_bytes());
        }
        world.inject(Way::ToServer, &octets);
    }
    // Another channel with the right ticket is a call of its own: sixteen bits.
    assert_eq!(server.top.served(), served + 16);
    world.finish();
}

#[test]
fn idle_channels_make_room_and_their_duplicates_are_challenged() {
    // The last one is for other networks.
    let limits = Limits { channels_max: 5, ..Limits::default() };
    let world = World::with(4, Below::Hosts, limits);
    let seen: Rc<std::cell::RefCell<Vec<Vec<u8>>>> = Rc::default();
    let note = Rc::clone(&seen);
    world.set_network(Rc::new(move |way, _, octets| {
        if way == Way::ToServer {
            note.borrow_mut().push(octets.to_vec());
        }
        vec![Duration::ZERO]
    }));
    let mut sessions: Vec<_> = (0..4).map(|_| world.open()).collect();
    for (n, session) in sessions.iter().enumerate() {
        assert_eq!(world.call(session, &[n as u8]).expect("a reply"), [n as u8]);
    }
    // All of them are kept for their replies until these are acknowledged.
    assert_eq!(self::sessions(&world), 4);
    let client = world.client().cx.clone();
    for session in sessions.drain(..) {
        session.close(&client);
    }
    world.pass(Duration::from_secs(1));
    let others: Vec<_> = (0..4)
        .map(|n| {
            let to = xk_core::Participant::of(xk_core::Part::host(crate::world::SERVER))
                .with(xk_core::Part::Number(xk_kit::rpc::call::CHANNEL, 100 + n));
            let to = xk_core::Participants::pair(xk_core::Part::Any, to);
            world.client().top.open(&client, &world.client().channel, to)
        })
        .map(|session| session.expect("a channel"))
        .collect();
    for session in &others {
        assert_eq!(world.call(session, b"x").expect("a reply"), b"x");
    }
    assert_eq!(self::sessions(&world), 4);
    let served = world.server().top.served();
    assert_eq!(served, 8);
    // Every packet that ever was comes once more.
    let all = seen.borrow().clone();
    for octets in all {
        world.inject(Way::ToServer, &octets);
    }
    assert_eq!(world.server().top.served(), served, "nothing is executed again");
    drop(others);
    world.finish();
}

#[test]
fn a_full_server_says_that_it_is_busy() {
    let limits = Limits { channels_max: 2, ..Limits::default() };
    let world = World::with(5, Below::Hosts, limits);
    let client = world.client().cx.clone();
    for n in 0..3_u64 {
        let to = xk_core::Participant::of(xk_core::Part::host(crate::world::SERVER))
            .with(xk_core::Part::Number(xk_kit::rpc::call::CHANNEL, n));
        let to = xk_core::Participants::pair(xk_core::Part::Any, to);
        let opened = world.client().top.open(&client, &world.client().channel, to);
        let session = opened.expect("a channel");
        let result = world.call(&session, b"x");
        if n < 2 {
            assert_eq!(result.expect("a reply"), b"x");
            // Closed without an acknowledgement: the server goes on keeping the reply.
            world.set_network(Rc::new(|_, _, _| Vec::new()));
            session.close(&client);
            world.carry();
            world.set_network(crate::world::perfect());
        } else {
            let error = result.expect_err("busy");
            let busy = xk_core::object::Rejection::new(&xk_kit::rpc::call::BUSY);
            assert_eq!(error.cause, xk_core::object::CallCause::Rejected(busy));
            // It asks, and learns that no call waits for the replies.
            world.pass(Duration::from_secs(4));
            assert_eq!(world.call(&session, b"y").expect("a reply"), b"y");
        }
    }
    world.finish();
}
