//! The programs of one user take all that they can of what all users share: a program of another
//! user and the host's own servers are served as before, and nothing grows.
//!
//! `XK_LONG=1` has 100,000 programs come and go while ten million frames cross a door.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xk_peers::testbed::{LINUX, OURS, PROGRAM_TIME_MAX, Wire, end};
use xk_testkit::needs_root;
use xk_testkit::netns::{Running, Space};

use super::{
    ANSWERED_PERCENT_MIN, GROWTH_KIB_MAX, HONEST, HONEST_PORT, HOSTILE, HOSTILE_NUMBER,
    HOSTILE_PORT, LATE, PAUSE, Place, is_long, memory,
};

/// Bounds the sessions of each transport of the host.
pub(super) const SESSIONS_MAX: usize = 512;
/// A port of Linux's that takes connections.
pub(super) const HELD_PORT: u16 = 20_000;
/// Number of programs, or connections, of a kind that a hostile program has at once: as many
/// programs as a user may have.
pub(super) const SILENT: u16 = xk_attach::PROGRAMS_OF_A_USER_MAX as u16;
/// Number of programs that come and go, and of frames that cross a door, if there is time: with
/// `XK_LONG=1` there is.
pub(super) const PROGRAMS: u64 = 100_000;
pub(super) const FRAMES: u64 = 10_000_000;

/// Kinds of hostile programs, one after the other.
const ALL: [&str; 8] = [
    "hoards",
    "hoards-streams",
    "lingers",
    "keeps-silent",
    "probes",
    "half-made",
    "comes-again",
    "floods",
];
/// With `XK_LONG=1` what they do to the end, and how long that may take, in seconds.
const TO_THE_END: [&str; 2] = ["comes-again", "floods"];
const LONG_SECONDS: u64 = 3600;
/// The longest wait of others, as a multiple of their median wait beside programs that only
/// compute, one for each processor: these, too, slow others down, whatever a host does.
const SLOWER_MAX: u32 = 20;
/// Largest number of descriptors of one user that a process of the host has: an eighth of all.
const DESCRIPTORS_MAX: usize = 512;
/// Questions asked at least while hostile programs do something, and the rounds that there are for
/// that.
const ASKED_MIN: usize = 100;
const ROUNDS_MAX: usize = 8;
/// Questions by UDP between two connections.
const CONNECT_EVERY: usize = 4;

/// The processes of the host, and how many descriptors each had before.
type Host<'a> = (&'a Running, &'a BTreeMap<u32, usize>);

/// Times that others waited: for datagrams that an honest program answers, and for connections to
/// the host's own server.
#[derive(Default)]
struct Waits {
    datagrams: Vec<Duration>,
    connections: Vec<Duration>,
    asked: usize,
}

impl Waits {
    fn medians(&mut self) -> [Duration; 2] {
        [&mut self.datagrams, &mut self.connections].map(|all| {
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(Duration::MAX)
        })
    }

    /// Adds what was heard in another round.
    fn add(&mut self, other: Self) {
        self.datagrams.extend(other.datagrams);
        self.connections.extend(other.connections);
        self.asked += other.asked;
    }

    fn answered(&self) -> usize {
        self.datagrams.len() + self.connections.len()
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, all) in [("udp", &self.datagrams), ("tcp", &self.connections)] {
            let of = |percent: usize| all.get(all.len() * percent / 100).copied();
            let [half, most] = [50, 99].map(|percent| of(percent).unwrap_or_default());
            write!(f, "{name} {half:.0?} ({most:.0?} for 99 of 100), ")?;
        }
        write!(f, "{} of {} answered", self.answered(), self.asked)
    }
}

