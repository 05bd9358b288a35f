//! Tests of what is this layer's own: the octets of requests and replies, the deadline at either
//! end, calls that are not begun.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::control::Describe;
use xk_core::graph::{Params, Value};
use xk_core::object::CallCause;
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Part, Participants, ProtocolRef, Reason, SessionRef, Time, reason};
use xk_deadline::{ENTRY, TOO_LATE, Tally};
use xk_kit::rpc::call::{CallOptions, CancelCall};
use xk_testkit::kernel::{CallBottom, CallEnd, Lower, Task, TestKernel, Top, octets};

/// Time that the procedure takes here.
const WORK: Duration = Duration::from_millis(20);
/// Time that a request must have left to be begun.
const TIME_MIN: Duration = Duration::from_millis(5);
/// Longest time that a call waits.
const WAIT_MAX: Duration = Duration::from_millis(100);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Two hosts: the first calls, the second serves.
struct Pair {
    cx: TestKernel,
    bottoms: [CallBottom; 2],
    layers: [ProtocolRef; 2],
    tops: [Top; 2],
    /// The deadlines that the procedure saw.
    seen: Rc<RefCell<Vec<Option<CallOptions>>>>,
}

impl Pair {
    fn new() -> Self {
        let cx = TestKernel::with_stacks(1);
        let host = |n| Lower::host([10, 0, 0, n], 0);
        let bottoms = [1, 2].map(|n| CallBottom::add(&cx, "bottom", host(n)));
        CallBottom::join(&bottoms);
        let mut params = Params::default();
        params.set("time_min", Value::Duration(TIME_MIN));
        params.set("wait_max", Value::Duration(WAIT_MAX));
        let layers = [&bottoms[0], &bottoms[1]].map(|bottom| {
            ENTRY.add(&cx, "deadline", core::slice::from_ref(bottom.protocol()), &params).unwrap()
        });
        let tops = [1, 2].map(|_| Top::add(&cx, "top"));
        cx.start().unwrap();
        let any = Participants::local(Part::Any);
        let _ = tops[1].enable(&cx, &layers[1], any).unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&seen);
        tops[1].on_serve(Some(Rc::new(move |cx, _, request| {
            into.borrow_mut().push(request.attribute::<CallOptions>());
            let _ = cx.wait(&Semaphore::new(0), Some(WORK));
            Ok(request)
        })));
        Self { cx, bottoms, layers, tops, seen }
    }

    fn open(&self) -> SessionRef {
        let to = Participants::pair(Part::Any, Part::Host([10, 0, 0, 2].into()));
        self.tops[0].open(&self.cx, &self.layers[0], to).unwrap()
    }

    fn call(&self, session: &SessionRef, deadline: Option<Time>) -> CallEnd {
        let mut request = self.cx.message(b"hello");
        if let Some(deadline) = deadline {
            let options = CallOptions { deadline, tag: 7 };
            request.set_attribute(options).unwrap();
        }
        self.cx.call_all(vec![(session.clone(), request)]).remove(0)
    }

    /// A call that is given up after this time.
    fn call_within(&self, session: &SessionRef, time: Duration) -> CallEnd {
        self.call(session, Some(self.cx.now() + time))
    }

    /// Lets these octets arrive at the server, and gives what goes back, or the reason.
    fn deliver(&self, request: &[u8]) -> Result<Vec<u8>, &'static Reason> {
        let (bottom, request) = (self.bottoms[1].clone(), self.cx.message(request));
        let end = Rc::new(RefCell::new(None));
        let into = Rc::clone(&end);
        let task = move |cx: &Kernel| {
            let reply = bottom.deliver(cx, (9, 9), None, None, request);
            let reply = reply.map(|reply| {
                assert!(!reply.has_attributes(), "nothing of the request is left");
                octets(&reply)
            });
            *into.borrow_mut() = Some(reply.map_err(|refused| refused.reason));
        };
        let all = self.cx.run_tasks(WORK * 2, vec![Box::new(task)], |_| 0);
        assert!(all, "the request is answered");
        end.take().unwrap()
    }

    /// Lets time pass, and shepherds that wait go on.
    fn wait(&self, time: Duration) {
        let wait = move |cx: &Kernel| {
            let _ = cx.wait(&Semaphore::new(0), Some(time));
        };
        assert!(self.cx.run_tasks(2 * time, vec![Box::new(wait)], |_| 0));
    }

    fn tally(&self, session: &SessionRef) -> Tally {
        session.ask(&self.cx, Tally::default()).unwrap()
    }
}

#[test]
fn the_octets_of_both_ways() {
    let pair = Pair::new();
    // 0x4e20 microseconds are 20 ms.
    let reply = pair.deliver(b"\0\0\x4e\x20hi");
    assert_eq!(reply.as_deref(), Ok(&b"\0\0\0\0hi"[..]));
    let reply = pair.deliver(b"\0\0\x13\x87hi");
    assert_eq!(reply.as_deref(), Ok(&b"\0\0\0\x01"[..]), "4.999 ms");
    let reply = pair.deliver(b"\xff\xff\xff\xffhi");
    assert_eq!(reply.as_deref(), Ok(&b"\0\0\0\0hi"[..]));
    assert_eq!(pair.deliver(b"\0\0\0"), Err(&reason::TRUNCATED));
    let drops = |reason| pair.layers[1].head().drops().of(reason);
    assert_eq!((drops(&TOO_LATE), drops(&reason::TRUNCATED)), (1, 1));
    let sent = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&sent);
    pair.bottoms[0].on_call(Some(Rc::new(move |_, _, request| {
        *into.borrow_mut() = octets(request);
        Ok(())
    })));
    drop(pair.call_within(&pair.open(), ms(20)));
    assert_eq!(*sent.borrow(), b"\0\0\x4e\x20hello");
    pair.cx.finish();
}

