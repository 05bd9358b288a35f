//! A pass-through between a lower protocol with several sessions and more than one upper.

use super::*;
use crate::control::{MaxPacket, NetworkError, NetworkErrorKind, Start};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use std::vec;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{ProtocolId, Served};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Part, Pool};

/// A lower protocol: one octet of header names the selector, sessions exist per upper, and messages
/// come from the test.
#[derive(Default)]
struct Lower {
    enables: RefCell<Vec<(ProtocolId, ProtocolRef)>>,
    sessions: RefCell<Vec<(ProtocolId, SessionRef)>>,
    sent: RefCell<Vec<usize>>,
}

struct LowerRef(Rc<Lower>);

struct LowerSession {
    lower: Rc<Lower>,
    upper: ProtocolRef,
    selector: ProtocolId,
}

impl Protocol for LowerRef {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let mut sessions = self.0.sessions.borrow_mut();
        if let Some((_, session)) = sessions.iter().find(|(id, _)| *id == upper.selector) {
            session.hold();
            return Ok(session.clone());
        }
        let selector = upper.selector;
        let body =
            LowerSession { lower: Rc::clone(&self.0), upper: upper.receiver.clone(), selector };
        let session = cx.new_session(this, upper.receiver, body);
        sessions.push((selector, session.clone()));
        Ok(session)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.0.enables.borrow_mut().push((upper.selector, upper.receiver.clone()));
        Ok(Enable(7))
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<MaxPacket>(|q| q.octets = 1000)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let _ = (self.0.enables.take(), self.0.sessions.take());
    }
}

impl Lower {
    /// A message for the upper with this selector arrives.
    fn arrive(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        selector: ProtocolId,
        message: Message,
    ) -> Result<(), &'static Reason> {
        let find = |list: &RefCell<Vec<(ProtocolId, SessionRef)>>| {
            list.borrow().iter().find(|(id, _)| *id == selector).map(|(_, s)| s.clone())
        };
        let session = match find(&self.sessions) {
            Some(session) => session,
            None => {
                let enables = self.enables.borrow().clone();
                let (_, upper) = enables.into_iter().find(|(id, _)| *id == selector).unwrap();
                let body = LowerSession { lower: Rc::clone(self), upper: upper.clone(), selector };
                let session = cx.new_passive_session(this, &upper, 0, body);
                upper.open_done(cx, &session, Participants::local(Part::Any))?;
                self.sessions.borrow_mut().push((selector, session.clone()));
                session
            }
        };
        session.pop(cx, message).map_err(|refused| refused.reason)
    }
}

impl Session for LowerSession {
    fn push(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        self.lower.sent.borrow_mut().push(message.len());
        Ok(())
    }

    fn call(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<Message, CallError> {
        Ok(message)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        let mut sessions = self.lower.sessions.borrow_mut();
        sessions.retain(|(id, _)| *id != self.selector);
        Closing::Done
    }
}

/// An upper protocol that notes what it hears, holds sessions made for it if it is told to, and
/// refuses ones.
#[derive(Default)]
struct Upperside {
    heard: RefCell<Vec<String>>,
    holds: bool,
    refuses: Cell<bool>,
    kept: RefCell<Vec<SessionRef>>,
}

struct UpperRef(Rc<Upperside>);

impl Protocol for UpperRef {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        self.0.heard.borrow_mut().push(format!("open_done {}", participants.len()));
        if self.0.refuses.get() {
            return Err(&reason::PROHIBITED);
        }
        if self.0.holds {
            lower.hold();
        }
        self.0.kept.borrow_mut().push(lower.clone());
        Ok(())
    }

    fn demux(
        &self,
        _: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        self.0.heard.borrow_mut().push(format!("demux {}", message.len()));
        assert_eq!(lower.head().upper(), this.id());
        if self.0.refuses.get() {
            return Err(this.refuse(message, &reason::NO_PORT));
        }
        Ok(())
    }

    fn call_demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Served {
        Ok(message)
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<NetworkError>(|error| {
            let known = self.0.kept.borrow().iter().any(|s| Some(s) == error.session.as_ref());
            self.0.heard.borrow_mut().push(format!("error {known}"));
        })
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.0.kept.take();
    }
}

/// Passes everything on.
struct Open;

impl Filter for Open {}