/// Asks the honest program and the host's own server until it is told to stop.
fn waits(linux: &Space, is_over: &AtomicBool) -> Waits {
    let ask = || {
        let socket = UdpSocket::bind((LINUX, 0)).unwrap();
        socket.set_read_timeout(Some(LATE)).unwrap();
        let mut waits = Waits::default();
        while !is_over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let number = waits.asked.to_le_bytes();
            let _ = socket.send_to(&number, (OURS, HONEST_PORT));
            let mut back = [0; 8];
            // Answers to questions before may be late.
            while socket.recv(&mut back).is_ok() {
                if back == number {
                    waits.datagrams.push(begun.elapsed());
                    break;
                }
            }
            waits.asked += 1;
            if waits.asked.is_multiple_of(CONNECT_EVERY + 1) {
                waits.connections.extend(connects());
                waits.asked += 1;
            }
            std::thread::sleep(PAUSE);
        }
        waits
    };
    linux.enter(ask).unwrap()
}

/// Times a connection to the host's own server, with its answer.
fn connects() -> Option<Duration> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect_timeout(&ours(7), LATE).ok()?;
    stream.set_read_timeout(Some(LATE)).ok()?;
    stream.write_all(b"there?").ok()?;
    stream.read_exact(&mut [0; 6]).ok()?;
    Some(begun.elapsed())
}

fn ours(port: u16) -> SocketAddr {
    let host: Ipv4Addr = OURS.parse().expect("an address");
    (host, port).into()
}

/// Sends SYNs to the ports that silent programs have enabled until it is told to stop.
fn knocks(linux: &Space, is_over: &AtomicBool) {
    let knock = || {
        while !is_over.load(Ordering::Relaxed) {
            for at in 0..SILENT {
                let _ = TcpStream::connect_timeout(&ours(HOSTILE_PORT + at), PAUSE);
            }
        }
    };
    linux.enter(knock).unwrap();
}

impl Place {
    /// Waits of others while hostile programs do this, together. No process of the host has many
    /// more descriptors than `open` meanwhile.
    fn others_wait(&self, (host, open): Host<'_>, what: &[&str], seconds: u64) -> Waits {
        let (linux, is_over) = (&self.lan.linux, AtomicBool::new(false));
        let start = |what: &&str| self.program(HOSTILE, what, seconds);
        let patience = PROGRAM_TIME_MAX + Duration::from_secs(seconds);
        let mut waits = std::thread::scope(|scope| {
            let asking = scope.spawn(|| waits(linux, &is_over));
            let counting = scope.spawn(|| most_descriptors(host, &is_over));
            if what.contains(&"keeps-silent") {
                scope.spawn(|| knocks(linux, &is_over));
            }
            let programs: Vec<Running> = what.iter().map(start).collect();
            std::thread::sleep(Duration::from_millis(300));
            let comer = self.program(HONEST, "is-let-in", 1);
            let let_in = comer.wait(2 * PROGRAM_TIME_MAX);
            let ended = programs.iter().map(|program| program.wait(patience));
            let ended: Vec<_> = ended.collect();
            if programs.is_empty() {
                std::thread::sleep(Duration::from_secs(seconds));
            }
            is_over.store(true, Ordering::Relaxed);
            let waits = asking.join().expect("no panic");
            for (process, most) in counting.join().expect("no panic") {
                let before = open.get(&process).copied().unwrap_or_default();
                let is_few = most <= before + DESCRIPTORS_MAX;
                assert!(is_few, "{what:?}: {process}: {before} descriptors, then {most}");
            }
            assert!(let_in.unwrap().success(), "{what:?}: an honest one: {}", comer.output());
            for ((what, program), status) in what.iter().zip(&programs).zip(ended) {
                assert!(status.unwrap().success(), "{what}: {}", program.output());
                println!("{what}: {}", program.output().lines().last().unwrap_or_default());
            }
            waits
        });
        let _ = waits.medians();
        println!("{what:?}: {waits}");
        waits
    }
}

/// Counts the descriptors of each process of the host.
fn descriptors(host: &Running) -> BTreeMap<u32, usize> {
    let open = |process| fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
    memory(host).into_keys().map(|process| (process, open(process))).collect()
}

/// The most of them at one time until it is told to stop.
fn most_descriptors(host: &Running, is_over: &AtomicBool) -> BTreeMap<u32, usize> {
    let mut most = BTreeMap::new();
    while !is_over.load(Ordering::Relaxed) {
        for (process, open) in descriptors(host) {
            let most = most.entry(process).or_insert(open);
            *most = open.max(*most);
        }
        std::thread::sleep(20 * PAUSE);
    }
    most
}

