//! Calls are executed at most once, against a model: two clients and a server on a network that
//! loses, doubles, delays and splits, whose hosts crash and boot again. Every choice comes from one
//! seed.

use super::*;
use crate::conformance::messages::pattern;
use crate::seeds;
use std::collections::HashMap;
use xk_core::object::CallCause;
use xk_core::random::Random;
use xk_core::shepherd::Semaphore;

/// Octets in front of a request: the call's number.
const NUMBER_LEN: usize = 8;

/// The model: executions of each call.
type Executed = Rc<RefCell<HashMap<u64, u32>>>;

fn number_of(octets: &[u8]) -> u64 {
    u64::from_be_bytes(*octets.first_chunk::<NUMBER_LEN>().expect("a number is in front"))
}

/// The request of a call.
fn request(number: u64, len: usize) -> Vec<u8> {
    let mut octets = number.to_be_bytes().to_vec();
    octets.extend(pattern(len, number as u8));
    octets
}

/// Right reply to a request, of another length, in so many octets at most.
fn reply(request: &[u8], octets_max: usize) -> Vec<u8> {
    let mut octets: Vec<u8> = request.iter().rev().map(|octet| !octet).collect();
    let len = octets.len() * (1 + request.len() % 3) / 2;
    octets.resize(len.clamp(1, octets_max), 0x5a);
    octets
}

/// A procedure that notes what it executes and takes its time now and then.
fn procedure(seed: u64, executed: &Executed, reply_octets_max: usize) -> Procedure {
    let (executed, random) = (Rc::clone(executed), Random::new(seed));
    Rc::new(move |cx, _, message| {
        let octets = crate::kernel::octets(&message);
        *executed.borrow_mut().entry(number_of(&octets)).or_insert(0) += 1;
        if random.chance(0.3) {
            let ms = 1 << random.below(14);
            let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_millis(ms)));
        }
        let octets = reply(&octets, reply_octets_max);
        cx.pool().copy_from(128, &octets).map_err(|_| &xk_kit::rpc::call::SYSTEM_ERROR)
    })
}

/// Faults of a network.
struct Weather {
    random: Random,
    loss: f64,
    copies: f64,
    late: f64,
    /// Nothing passes until then.
    split_until: Cell<Time>,
    now: Cell<Time>,
}

impl Weather {
    fn new(random: Random) -> Self {
        let percent = |max| random.below(max) as f64 / 100.0;
        let (loss, copies, late) = (percent(25), percent(20), percent(10));
        Self {
            random,
            loss,
            copies,
            late,
            split_until: Cell::new(Time::ZERO),
            now: Cell::new(Time::ZERO),
        }
    }

    fn delay(&self) -> Duration {
        let random = &self.random;
        let us = match random.chance(self.late) {
            false => 100 + random.below(2_000),
            // As late as the next try, or longer after it than is expected.
            true => 1_000 << random.below(16),
        };
        Duration::from_micros(us)
    }

    fn fate(&self, _: &Frame) -> Fate {
        if self.now.get() < self.split_until.get() || self.random.chance(self.loss) {
            return vec![];
        }
        match self.random.chance(self.copies) {
            true => vec![self.delay(), self.delay()],
            false => vec![self.delay()],
        }
    }
}

struct Issued {
    number: u64,
    request: Vec<u8>,
    outcome: Rc<Outcome>,
    /// True if its client has crashed since.
    orphaned: bool,
}

/// Figures of many runs.
#[derive(Default, Debug)]
struct Sums {
    calls: u64,
    replies: u64,
    executed: u64,
    rebooted: u64,
    timed_out: u64,
    crashes: u64,
}

/// A layer of calls, as the model runs it.
pub struct Subject<C> {
    /// Draws settings, such that records and channels are few.
    pub draw: fn(&Random) -> C,
    /// Boots a host: seed, address, settings, and what it serves.
    pub boot: fn(u64, Ipv4Addr, &C, Procedure) -> Host,
    /// Longest request under these settings, in octets.
    pub request_octets_max: fn(&C) -> u64,
    /// Longest reply, in octets.
    pub reply_octets_max: usize,
}

struct Run<'a, C> {
    subject: &'a Subject<C>,
    seed: u64,
    random: Random,
    net: Net,
    weather: Rc<Weather>,
    executed: Executed,
    sessions: Vec<SessionRef>,
    issued: Vec<Issued>,
    boots: u64,
    config: C,
    sums: Sums,
}

const ADDRESSES: [Ipv4Addr; 3] = [CLIENT, SERVER, Ipv4Addr::new(10, 0, 0, 3)];