#[test]
fn the_deadline_goes_up_with_the_request() {
    let pair = Pair::new();
    let (session, began) = (pair.open(), pair.cx.now());
    drop(pair.call(&session, Some(began + ms(30))).unwrap());
    let due = |deadline| Some(CallOptions { deadline, tag: 0 });
    assert_eq!(pair.seen.take(), [due(began + ms(30))]);
    // One that is longer than `wait_max`, or none, becomes `wait_max`.
    for deadline in [None, Some(Time::MAX), Some(began + ms(5000))] {
        let began = pair.cx.now();
        drop(pair.call(&session, deadline).unwrap());
        assert_eq!(pair.seen.take(), [due(began + WAIT_MAX)]);
    }
    assert!(pair.deliver(b"\xff\xff\xff\xff").is_ok());
    assert_eq!(pair.seen.take(), [None], "a client that waits for ever");
    pair.cx.finish();
}

#[test]
fn what_is_late_is_executed_once_and_counted_at_both_ends() {
    let pair = Pair::new();
    let session = pair.open();
    let error = pair.call_within(&session, ms(10)).map(drop).unwrap_err();
    assert!(matches!(error.cause, CallCause::TimedOut { .. }), "{error}");
    pair.wait(WORK);
    assert_eq!(pair.tops[1].served(), 1);
    let late = Tally { calls: 1, late: 1, not_begun: 0 };
    assert_eq!(pair.tally(&session), late);
    let serving = pair.tops[1].take_opened().remove(0).0;
    assert_eq!(pair.tally(&serving), late);
    let line = serving.ask(&pair.cx, Describe::default()).unwrap().text;
    assert_eq!(line, "1 requests, 1 late, 0 not begun");
    drop((session, serving));
    pair.cx.finish();
}

#[test]
fn what_would_be_late_is_not_begun() {
    let pair = Pair::new();
    let session = pair.open();
    let error = pair.call_within(&session, ms(4)).map(drop).unwrap_err();
    let told = "deadline: the peer refused the call: too little time left";
    assert_eq!(error.describe(&pair.cx), told);
    assert_eq!((pair.tops[1].served(), pair.tally(&session).not_begun), (0, 1));
    pair.cx.finish();
}

#[test]
fn a_deadline_that_has_passed_is_not_sent() {
    let pair = Pair::new();
    let (session, now) = (pair.open(), pair.cx.now());
    let error = pair.call(&session, Some(now)).map(drop).unwrap_err();
    let told = "deadline: timed out before the request was sent";
    assert_eq!(error.describe(&pair.cx), told);
    assert_eq!(pair.bottoms[0].calls(), 0);
    pair.cx.finish();
}

#[test]
fn a_call_can_be_taken_back() {
    let pair = Pair::new();
    let session = pair.open();
    let (calling, mut request) = (session.clone(), pair.cx.message(b"hello"));
    let options = CallOptions { deadline: Time::MAX, tag: 7 };
    request.set_attribute(options).unwrap();
    let call: Task = Box::new(move |cx| {
        let error = calling.call(cx, request).map(drop).unwrap_err();
        assert_eq!(error.cause, CallCause::Cancelled);
    });
    let cancelled = session.clone();
    let cancel: Task = Box::new(move |cx| {
        let _ = cx.wait(&Semaphore::new(0), Some(ms(1)));
        assert!(cancelled.ask(cx, CancelCall { tag: 7 }).is_some());
    });
    assert!(pair.cx.run_tasks(ms(5), vec![call, cancel], |_| 0));
    assert_eq!(pair.tally(&session).late, 0);
    pair.cx.finish();
}

#[test]
fn what_is_no_reply_is_counted() {
    let pair = Pair::new();
    // The same server without the layer, as if the peer had left it out.
    pair.bottoms[1].withdraw_all();
    let any = Participants::local(Part::Any);
    let plain = pair.bottoms[1].protocol();
    let _ = pair.tops[1].enable(&pair.cx, plain, any).unwrap();
    for (octets, why) in [(&b"no"[..], &reason::TRUNCATED), (b"\0\0\0\x02", &reason::MALFORMED)] {
        pair.tops[1].on_serve(Some(Rc::new(move |cx, _, _| {
            cx.pool().copy_from(64, octets).map_err(|_| &reason::NO_BUFFERS)
        })));
        let error = pair.call(&pair.open(), None).map(drop).unwrap_err();
        let told = "deadline: the reply is malformed";
        assert_eq!(error.describe(&pair.cx), told);
        assert_eq!(pair.layers[0].head().drops().of(why), 1);
    }
    pair.cx.finish();
}