struct Net {
    cx: Kernel,
    lower: Rc<Lower>,
    lower_ref: ProtocolRef,
    pass: ProtocolRef,
    uppers: Vec<(ProtocolRef, Rc<Upperside>)>,
}

fn net(holds: &[bool]) -> Net {
    let pool = Pool::new(&PoolConfig::default()).unwrap();
    let shepherds = Shepherds::new(Box::new(NoSwitch), Limits::default());
    let cx = Kernel::new(Config { random: Random::new(1), pool, shepherds, timers_max: 10 });
    let lower: Rc<Lower> = Rc::default();
    let lower_ref = cx.add_protocol("lower", "lower", LowerRef(Rc::clone(&lower)));
    let pass = cx.add_protocol("pass", "pass", PassThrough::new(lower_ref.clone(), Open));
    let uppers = holds.iter().map(|&holds| {
        let upper = Rc::new(Upperside { holds, ..Upperside::default() });
        (cx.add_protocol("upper", "upper", UpperRef(Rc::clone(&upper))), upper)
    });
    let uppers = uppers.collect();
    Net { cx, lower, lower_ref, pass, uppers }
}

impl Net {
    fn upper(&self, at: usize) -> Upper<'_> {
        Upper::new(&self.uppers[at].0)
    }

    fn message(&self, octets: usize) -> Message {
        self.cx.pool().copy_from(0, &vec![0; octets]).unwrap()
    }

    fn arrive(&self, at: usize, octets: usize) -> Result<(), &'static Reason> {
        let selector = self.uppers[at].0.id();
        self.lower.arrive(&self.cx, &self.lower_ref, selector, self.message(octets))
    }

    fn heard(&self, at: usize) -> Vec<String> {
        self.uppers[at].1.heard.take()
    }

    fn sessions(&self) -> usize {
        let list = ListSessions::first(10);
        let list = self.pass.ask(&self.cx, list).unwrap();
        assert_eq!(list.sessions.len(), list.total.min(10));
        list.total
    }
}

#[test]
fn an_open_twice_is_one_session_and_one_hold_below() {
    let net = net(&[false]);
    let none = Participants::default;
    let one = net.pass.open(&net.cx, net.upper(0), none()).unwrap();
    let two = net.pass.open(&net.cx, net.upper(0), none()).unwrap();
    assert!(one == two && one.head().opens() == 2);
    let below = net.lower.sessions.borrow()[0].1.clone();
    assert_eq!((below.head().opens(), below.head().upper()), (1, net.pass.id()));
    one.push(&net.cx, net.message(3)).unwrap();
    assert_eq!(*net.lower.sent.borrow(), [3]);
    assert_eq!(one.ask(&net.cx, MaxPacket::default()).map(|q| q.octets), None);
    assert_eq!(net.pass.ask(&net.cx, MaxPacket::default()).unwrap().octets, 1000);
    assert_eq!(one.call(&net.cx, net.message(5)).unwrap().len(), 5);
    one.close(&net.cx);
    assert!(!below.head().is_closed());
    two.close(&net.cx);
    assert!(below.head().is_closed() && two.head().is_closed());
    assert_eq!((net.sessions(), net.lower.sessions.borrow().len()), (0, 0));
}

#[test]
fn each_upper_hears_its_own() {
    let net = net(&[true, false]);
    for at in [0, 1] {
        let enable = net.pass.open_enable(&net.cx, net.upper(at), Participants::default());
        assert_eq!(enable, Ok(Enable(7)));
    }
    // The second upper has a receiver of its own, under its own number.
    let enables = net.lower.enables.borrow().clone();
    assert_eq!(enables[0], (net.uppers[0].0.id(), net.pass.clone()));
    assert_eq!((enables[1].0, enables[1].1.name()), (net.uppers[1].0.id(), "pass>upper"));
    for (at, octets) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
        net.arrive(at, octets).unwrap();
    }
    assert_eq!(net.heard(0), ["open_done 1", "demux 1", "demux 3"]);
    assert_eq!(net.heard(1), ["open_done 1", "demux 2", "demux 4"]);
    // A hold above is a hold below; without one, the lower protocol may evict the session.
    let opens: Vec<_> = net.lower.sessions.borrow().iter().map(|s| s.1.head().opens()).collect();
    assert_eq!(opens, [1, 0]);
    let kept = net.uppers[0].1.kept.borrow()[0].clone();
    kept.close(&net.cx);
    // It has no holder any more, and it holds nothing: as idle as the other one.
    assert!(!kept.head().is_closed());
    assert_eq!((net.sessions(), net.lower.sessions.borrow().len()), (2, 2));
    let sessions = net.lower.sessions.borrow();
    assert!(sessions.iter().all(|(_, below)| below.head().opens() == 0));
}