impl<'a, C> Run<'a, C> {
    fn new(subject: &'a Subject<C>, seed: u64) -> Self {
        let random = Random::new(seed);
        let weather = Rc::new(Weather::new(random.fork(1)));
        let config = (subject.draw)(&random);
        let executed = Executed::default();
        let mut run = Self {
            subject,
            seed,
            random,
            net: Net::new(Vec::new()),
            weather,
            executed,
            sessions: Vec::new(),
            issued: Vec::new(),
            boots: 0,
            config,
            sums: Sums::default(),
        };
        run.net.keeps_log = false;
        for at in 0..ADDRESSES.len() {
            let host = run.boot(at);
            run.net.hosts.push(host);
        }
        run.sessions = [0, 2].map(|at| run.net.hosts[at].open(3, SERVER)).into();
        run
    }

    fn boot(&mut self, at: usize) -> Host {
        self.boots += 1;
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(self.boots);
        let procedure = match at {
            1 => procedure(seed, &self.executed, self.subject.reply_octets_max),
            _ => nothing(),
        };
        (self.subject.boot)(seed, ADDRESSES[at], &self.config, procedure)
    }

    fn call(&mut self) {
        let client = self.random.below(2) as usize;
        let len = match self.random.below(4) {
            0 => 0,
            1 => self.random.below(1_000) as usize,
            2 => self.random.below(3_000) as usize,
            _ => self.random.below((self.subject.request_octets_max)(&self.config)) as usize,
        };
        let number = self.issued.len() as u64 + 1;
        let request = request(number, len);
        let host = &self.net.hosts[2 * client];
        let outcome = host.call(&self.sessions[client], &request);
        self.issued.push(Issued { number, request, outcome, orphaned: false });
    }

    fn crash(&mut self) {
        let at = self.random.below(3) as usize;
        self.sums.crashes += 1;
        if at != 1 {
            for issued in self.issued.iter_mut().filter(|i| !i.outcome.is_there()) {
                // Which client's it was does not matter: an orphan's outcome says nothing either
                // way.
                issued.orphaned = true;
            }
        }
        let host = self.boot(at);
        self.net.reboot(at, host);
        if at != 1 {
            self.sessions[at / 2] = self.net.hosts[at].open(3, SERVER);
        }
    }

    fn pause(&mut self, limit: Duration) {
        let until = self.net.now.after(limit);
        let weather = Rc::clone(&self.weather);
        loop {
            weather.now.set(self.net.now);
            if !self.net.step(until, &mut |frame| weather.fate(frame)) {
                break;
            }
        }
        self.net.run_until(until, &mut |frame| weather.fate(frame));
    }

    fn play(mut self) -> Sums {
        for _ in 0..40 {
            match self.random.below(12) {
                0 => self.crash(),
                1 => {
                    let ms = 1 << self.random.below(16);
                    let end = self.net.now.after(Duration::from_millis(ms));
                    self.weather.split_until.set(end);
                }
                _ => self.call(),
            }
            let ms = 1 << self.random.below(13);
            self.pause(Duration::from_millis(ms));
        }
        // Every call ends by itself.
        self.pause(Duration::from_secs(400));
        self.judge();
        let Self { net, sessions, sums, .. } = self;
        drop(sessions);
        net.stop();
        sums
    }

    fn judge(&mut self) {
        let executed = self.executed.borrow();
        for issued in &self.issued {
            let times = executed.get(&issued.number).copied().unwrap_or(0);
            let about = format!("seed {}, call {}", self.seed, issued.number);
            assert!(times <= 1, "{about}: executed {times} times");
            assert!(issued.outcome.is_there(), "{about}: has not ended");
            self.sums.calls += 1;
            self.sums.executed += u64::from(times);
            match issued.outcome.get() {
                Ok(octets) => {
                    assert_eq!(times, 1, "{about}: a reply, but not executed");
                    let right = reply(&issued.request, self.subject.reply_octets_max);
                    assert!(octets == right, "{about}: wrong octets");
                    self.sums.replies += 1;
                }
                Err(error) => match error.cause {
                    CallCause::Rebooted => self.sums.rebooted += 1,
                    CallCause::TimedOut { .. } => self.sums.timed_out += 1,
                    CallCause::Rejected(_) => assert_eq!(times, 0, "{about}: {error}"),
                    cause => assert!(issued.orphaned, "{about}: {cause}"),
                },
            }
        }
    }
}

/// Runs the subject by the seeds of [`seeds`].
///
/// # Panics
/// If a call is executed twice, does not end, or has a wrong reply; or if most fail.
pub fn executed_once_at_most<C>(subject: &Subject<C>) {
    let sum = seeds::of(1).sum(|seed| {
        let Sums { calls, replies, executed, rebooted, timed_out, crashes } =
            Run::new(subject, seed).play();
        [calls, replies, executed, rebooted, timed_out, crashes]
    });
    println!("{sum:?} calls, replies, executions, ended by a boot, timed out; crashes");
    let most = sum.is_none_or(|[calls, replies, ..]| replies * 2 > calls);
    assert!(most, "most calls succeed: {sum:?}");
}
