use super::*;
use crate::EthAddr;
use crate::control::{JoinGroup, MaxPacket, MyEther, WireRoom};
use crate::wire::entry::HEADER_OCTETS;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::Popped;
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Participants, Pool, Protocol, Upper, reason};

/// State of a device that the test sees and sets.
#[derive(Default)]
struct State {
    incoming: VecDeque<Vec<u8>>,
    outgoing: Vec<Vec<u8>>,
    room: usize,
    flushes: usize,
    losses: u64,
}

struct Fake(Rc<RefCell<State>>);

impl Device for Fake {
    const BACKLOG_MAX: usize = BACKLOG_MAX;

    fn receive(&self, into: Receiving<'_>) {
        let Receiving { cx, this, budget, arrivals } = into;
        let mut state = self.0.borrow_mut();
        for _ in 0..budget {
            match state.incoming.pop_front() {
                Some(frame) if frame.is_empty() => {
                    return this.head().drops().add(&DEVICE_ERROR, 2);
                }
                Some(frame) => arrivals.push_back(cx.pool().copy_from(128, &frame).unwrap()),
                None => break,
            }
        }
    }

    fn send(&self, _: &Kernel, _: &SessionRef, frame: Message) -> Result<(), Unsent> {
        let mut state = self.0.borrow_mut();
        if frame.len() < HEADER_OCTETS {
            return Err(Unsent::failed(frame));
        }
        if state.room == 0 {
            return Err(Unsent::Full(frame));
        }
        state.room -= 1;
        state.outgoing.push(frame.octets().collect());
        Ok(())
    }

    fn flush(&self, _: &Kernel, _: &ProtocolRef) -> bool {
        self.0.borrow_mut().flushes += 1;
        true
    }

    fn losses(&self) -> u64 {
        self.0.borrow().losses
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(&7);
    }
}

/// Counts what comes.
struct Top(Rc<RefCell<Vec<usize>>>);

impl Protocol for Top {
    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        self.0.borrow_mut().push(message.len());
        Ok(())
    }
}

struct World {
    cx: Kernel,
    state: Rc<RefCell<State>>,
    wire: ProtocolRef,
    top: ProtocolRef,
    seen: Rc<RefCell<Vec<usize>>>,
}

fn world() -> World {
    let cx = Kernel::new(Config {
        random: Random::new(1),
        pool: Pool::new(&PoolConfig::default()).unwrap(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 16,
    });
    let state = Rc::new(RefCell::new(State::default()));
    let settings = Capabilities::ethernet(100 + HEADER_OCTETS, EthAddr([2, 0, 0, 0, 0, 9]));
    let wire = cx.add_protocol("fake", "wire", Anchored::new(Fake(state.clone()), settings));
    let seen = Rc::default();
    let top = cx.add_protocol("top", "top", Top(Rc::clone(&seen)));
    World { cx, state, wire, top, seen }
}

impl World {
    fn open(&self) -> SessionRef {
        let nobody = Participants::default();
        self.wire.open(&self.cx, Upper::new(&self.top), nobody).unwrap()
    }

    fn poll(&self, budget: usize) -> usize {
        self.wire.wire().unwrap().poll(&self.cx, &self.wire, budget)
    }

    fn flush(&self) {
        self.wire.wire().unwrap().flush(&self.cx, &self.wire);
    }

    fn push(&self, session: &SessionRef, octets: usize) -> Result<(), PushError> {
        let message = self.cx.pool().copy_from(0, &vec![3; octets]).unwrap();
        session.push(&self.cx, message)
    }
}

#[test]
fn arrivals_go_up_within_the_budget() {
    let w = world();
    let any = Participants::default();
    let _ = w.wire.open_enable(&w.cx, Upper::new(&w.top), any).unwrap();
    w.state.borrow_mut().incoming.extend((0..5).map(|n| vec![0; 20 + n]));
    assert_eq!((w.poll(3), w.poll(3), w.poll(3)), (3, 2, 0));
    assert_eq!(*w.seen.borrow(), [20, 21, 22, 23, 24]);
}

#[test]
fn errors_and_losses_are_counted() {
    let w = world();
    w.state.borrow_mut().incoming.extend([vec![], vec![0; 20]]);
    w.state.borrow_mut().losses = 4;
    assert_eq!((w.poll(8), w.poll(8)), (0, 1));
    let drops = w.wire.head().drops();
    assert_eq!((drops.of(&DEVICE_ERROR), drops.of(&DEVICE_LOSS)), (2, 4));
    assert_eq!(drops.of(&reason::NO_PROTOCOL), 1);
}

#[test]
fn frames_wait_in_order_for_a_full_device() {
    let w = world();
    let session = w.open();
    w.state.borrow_mut().room = 1;
    for octets in [20, 21, 22] {
        w.push(&session, octets).unwrap();
    }
    assert!(w.wire.wire().unwrap().wants_writable());
    w.state.borrow_mut().room = 1;
    w.flush();
    assert!(w.wire.wire().unwrap().wants_writable());
    w.state.borrow_mut().room = 1;
    w.flush();
    assert!(!w.wire.wire().unwrap().wants_writable());
    let lengths: Vec<_> = w.state.borrow().outgoing.iter().map(Vec::len).collect();
    assert_eq!(lengths, [20, 21, 22]);
    let flushes = w.state.borrow().flushes;
    w.flush();
    assert_eq!(w.state.borrow().flushes, flushes);
}

#[test]
fn no_more_than_the_bound_wait() {
    let w = world();
    let session = w.open();
    let room = || w.wire.ask(&w.cx, WireRoom::default()).unwrap().after;
    for _ in 0..BACKLOG_MAX {
        assert_eq!(room(), Duration::ZERO);
        w.push(&session, 20).unwrap();
    }
    assert_eq!(room(), ROOM_AGAIN);
    assert_eq!(w.push(&session, 20), Err(PushError::QueueFull));
    assert_eq!(w.wire.head().drops().of(&DEVICE_FULL), 1);
    w.state.borrow_mut().room = 1;
    w.flush();
    assert_eq!(room(), Duration::ZERO);
    w.cx.stop();
    assert_eq!(w.cx.pool().stats().descriptors_live, 0);
}

#[test]
fn what_never_goes_is_refused() {
    let w = world();
    let session = w.open();
    assert_eq!(w.push(&session, 3), Err(PushError::Unreachable));
    assert_eq!(w.push(&session, 115), Err(PushError::TooBig));
    let drops = w.wire.head().drops();
    assert_eq!((drops.of(&DEVICE_ERROR), drops.of(&reason::TOO_BIG)), (1, 1));
}

#[test]
fn questions_are_answered_from_both_ends() {
    let w = world();
    let session = w.open();
    let octets = session.ask(&w.cx, MaxPacket::default()).unwrap().octets;
    assert_eq!(octets, 114);
    let address = w.wire.ask(&w.cx, MyEther::default()).unwrap().address;
    assert_eq!(address, [2, 0, 0, 0, 0, 9]);
    let mut seen = None;
    let descriptor = w.wire.wire().unwrap();
    descriptor.descriptor(&mut |fd| seen = fd.downcast_ref().copied());
    assert_eq!(seen, Some(7));
    let join = JoinGroup { address: [1; 6] };
    assert!(w.wire.ask(&w.cx, join).is_some());
}
