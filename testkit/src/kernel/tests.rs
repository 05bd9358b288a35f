use super::*;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use std::rc::Rc;
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Part, Participants, Protocol, ProtocolRef, Time, Upper, reason};
use xk_kit::control::{MyHost, PseudoHeader};

#[derive(Default)]
struct Ticks(Rc<RefCell<Vec<Time>>>);

impl Protocol for Ticks {
    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, left: u64) {
        self.0.borrow_mut().push(cx.now());
        if left > 0 {
            cx.schedule_protocol(this, Duration::from_secs(1), left - 1).unwrap();
        }
    }
}

#[test]
fn timers_go_off_at_their_own_time() {
    let cx = TestKernel::new(1);
    let seen = Rc::default();
    let ticks = cx.add_protocol("ticks", "ticks", Ticks(Rc::clone(&seen)));
    cx.schedule_protocol(&ticks, Duration::from_secs(1), 3).unwrap();
    assert_eq!(cx.advance(Duration::from_millis(3500)), 3);
    assert_eq!(*seen.borrow(), [1, 2, 3].map(Time::from_s), "each at its own second");
    assert_eq!(cx.now(), Time::from_ms(3500));
    assert_eq!(cx.advance(Duration::from_secs(3600)), 1);
}

#[test]
fn a_link_has_one_session_and_echoes_come_back() {
    let cx = TestKernel::new(1);
    let bottom = Bottom::add(&cx, "wire", Lower::link(100));
    let top = Top::add(&cx, "top");
    top.echo(true);
    let enable = top.enable(&cx, bottom.protocol(), Participants::default()).unwrap();
    assert!(bottom.inject(&cx, None, cx.message(b"ping")));
    let sent = bottom.take_sent();
    assert_eq!(octets(&sent[0].message), b"ping");
    let [Event::OpenDone(made), Event::Demux(used, 4)] = top.take_events()[..] else {
        panic!("open_done comes before demux");
    };
    assert_eq!(made, used);
    assert!(sent[0].session.push(&cx, cx.message(&[0; 101])).is_err(), "larger than max_packet");
    bottom.protocol().open_disable(&cx, enable);
    assert_eq!(bottom.enables(), 0);
}

#[test]
fn hosts_have_a_session_each() {
    let cx = TestKernel::new(1);
    let own = Ipv4Addr::new(10, 0, 0, 1);
    let peers = [2, 3].map(|n| Ipv4Addr::new(10, 0, 0, n));
    let bottom = Bottom::add(&cx, "ip", Lower::host(own, 17));
    let top = Top::add(&cx, "top");
    let open = |peer| {
        let participants = Participants::pair(Part::Any, Part::host(peer));
        bottom.protocol().open(&cx, Upper::new(top.protocol()), participants).unwrap()
    };
    let sessions = peers.map(open);
    assert_ne!(sessions[0], sessions[1]);
    assert_eq!(open(peers[0]), sessions[0]);
    assert_eq!(sessions[0].head().opens(), 2);
    let asked = sessions[1].ask(&cx, PseudoHeader::default()).unwrap();
    assert_eq!(asked.sum, 2 * 0x0a00 + 1 + 3 + 17);
    assert_eq!(bottom.protocol().ask(&cx, MyHost::default()).unwrap().host, own);
    assert!(!bottom.inject(&cx, Some(Part::host(own)), cx.message(b"?")));
    assert_eq!(bottom.protocol().head().drops().of(&reason::NO_PROTOCOL), 1);
    sessions[0].close(&cx);
    sessions[0].close(&cx);
    assert!(sessions[0].head().is_closed());
    assert_eq!((bottom.opens(), bottom.closes()), (3, 1));
}

#[test]
fn refusals_go_down_and_nothing_is_left() {
    let cx = TestKernel::new(1);
    let bottom = Bottom::add(&cx, "wire", Lower::link(100));
    let top = Top::add(&cx, "top");
    let _ = top.enable(&cx, bottom.protocol(), Participants::default()).unwrap();
    top.refuse_open(Some(&reason::PROHIBITED));
    assert!(!bottom.inject(&cx, None, cx.message(b"x")));
    top.refuse_open(None);
    top.refuse(Some(&reason::NO_PORT));
    assert!(!bottom.inject(&cx, None, cx.message(b"x")));
    top.refuse(None);
    assert!(bottom.inject(&cx, None, cx.message(b"x")));
    assert_eq!(top.received(), 1);
    assert_eq!(cx.live(), (1, 1), "the top keeps what it took");
    cx.stop();
    assert_eq!(cx.live(), (0, 0));
}

/// Signals the semaphore of this number when a timer with it goes off.
struct Signals(Rc<Vec<Semaphore>>);

impl Protocol for Signals {
    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, which: u64) {
        cx.signal(&self.0[which as usize]);
    }
}

/// Shepherds wait again and again, each time with another limit, and are signalled in time or not
/// at all: each wait ends at its own time, whatever alarm the shepherd had from the waits before,
/// and in the end nothing is pending.
#[test]
fn every_wait_ends_in_its_own_time() {
    const WAITERS: u64 = 7;
    const WAITS: u64 = 40;
    for seed in 0..20 {
        let cx = TestKernel::with_stacks(seed);
        let semaphores: Rc<Vec<Semaphore>> =
            Rc::new((0..WAITERS).map(|_| Semaphore::new(0)).collect());
        let signals = cx.add_protocol("signals", "signals", Signals(Rc::clone(&semaphores)));
        let pending_max = Rc::new(Cell::new(0));
        let waiter = |which: u64| -> Task {
            let (semaphores, signals) = (Rc::clone(&semaphores), signals.clone());
            let (random, pending_max) = (cx.random().fork(which), Rc::clone(&pending_max));
            Box::new(move |cx: &Kernel| {
                for _ in 0..WAITS {
                    // From nanoseconds to hours.
                    let limit = Duration::from_nanos(1 + random.below(1 << (1 + random.below(43))));
                    let begun = cx.now();
                    let in_time = random.chance(0.7);
                    let signal = Duration::from_nanos(random.below(limit.as_nanos() as u64));
                    if in_time {
                        cx.schedule_protocol(&signals, signal, which).unwrap();
                    }
                    let waited = cx.wait(&semaphores[which as usize], Some(limit));
                    let (expected, after) = match in_time {
                        true => (Ok(()), signal),
                        false => (Err(WaitError::TimedOut), limit),
                    };
                    assert_eq!((waited, cx.now()), (expected, begun.after(after)), "seed {seed}");
                    pending_max.set(pending_max.get().max(cx.timers()));
                }
            })
        };
        let tasks = (0..WAITERS).map(waiter).collect();
        let is_over = cx.run_tasks(Duration::from_secs(1 << 30), tasks, |_| 0);
        assert!(is_over, "seed {seed}: all waits end");
        assert_eq!((cx.timers(), cx.next_expiry()), (0, None), "seed {seed}");
        // One alarm and one signal for each.
        assert!(pending_max.get() <= 2 * WAITERS as usize, "seed {seed}");
    }
}
