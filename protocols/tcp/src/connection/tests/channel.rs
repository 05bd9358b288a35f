//! The channel, and the two machines at its ends.

use super::super::*;
use crate::wire::HEADER_LEN_MAX;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::Pool;
use xk_core::message::PoolConfig;
use xk_core::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }
}

/// Faults, each as a number of a million segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) loss: u32,
    pub(super) repeat: u32,
    pub(super) reorder: u32,
    /// Runs of segments are handed down, and cut before they go.
    pub(super) runs: bool,
}

const DELAY: Duration = Duration::from_millis(5);
/// No test needs longer than this.
const END: Duration = Duration::from_secs(3600);

struct End {
    /// `None` while it listens.
    machine: Option<Connection>,
    settings: Settings,
    ends: Ends,
    to_write: VecDeque<u8>,
    got: Vec<u8>,
    failed: Option<StreamError>,
    shut_when_written: bool,
    drops: u64,
    /// Lead of its clock over the channel's.
    ahead: Duration,
}

pub(super) struct Channel {
    pub(super) now: Time,
    pool: Pool,
    random: Random,
    faults: Faults,
    ends: [End; 2],
    /// Arrival, number, receiver, octets.
    wire: Vec<(Time, u64, Side, Vec<u8>)>,
    count: u64,
    /// Source of chance for moves of a machine, and their number in a million.
    moves: Option<(Random, u32)>,
    younger: bool,
    pub(super) moved: u32,
    /// Log of segments, for tests that look at it: sender, header, octets of data.
    pub(super) log: Vec<(Time, Side, Header, usize)>,
}

pub(super) fn ends(local: u16, peer: u16) -> Ends {
    Ends { local, peer, path: 1480, clock_offset: u32::from(local) << 20 }
}

