//! What is this layer's own: the octets of requests and replies, the server's time, what is
//! refused.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_calltemplate::{ENTRY, ServerTime, WRONG_VERSION};
use xk_core::control::Describe;
use xk_core::graph::{Build, Params};
use xk_core::object::CallCause;
use xk_core::shepherd::Semaphore;
use xk_core::{Part, Participants, ProtocolRef, Reason, SessionRef, reason};
use xk_testkit::kernel::{CallBottom, CallEnd, CallTop, Lower, TestKernel, octets};

/// How long the procedure takes here.
const WORK: Duration = Duration::from_micros(0x0102);

/// Two hosts: the first calls, the second serves.
struct Pair {
    cx: TestKernel,
    bottoms: [CallBottom; 2],
    layers: [ProtocolRef; 2],
    tops: [CallTop; 2],
}

impl Pair {
    fn new() -> Self {
        let cx = TestKernel::with_stacks(1);
        let host = |n| Lower::host([10, 0, 0, n].into(), 0);
        let bottoms = [1, 2].map(|n| CallBottom::add(&cx, "bottom", host(n)));
        CallBottom::join(&bottoms);
        let layers = [&bottoms[0], &bottoms[1]].map(|bottom| {
            let mut build = Build {
                cx: &cx,
                entry: &ENTRY,
                name: "layer",
                lowers: &[bottom.protocol().clone()],
                params: &Params::default(),
            };
            (ENTRY.build)(&mut build).unwrap()
        });
        let tops = [1, 2].map(|_| CallTop::add(&cx, "top"));
        cx.start().unwrap();
        let any = Participants::local(Part::Any);
        let _ = tops[1].enable(&cx, &layers[1], any).unwrap();
        tops[1].on_serve(Some(Rc::new(|cx, _, request| {
            let _ = cx.wait(&Semaphore::new(0), Some(WORK));
            Ok(request)
        })));
        Self { cx, bottoms, layers, tops }
    }

    fn open(&self) -> SessionRef {
        let to = Participants::pair(Part::Any, Part::Host([10, 0, 0, 2].into()));
        self.tops[0].open(&self.cx, &self.layers[0], to).unwrap()
    }

    fn call(&self, session: &SessionRef, request: &[u8]) -> CallEnd {
        let call = (session.clone(), self.cx.message(request));
        self.cx.call_all(vec![call]).remove(0)
    }

    /// Lets these octets arrive at the server, and gives what goes back, or the reason.
    fn deliver(&self, request: &[u8]) -> Result<Vec<u8>, &'static Reason> {
        let (bottom, request) = (self.bottoms[1].clone(), self.cx.message(request));
        let end = Rc::new(RefCell::new(None));
        let into = Rc::clone(&end);
        let task = move |cx: &xk_core::Kernel| {
            let reply = bottom.deliver(cx, (9, 9), None, None, request);
            let reply = reply.map(|reply| octets(&reply));
            *into.borrow_mut() = Some(reply.map_err(|refused| refused.reason));
        };
        let all = self.cx.run_tasks(WORK * 2, vec![Box::new(task)], |_| 0);
        assert!(all, "the request is answered");
        end.take().unwrap()
    }
}

#[test]
fn the_octets_of_both_ways() {
    let pair = Pair::new();
    assert_eq!(pair.deliver(b"\x01\0\0\0hi").as_deref(), Ok(&b"\0\0\x01\x02hi"[..]));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let into = Rc::clone(&seen);
    pair.bottoms[0].on_call(Some(Rc::new(move |_, _, request| {
        *into.borrow_mut() = octets(request);
        Ok(())
    })));
    let reply = pair.call(&pair.open(), b"hello").unwrap();
    assert!(reply.eq_octets(b"hello"));
    assert_eq!(*seen.borrow(), b"\x01\0\0\0hello");
    drop(reply);
    pair.cx.finish();
}

#[test]
fn what_cannot_be_read_is_counted_and_not_executed() {
    let pair = Pair::new();
    let drops = |reason| pair.layers[1].head().drops().of(reason);
    assert_eq!(pair.deliver(b"\x02\0\0\0hi"), Err(&WRONG_VERSION));
    assert_eq!(pair.deliver(b"\x01\0\0"), Err(&reason::TRUNCATED));
    assert_eq!((drops(&WRONG_VERSION), drops(&reason::TRUNCATED)), (1, 1));
    assert_eq!(pair.tops[1].served(), 0);
    pair.cx.finish();
}

#[test]
fn a_reply_without_a_header_is_none() {
    let pair = Pair::new();
    // The same bottom without the layer, as if the peer had left it out.
    pair.bottoms[1].withdraw_all();
    let plain = pair.bottoms[1].protocol();
    let any = Participants::local(Part::Any);
    let _ = pair.tops[1].enable(&pair.cx, plain, any).unwrap();
    pair.tops[1].on_serve(Some(Rc::new(|cx, _, _| {
        cx.pool().copy_from(64, b"no").map_err(|_| &reason::NO_BUFFERS)
    })));
    let error = pair.call(&pair.open(), b"hello").map(drop).unwrap_err();
    assert_eq!(error.cause, CallCause::BadReply);
    assert_eq!(error.describe(&pair.cx), "layer: the reply is malformed");
    assert_eq!(pair.layers[0].head().drops().of(&reason::TRUNCATED), 1);
    pair.cx.finish();
}

#[test]
fn the_servers_time_is_added_up() {
    let pair = Pair::new();
    let session = pair.open();
    for _ in 0..3 {
        drop(pair.call(&session, b"x").unwrap());
    }
    let spent = session.ask(&pair.cx, ServerTime::default()).unwrap();
    assert_eq!((spent.calls, spent.time), (3, 3 * WORK));
    let line = session.ask(&pair.cx, Describe::default()).unwrap().text;
    assert_eq!(line, "3 calls, the server took 774µs");
    pair.cx.finish();
}
