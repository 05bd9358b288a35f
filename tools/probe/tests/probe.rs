//! Tests of the messages that are sent, and of those that come back or do not.

use core::time::Duration;
use xk_core::control::Report;
use xk_core::object::PushError;
use xk_core::{Part, ProtocolRef};
use xk_kit::control::{NetworkError, NetworkErrorKind};
use xk_probe::{Settings, add};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, octets};

struct Net {
    cx: TestKernel,
    bottom: Bottom,
    probe: ProtocolRef,
}

const MS: Duration = Duration::from_millis(1);

fn net(lower: Lower, settings: Settings) -> Net {
    let cx = TestKernel::new(5);
    let bottom = Bottom::add(&cx, "bottom", lower);
    let probe = add(&cx, "probe", bottom.protocol().clone(), settings);
    cx.start().unwrap();
    Net { cx, bottom, probe }
}

impl Net {
    fn report(&self) -> Report {
        self.probe.ask(&self.cx, Report::default()).unwrap()
    }

    fn figure(&self, name: &str) -> Option<String> {
        let lines = self.report().lines;
        lines.into_iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    fn count(&self, name: &str) -> u64 {
        self.figure(name).unwrap().parse().unwrap()
    }

    /// Lets everything sent come back as `change` leaves it.
    fn bounce(&self, change: impl Fn(&mut Vec<u8>)) {
        for sent in self.bottom.take_sent() {
            let mut octets = octets(&sent.message);
            change(&mut octets);
            let message = self.cx.message(&octets);
            self.bottom.inject(&self.cx, sent.peer, message);
        }
    }

    /// Lets time pass in steps of a millisecond, everything coming back after each.
    fn run(&self, steps: usize) {
        for _ in 0..steps {
            self.cx.advance(MS);
            self.bounce(|_| ());
        }
    }
}

fn settings() -> Settings {
    Settings { interval: 10 * MS, timeout: 100 * MS, ..Settings::default() }
}

#[test]
fn all_come_back() {
    for (size, size_max) in [(0, 0), (3, 0), (8, 0), (15, 0), (16, 0), (56, 0), (1400, 0), (0, 90)]
    {
        let net = net(Lower::link(1500), Settings { size, size_max, ..settings() });
        net.run(60);
        let report = net.report();
        assert!(report.finished && !report.failed, "{size}: {:?}", report.lines);
        assert_eq!((net.count("sent"), net.count("received"), net.count("lost")), (5, 5, 0));
        assert_eq!(net.figure("rtt min").is_some(), size >= 8 || size_max > 0);
        let results = net.probe.ask(&net.cx, xk_probe::Results::default()).unwrap();
        assert_eq!((results.sent, results.received, results.lost), (5, 5, 0));
        assert!(results.finished && !results.failed);
        if let Some(times) = results.round_trips {
            assert!(times.min <= times.p50 && times.avg <= times.max, "{times:?}");
        }
        assert_eq!(results.round_trips.is_some(), net.figure("rtt min").is_some());
        net.cx.stop();
        assert_eq!(net.cx.live(), (0, 0));
    }
}

#[test]
fn messages_larger_than_a_buffer_keep_their_pattern() {
    let net = net(Lower::link(1 << 20), Settings { size: 200_000, count: 2, ..settings() });
    net.cx.advance(MS);
    let sent = net.bottom.take_sent().swap_remove(0).message;
    assert!(sent.slices().count() > 1 && sent.len() == 200_000);
    net.bottom.inject(&net.cx, None, sent);
    assert_eq!((net.count("received"), net.count("corrupt")), (1, 0));
}

#[test]
fn times_are_measured() {
    let net = net(Lower::link(1500), Settings { count: 1, start: 3 * MS, ..settings() });
    net.cx.advance(2 * MS);
    assert_eq!(net.count("sent"), 0);
    net.cx.advance(MS);
    net.cx.advance(7 * MS);
    net.bounce(|_| ());
    for name in ["rtt min", "rtt avg", "rtt p50", "rtt max"] {
        assert_eq!(net.figure(name).unwrap(), "7ms");
    }
}

#[test]
fn without_an_interval_each_waits_for_the_one_before() {
    let settings = Settings { interval: Duration::ZERO, count: 50, ..settings() };
    let net = net(Lower::link(1500), settings);
    net.cx.advance(50 * MS);
    assert_eq!(net.count("sent"), 1);
    net.run(10);
    assert_eq!(net.count("sent"), 10);
    // The tenth answer lets one more go, which is lost.
    net.cx.advance(101 * MS);
    assert_eq!((net.count("sent"), net.count("lost")), (12, 1), "it goes on after a loss");
    assert_eq!(net.bottom.take_sent().len(), 2);
    net.cx.advance(100 * MS);
    net.run(100);
    assert!(net.report().finished);
    assert_eq!((net.count("received"), net.count("lost"), net.cx.timers()), (48, 2, 0));
}

#[test]
fn losses_and_failures_end_as_well() {
    let net = net(Lower::link(1500), settings());
    net.cx.advance(200 * MS);
    let report = net.report();
    assert!(report.finished && report.failed, "nothing came back");
    assert_eq!(net.count("lost"), 5);
    net.bounce(|_| ());
    assert_eq!((net.count("late"), net.count("received")), (5, 0));
    let net = self::net(Lower::link(1500), settings());
    net.bottom.fail(Some(PushError::Unreachable));
    net.cx.advance(60 * MS);
    assert!(net.report().finished, "there is nothing to wait for");
    assert_eq!((net.count("not sent: unreachable"), net.count("lost")), (5, 0));
}

#[test]
fn damage_and_duplicates_are_told_apart() {
    for octet in 0..20 {
        let net = net(Lower::link(1500), Settings { size: 20, count: 1, ..settings() });
        net.cx.advance(MS);
        net.bounce(|octets| octets[octet] ^= 1);
        assert_eq!((net.count("received"), net.count("corrupt")), (0, 1), "octet {octet}");
    }
    let net = net(Lower::link(1500), Settings { size: 20, count: 1, ..settings() });
    net.cx.advance(MS);
    let sent = octets(&net.bottom.take_sent()[0].message);
    for _ in 0..3 {
        net.bottom.inject(&net.cx, None, net.cx.message(&sent));
    }
    net.bottom.inject(&net.cx, None, net.cx.message(&sent[..19]));
    net.bottom.inject(&net.cx, None, net.cx.message(&[]));
    assert_eq!((net.count("received"), net.count("corrupt")), (1, 1));
    assert_eq!(net.count("duplicates"), 3);
    assert_eq!(net.probe.head().drops().total(), 4);
    assert!(net.report().failed, "something came back corrupt");
}

#[test]
fn the_networks_errors_are_counted_by_kind() {
    let net = net(Lower::link(1500), settings());
    for kind in [NetworkErrorKind::PortUnreachable, NetworkErrorKind::TimeExceeded] {
        let error = NetworkError::new(kind);
        assert!(net.probe.ask(&net.cx, error.clone()).is_some());
        assert!(net.probe.ask(&net.cx, error).is_some());
    }
    assert_eq!((net.count("port unreachable"), net.count("time to live exceeded")), (2, 2));
}

#[test]
fn participants_are_those_given() {
    let own = core::net::Ipv4Addr::new(10, 0, 0, 1);
    let settings = Settings { to: vec!["10.0.0.2".parse().unwrap()], ..settings() };
    let net = net(Lower::host(own, 254), settings.clone());
    net.cx.advance(MS);
    let to = Some(Part::Host("10.0.0.2".parse().unwrap()));
    assert_eq!(net.bottom.take_sent()[0].peer, to);
    let settings = Settings { to: vec!["port7".parse().unwrap()], ..settings };
    let net = self::net(Lower::host(own, 254), settings);
    net.cx.advance(MS);
    let report = net.report();
    assert!(report.finished && report.failed);
    assert!(net.figure("not opened").is_some());
}

#[test]
fn several_peers_have_one_session() {
    let to = ["10.0.0.2", "10.0.0.3"].map(|to| to.parse().unwrap());
    let settings = Settings { to: to.into(), count: 1, ..settings() };
    let several = || {
        let lower = Lower::host(core::net::Ipv4Addr::new(10, 0, 0, 1), 254);
        let net = net(lower, settings.clone());
        net.bottom.take_peers();
        net
    };
    let all_answer = several();
    all_answer.run(20);
    assert_eq!((all_answer.bottom.opens(), all_answer.count("sent")), (1, 2));
    assert_eq!((all_answer.count("received"), all_answer.count("lost")), (2, 0));
    let one_answers = several();
    one_answers.cx.advance(MS);
    let sent = one_answers.bottom.take_sent().swap_remove(0);
    one_answers.bottom.inject(&one_answers.cx, sent.peer, sent.message);
    one_answers.cx.advance(200 * MS);
    assert_eq!((one_answers.count("received"), one_answers.count("lost")), (1, 1));
    let lower = Lower::host(core::net::Ipv4Addr::new(10, 0, 0, 1), 254);
    let takes_one = net(lower, settings);
    takes_one.cx.advance(MS);
    let why = takes_one.figure("not opened").unwrap();
    assert!(why.contains("too many participants"), "{why}");
}

#[test]
fn a_broken_stream_ends_it() {
    use xk_kit::net::stream::{StreamError, StreamEvent, StreamNotice};
    let net = net(Lower::link(1500), settings());
    net.cx.advance(MS);
    let sent = net.bottom.take_sent();
    let told = StreamNotice {
        session: sent[0].session.clone(),
        event: StreamEvent::Failed(StreamError::Refused),
    };
    assert!(net.probe.ask(&net.cx, told).is_some());
    assert_eq!((net.count("stream refused"), net.count("lost")), (1, 1));
    let report = net.report();
    assert!(report.finished && report.failed, "{:?}", report.lines);
    let why = ("why".to_owned(), "the stream broke".to_owned());
    assert!(report.lines.contains(&why), "{:?}", report.lines);
    net.cx.advance(10_000 * MS);
    assert_eq!(net.count("sent"), 1, "nothing more goes");
}
