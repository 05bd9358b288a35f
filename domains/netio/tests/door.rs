//! Programs fetch their channels at a door: an honest one, and strangers that try what they can.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use xk_core::control::Report;
use xk_core::{Message, Participants, ProtocolRef, reason};
use xk_domains::Arrival;
use xk_kit::net::template::Headers;
use xk_netio::node::{COMERS_OF_A_USER_MAX, Door, TICKET_WITHIN, connect};
use xk_netio::{
    BARE_OF_A_USER_MAX, FORGED, GrantChannel, GrantRight, Module, REVOKED, Rate, RevokeChannel,
    Ticket, UNUSED, VIOLATIONS_MAX,
};
use xk_shm::{Link, Options, Peers};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top, octets};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FREELY: Rate = Rate { octets_per_second: 1 << 40, burst_octets: 1 << 40 };
/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);
/// Octets of a slot, and where those of the side that has asked for the link begin.
const SLOT_OCTETS: usize = 128;
const SLOTS: usize = 512;
const SLOTS_AT: usize = 4096 + SLOTS * SLOT_OCTETS;

/// A module with a tap in place of the wire, and a door.
struct Host {
    cx: TestKernel,
    tap: Bottom,
    netio: ProtocolRef,
    module: Rc<Module>,
    door: ProtocolRef,
    path: PathBuf,
    turned: Cell<Instant>,
}

/// Header of a right's frames: its number, 16 times.
fn header(right: u8) -> [u8; 16] {
    [right; 16]
}

/// A frame of it with so many octets behind.
fn frame(right: u8, behind: usize) -> Vec<u8> {
    let mut frame = header(right).to_vec();
    frame.resize(16 + behind, 0);
    frame
}

impl Host {
    fn new(name: &str) -> Self {
        let cx = TestKernel::new(7);
        let tap = Bottom::add(&cx, "tap", Lower::wire(OURS));
        let (netio, module) = xk_netio::add(&cx, "netio", tap.protocol().clone());
        let path = std::env::temp_dir().join(format!("xk-netio-{name}-{}", std::process::id()));
        let door = Door::open(&cx, "door", &path, Rc::clone(&module)).expect("it opens");
        let top = Top::add(&cx, "top");
        cx.start().expect("it starts");
        // The module knows the wire's session from the first frame on that passes.
        let session = top.open(&cx, &netio, Participants::default()).expect("a session");
        session.push(&cx, cx.message(&[0])).expect("it goes");
        drop(tap.take_sent());
        Self { cx, tap, netio, module, door, path, turned: Cell::new(Instant::now()) }
    }

    /// A channel with one right, and its number.
    fn grant(&self, rate: Rate, right: u8) -> (Ticket, u32) {
        let question = GrantChannel::new(rate);
        let granted = self.netio.ask(&self.cx, question).expect("the module knows it");
        assert_eq!(Path::new(&granted.door), self.path, "it tells where");
        self.right(granted.number, right);
        (granted.ticket.expect("there is room"), granted.number)
    }

    /// One more right of a channel.
    fn right(&self, channel: u32, right: u8) {
        let header = header(right);
        let headers = Headers::of_wire(1500).with((&header, &[]), (&header, &[]));
        let question = GrantRight {
            channel,
            headers: headers.expect("a template"),
            of: (self.netio.id(), Participants::default()),
            number: None,
        };
        let of = self.netio.ask(&self.cx, question).expect("the module knows it");
        assert!(of.number.is_some(), "there is room");
    }

    /// One turn of the loop: what it carried.
    fn turn(&self) -> Vec<Vec<u8>> {
        // Programs take real time.
        let now = Instant::now();
        self.cx.advance(now.duration_since(self.turned.replace(now)));
        let door = self.door.wire().expect("it is one");
        door.poll(&self.cx, &self.door, 64);
        self.module.carry_all(&self.cx, 256);
        self.tap.take_sent().iter().map(|sent| octets(&sent.message)).collect()
    }

    /// Turns until `what` is so; what it carried meanwhile.
    fn until(&self, what: impl Fn(&Self) -> bool) -> Vec<Vec<u8>> {
        let (since, mut carried) = (Instant::now(), Vec::new());
        while !what(self) {
            assert!(since.elapsed() < STEP_TIME_MAX, "{:?}", self.module.counts());
            carried.extend(self.turn());
        }
        carried
    }

