//! Tests of the calls, the replies and the counts.

use core::time::Duration;
use std::rc::Rc;
use xk_caller::{Settings, add};
use xk_core::control::Report;
use xk_core::object::CallCause;
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Message, Part, Participants, ProtocolRef, Reason, SessionRef};
use xk_kit::rpc::call::NO_PROCEDURE;
use xk_testkit::kernel::{CallBottom, Lower, TestKernel, Top, octets};

struct Net {
    cx: TestKernel,
    bottoms: [CallBottom; 2],
    server: Top,
    caller: ProtocolRef,
}

fn net(settings: Settings) -> Net {
    let cx = TestKernel::with_stacks(1);
    // On a link, what is left of the peer's participant is not looked at.
    let bottoms = ["a", "b"].map(|name| CallBottom::add(&cx, name, Lower::link(1 << 20)));
    CallBottom::join(&bottoms);
    let server = Top::add(&cx, "server");
    let caller = add(&cx, "caller", bottoms[0].protocol().clone(), settings);
    for (upper, lower) in [(server.protocol(), &bottoms[1]), (&caller, &bottoms[0])] {
        cx.numbers_mut().override_pair(upper.id(), lower.protocol().id(), 253);
    }
    let any = Participants::local(Part::Any);
    let enabled = server.enable(&cx, bottoms[1].protocol(), any);
    assert!(enabled.is_ok());
    cx.start().unwrap();
    Net { cx, bottoms, server, caller }
}

impl Net {
    fn report(&self) -> Report {
        self.caller.ask(&self.cx, Report::default()).unwrap()
    }

    fn figure(&self, name: &str) -> Option<String> {
        let mut lines = self.report().lines.into_iter();
        lines.find(|(n, _)| n == name).map(|(_, value)| value)
    }

    fn count(&self, name: &str) -> u64 {
        self.figure(name).map_or(0, |value| value.parse().unwrap())
    }

    /// Lets `ms` milliseconds pass.
    fn run(&self, ms: u64) {
        let sleep = move |cx: &Kernel| {
            let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_millis(ms)));
        };
        let limit = Duration::from_secs(3600);
        assert!(self.cx.run_tasks(limit, vec![Box::new(sleep)], |_| 0));
    }

    fn finish(self) {
        self.cx.finish();
        assert_eq!(self.cx.live(), (0, 0));
    }
}

fn settings(procedure: u32) -> Settings {
    Settings { procedure: Some(procedure), count: 10, size: 64, ..Settings::default() }
}

type Serves = fn(&Kernel, &SessionRef, Message) -> Result<Message, &'static Reason>;

#[test]
fn calls_come_one_after_the_other_and_are_timed() {
    let net = net(settings(1));
    net.server.on_serve(Some(Rc::new(|cx, _, request| {
        let found = octets(&request);
        assert_eq!(found[..4], 60u32.to_be_bytes(), "an XDR opaque");
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_millis(2)));
        Ok(request)
    })));
    net.run(100);
    let report = net.report();
    assert!(report.finished && !report.failed, "{:?}", report.lines);
    let counts = ["calls", "replies", "octets", "wrong", "waiting"].map(|name| net.count(name));
    assert_eq!(counts, [10, 10, 640, 0, 0]);
    assert_eq!(net.figure("rtt p50").as_deref(), Some("2ms"));
    assert_eq!(net.count("waiting at most"), 1);
    net.finish();
}

#[test]
fn several_wait_at_a_time() {
    let sleep: Serves = |cx, _, request| {
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_millis(10)));
        Ok(request)
    };
    let net = net(Settings { concurrency: 4, count: 40, ..settings(1) });
    net.server.on_serve(Some(Rc::new(sleep)));
    net.run(101);
    assert_eq!((net.count("replies"), net.count("waiting at most")), (40, 4));
    // Four sessions, each with one call at a time.
    assert_eq!((net.bottoms[0].opens(), net.bottoms[0].calling_most()), (4, 4));
    net.finish();
}

#[test]
fn an_interval_begins_calls_on_its_own() {
    let net = net(Settings { interval: Duration::from_millis(5), ..settings(2) });
    net.server.on_serve(Some(Rc::new(|cx, _, mut request| {
        let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_millis(7)));
        request.truncate(0);
        Ok(request)
    })));
    net.run(60);
    // While one waits no other begins: every second tick.
    assert_eq!(net.count("calls"), 6);
    net.run(100);
    assert_eq!((net.count("calls"), net.count("replies")), (10, 10));
    net.finish();
}

#[test]
fn replies_are_compared() {
    let flipped: Serves = |_, _, mut request| {
        if let Some(octets) = request.front_mut() {
            octets[63] ^= 1;
        }
        Ok(request)
    };
    let net1 = net(settings(1));
    net1.server.on_serve(Some(Rc::new(flipped)));
    net1.run(1);
    assert_eq!((net1.count("replies"), net1.count("wrong")), (10, 10));
    assert!(net1.report().failed);
    net1.finish();
    for procedure in [0, 2, 3, 5] {
        let net = net(settings(procedure));
        net.server.on_serve(Some(Rc::new(|cx, _, _| Ok(cx.pool().copy_from(0, b"x").unwrap()))));
        net.run(1);
        assert_eq!(net.count("wrong"), 10, "procedure {procedure}");
        net.finish();
    }
    let other = net(settings(99));
    other.server.on_serve(Some(Rc::new(flipped)));
    other.run(1);
    assert!(other.report().finished && !other.report().failed);
    other.finish();
}

#[test]
fn errors_are_told_apart_by_layer_and_cause() {
    let net = net(settings(1));
    net.server.on_serve(Some(Rc::new(|_, _, _| Err(&NO_PROCEDURE))));
    net.run(5);
    assert_eq!(net.count("a: the peer refused the call: no such procedure"), 5);
    net.bottoms[0].on_call(Some(Rc::new(|_, _, _| Err(CallCause::Rebooted.into()))));
    net.run(100);
    let rebooted = "a: the server has rebooted; the call may have been executed";
    assert_eq!(net.count(rebooted), 5);
    assert!(net.report().finished && net.report().failed);
    net.finish();
}

#[test]
fn a_deadline_goes_with_every_call() {
    let net = net(Settings { deadline: Duration::from_millis(3), count: 2, ..settings(1) });
    net.bottoms[0].hold(true);
    net.run(20);
    assert_eq!(net.count("a: timed out after 1 try"), 2);
    net.finish();
}