/// The memory of each process of the host, beside what it was before.
fn grown(host: &Running, before: &BTreeMap<u32, u64>) {
    let after = memory(host);
    println!("KiB before {before:?}, after {after:?}");
    for (process, before) in before {
        let after = after.get(process).copied();
        let after = after.unwrap_or_else(|| panic!("{process} has ended"));
        assert!(after <= before + GROWTH_KIB_MAX, "{process}: {before} KiB, then {after}");
    }
}

pub(crate) fn others_are_served_as_before(wire: Wire) {
    needs_root!("ip", "tcpdump", "setpriv");
    let Some(place) = Place::new("granted-shares", wire) else {
        return;
    };
    let of = |uid| format!("uid={uid}");
    let (honest, hostile) = (of(HONEST), of(HOSTILE));
    // What is flooded lies behind the same cut as what others need. With the usual `loop_max` an
    // eighth of it, 256 packets, goes ahead of others' in one burst, and the cut loses some.
    let domains = format!(
        "domain net {{\nip arp {{ address \"{OURS}/24\"; }}\nicmp ip\n\
         udp ip sessions_max={SESSIONS_MAX}\ntcp ip sessions_max={SESSIONS_MAX}\n}}\n\
         domain apps {{ echo udp port=7; echo tcp port=7 name=streams; }}"
    );
    let grants = format!(
        "grant udp port=\"{HONEST_PORT}..6999\" {honest}\n\
         grant tcp port=\"{HONEST_PORT}..6999\" {honest}\n\
         grant udp port=\"{HOSTILE_PORT}..5999\" {hostile}\n\
         grant tcp port=\"{HOSTILE_PORT}..5999\" {hostile}\n\
         grant ip number=\"{HOSTILE_NUMBER}..254\" {hostile}"
    );
    let Some(host) = place.victim(&domains, &grants) else {
        return;
    };
    let listen = || TcpListener::bind((LINUX, HELD_PORT)).unwrap();
    let _held = place.lan.linux.enter(listen).unwrap();
    let honest = place.program(HONEST, "answers", 7200);
    place.is_served();
    let open = descriptors(&host);
    let wait = |what: &[&str], seconds| place.others_wait((&host, &open), what, seconds);
    // All once, until memory is known.
    for what in &ALL {
        drop(wait(&[what], 1));
    }
    let long = if is_long() { 10 } else { 2 };
    let quiet = wait(&[], long).medians();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let shared = wait(&vec!["computes"; processors], long).medians();
    let before = memory(&host);
    let mut slower = Vec::new();
    let mut suffer = |what: &[&str], seconds| {
        let mut waits = wait(what, seconds);
        // A few tell little: on a busy machine more rounds ask as many.
        for _ in 1..ROUNDS_MAX {
            if waits.asked < ASKED_MIN {
                waits.add(wait(what, seconds));
            }
        }
        let (answered, asked) = (waits.answered() as u64, waits.asked as u64);
        assert!(100 * answered >= ANSWERED_PERCENT_MIN * asked, "{what:?}: {waits}");
        for ((wait, quiet), shared) in waits.medians().into_iter().zip(quiet).zip(shared) {
            slower.push([quiet, shared].map(|of| wait.as_secs_f64() / of.as_secs_f64()));
            let most = quiet.max(shared) * SLOWER_MAX;
            assert!(wait <= most, "{what:?}: {wait:?}, of {quiet:?} and {shared:?} before");
        }
    };
    match is_long() {
        true => suffer(&TO_THE_END, LONG_SECONDS),
        false => ALL.iter().for_each(|what| suffer(&[what], 1)),
    }
    println!("as long as on a quiet host, and beside programs that compute: {slower:.2?} times");
    grown(&host, &before);
    place.is_served();
    drop(honest.stop());
    assert!(end(&host).success(), "{}", host.output());
}