    /// Does something beside the loop, which turns meanwhile.
    fn beside<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(act);
        self.until(|_| thread.is_finished());
        thread.join().expect("it ends")
    }

    fn drops(&self, of: &ProtocolRef, why: &'static xk_core::Reason) -> u64 {
        of.head().drops().of(why)
    }

    fn message(&self, octets: &[u8]) -> Message {
        self.cx.message(octets)
    }
}

/// A program that has shown this.
fn stranger(path: &Path, shown: &[u8]) -> Link {
    let options = Options { peers: Peers::Any, geometry: xk_domains::ring::geometry() };
    let mut link = Link::connect(path, &options).expect("it is let in");
    if !shown.is_empty() {
        link.send(shown).expect("there is room");
        link.flush();
    }
    link
}

#[test]
fn a_ticket_fetches_a_channel_once_and_nothing_else_does() {
    let host = Host::new("once");
    let (ticket, _) = host.grant(FREELY, 5);
    let path = host.path.clone();
    let ring = host.beside(move || connect(&path, &ticket).expect("it is let in"));
    host.until(|host| host.module.counts() == (1, 0));
    ring.send(&host.cx, &frame(5, 50), &host.message(&[])).expect("there is room");
    ring.send(&host.cx, &frame(6, 50), &host.message(&[])).expect("there is room");
    assert_eq!(host.until(|host| host.drops(&host.netio, &FORGED) == 1), [frame(5, 50)]);
    let _ = host.tap.inject(&host.cx, None, host.message(&frame(5, 9)));
    assert!(matches!(ring.receive(&host.cx), Arrival::Frame(got) if got.eq_octets(&frame(5, 9))));

    // Again, a guess, part of one, one with more behind, nothing, and the frame of the right.
    let (unused, _) = host.grant(FREELY, 7);
    let more = [&unused[..], &[0]].concat();
    let shown: [&[u8]; 6] = [&ticket, &[0; 16], &unused[..15], &more, &[], &frame(5, 50)];
    for (count, shown) in shown.into_iter().enumerate() {
        let (path, shown) = (host.path.clone(), shown.to_vec());
        let mut link = host.beside(move || stranger(&path, &shown));
        let sent_away =
            |host: &Host| host.drops(&host.door, &reason::PROHIBITED) == count as u64 + 1;
        assert_eq!(host.until(sent_away), [[0; 0]; 0]);
        assert!(link.wait(Some(STEP_TIME_MAX)).is_err(), "{count}: the link has ended");
        assert_eq!(host.module.counts(), (1, 1), "and has fetched nothing");
    }
    // A program that is gone has no channel.
    drop(ring);
    host.until(|host| host.module.counts().0 == 0);
}

#[test]
fn many_that_show_nothing_keep_none_from_its_channel() {
    let host = Host::new("many");
    let (path, count) = (host.path.clone(), 10 * COMERS_OF_A_USER_MAX);
    let idle = host.beside(move || (0..count).map(|_| stranger(&path, &[])).collect::<Vec<Link>>());
    let live = idle.iter().filter(|link| link.check().is_ok()).count();
    assert!(live <= COMERS_OF_A_USER_MAX, "{live} of {count}");
    let (ticket, _) = host.grant(FREELY, 5);
    let path = host.path.clone();
    let ring = host.beside(move || connect(&path, &ticket).expect("it is let in"));
    host.until(|host| host.module.counts() == (1, 0));
    ring.send(&host.cx, &frame(5, 1), &host.message(&[])).expect("there is room");
    xk_testkit::await_that!(STEP_TIME_MAX, host.turn() == [frame(5, 1)], "it takes too long");
    host.cx.advance(TICKET_WITHIN);
    host.turn();
    assert!(idle.iter().all(|link| link.check().is_err()), "all have been sent away");
    assert_eq!(host.drops(&host.door, &reason::PROHIBITED), count as u64);
}

