//! The pool of channels: how many there are, calls that wait and in what order, deadlines and
//! cancels of those; and routes.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::graph::{Params, Value};
use xk_core::object::{CallCause, PushError, Rejection};
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Participants, ProtocolRef, SessionRef, Time};
use xk_kit::rpc::call::{CallOptions, CancelCall, NO_PROCEDURE, SYSTEM_ERROR};
use xk_select::Limits;
use xk_testkit::kernel::{CallBottom, Lower, Task, TestKernel, Top, octets};

const LONG: Duration = Duration::from_secs(600);
const MS: Duration = Duration::from_millis(1);

/// Hosts with a selection layer each, and an application above it that serves everything.
struct Net {
    cx: TestKernel,
    bottoms: Vec<CallBottom>,
    selects: Vec<ProtocolRef>,
    tops: Vec<Top>,
}

/// Hosts 10.0.0.1 and so on, one per set of routes: (first, last, host).
fn net(channels: usize, routes: &[&[(i64, i64, &str)]]) -> Net {
    let cx = TestKernel::with_stacks(1);
    let numbers = xk_select::ENTRY.type_numbers();
    for number in numbers.chain(xk_select::FORWARD_ENTRY.type_numbers()) {
        cx.numbers_mut().add(number).unwrap();
    }
    let (mut bottoms, mut selects, mut tops) = (Vec::new(), Vec::new(), Vec::new());
    for (n, routes) in (1..).zip(routes) {
        let lower = Lower::host([10, 0, 0, n], 0);
        let bottom = CallBottom::add(&cx, &format!("channel{n}"), lower);
        let name = format!("select{n}");
        let select = match routes.is_empty() {
            true => {
                let limits = Limits { channels, ..Limits::default() };
                xk_select::add(&cx, &name, bottom.protocol().clone(), limits)
            }
            false => forward(&cx, &name, bottom.protocol(), routes),
        };
        tops.push(Top::add(&cx, &format!("top{n}")));
        bottoms.push(bottom);
        selects.push(select);
    }
    CallBottom::join(&bottoms);
    cx.start().unwrap();
    for (top, select) in tops.iter().zip(&selects) {
        let any = Participants::local(xk_core::Part::Any);
        assert!(top.enable(&cx, select, any).is_ok());
    }
    Net { cx, bottoms, selects, tops }
}

fn forward(
    cx: &TestKernel,
    name: &str,
    lower: &ProtocolRef,
    routes: &[(i64, i64, &str)],
) -> ProtocolRef {
    let mut params = Params::default();
    for (first, last, to) in routes {
        let mut route = Params::default();
        route.set("first", Value::Integer(*first));
        route.set("last", Value::Integer(*last));
        route.set("to", Value::Text((*to).into()));
        params.add_block("route", route);
    }
    let entry = &xk_select::FORWARD_ENTRY;
    entry.add(cx, name, core::slice::from_ref(lower), &params).unwrap()
}

impl Net {
    fn open(&self, from: usize, to: &str) -> SessionRef {
        let both =
            Participants::pair(xk_core::Part::Any, to.parse::<xk_core::Participant>().unwrap());
        self.tops[from].open(&self.cx, &self.selects[from], both).unwrap()
    }

    fn call(&self, session: &SessionRef, request: &[u8]) -> Result<Vec<u8>, CallCause> {
        let request = self.cx.message(request);
        let end = self.cx.call_all(vec![(session.clone(), request)]).remove(0);
        end.map(|reply| octets(&reply)).map_err(|error| error.cause)
    }

    fn finish(self) {
        self.cx.finish();
        assert_eq!(self.cx.live(), (0, 0));
    }
}

/// A call's tag, why it brought no reply, and when it ended.
type Ends = Vec<(u64, Option<CallCause>, Time)>;

fn sleep(cx: &Kernel, time: Duration) {
    let _ = cx.wait(&Semaphore::new(0), Some(time));
}