#[test]
fn an_active_open_joins_the_session_that_a_message_made() {
    let net = net(&[false]);
    let _ = net.pass.open_enable(&net.cx, net.upper(0), Participants::default()).unwrap();
    net.arrive(0, 1).unwrap();
    let kept = net.uppers[0].1.kept.borrow()[0].clone();
    let below = net.lower.sessions.borrow()[0].1.clone();
    assert_eq!((kept.head().opens(), below.head().opens()), (0, 0));
    let opened = net.pass.open(&net.cx, net.upper(0), Participants::default()).unwrap();
    assert!(opened == kept);
    assert_eq!((kept.head().opens(), below.head().opens()), (1, 1));
    // Another upper under the same number cannot have it.
    let other = net.cx.add_protocol("upper", "other", UpperRef(Rc::default()));
    let thief = Upper { receiver: &other, selector: net.uppers[0].0.id() };
    let stolen = net.pass.open(&net.cx, thief, Participants::default());
    assert_eq!(stolen.err(), Some(OpenError::InUse));
    assert_eq!(below.head().opens(), 1);
    // Once the lower one is gone, so is this.
    below.abort(&net.cx);
    let sent = kept.push(&net.cx, net.message(1));
    assert_eq!(sent, Err(PushError::Closed));
    kept.close(&net.cx);
    assert_eq!(net.sessions(), 0);
}

#[test]
fn refusals_come_back_down() {
    let net = net(&[false]);
    let _ = net.pass.open_enable(&net.cx, net.upper(0), Participants::default()).unwrap();
    net.uppers[0].1.refuses.set(true);
    assert_eq!(net.arrive(0, 1), Err(&reason::PROHIBITED));
    assert_eq!(net.sessions(), 0);
    net.uppers[0].1.refuses.set(false);
    net.arrive(0, 1).unwrap();
    net.uppers[0].1.refuses.set(true);
    assert_eq!(net.arrive(0, 1), Err(&reason::NO_PORT));
    assert_eq!(net.uppers[0].0.head().drops().of(&reason::NO_PORT), 1);
}

#[test]
fn sessions_evicted_below_end() {
    let net = net(&[false]);
    let _ = net.pass.open_enable(&net.cx, net.upper(0), Participants::default()).unwrap();
    for _ in 0..1000 {
        net.arrive(0, 1).unwrap();
        let below = net.lower.sessions.borrow()[0].1.clone();
        below.abort(&net.cx);
        assert_eq!(net.sessions(), 0);
    }
}

#[test]
fn reports_from_below_reach_the_session_above() {
    let net = net(&[false]);
    let _ = net.pass.open_enable(&net.cx, net.upper(0), Participants::default()).unwrap();
    net.arrive(0, 1).unwrap();
    net.heard(0);
    let below = net.lower.sessions.borrow()[0].1.clone();
    let error = |session| NetworkError {
        session,
        start: Start::new(&[0; 8]),
        ..NetworkError::new(NetworkErrorKind::PortUnreachable)
    };
    assert!(net.pass.ask(&net.cx, error(Some(below))).is_some());
    assert!(net.pass.ask(&net.cx, error(None)).is_none());
    assert_eq!(net.heard(0), ["error true"]);
}

#[test]
fn everything_goes_when_the_graph_stops() {
    let net = net(&[true, true]);
    for at in [0, 1] {
        let _ = net.pass.open_enable(&net.cx, net.upper(at), Participants::default()).unwrap();
        net.arrive(at, 1).unwrap();
    }
    net.cx.stop();
    let weak: Vec<_> = net.uppers.iter().map(|(_, upper)| Rc::downgrade(upper)).collect();
    let lower = Rc::downgrade(&net.lower);
    drop(net);
    assert!(weak.iter().all(|upper| upper.strong_count() == 0));
    assert_eq!(lower.strong_count(), 0);
}