/// Channels that are fetched and have no right hold memory: of a user there is a number of them,
/// and they are listed with the program that has each.
#[test]
fn channels_without_rights_are_few_and_are_listed() {
    let host = Host::new("bare");
    let fetch = |(ticket, number): (Ticket, u32)| {
        let path = host.path.clone();
        (host.beside(move || connect(&path, &ticket).expect("it is let in")), number)
    };
    let bare = || {
        let granted = host.netio.ask(&host.cx, GrantChannel::new(FREELY)).expect("it is known");
        (granted.ticket.expect("there is room"), granted.number)
    };
    let report = || {
        let report = host.door.ask(&host.cx, Report::default()).expect("it says");
        let of = |name: &str| report.lines.iter().find(|(line, _)| line == name).cloned();
        let figure = of("without-right").expect("a figure").1.parse::<usize>().expect("a number");
        (figure, of(&format!("program {}", std::process::id())))
    };
    let (honest, _) = fetch(host.grant(FREELY, 5));
    host.until(|host| host.module.counts() == (1, 0));
    assert_eq!(report(), (0, None));
    let (mut all, many) = (Vec::new(), 3 * BARE_OF_A_USER_MAX);
    for count in 0..many {
        all.push(fetch(bare()));
        let live = (count + 1).min(BARE_OF_A_USER_MAX);
        host.until(|host| host.module.counts() == (1 + live, 0));
        assert_eq!(report().0, live);
    }
    assert!(report().1.is_some_and(|(_, text)| text.contains("of user ")));
    let revoked = host.drops(&host.netio, &UNUSED) as usize;
    assert_eq!(revoked, many - BARE_OF_A_USER_MAX);
    let (gone, stay) = all.split_at(revoked);
    assert!(gone.iter().all(|(ring, _)| ring.is_lost(&host.cx)), "the first make room");
    assert!(stay.iter().all(|(ring, _)| !ring.is_lost(&host.cx)));
    // One that is given a right is none of them any more.
    host.right(stay[0].1, 7);
    assert_eq!(report().0, BARE_OF_A_USER_MAX - 1);
    honest.send(&host.cx, &frame(5, 9), &host.message(&[])).expect("there is room");
    xk_testkit::await_that!(
        STEP_TIME_MAX,
        host.turn() == [frame(5, 9)],
        "what has a right is served"
    );
    // What they have had comes back with their end.
    drop((all, honest));
    host.until(|host| host.module.counts() == (0, 0));
    assert_eq!(report(), (0, None));
}

/// Work of a hostile program each time that it is given a channel, until that is taken away.
type Hostility = fn(&mut Link, round: u64);

/// Gives channels to a hostile program, one after the other, beside an honest one.
fn attacked(name: &str, hostility: Hostility) -> (Host, usize) {
    const CHANNELS: u64 = 12;
    let host = Host::new(name);
    let (ticket, number) = host.grant(FREELY, 5);
    let path = host.path.clone();
    let honest = host.beside(move || connect(&path, &ticket).expect("it is let in"));
    let mut carried = 0;
    for round in 0..CHANNELS {
        let (ticket, _) = host.grant(FREELY, 9);
        let path = host.path.clone();
        let (is_fetched, fetched) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut link = stranger(&path, &ticket);
            fetched.recv().expect("the channel is its own");
            link.receive_beside(1, STEP_TIME_MAX).expect("it is told so");
            for turn in 0..200 {
                if link.check().is_err() {
                    break;
                }
                hostility(&mut link, round << 32 | turn);
            }
        });
        host.until(|host| host.module.counts() == (2, 0));
        is_fetched.send(()).expect("it waits");
        let (since, mut honest_sent, mut honest_seen) = (Instant::now(), 0_usize, 0_usize);
        while !thread.is_finished() || host.module.counts() != (1, 0) || honest_seen < honest_sent {
            assert!(since.elapsed() < STEP_TIME_MAX, "{honest_seen} of {honest_sent}");
            if honest_sent < 1000
                && honest.send(&host.cx, &frame(5, 30), &host.message(&[])).is_ok()
            {
                honest_sent += 1;
            }
            for sent in host.turn() {
                match sent.get(..16) {
                    Some(front) if front == header(5) => honest_seen += 1,
                    Some(front) if front == header(9) => carried += 1,
                    _ => panic!("round {round}: {sent:02x?} was not granted"),
                }
            }
        }
        thread.join().expect("it ends");
    }
    let revoked = host.netio.ask(&host.cx, RevokeChannel { number, was_there: false });
    assert!(revoked.is_some_and(|revoked| revoked.was_there));
    drop(honest);
    (host, carried)
}

