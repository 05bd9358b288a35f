//! Both machines over a network that loses, repeats, delays and reorders, against a model of what
//! "at least once" and "exactly once" promise.

use super::tests::Octets;
use super::*;
use core::num::NonZeroU8;
use core::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;
use xk_testkit::seeds;

/// Splitmix64: the same numbers on each machine, from one seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[derive(Clone, Copy, Debug)]
struct Network {
    loss_percent: u64,
    repeat_percent: u64,
    delay_ms_max: u64,
    in_order: bool,
}

enum Event {
    ToServer { from: u32, header: Header, data: Vec<u8> },
    ToClient { to: u32, header: Header, data: Vec<u8> },
    Reply { ticket: Ticket<u32>, request: Vec<u8> },
}

/// The model's record of one transaction, by requester and number.
#[derive(Default, Debug)]
struct Execution {
    count: u32,
    /// Time at which the last execution began.
    heard: Duration,
    /// A release that took effect came since.
    is_released: bool,
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Outcome {
    done: u32,
    failed: u32,
    executed: u32,
    /// Executed again, after a release or the release timer.
    again: u32,
}

const SERVERS_SOCKET: u8 = 200;
const SERVER: u32 = 0x0001_02c8;
const HOSTS: u32 = 3;

struct World {
    seed: u64,
    chance: Chance,
    network: Network,
    now: Duration,
    last: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    count: u64,
    asks: Vec<Requester<u32, Octets, Vec<u8>>>,
    serves: Responder<u32, Octets>,
    executions: BTreeMap<(u32, u16), Execution>,
    once: bool,
    outcome: Outcome,
}

/// Reply of a server.
fn reply_to(request: &[u8]) -> Vec<u8> {
    let number = request.first_chunk().map_or(0, |o| u32::from_be_bytes(*o));
    let octets = number.wrapping_mul(2_654_435_761) as usize % (REPLY_OCTETS_MAX + 1);
    (0..octets).map(|at| (at as u32 ^ number) as u8).collect()
}

fn client(host: u32) -> u32 {
    (0x100 + host) << 8 | 128
}

impl World {
    fn new(seed: u64, network: Network, once: bool) -> Self {
        let mut chance = Chance(seed);
        let limits = Limits { transactions: 64 };
        let asks = (0..HOSTS).map(|_| Requester::new(limits, chance.next() as u16)).collect();
        Self {
            seed,
            network,
            now: Duration::ZERO,
            last: Duration::ZERO,
            events: BTreeMap::new(),
            count: 0,
            asks,
            serves: Responder::new(Bounds::DEFAULT),
            executions: BTreeMap::new(),
            once,
            outcome: Outcome::default(),
            chance,
        }
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.count += 1;
        self.events.insert((self.now + delay, self.count), event);
    }

    /// Through the network: perhaps not at all, perhaps twice.
    fn carry(&mut self, event: impl Fn() -> Event) {
        let copies = match self.chance.below(100) {
            chance if chance < self.network.loss_percent => 0,
            chance if chance < self.network.loss_percent + self.network.repeat_percent => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let mut delay = Duration::from_millis(self.chance.below(self.network.delay_ms_max + 1));
            if self.network.in_order {
                let at = (self.now + delay).max(self.last);
                self.last = at;
                delay = at - self.now;
            }
            self.after(delay, event());
        }
    }

    /// A packet of the server's.
    fn send(&mut self, packet: Packet<u32, Octets>) {
        let Packet { to, header, data, .. } = packet;
        assert_eq!(Header::parse(&header.emit()), Ok(header));
        let data = data.map_or(Vec::new(), |data| data.0);
        self.carry(|| Event::ToClient { to, header, data: data.clone() });
    }

    /// A packet of a client's.
    fn send_from(&mut self, host: u32, packet: Packet<u32, Octets>) {
        let Packet { header, data, .. } = packet;
        let data = data.map_or(Vec::new(), |data| data.0);
        self.carry(|| Event::ToServer { from: client(host), header, data: data.clone() });
    }

    fn begin(&mut self, host: u32, number: u32) {
        let once = self.once.then_some(ReleaseTimer::HalfMinute);
        let tries = NonZeroU8::new(30);
        let interval = Duration::from_millis(500);
        let want = Want { once, tries, interval, ..Want::DEFAULT };
        let request = number.to_be_bytes().to_vec();
        let (now, place) = (self.now, (128, SERVER));
        let asks = &mut self.asks[host as usize];
        let begun = asks.begin(now, place, &want, Octets(request.clone()), request);
        let (tid, packet) = begun.map_err(|(why, ..)| why).unwrap();
        // The same number for another request is another transaction.
        self.executions.remove(&(client(host), tid));
        self.send_from(host, packet);
    }

