//! Tests of each procedure, of refusals, and of the number of executions at a time.

use core::time::Duration;
use xk_core::control::Report;
use xk_core::object::{CallCause, CallError, Rejection};
use xk_core::{Part, Participants, ProtocolRef, Reason, SessionRef};
use xk_kit::rpc::call::{BAD_ARGUMENTS, BUSY, NO_PROCEDURE, SYSTEM_ERROR};
use xk_procedures::{Settings, add, number};
use xk_testkit::kernel::{CallBottom, Lower, TestKernel, Top, octets};

/// A client and a server with one procedure: this bottom has none, so that the server's `procedure`
/// says which.
struct Net {
    cx: TestKernel,
    top: Top,
    bottoms: [CallBottom; 3],
    server: ProtocolRef,
}

fn net(settings: Settings) -> Net {
    let cx = TestKernel::with_stacks(1);
    let bottoms = [1, 2, 3].map(|n| {
        let lower = Lower::host([10, 0, 0, n], 0);
        CallBottom::add(&cx, &format!("bottom{n}"), lower)
    });
    CallBottom::join(&bottoms);
    let server = add(&cx, "server", bottoms[1].protocol().clone(), settings);
    let further = Settings::default();
    let third = add(&cx, "further", bottoms[2].protocol().clone(), further);
    let top = Top::add(&cx, "top");
    for (upper, lower) in [(&server, 1), (&third, 2), (top.protocol(), 0)] {
        let lower: &CallBottom = &bottoms[lower];
        cx.numbers_mut().override_pair(upper.id(), lower.protocol().id(), 253);
    }
    // The relay calls through the server's own bottom.
    cx.start().unwrap();
    Net { cx, top, bottoms, server }
}

fn serving(procedure: u32) -> Settings {
    Settings {
        procedure,
        relay: Part::Host([10, 0, 0, 3].into()).into(),
        source_max: 1000,
        sleep_max: Duration::from_secs(1),
        concurrency: 2,
        ..Settings::default()
    }
}

impl Net {
    fn open(&self) -> SessionRef {
        let both = Participants::pair(Part::Any, Part::Host([10, 0, 0, 2].into()));
        let lower = self.bottoms[0].protocol();
        self.top.open(&self.cx, lower, both).unwrap()
    }

    fn call(&self, request: &[u8]) -> Result<Vec<u8>, CallError> {
        let call = (self.open(), self.cx.message(request));
        let reply = self.cx.call_all(vec![call]).remove(0)?;
        Ok(octets(&reply))
    }

    fn figure(&self, name: &str) -> Option<String> {
        let report = self.server.ask(&self.cx, Report::default()).unwrap();
        let mut lines = report.lines.into_iter();
        lines.find(|(n, _)| n == name).map(|(_, value)| value)
    }

    fn finish(self) {
        self.cx.finish();
        assert_eq!(self.cx.live(), (0, 0));
    }
}

fn refused(reply: Result<Vec<u8>, CallError>, why: &'static Reason) {
    let error = reply.unwrap_err();
    assert_eq!(error.cause, CallCause::Rejected(Rejection::new(why)));
}

#[test]
fn each_does_what_its_number_says() {
    let replies: [(u32, &[u8], &[u8]); 5] = [
        (number::NULL, b"ignored", b""),
        (number::ECHO, b"hello", b"hello"),
        (number::SINK, b"swallowed", b""),
        (number::SOURCE, &[0, 0, 0, 5], &[0, 0, 0, 5, 0, 1, 2, 3, 4, 0, 0, 0]),
        (number::RELAY, b"further", b"further"),
    ];
    for (procedure, request, reply) in replies {
        let net = net(serving(procedure));
        assert_eq!(net.call(request).unwrap(), reply, "procedure {procedure}");
        let name = ["null", "echo", "sink", "source", "relay"][procedure as usize];
        assert_eq!(net.figure(name).as_deref(), Some("1"));
        assert_eq!(net.figure("executing").as_deref(), Some("0"));
        net.finish();
    }
}

#[test]
fn sleep_blocks_its_caller_alone() {
    let net = net(serving(number::SLEEP));
    let begun = net.cx.now();
    let calls = [[0, 0, 0, 20], [0, 0, 0, 30]].map(|time| (net.open(), net.cx.message(&time)));
    assert!(net.cx.call_all(calls.into()).iter().all(Result::is_ok));
    assert_eq!(net.cx.now().since(begun), Duration::from_millis(30));
    assert_eq!(net.figure("executing at most").as_deref(), Some("2"));
    // Longer than allowed: cut short.
    let begun = net.cx.now();
    assert_eq!(net.call(&[0xff; 4]).unwrap(), b"");
    assert_eq!(net.cx.now().since(begun), Duration::from_secs(1));
    net.finish();
}

#[test]
fn beyond_the_bound_it_is_busy() {
    let net = net(serving(number::SLEEP));
    let calls = (0..3).map(|_| (net.open(), net.cx.message(&[0, 0, 0, 9])));
    let mut ends = net.cx.call_all(calls.collect());
    let third = ends.pop().unwrap().map(|reply| octets(&reply));
    refused(third, &BUSY);
    assert!(ends.iter().all(Result::is_ok));
    assert_eq!(net.figure("refused: server busy").as_deref(), Some("1"));
    drop(ends);
    net.finish();
}

#[test]
fn what_is_none_is_refused_with_its_reason() {
    let net1 = net(serving(17));
    refused(net1.call(b""), &NO_PROCEDURE);
    net1.finish();
    for procedure in [number::SOURCE, number::SLEEP] {
        let net = net(serving(procedure));
        for request in [&b""[..], b"123", b"12345"] {
            refused(net.call(request), &BAD_ARGUMENTS);
        }
        net.finish();
    }
    let too_much = net(serving(number::SOURCE));
    refused(too_much.call(&1001u32.to_be_bytes()), &BAD_ARGUMENTS);
    too_much.finish();
    let nobody = net(Settings { relay: Default::default(), ..serving(number::RELAY) });
    refused(nobody.call(b""), &NO_PROCEDURE);
    nobody.finish();
    let away =
        net(Settings { relay: Part::Host([10, 0, 0, 9].into()).into(), ..serving(number::RELAY) });
    refused(away.call(b""), &SYSTEM_ERROR);
    away.finish();
}