/// The next chance of a program that has none of its own.
fn mix(seed: u64) -> u64 {
    let mixed = (seed ^ seed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

#[test]
fn a_frame_that_is_rewritten_while_it_is_checked_goes_as_it_was_checked() {
    let rewrite: Hostility = |link, round| {
        // The first frame was the ticket.
        let slot = (round as u32 as usize + 1) % SLOTS;
        if link.send(&frame(9, 40)).is_err() {
            return;
        }
        link.flush();
        for turn in 0..20_000 + round % 2 {
            let word = if turn % 2 == 0 { [9; 8] } else { [5; 8] };
            link.end().poke(SLOTS_AT + slot * SLOT_OCTETS + 8, u64::from_ne_bytes(word));
        }
    };
    let (host, carried) = attacked("rewritten", rewrite);
    let forged = host.drops(&host.netio, &FORGED);
    println!("{carried} went, {forged} did not fit");
    assert!(carried > 0 && forged > 0, "{carried} went, {forged} did not fit");
}

#[test]
fn wild_figures_in_the_ring_end_its_own_channel_alone() {
    let wild: Hostility = |link, round| {
        let memory = link.end().memory_octets() / 8;
        for turn in 0..8 {
            let chance = mix(round << 8 | turn);
            // Among the figures, in the slots, anywhere; also backwards by one or by all.
            let at = match chance % 4 {
                0 | 1 => (chance >> 8) as usize % 64,
                2 => SLOTS_AT / 8 + (chance >> 8) as usize % (SLOTS * SLOT_OCTETS / 8),
                _ => (chance >> 8) as usize % memory,
            };
            let value = [mix(chance), chance >> 54, u64::MAX, 0][(chance >> 2) as usize % 4];
            link.end().poke(at * 8, value);
            let _ = link.send(&frame(9, 20));
        }
        link.flush();
    };
    attacked("wild", wild);
}

#[test]
fn floods_of_frames_and_what_is_never_received_end_nothing_but_a_channel() {
    let flood: Hostility = |link, round| {
        // Never receives; forged in each octet in its turn, of all lengths.
        for turn in 0..64_u64 {
            let mut forged = frame(9, mix(round + turn) as usize % 1400);
            forged[turn as usize % 16] ^= 1 << (turn / 16);
            let _ = link.send(&forged);
        }
        link.flush();
    };
    let (host, carried) = attacked("flood", flood);
    assert_eq!(carried, 0, "nothing of it goes");
    let revoked = host.drops(&host.netio, &REVOKED);
    assert!(host.drops(&host.netio, &FORGED) >= revoked * u64::from(VIOLATIONS_MAX) && revoked > 0);
}

/// Checks that one word says how arrivals are found, and that an interface belongs to one of the
/// methods alone.
#[test]
fn a_graph_says_how_arrivals_are_found() {
    use xk_core::graph::{BuildError, Params, Value};
    let build = |set: &[(&'static str, &str)]| {
        let cx = TestKernel::new(7);
        let lowers = [Bottom::add(&cx, "tap", Lower::wire(OURS)).protocol().clone()];
        let (entry, mut params) = (&xk_netio::node::ENTRY, Params::default());
        set.iter().for_each(|(name, value)| params.set(name, Value::Text((*value).into())));
        entry.add(&cx, "netio", &lowers, &params).map(drop)
    };
    for words in [&[][..], &[("demux", "map")], &[("demux", "index")]] {
        assert!(build(words).is_ok(), "{words:?}");
    }
    for (words, wrong) in [
        (&[("demux", "bpf")][..], "demux"),
        (&[("uplink", "eth0")], "uplink"),
        (&[("demux", "index"), ("uplink", "eth0")], "uplink"),
    ] {
        let built = build(words);
        let is_told = matches!(built, Err(BuildError::Param { name, .. }) if name == wrong);
        assert!(is_told, "{words:?}: {built:?}");
    }
}
