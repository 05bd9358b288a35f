//! Datagrams over calls: each arrives once and in order, and `push` returns when it has.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{CallCause, PushError};
use xk_core::reason::Class;
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Part, Participants, ProtocolRef, Reason, SessionRef};
use xk_kit::control::{MaxPacket, PeerHost};
use xk_kit::rpc::call::CallOptions;
use xk_testkit::conformance::{CountingAllocator, allocations, counts_allocations};
use xk_testkit::kernel::{CallBottom, Lower, Task, TestKernel, Top, octets};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

const LONG: Duration = Duration::from_secs(600);
const MS: Duration = Duration::from_millis(1);
/// Longest time of a push.
const TOTAL: Duration = Duration::from_secs(7);
static UNWANTED: Reason = Reason::new("unwanted", Class::Prohibited);

struct Net {
    cx: TestKernel,
    bottoms: [CallBottom; 2],
    layers: [ProtocolRef; 2],
    tops: [Top; 2],
}

fn net() -> Net {
    let cx = TestKernel::with_stacks(1);
    for number in xk_rdgram::ENTRY.type_numbers() {
        cx.numbers_mut().add(number).unwrap();
    }
    let bottoms = [1, 2].map(|n| {
        let lower = Lower::host([10, 0, 0, n], 0);
        CallBottom::add(&cx, &format!("channel{n}"), lower)
    });
    CallBottom::join(&bottoms);
    let layer = |n: usize| {
        let lower = bottoms[n].protocol().clone();
        xk_rdgram::add(&cx, &format!("rdgram{n}"), lower, 16, TOTAL)
    };
    let layers = [0, 1].map(layer);
    let tops = [0, 1].map(|n: usize| {
        let top = Top::add(&cx, &format!("top{n}"));
        cx.numbers_mut().override_pair(top.id(), layers[n].id(), 7);
        top
    });
    cx.start().unwrap();
    for (top, layer) in tops.iter().zip(&layers) {
        let any = Participants::local(Part::Any);
        assert!(top.enable(&cx, layer, any).is_ok());
    }
    Net { cx, bottoms, layers, tops }
}

impl Net {
    fn open(&self, from: usize) -> SessionRef {
        let to = Part::Host([10, 0, 0, 2 - from as u8].into());
        let both = Participants::pair(Part::Any, to);
        self.tops[from].open(&self.cx, &self.layers[from], both).unwrap()
    }

    /// Pushes each of these, all at the same time.
    fn push_all(&self, session: &SessionRef, all: &[&[u8]]) -> Vec<Result<(), PushError>> {
        let ends: Rc<RefCell<Vec<_>>> = Rc::default();
        let task = |octets: &&[u8]| {
            let (session, ends) = (session.clone(), Rc::clone(&ends));
            let message = self.cx.message(octets);
            Box::new(move |cx: &Kernel| {
                let end = session.push(cx, message);
                ends.borrow_mut().push(end);
            }) as Task
        };
        assert!(self.cx.run_tasks(LONG, all.iter().map(task).collect(), |_| 0));
        ends.take()
    }

    fn arrived(&self, at: usize) -> Vec<Vec<u8>> {
        let all = self.tops[at].take_received();
        all.iter().map(|r| octets(&r.message)).collect()
    }

    fn finish(self) {
        self.cx.finish();
        assert_eq!(self.cx.live(), (0, 0));
    }
}

#[test]
fn datagrams_arrive_in_order_and_push_waits_for_it() {
    let net = net();
    let session = net.open(0);
    net.tops[1].on_demux(Some(Rc::new(|cx, _, _| {
        let _ = cx.wait(&Semaphore::new(0), Some(MS));
        Ok(())
    })));
    let begun = net.cx.now();
    let ends = net.push_all(&session, &[b"one", b"two", b"", b"four"]);
    assert_eq!(ends, [Ok(()); 4]);
    assert_eq!(net.arrived(1), [&b"one"[..], b"two", b"", b"four"]);
    assert_eq!(net.cx.now().since(begun), MS * 4, "one after the other");
    assert_eq!((net.bottoms[0].opens(), net.bottoms[0].calling_most()), (1, 1));
    net.finish();
}

