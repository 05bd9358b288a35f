//! A host cut between two threads and between two processes, beside an uncut one.

mod half;
mod processes;
mod threads;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use half::Half;
use xk_core::object::PushError;
use xk_core::{HostAddr, Kernel, Message, Part, Participant, Participants};
use xk_domains::LOST;
use xk_kit::control::IsLocalHost;
use xk_kit::net::groups::{Filter, JoinHost, LeaveHost, Membership};
use xk_run::Idle;
use xk_testkit::kernel::{Received, Top};

/// Loops that sleep soon: a test has fewer processors than loops.
const IDLE: Idle = Idle::Adaptive { spin_max: Duration::from_micros(5) };
/// The port that the far host answers.
const FAR_PORT: u16 = 7;
/// The port that the near host answers.
const NEAR_PORT: u16 = 9;
/// The longest datagram of UDP over IPv4 (RFC 768, RFC 791), in octets.
const DATAGRAM_OCTETS_MAX: usize = 65_507;

/// A path for a wire between hosts, removed with it.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("xk-ring-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// The graph of host 1 or 2 at this wire.
    fn host(&self, number: u8) -> String {
        let path = self.0.join("wire");
        format!(
            "host h {{ shm path={path:?} slots=256; eth shm; arp eth
                ip arp {{ address \"10.0.0.{number}/24\"; }}
                icmp ip; udp ip }}"
        )
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn host(number: u8) -> Part {
    Part::Host(HostAddr::from([10, 0, 0, number]))
}

/// Octets that differ from place to place.
fn octets(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn message_of(half: &Half, octets: &[u8]) -> Message {
    half.cx().pool().copy_from(128, octets).unwrap()
}

/// Ends the loops of other threads when it is dropped.
#[derive(Clone, Default)]
struct Signals {
    stop: Arc<AtomicBool>,
    /// Number of errors that the far host was told of.
    errors: Arc<AtomicU32>,
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The far host, uncut: answers each datagram with its octets. For one that begins with `!` it
/// sends one to the open port of the near host, and one to a closed port.
fn far(text: &str, stop: &AtomicBool, errors: &AtomicU32) {
    let far = Half::new(text, IDLE, None);
    let (cx, udp) = (far.cx(), far.node("udp"));
    let enabled = Participants::local(Part::port(FAR_PORT));
    let _ = far.top.enable(cx, udp, enabled).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let (top, before) = (far.top.clone(), far.top.received());
        let came = Rc::new(move |_: &Kernel| top.received() > before);
        far.runner.run(Some(Duration::from_millis(5)), came).unwrap();
        for Received { session, message, .. } in far.top.take_received() {
            if !message.eq_octets(b"!") {
                let _ = session.push(cx, message);
                continue;
            }
            for port in [NEAR_PORT, 99] {
                let to = Participant::of(host(1)).with(Part::port(port));
                let ends = Participants::pair(Part::port(6000 + port), to);
                let session = far.top.open(cx, udp, ends).unwrap();
                // What came of the one before.
                if session.push(cx, message_of(&far, b"ping")) == Err(PushError::Unreachable) {
                    errors.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Checks what a protocol above `udp` of host 1 sees, wherever the cut lies: octets both ways, of
/// all lengths; a session made for an enable; what it refuses told to the sender, which counts
/// `errors`; a close.
fn converse(near: &Half, errors: Option<&AtomicU32>) {
    let (cx, udp) = (near.cx(), near.node("udp"));
    let there = Participant::of(host(2)).with(Part::port(FAR_PORT));
    let participants = Participants::pair(Part::port(5000), there);
    let session = near.top.open(cx, udp, participants).unwrap();
    for count in [0, 1, 40, 108, 109, 1400, 3000, 30_000, DATAGRAM_OCTETS_MAX] {
        near.until(&format!("{count} octets come back"), |received| {
            // At first there is no wire, and no address; later a wire of few slots.
            match session.push(cx, message_of(near, &octets(count))) {
                Ok(()) | Err(PushError::Unreachable | PushError::QueueFull) => {}
                Err(error) => panic!("{count} octets: {error:?}"),
            }
            received.iter().any(|message| message.eq_octets(&octets(count)))
        });
    }
    let too_long = message_of(near, &octets(DATAGRAM_OCTETS_MAX + 1));
    assert_eq!(session.push(cx, too_long), Err(PushError::TooBig));

    assert!(!has_joined(near) && udp.ask(cx, JoinHost { membership: all() }).is_some());
    assert!(has_joined(near) && udp.ask(cx, JoinHost { membership: all() }).is_some());
    assert!(udp.ask(cx, LeaveHost { membership: all() }).is_some());
    assert!(has_joined(near), "joins count");

    let enable = near.top.enable(cx, udp, Participants::local(Part::port(NEAR_PORT))).unwrap();
    let is_told = || errors.is_none_or(|errors| errors.load(Ordering::Relaxed) > 0);
    near.until("a session is made for an enable, and a refusal is told", |received| {
        session.push(cx, message_of(near, b"!")).unwrap();
        received.iter().any(|message| message.eq_octets(b"ping")) && is_told()
    });
    assert!(!near.top.take_opened().is_empty());
    udp.open_disable(cx, enable);
    session.close(cx);
    near.runner.flush();
}

/// A membership in a group of the host.
fn all() -> Membership {
    let group = HostAddr::from([239, 1, 2, 3]);
    Membership { group, on: HostAddr::UNSPECIFIED, filter: Filter::ALL }
}

/// Whether host 1 is a member of the group.
fn has_joined(half: &Half) -> bool {
    let asked = IsLocalHost { host: all().group, local: false };
    half.node("ip").ask(half.cx(), asked).unwrap().local
}

/// The lower half after the upper one has gone, in whatever way: nothing of it is left.
fn outlives(below: &Half, kind: &'static str) {
    let port = below.port.clone().unwrap();
    below.run_until("the other half is seen gone", move || port.is_lost());
    let drops = below.wire.as_ref().unwrap().head().drops();
    assert_eq!(drops.of(&LOST), 1, "counted once");
    let next = Top::add_kind(below.cx(), kind, "next");
    let (lower, enabled) = match kind {
        "udp" => ("ip", Part::Any),
        _ => ("udp", Part::port(NEAR_PORT)),
    };
    let again = next.enable(below.cx(), below.node(lower), Participants::local(enabled));
    assert!(again.is_ok(), "its enables are withdrawn: {again:?}");
    assert!(!has_joined(below), "its joins are taken back");
}
