//! The wire in a kernel, without protocols above.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use xk_core::control::Describe;
use xk_core::graph::{BuildError, Look, Params, Value};
use xk_core::message::PoolConfig;
use xk_core::{Kernel, Participants, Pool, ProtocolRef, SessionRef};
use xk_testkit::conformance::wire::{self, WireFixture};
use xk_testkit::kernel::{HEADROOM, TestKernel, Top};
use xk_testkit::needs_root;
use xk_xdp::{ENTRY, Fate, Mode, XdpSocket};

use crate::scene::{MODES, open, pair};

/// A wire on `v0` in a kernel of its own, and a socket at the far end.
struct Fixture<'a> {
    cx: TestKernel,
    wire: ProtocolRef,
    far: &'a RefCell<XdpSocket>,
}

fn params(mode: Mode, more: &[(&'static str, Value)]) -> Params {
    let mut params = Params::default();
    params.set("device", Value::Text("v0".into()));
    params.set("mode", Value::Text(mode.to_string()));
    params.set("share", Value::Text("nothing".into()));
    for (name, value) in more {
        params.set(name, value.clone());
    }
    params
}

fn build(cx: &Kernel, params: &Params) -> Result<ProtocolRef, BuildError> {
    ENTRY.add(cx, "xdp", &[], params)
}

impl<'a> Fixture<'a> {
    fn new(cx: TestKernel, params: &Params, far: &'a RefCell<XdpSocket>) -> Self {
        let wire = build(&cx, params).unwrap_or_else(|error| panic!("{error:?}"));
        cx.start().expect("a start");
        Self { cx, wire, far }
    }

    /// Polls until so many frames have come, or for so long; gives how many came.
    fn poll(&self, count: usize, patience_ms: u64) -> usize {
        let begun = Instant::now();
        let mut came = 0;
        while came < count && begun.elapsed() < Duration::from_millis(patience_ms) {
            came += self.wire.wire().unwrap().poll(&self.cx, &self.wire, 64);
        }
        came
    }

    fn flush(&self) {
        self.wire.wire().unwrap().flush(&self.cx, &self.wire);
    }

    /// Frames that have come to the far end.
    fn far(&self, count: usize) -> Vec<Vec<u8>> {
        let begun = Instant::now();
        let mut came = Vec::new();
        while came.len() < count && begun.elapsed() < Duration::from_secs(1) {
            self.far.borrow_mut().receive(64, |frame| {
                came.push(frame.to_vec());
                Fate::Done
            });
        }
        came
    }

    fn drops(&self, reason: &str) -> u64 {
        let drops = self.wire.head().drops().list();
        drops.iter().filter(|(known, _)| known.name == reason).map(|(_, count)| *count).sum()
    }
}

impl WireFixture for Fixture<'_> {
    fn cx(&self) -> &Kernel {
        &self.cx
    }

    fn wire(&self) -> &ProtocolRef {
        &self.wire
    }

    fn arrive(&self, octets: &[u8]) {
        assert!(self.far.borrow_mut().transmit(octets));
        assert!(self.far.borrow_mut().flush().unwrap());
        assert_eq!(self.poll(1, 1000), 1, "a frame comes");
    }
}

/// Runs `work` where `v0` is, with a socket on the other end.
fn beside(label: &str, work: impl Fn(Mode, &RefCell<XdpSocket>) + Send + Sync) {
    for mode in MODES {
        let pair = pair(label);
        let far = open(&pair.right, "v1", Mode::Generic);
        let inside = || work(mode, &RefCell::new(far));
        pair.left.enter(inside).unwrap();
    }
}

pub(crate) fn keeps_the_laws() {
    needs_root!("ip");
    beside("xdp laws", |mode, far| {
        wire::all(|| Fixture::new(TestKernel::new(1), &params(mode, &[]), far));
    });
}

fn opened(fixture: &Fixture<'_>, top: &Top) -> SessionRef {
    top.open(&fixture.cx, &fixture.wire, Participants::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn described(session: &SessionRef, cx: &Kernel) -> String {
    session.ask(cx, Describe::default()).unwrap().text
}

pub(crate) fn frames_are_messages_where_they_lie() {
    needs_root!("ip");
    beside("xdp in place", |mode, far| {
        let fixture = Fixture::new(TestKernel::new(1), &params(mode, &[]), far);
        let cx = &fixture.cx;
        let top = Top::add(cx, "top");
        let session = opened(&fixture, &top);
        for octets in [14, 60, 700, 1514] {
            let frame: Vec<u8> = (0..octets).map(|at| (at * 3) as u8).collect();
            fixture.arrive(&frame);
            let mut came = top.take_received();
            let mut message = came.pop().unwrap().message;
            assert!(message.eq_octets(&frame) && message.single_slice().is_some());
            assert!(message.lies_in(cx.pool()) && message.headroom() >= HEADROOM);
            // It goes out from where it came in, and is its own again.
            message.front_mut().unwrap()[13] ^= 0xff;
            let (live, expected) = (cx.live(), message.octets().collect::<Vec<u8>>());
            session.push(cx, message).unwrap();
            fixture.flush();
            assert_eq!(fixture.far(1), [expected]);
            for _ in 0..200 {
                fixture.wire.wire().unwrap().poll(cx, &fixture.wire, 64);
            }
            assert_eq!(cx.live(), (live.0 - 1, live.1 - 1), "{mode}: all come back");
        }
        let text = described(&session, cx);
        assert!(text.ends_with("queues: 1, copied: 0"), "{text}");
        assert!(text.contains(&mode.to_string()), "{text}");

        // In two pieces; from another pool; the same octets twice at a time.
        let mut pieces = cx.message(&[7; 40]);
        pieces.join(cx.message(&[8; 40]));
        let other = Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap();
        let alien = other.copy_from(0, &[9; 60]).unwrap();
        let first = cx.message(&[10; 60]);
        let second = first.try_clone().unwrap();
        for message in [pieces, alien, first, second] {
            session.push(cx, message).unwrap();
        }
        fixture.flush();
        let came = fixture.far(4);
        assert_eq!(came[0], [[7; 40], [8; 40]].concat());
        assert_eq!(came[1..], [vec![9; 60], vec![10; 60], vec![10; 60]]);
        let text = described(&session, cx);
        assert!(text.ends_with("copied: 3"), "{text}");
        assert_eq!(fixture.wire.head().drops().total(), 0);
    });
}

pub(crate) fn arrivals_leave_the_pool_room() {
    needs_root!("ip");
    beside("xdp pool", |mode, far| {
        let octets = 4 << 20;
        let pool = Pool::new(&PoolConfig::with_octets_max(octets)).unwrap();
        let cx = TestKernel::with_pool(1, pool);
        let fixture = Fixture::new(cx, &params(mode, &[("frames", Value::Integer(512))]), far);
        let cx = &fixture.cx;
        let top = Top::add(cx, "top");
        let session = opened(&fixture, &top);
        // A reader that keeps all that comes has 1024 buffers, of which up to 512 wait for
        // arrivals; then frames are lost.
        for _ in 0..40 {
            for _ in 0..64 {
                assert!(far.borrow_mut().transmit(&[1; 60]));
            }
            far.borrow_mut().flush().unwrap();
            fixture.poll(64, 20);
        }
        let kept = top.take_received();
        // Now and then a larger buffer does as well.
        assert!((1024..1040).contains(&kept.len()), "{mode}: {}", kept.len());
        assert!(cx.pool().alloc(0, 200).is_ok(), "others have room left");
        cx.advance(Duration::from_secs(2));
        fixture.poll(1, 20);
        let lost = 40 * 64 - kept.len() as u64;
        assert_eq!(fixture.drops("lost in device"), lost, "{mode}");
        let before = top.received();
        drop(kept);
        // A look now and then lends again.
        for _ in 0..200 {
            fixture.wire.wire().unwrap().poll(cx, &fixture.wire, 64);
        }
        for at in 0..100 {
            fixture.arrive(&[at; 60]);
        }
        assert_eq!(top.received(), before + 100);
        drop(session);
    });
}

pub(crate) fn impossible_settings_are_told() {
    needs_root!("ip");
    let pair = pair("xdp settings");
    let inside = || {
        let told = |cx: &Kernel, more: &[(&'static str, Value)]| {
            let error = build(cx, &params(Mode::Generic, more)).err();
            format!("{:?}", error.expect("an error"))
        };
        let cx = TestKernel::new(1);
        let text = told(&cx, &[("frames", Value::Integer(16384))]);
        assert!(text.contains("more than one in 4") && text.contains("fewer frames"), "{text}");
        let text = told(&cx, &[("queues", Value::Integer(2))]);
        assert!(text.contains("no queue 1"), "{text}");
        let text = told(&cx, &[("device", Value::Text("none".into()))]);
        assert!(text.contains("v0"), "{text}");
        let text = told(&cx, &[("share", Value::Text("10.0.0".into()))]);
        assert!(text.contains("EtherTypes"), "{text}");
        let probe = ENTRY.probe.unwrap();
        assert!(probe(&params(Mode::Auto, &[]), Look::Machine).is_ok());
        let none = params(Mode::Auto, &[("device", Value::Text("none".into()))]);
        assert!(probe(&none, Look::Machine).is_err());
    };
    pair.left.enter(inside).unwrap();
}