#[test]
fn channels_are_opened_when_needed_and_kept() {
    let net = net(8, &[&[], &[]]);
    let session = net.open(0, "procedure1@10.0.0.2");
    assert_eq!(net.bottoms[0].opens(), 1, "the first comes with the session");
    let other = net.open(0, "procedure2@10.0.0.2");
    for _ in 0..20 {
        assert!(net.call(&session, b"one").is_ok() && net.call(&other, b"two").is_ok());
    }
    assert_eq!(net.bottoms[0].opens(), 1, "one at a time need one");
    net.tops[1].on_serve(Some(Rc::new(|cx, _, request| {
        sleep(cx, MS);
        Ok(request)
    })));
    let calls = (0..5).map(|_| (session.clone(), net.cx.message(b"x")));
    assert!(net.cx.call_all(calls.collect()).iter().all(Result::is_ok));
    assert_eq!(net.bottoms[0].opens(), 5);
    session.close(&net.cx);
    assert_eq!(net.bottoms[0].open_sessions().len(), 5, "somebody uses them");
    other.close(&net.cx);
    assert_eq!(net.bottoms[0].open_sessions().len(), 0);
    net.finish();
}

#[test]
fn who_finds_all_in_use_waits_his_turn() {
    let net = net(2, &[&[], &[]]);
    let session = net.open(0, "procedure1@10.0.0.2");
    let served: Rc<RefCell<Vec<u8>>> = Rc::default();
    let seen = Rc::clone(&served);
    net.tops[1].on_serve(Some(Rc::new(move |cx, _, request| {
        seen.borrow_mut().extend(request.octets());
        sleep(cx, MS);
        Ok(request)
    })));
    let begun = net.cx.now();
    let calls = (0..10u8).map(|n| (session.clone(), net.cx.message(&[n])));
    assert!(net.cx.call_all(calls.collect()).iter().all(Result::is_ok));
    assert_eq!(*served.borrow(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(net.bottoms[0].calling_most(), 2);
    assert_eq!(net.cx.now().since(begun), MS * 5);
    net.finish();
}

#[test]
fn who_waits_gives_up_at_his_deadline_or_when_told() {
    let net = net(1, &[&[], &[]]);
    let session = net.open(0, "procedure1@10.0.0.2");
    net.tops[1].on_serve(Some(Rc::new(|cx, _, request| {
        sleep(cx, MS * 50);
        Ok(request)
    })));
    let ends: Rc<RefCell<Ends>> = Rc::default();
    let call = |tag: u64, deadline: Time| {
        let mut request = net.cx.message(b"x");
        request.set_attribute(CallOptions { deadline, tag }).unwrap();
        let (session, ends) = (session.clone(), Rc::clone(&ends));
        Box::new(move |cx: &Kernel| {
            let end = session.call(cx, request);
            let cause = end.err().map(|error| error.cause);
            ends.borrow_mut().push((tag, cause, cx.now()));
        }) as Task
    };
    let other = session.clone();
    let cancel = move |cx: &Kernel| {
        sleep(cx, MS * 5);
        assert!(other.ask(cx, CancelCall { tag: 3 }).is_some());
        assert!(other.ask(cx, CancelCall { tag: 9 }).is_none());
    };
    let tasks = vec![
        call(1, Time::MAX),
        call(2, Time::from_ms(10)),
        call(3, Time::MAX),
        call(4, Time::MAX),
        Box::new(cancel) as Task,
    ];
    assert!(net.cx.run_tasks(LONG, tasks, |_| 0));
    let timed_out = Some(CallCause::TimedOut { tries: 0 });
    let wanted = [
        (3, Some(CallCause::Cancelled), Time::from_ms(5)),
        (2, timed_out, Time::from_ms(10)),
        (1, None, Time::from_ms(50)),
        (4, None, Time::from_ms(100)),
    ];
    assert_eq!(*ends.borrow(), wanted);
    assert_eq!(net.tops[1].served(), 2);
    net.finish();
}

#[test]
fn a_channel_that_broke_is_replaced() {
    let net = net(1, &[&[], &[]]);
    let session = net.open(0, "procedure1@10.0.0.2");
    net.bottoms[0].on_call(Some(Rc::new(|cx, channel, _| {
        sleep(cx, MS);
        channel.abort(cx);
        Err(CallCause::Rebooted.into())
    })));
    let calls = (0..3).map(|_| (session.clone(), net.cx.message(b"x")));
    let ends = net.cx.call_all(calls.collect());
    let rebooted =
        |end: &xk_testkit::kernel::CallEnd| matches!(end, Err(e) if e.cause == CallCause::Rebooted);
    assert!(ends.iter().all(rebooted));
    assert_eq!(net.bottoms[0].opens(), 3, "each had a new one");
    net.bottoms[0].on_call(None);
    assert_eq!(net.call(&session, b"again").unwrap(), b"again");
    net.finish();
}

#[test]
fn errors_below_come_up_as_they_are() {
    let net = net(2, &[&[], &[]]);
    let session = net.open(0, "procedure1@10.0.0.2");
    let error = CallCause::Push(PushError::NoRoute);
    net.bottoms[0].on_call(Some(Rc::new(move |_, _, _| Err(error.into()))));
    assert_eq!(net.call(&session, b"x"), Err(error));
    let nobody = net.open(0, "procedure1@10.0.0.9");
    net.bottoms[0].on_call(None);
    assert_eq!(net.call(&nobody, b"x"), Err(CallCause::TimedOut { tries: 1 }));
    net.finish();
}

#[test]
fn routes_lead_elsewhere_and_nothing_else_does() {
    let net = net(8, &[&[], &[(3, 5, "10.0.0.3"), (9, 9, "10.0.0.3")], &[]]);
    let tag = |n: u8| {
        move |cx: &Kernel, _: &SessionRef, request: xk_core::Message| {
            let mut reply = octets(&request);
            reply.push(n);
            Ok(cx.pool().copy_from(64, &reply).unwrap())
        }
    };
    net.tops[1].on_serve(Some(Rc::new(tag(2))));
    net.tops[2].on_serve(Some(Rc::new(tag(3))));
    for (procedure, at) in [(0, 2), (2, 2), (3, 3), (4, 3), (5, 3), (6, 2), (8, 2), (9, 3), (10, 2)]
    {
        let session = net.open(0, &format!("procedure{procedure}@10.0.0.2"));
        assert_eq!(net.call(&session, b"x").unwrap(), [b'x', at], "{procedure}");
    }
    assert_eq!((net.tops[1].served(), net.tops[2].served()), (5, 4));
    // What the third host refuses for comes back as it is.
    net.tops[2].on_serve(Some(Rc::new(|_, _, _| Err(&NO_PROCEDURE))));
    let session = net.open(0, "procedure4@10.0.0.2");
    let refused = Err(CallCause::Rejected(Rejection::new(&NO_PROCEDURE)));
    assert_eq!(net.call(&session, b"x"), refused);
    // And what does not get there is a system error.
    net.bottoms[1].on_call(Some(Rc::new(|_, _, _| Err(CallCause::TimedOut { tries: 8 }.into()))));
    let refused = Err(CallCause::Rejected(Rejection::new(&SYSTEM_ERROR)));
    assert_eq!(net.call(&session, b"x"), refused);
    net.finish();
}

#[test]
fn circles_are_cut() {
    // 2 sends on to 3, 3 to 4, 4 to 2: none serves.
    let routes: [&[(i64, i64, &str)]; 4] = [
        &[],
        &[(1, 1, "10.0.0.3"), (2, 2, "10.0.0.1")],
        &[(1, 1, "10.0.0.4")],
        &[(1, 1, "10.0.0.2")],
    ];
    let net = net(8, &routes);
    let session = net.open(0, "procedure1@10.0.0.2");
    let refused = Err(CallCause::Rejected(Rejection::new(&SYSTEM_ERROR)));
    assert_eq!(net.call(&session, b"x"), refused);
    let calls: u64 = net.bottoms.iter().map(CallBottom::calls).sum();
    assert_eq!(calls, 1 + u64::from(xk_select::HOPS_MAX));
    // Back to whom it came from.
    let session = net.open(0, "procedure2@10.0.0.2");
    assert_eq!(net.call(&session, b"x"), refused);
    let looped = |select: &ProtocolRef| select.head().drops().of(&xk_select::LOOPED);
    assert_eq!(net.selects.iter().map(looped).sum::<u64>(), 2);
    net.finish();
}

#[test]
fn routes_that_meet_are_refused() {
    let cx = TestKernel::new(1);
    let bottom = CallBottom::add(&cx, "channel", Lower::link(100));
    for routes in
        [&[(3, 5, "10.0.0.3"), (5, 6, "10.0.0.4")][..], &[(5, 3, "10.0.0.3")], &[(1, 1, "???")]]
    {
        let mut params = Params::default();
        for (first, last, to) in routes {
            let mut route = Params::default();
            route.set("first", Value::Integer(*first));
            route.set("last", Value::Integer(*last));
            route.set("to", Value::Text((*to).into()));
            params.add_block("route", route);
        }
        let entry = &xk_select::FORWARD_ENTRY;
        assert!(
            entry.add(&cx, "forward", core::slice::from_ref(bottom.protocol()), &params).is_err(),
            "{routes:?}"
        );
    }
}