#[test]
fn both_ends_are_one_conversation() {
    let net = net();
    let session = net.open(0);
    assert_eq!(net.push_all(&session, &[b"there"]), [Ok(())]);
    let (made, _) = net.tops[1].take_opened().remove(0);
    let peer = made.ask(&net.cx, PeerHost::default()).unwrap().host;
    assert_eq!(peer, core::net::Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(net.open(1), made, "opened, it is the same");
    assert_eq!(net.bottoms[1].opens(), 0, "it has sent nothing yet");
    // An answer, in the middle of the delivery as well.
    net.tops[1].echo(true);
    assert_eq!(net.push_all(&session, &[b"echo"]), [Ok(())]);
    let back = net.tops[0].take_received();
    assert!(back.len() == 1 && back[0].message.eq_octets(b"echo"));
    assert_eq!(back[0].session, session);
    assert!(net.tops[0].take_opened().is_empty());
    drop(back);
    let max = session.ask(&net.cx, MaxPacket::default()).unwrap().octets;
    assert_eq!(max, net.bottoms[0].lower().max_packet - 4);
    net.finish();
}

#[test]
fn what_is_not_delivered_is_told() {
    let net = net();
    let session = net.open(0);
    net.tops[1].refuse(Some(&UNWANTED));
    assert_eq!(net.push_all(&session, &[b"x"]), [Err(PushError::Unreachable)]);
    net.tops[1].refuse(None);
    for (cause, error) in [
        (CallCause::TimedOut { tries: 8 }, PushError::Unreachable),
        (CallCause::Rebooted, PushError::Unreachable),
        (CallCause::Push(PushError::NoRoute), PushError::NoRoute),
        (CallCause::NoShepherds, PushError::QueueFull),
    ] {
        net.bottoms[0].on_call(Some(Rc::new(move |_, _, _| Err(cause.into()))));
        assert_eq!(net.push_all(&session, &[b"x"]), [Err(error)]);
    }
    // A channel that broke is replaced.
    net.bottoms[0].on_call(Some(Rc::new(|cx, channel, _| {
        channel.abort(cx);
        Err(CallCause::Closed.into())
    })));
    assert_eq!(net.push_all(&session, &[b"x"]), [Err(PushError::Closed)]);
    net.bottoms[0].on_call(None);
    assert_eq!(net.push_all(&session, &[b"again"]), [Ok(())]);
    assert_eq!(net.bottoms[0].opens(), 2);
    assert_eq!(net.arrived(1), [b"again"]);
    net.finish();
}

#[test]
fn who_has_not_enabled_and_what_is_cut_short_is_refused() {
    let net = net();
    let peer = Some(Part::Host([10, 0, 0, 9].into()));
    for octets in [&b""[..], b"\0\0\0", b"\0\0\0\x08rest"] {
        let message = net.cx.message(octets);
        let end = net.bottoms[1].deliver(&net.cx, (9, 9), peer, Some(0x66), message);
        assert!(end.is_err(), "{octets:?}");
    }
    assert_eq!(net.layers[1].head().drops().total(), 3);
    assert_eq!(net.tops[1].received(), 0);
    net.finish();
}

#[test]
fn sessions_close_and_take_their_channel_along() {
    let net = net();
    let session = net.open(0);
    assert_eq!(net.bottoms[0].open_sessions().len(), 1);
    session.close(&net.cx);
    assert!(session.head().is_closed());
    assert_eq!(net.bottoms[0].open_sessions().len(), 0);
    assert_eq!(net.push_all(&session, &[b"x"]), [Err(PushError::Closed)]);
    // Closed while a message is under way: the channel goes when it is through.
    let session = net.open(0);
    let closing = session.clone();
    net.tops[1].on_demux(Some(Rc::new(move |cx, _, _| {
        closing.close(cx);
        Ok(())
    })));
    assert_eq!(net.push_all(&session, &[b"last"]), [Ok(())]);
    assert_eq!(net.bottoms[0].open_sessions().len(), 0);
    net.finish();
}

/// None beyond those of the call: with a deadline, the one below costs some here.
#[test]
fn no_datagram_costs_an_allocation() {
    assert!(counts_allocations());
    let net = net();
    let session = net.open(0);
    net.tops[1].forget(true);
    let channel = net.bottoms[0].open_sessions().remove(0);
    let task = move |cx: &Kernel| {
        let call = || {
            let mut request = cx.pool().copy_from(128, b"\0\0\0\x07steady").unwrap();
            let deadline = cx.now().after(TOTAL);
            let options = CallOptions { deadline, tag: 0 };
            request.set_attribute(options).unwrap();
            assert!(channel.call(cx, request).is_ok());
        };
        let push = || {
            let message = cx.pool().copy_from(128, b"steady").unwrap();
            session.push(cx, message).unwrap();
        };
        let cost = |of: &dyn Fn()| {
            (0..100).for_each(|_| of());
            let before = allocations();
            (0..500).for_each(|_| of());
            allocations() - before
        };
        assert_eq!(cost(&push), cost(&call));
    };
    assert!(net.cx.run_tasks(LONG, vec![Box::new(task) as Task], |_| 0));
    net.finish();
}

/// Both deliver what waits for the other's delivery: A's message is answered within its delivery,
/// and the answer within its own, by a message that has to wait for the first one's end.
#[test]
fn deliveries_that_wait_for_each_other_end() {
    let net = net();
    let session = net.open(0);
    let ends: Rc<RefCell<Vec<_>>> = Rc::default();
    for top in &net.tops {
        let ends = Rc::clone(&ends);
        top.on_demux(Some(Rc::new(move |cx, session, _| {
            // One question and two answers: what comes later is not answered.
            if ends.borrow().len() < 2 {
                ends.borrow_mut().push(None);
                let answer = cx.pool().copy_from(128, b"answer").unwrap();
                let end = session.push(cx, answer);
                ends.borrow_mut().push(Some(end));
            }
            Ok(())
        })));
    }
    let begun = net.cx.now();
    let first = net.push_all(&session, &[b"question"]);
    assert_eq!(net.cx.now().since(begun), TOTAL);
    assert_eq!(first, [Err(PushError::Unreachable)]);
    assert_eq!(net.push_all(&session, &[b"after"]), [Ok(())]);
    net.finish();
}

/// A message with a deadline waits for its turn, and for its end, until then at most.
#[test]
fn a_push_ends_by_the_deadline_of_its_message() {
    let net = net();
    let session = net.open(0);
    net.tops[1].on_demux(Some(Rc::new(|cx, _, _| {
        let _ = cx.wait(&Semaphore::new(0), Some(MS * 50));
        Ok(())
    })));
    let ends: Rc<RefCell<Vec<_>>> = Rc::default();
    let begun = net.cx.now();
    let task = |n: u32| {
        let (session, ends) = (session.clone(), Rc::clone(&ends));
        let mut message = net.cx.message(b"late");
        let options = CallOptions { deadline: begun.after(MS * n), tag: 0 };
        message.set_attribute(options).unwrap();
        Box::new(move |cx: &Kernel| {
            let end = session.push(cx, message);
            ends.borrow_mut().push((cx.now().since(begun), end));
        }) as Task
    };
    let tasks = [30, 10, 200].map(task).into();
    assert!(net.cx.run_tasks(LONG, tasks, |_| 0));
    let [no_turn, no_end, through] = [
        (MS * 10, Err(PushError::QueueFull)),
        (MS * 30, Err(PushError::Unreachable)),
        (MS * 80, Ok(())),
    ];
    assert_eq!(*ends.borrow(), [no_turn, no_end, through]);
    net.finish();
}