    fn serve(&mut self, from: u32, header: Header, data: Vec<u8>) {
        let now = self.now;
        if header.kind == Kind::Release {
            if self.serves.release(self.now, (from, SERVERS_SOCKET), header.tid)
                && let Some(execution) = self.executions.get_mut(&(from, header.tid))
            {
                execution.is_released = true;
            }
            return;
        }
        let verdict = self.serves.request(now, (from, SERVERS_SOCKET), &header);
        let execution = self.executions.entry((from, header.tid)).or_default();
        let since = now - execution.heard;
        execution.heard = now;
        match verdict {
            Verdict::Execute(ticket) => {
                if execution.count > 0 && self.once {
                    let may = execution.is_released || since >= Duration::from_secs(30);
                    assert!(may, "seed {}: executed twice: {execution:?}", self.seed);
                }
                self.outcome.again += u32::from(execution.count > 0);
                execution.count += 1;
                execution.is_released = false;
                self.outcome.executed += 1;
                let work = Duration::from_millis(self.chance.below(1500));
                self.after(work, Event::Reply { ticket, request: data });
            }
            Verdict::Repeat(packets) => packets.for_each(|packet| self.send(packet)),
            Verdict::InProgress => {}
            refused @ (Verdict::Full | Verdict::Unreleased) => {
                panic!("seed {}: {refused:?}", self.seed)
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::ToServer { from, header, data } => self.serve(from, header, data),
            Event::ToClient { to, header, data } => {
                let host = (to >> 8) - 0x100;
                let asks = &mut self.asks[host as usize];
                let heard = asks.response(now, (SERVER, 128), &header, Octets(data));
                match heard {
                    Ok(Heard::Kept(again)) => assert!(again.is_none()),
                    Ok(Heard::Done { owner, wanted, arrived, release }) => {
                        assert!(arrived.end_of_message);
                        let reply = arrived.join(wanted).unwrap();
                        assert_eq!(reply.0, reply_to(&owner), "seed {}", self.seed);
                        let known = self.executions.get(&(to, header.tid));
                        assert!(known.is_some_and(|e| e.count > 0), "seed {}", self.seed);
                        self.outcome.done += 1;
                        if let Some(release) = release {
                            self.send_from(host, release);
                        }
                    }
                    Err((why, _)) => assert_ne!(why, Unheard::TooBig),
                }
            }
            Event::Reply { ticket, request } => {
                let reply = Octets(reply_to(&request));
                let sent = self.serves.reply(now, &ticket, [1; 4], 578, reply);
                match sent {
                    Ok(packets) => packets.for_each(|packet| self.send(packet)),
                    Err((why, _)) => assert_eq!(why, ReplyError::Unknown, "seed {}", self.seed),
                }
            }
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        for host in 0..HOSTS {
            while let Some(due) = self.asks[host as usize].poll(now) {
                match due {
                    Due::Again(packet) => self.send_from(host, packet),
                    Due::Failed { owner, wanted, arrived } => {
                        self.outcome.failed += 1;
                        let part = arrived.join(wanted).map_or(Vec::new(), |part| part.0);
                        assert!(reply_to(&owner).starts_with(&part), "seed {}", self.seed);
                    }
                }
            }
        }
        self.serves.poll(now);
    }

    fn run(mut self, transactions: u32) -> Outcome {
        for number in 0..transactions {
            let host = self.chance.below(u64::from(HOSTS)) as u32;
            self.begin(host, self.chance.0 as u32 ^ number);
            let until = self.now + Duration::from_millis(self.chance.below(800));
            self.go_on(until);
        }
        self.go_on(self.now + Duration::from_secs(120));
        assert!(self.asks.iter().all(Requester::is_empty), "seed {}", self.seed);
        assert_eq!((self.serves.len(), self.serves.octets()), (0, 0), "seed {}", self.seed);
        self.outcome
    }

    fn go_on(&mut self, until: Duration) {
        loop {
            let dues = self.asks.iter().filter_map(Requester::due).chain(self.serves.due());
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = dues.chain(event).min().filter(|next| *next <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            while let Some(first) = self.events.first_entry().filter(|e| e.key().0 <= self.now) {
                let event = first.remove();
                self.happen(event);
            }
            self.expire();
        }
    }
}

/// The cost of a seed.
const COST: u64 = 5;

const BAD: Network =
    Network { loss_percent: 15, repeat_percent: 10, delay_ms_max: 900, in_order: false };

#[test]
fn at_least_once_is_at_least_once() {
    let sum = seeds::of(COST).sum(|seed| {
        let out = World::new(seed, BAD, false).run(30);
        assert_eq!(out.done + out.failed, 30, "seed {seed}");
        [out.again.into()]
    });
    assert_ne!(sum, Some([0]), "it is executed more than once");
}

#[test]
fn exactly_once_is_not_executed_twice_within_its_release_timer() {
    seeds::of(COST).run(|seed| {
        let out = World::new(seed, BAD, true).run(30);
        assert_eq!(out.done + out.failed, 30, "seed {seed}");
    });
}

/// Exactly once holds where no packet overtakes another: only a release could let a second
/// execution happen, and it comes behind all requests.
#[test]
fn in_order_exactly_once_is_never_executed_twice() {
    seeds::of(COST).run(|seed| {
        let network = Network { in_order: true, ..BAD };
        let out = World::new(seed, network, true).run(30);
        assert_eq!((out.again, out.done + out.failed), (0, 30), "seed {seed}");
        assert!(out.executed >= out.done && out.executed <= 30, "seed {seed}: {out:?}");
    });
}

/// Without faults every transaction is done, and executed once.
#[test]
fn without_faults_all_is_done_and_executed_once() {
    let network = Network { loss_percent: 0, repeat_percent: 0, delay_ms_max: 5, in_order: true };
    for once in [false, true] {
        for seed in 0..20 {
            let out = World::new(seed, network, once).run(30);
            assert_eq!((out.done, out.failed), (30, 0), "seed {seed}");
            assert!(!once || out.executed == 30, "seed {seed}: {out:?}");
        }
    }
}
