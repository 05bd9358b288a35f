//! Bursts by themselves; what protocols make of them is for the conformance suite.

use super::{Arrivals, BURST_MAX, Burst, Outgoing, Protocol, ProtocolRef, PushError, Refused};
use super::{Session, SessionRef};
use crate::kernel::{Config, Kernel};
use crate::message::{Message, Pool, PoolConfig};
use crate::random::Random;
use crate::reason;
use crate::shepherd::{Limits, NoSwitch, Semaphore, Shepherds};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

/// Notes the first octet of every message; refuses what begins with `r`, blocks (in vain) at `b`,
/// closes at `c`.
#[derive(Default)]
struct Top {
    seen: Rc<RefCell<Vec<u8>>>,
}

impl Protocol for Top {
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let first = message.peek::<1>().map_or(0, |octets| octets[0]);
        self.seen.borrow_mut().push(first);
        match first {
            b'r' => return Err(this.refuse(message, &reason::PROHIBITED)),
            b'b' => assert!(cx.wait(&Semaphore::new(0), None).is_err()),
            b'c' => lower.abort(cx),
            _ => {}
        }
        Ok(())
    }
}

/// A session whose messages have one octet in front that means nothing. Keeps what it is to send.
struct Below {
    upper: ProtocolRef,
    sent: Rc<RefCell<Vec<usize>>>,
}

impl Session for Below {
    fn push(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        self.sent.borrow_mut().push(message.len());
        match message.len() {
            0 => Err(PushError::NoRoute),
            _ => Ok(()),
        }
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        let whole = burst.look(0, |message, front| (message.len(), front));
        assert_eq!(whole, Some((2, 0)));
        let run = burst.count_while::<1>(|_, glance| glance.octets == *b"." && glance.len == 2);
        assert_eq!(run, burst.len());
        assert!(burst.peek::<3>(0).is_none() && burst.peek::<1>(BURST_MAX).is_none());
        self.upper.demux_burst(cx, this, burst.behind(1))
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        assert!(message.strip(1));
        self.upper.demux(cx, this, message)
    }
}

struct Bench {
    cx: Kernel,
    session: SessionRef,
    seen: Rc<RefCell<Vec<u8>>>,
    sent: Rc<RefCell<Vec<usize>>>,
    arrivals: Arrivals,
}

impl Bench {
    fn new(contents: &[u8]) -> Self {
        let cx = Kernel::new(Config {
            random: Random::new(1),
            pool: Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap(),
            shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
            timers_max: 8,
        });
        let (top, sent) = (Top::default(), Rc::default());
        let seen = Rc::clone(&top.seen);
        let top = cx.add_protocol("top", "top", top);
        let body = Below { upper: top.clone(), sent: Rc::clone(&sent) };
        let session = cx.new_session(&top, &top, body);
        let arrivals = Arrivals::default();
        for octet in contents {
            let message = cx.pool().copy_from(0, &[b'.', *octet]).unwrap();
            arrivals.queue_mut().push_back(message);
        }
        Self { cx, session, seen, sent, arrivals }
    }

    fn deliver(&self, count: usize) -> (usize, Vec<u8>) {
        let taken = self.arrivals.deliver(&self.cx, &self.session, count);
        (taken, self.seen.take())
    }
}

#[test]
fn a_burst_is_bounded_and_in_order() {
    let contents: Vec<u8> = (0..100).map(|n| b'A' + n % 26).collect();
    let bench = Bench::new(&contents);
    assert_eq!(bench.deliver(5), (5, contents[..5].to_vec()));
    assert_eq!(bench.deliver(1000), (32, contents[5..37].to_vec()));
    assert_eq!(bench.deliver(1), (1, contents[37..38].to_vec()));
    assert_eq!(bench.arrivals.len(), 62);
    let counts = bench.session.head().received();
    assert_eq!(counts, 38);
    bench.arrivals.clear();
    assert_eq!(bench.deliver(1000), (0, Vec::new()));
    assert_eq!(bench.cx.pool().stats().descriptors_live, 0);
}

#[test]
fn a_refusal_keeps_nobody_back() {
    let bench = Bench::new(b"1r2rr3");
    assert_eq!(bench.deliver(32), (6, b"1r2rr3".to_vec()));
    let top = bench.session.protocol(&bench.cx).unwrap();
    assert_eq!(top.head().drops().of(&reason::PROHIBITED), 3);
    assert_eq!((top.head().received(), bench.session.head().received()), (6, 6));
}

#[test]
fn what_is_left_when_someone_blocks_goes_back() {
    let bench = Bench::new(b"12b34b5");
    assert_eq!(bench.deliver(32), (3, b"12b".to_vec()));
    assert_eq!(bench.arrivals.len(), 4);
    assert_eq!(bench.deliver(32), (3, b"34b".to_vec()));
    assert_eq!(bench.deliver(32), (1, b"5".to_vec()));
    assert_eq!(bench.session.head().received(), 7);
}

#[test]
fn what_is_left_when_the_session_closes_goes_back() {
    let bench = Bench::new(b"1c234");
    assert_eq!(bench.deliver(32), (2, b"1c".to_vec()));
    assert_eq!(bench.arrivals.len(), 3);
    // Counted at the session until it closed, and at its protocol for good.
    let top = bench.session.protocol(&bench.cx).unwrap();
    assert_eq!(top.head().folded(), (0, 2));
    while !bench.arrivals.is_empty() {
        assert_eq!(bench.deliver(32), (1, Vec::new()));
    }
    assert_eq!(top.head().drops().of(&reason::CLOSED), 3);
}

#[test]
fn all_of_an_outgoing_burst_go_and_the_first_error_is_told() {
    let bench = Bench::new(b"");
    let message = |len| bench.cx.pool().alloc(16, len).unwrap();
    let mut burst: Outgoing = [3, 0, 4, 0].into_iter().map(message).collect();
    let result = bench.session.push_burst(&bench.cx, &mut burst);
    assert_eq!(result, Err(PushError::NoRoute));
    assert!(burst.is_empty());
    assert_eq!(bench.sent.take(), [3, 0, 4, 0]);
    // Those with an odd length cannot be prepared: each goes by itself, in its turn.
    let mut burst: Outgoing = [2, 3, 4, 6, 5].into_iter().map(message).collect();
    let prepare = |message: &mut Message| {
        message.len().is_multiple_of(2) && message.push_array(&[0; 10]).is_ok()
    };
    let alone = |message| bench.session.push(&bench.cx, message);
    let result = bench.session.push_prepared(&bench.cx, &mut burst, prepare, alone);
    assert_eq!((result, burst.len()), (Ok(()), 0));
    assert_eq!(bench.sent.take(), [12, 3, 14, 16, 5]);
    assert_eq!(bench.session.head().sent(), 9);
}