impl Channel {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self::with(seed, faults, Settings::default())
    }

    pub(super) fn with(seed: u64, faults: Faults, settings: Settings) -> Self {
        let end = |local, peer| End {
            machine: None,
            settings: settings.clone(),
            ends: ends(local, peer),
            to_write: VecDeque::new(),
            got: Vec::new(),
            failed: None,
            shut_when_written: false,
            drops: 0,
            ahead: Duration::ZERO,
        };
        let mut channel = Self {
            // A pace so slow that it has saved more than the clock shows has saved what that shows.
            now: Time::from_s(3600),
            pool: Pool::new(&PoolConfig::with_octets_max(64 << 20)).unwrap(),
            random: Random::new(seed),
            faults,
            ends: [end(1, 2), end(2, 1)],
            wire: Vec::new(),
            count: 0,
            moves: None,
            younger: false,
            moved: 0,
            log: Vec::new(),
        };
        channel.open(Side::A);
        channel
    }

    pub(super) fn both_open(seed: u64) -> Self {
        let mut channel = Self::new(seed, Faults::default());
        channel.open(Side::B);
        channel
    }

    fn open(&mut self, side: Side) {
        let iss = Seq(self.random.next_u32());
        let now = self.now;
        let end = self.end(side);
        end.machine = Some(Connection::open(end.settings.clone().into(), end.ends, iss, now));
    }

    fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    pub(super) fn machine(&mut self, side: Side) -> &mut Connection {
        self.end(side).machine.as_mut().expect("it is open")
    }

    pub(super) fn write(&mut self, side: Side, octets: &[u8]) {
        self.end(side).to_write.extend(octets);
    }

    pub(super) fn shut(&mut self, side: Side) {
        self.machine(side).shut();
    }

    pub(super) fn shut_later(&mut self) {
        for end in &mut self.ends {
            end.shut_when_written = true;
        }
    }

    pub(super) fn got(&self, side: Side) -> &[u8] {
        &self.ends[side as usize].got
    }

    pub(super) fn state(&self, side: Side) -> State {
        let machine = self.ends[side as usize].machine.as_ref();
        machine.map_or(State::Closed, Connection::state)
    }

    pub(super) fn rcv_nxt(&self, side: Side) -> Seq {
        self.ends[side as usize].machine.as_ref().unwrap().rcv_nxt()
    }

    pub(super) fn snd_una(&self, side: Side) -> Seq {
        self.ends[side as usize].machine.as_ref().unwrap().snd_una()
    }

    pub(super) fn failures(&self) -> (Option<StreamError>, Option<StreamError>) {
        (self.ends[0].failed, self.ends[1].failed)
    }

    pub(super) fn drops(&self) -> u64 {
        self.ends[0].drops + self.ends[1].drops
    }

    /// Lets a segment arrive.
    pub(super) fn inject(&mut self, side: Side, header: &Header, data: &[u8]) {
        let mut octets = [0; HEADER_LEN_MAX];
        let length = header.emit(&mut octets);
        let segment = [&octets[..length], data].concat();
        self.arrive(side, &segment);
        self.take_out(side);
    }

    fn arrive(&mut self, side: Side, octets: &[u8]) {
        let (header, length) = Header::parse(octets).expect("what was written is read");
        let data = &octets[length..];
        let payload = (!data.is_empty()).then(|| self.pool.copy_from(0, data).unwrap());
        let (now, iss) = (self.now, Seq(self.random.next_u32()));
        let end = self.end(side);
        let now = now + end.ahead;
        let machine = match &mut end.machine {
            Some(machine) => machine,
            None if header.flags.has(Flags::SYN) && !header.flags.has(Flags::ACK) => {
                let peer = Syn::of(&header);
                let machine =
                    Connection::accept(end.settings.clone().into(), end.ends, iss, &peer, now);
                end.machine = Some(machine);
                return;
            }
            None => return,
        };
        end.drops += u64::from(machine.segment(now, &header, payload, None).is_err());
    }

    /// Writes machines from now on, in `share` of a million steps, and reads them again where the
    /// clock shows a later time (a `younger` one began just now).
    pub(super) fn moves(&mut self, seed: u64, share: u32, younger: bool) {
        (self.moves, self.younger) = (Some((Random::new(seed), share)), younger);
    }

    /// Perhaps the machine goes on elsewhere from here.
    fn may_move(&mut self, side: Side) {
        let Some((random, share)) = &self.moves else {
            return;
        };
        // The phase of BBR follows from the microsecond, challenges are counted by the second.
        let later = Duration::from_secs(3 * random.below(1000));
        if !random.chance_per_million(*share) {
            return;
        }
        let (now, pool) = (self.now, self.pool.clone());
        let end = &mut self.ends[side as usize];
        let elsewhere = match self.younger {
            // Some show more than the channel's, and the next one less again.
            true => later * (self.moved & 1),
            false => end.ahead + later,
        };
        if let Some(machine) = &mut end.machine
            && let Some(state) = machine.write(&pool, now + end.ahead)
        {
            *machine = Connection::read(&state, &pool, now + elsewhere).expect("what was written");
            let again = machine.write(&pool, now + elsewhere);
            assert!(self.younger || again == Some(state), "each state has one form");
            end.ahead = elsewhere;
            self.moved += 1;
        }
    }

    /// Takes what comes out of a machine.
    fn take_out(&mut self, side: Side) {
        let runs = self.faults.runs;
        loop {
            self.may_move(side);
            let sent_at = self.now;
            let now = self.now + self.end(side).ahead;
            let mut any = self.pump(side);
            let end = self.end(side);
            let Some(machine) = &mut end.machine else {
                return;
            };
            while let Some(message) = machine.deliver() {
                end.got.extend(message.octets());
                any = true;
            }
            while let Some(event) = machine.event() {
                if let StreamEvent::Failed(error) = event {
                    end.failed = Some(error);
                }
                any = true;
            }
            machine.set_runs(runs);
            if let Some(out) = machine.transmit(now) {
                for (header, data) in apart(&out) {
                    self.check_room(side, &header, data.len());
                    let mut octets = [0; HEADER_LEN_MAX];
                    let length = header.emit(&mut octets);
                    self.log.push((sent_at, side, header, data.len()));
                    self.put(side.other(), [&octets[..length], &data].concat());
                }
                any = true;
                if self.log.len() > 1_000_000 {
                    panic!("no end of segments");
                }
            }
            if !any {
                return;
            }
        }
    }

    /// Nothing goes that lies behind the window which the peer has announced, but for the octet of
    /// a probe.
    fn check_room(&self, side: Side, header: &Header, octets: usize) {
        if let Some(peer) = &self.ends[side.other() as usize].machine
            && octets > 0
        {
            let end = header.seq + octets as u32;
            let announced = peer.receive.rcv_adv + 1;
            assert!(end.at_or_before(announced), "{side:?}: {end:?} behind {announced:?}");
        }
    }

    /// Lets the writer write.
    fn pump(&mut self, side: Side) -> bool {
        let pool = self.pool.clone();
        let end = self.end(side);
        let Some(machine) = &mut end.machine else {
            return false;
        };
        if end.to_write.is_empty() {
            if end.shut_when_written {
                end.shut_when_written = false;
                machine.shut();
                return true;
            }
            return false;
        }
        let octets = (machine.space() as usize).min(4000).min(end.to_write.len());
        if octets == 0 {
            return false;
        }
        let data: Vec<u8> = end.to_write.drain(..octets).collect();
        machine.send(pool.copy_from(128, &data).unwrap()).is_ok()
    }

    fn put(&mut self, to: Side, segment: Vec<u8>) {
        let faults = self.faults;
        let chance = |random: &Random, share: u32| random.chance_per_million(share);
        if chance(&self.random, faults.loss) {
            return;
        }
        let copies = 1 + u32::from(chance(&self.random, faults.repeat));
        for _ in 0..copies {
            let mut delay = DELAY;
            if chance(&self.random, faults.reorder) {
                delay += Duration::from_micros(self.random.below(20_000));
            }
            self.count += 1;
            let at = self.now + delay;
            self.wire.push((at, self.count, to, segment.clone()));
        }
    }

    /// Goes on until nothing is to be done any more.
    pub(super) fn run(&mut self) {
        self.run_until(self.now + END);
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    fn run_until(&mut self, end: Time) {
        self.take_out(Side::A);
        self.take_out(Side::B);
        loop {
            let arrival = self.wire.iter().map(|w| (w.0, w.1)).min();
            let deadline = |side: usize| deadline_of(&self.ends[side]);
            let timer = [deadline(0), deadline(1)].into_iter().flatten().min();
            let Some(next) = [arrival.map(|a| a.0), timer].into_iter().flatten().min() else {
                return;
            };
            if next > end {
                self.now = end;
                return;
            }
            self.now = self.now.max(next);
            if let Some((at, number)) = arrival
                && at <= next
            {
                let place = self.wire.iter().position(|w| w.1 == number).unwrap();
                let (_, _, side, segment) = self.wire.swap_remove(place);
                self.arrive(side, &segment);
                self.take_out(side);
                continue;
            }
            for side in [Side::A, Side::B] {
                if deadline_of(self.end(side)).is_some_and(|at| at <= next) {
                    let now = self.now + self.end(side).ahead;
                    self.machine(side).timer(now);
                    self.take_out(side);
                }
            }
        }
    }
}

/// The segments of what goes out.
fn apart(out: &Out) -> Vec<(Header, Vec<u8>)> {
    let data: Vec<u8> = match &out.payload {
        Some(payload) => payload.octets().collect(),
        None => Vec::new(),
    };
    if out.run == 0 {
        return Vec::from([(out.header, data)]);
    }
    assert!(data.len() > out.run.into() && data.len() <= usize::from(u16::MAX));
    let mut all = Vec::new();
    for (at, piece) in data.chunks(out.run.into()).enumerate() {
        let mut header = out.header;
        let offset = at * usize::from(out.run);
        header.seq += offset as u32;
        if offset + piece.len() < data.len() {
            header.flags = header.flags.without(Flags::FIN | Flags::PSH);
        }
        all.push((header, piece.to_vec()));
    }
    all
}

fn deadline_of(end: &End) -> Option<Time> {
    let deadline = end.machine.as_ref().and_then(Connection::deadline);
    deadline.map(|at| at - end.ahead)
}
