//! A client and a server of transactions in two kernels of one thread, with a cable between them.

use super::Configuration;
use super::figure_7::PACKET;
use crate::cable::{HEADROOM, Host};
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::graph::{Build, BuildError, Family, Realm};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Flow, Limits, Shepherds};
use xk_core::{
    Entry, Kernel, Message, Participant, Participants, Pool, Protocol, ProtocolRef, SessionRef,
    Upper, reason,
};
use xk_run::switch::CoroutineSwitch;

/// Octets of a request.
const REQUEST: usize = 45;
/// Steps of time in which the nodes have found their addresses, and the length of one.
const STEPS: u32 = 50;
const STEP: Duration = Duration::from_millis(100);
/// Turns without a frame, each a millisecond, after which nothing will come any more.
const IDLE_MAX: u32 = 20_000;
/// Transactions by which everything is found, opened and warm.
const WARM: u64 = 8;

/// What calls and what serves, as a line of a graph.
static USER: Entry = Entry::top("user", "", build_user)
    .summary("calls for the benchmark, and serves it")
    .on(&[Realm::Rpc], &[Family::Any]);

/// On ATP or its adapter: asks there, and replies as many packets as a request's first octet says.
struct User {
    lower: ProtocolRef,
}

fn build_user(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let lower = build.lower(0)?.clone();
    build.add(User { lower })
}

impl Protocol for User {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        self.lower.open(cx, Upper::new(this), participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.lower.open_enable(cx, Upper::new(this), participants)
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        let packets = message.front_slice().first().copied().unwrap_or_default();
        match cx.pool().alloc(HEADROOM, usize::from(packets) * PACKET) {
            Ok(reply) => Ok(reply),
            Err(_) => Err(this.refuse(message, &reason::NO_BUFFERS)),
        }
    }
}

/// A client and its server.
pub(super) struct Pair {
    inner: Rc<Inner>,
    body: Rc<dyn Fn() -> Flow>,
}

struct Inner {
    of: Configuration,
    a: Host,
    b: Rc<Host>,
    session: OnceCell<SessionRef>,
    /// How many transactions are to be made, of replies of how many packets, until a shepherd has
    /// taken them over.
    wanted: Cell<(u64, u8)>,
    made: Cell<u64>,
    wrong: RefCell<Option<String>>,
    idle: Cell<u32>,
}

fn host(pool: &Pool, node: u8, of: Configuration) -> Host {
    let config = Config {
        random: Random::new(u64::from(node)),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(CoroutineSwitch::new()), Limits::default()),
        timers_max: 1 << 12,
    };
    let lines = of.lines(node) + "user atp\n";
    Host::composed_with(config, node, &lines, "user", &[&USER])
}

impl Pair {
    /// Both hosts, with transactions behind them that make everything warm.
    ///
    /// # Panics
    /// If one fails.
    pub(super) fn new(of: Configuration) -> Self {
        let pool = Pool::new(&PoolConfig::default()).expect("memory for a pool");
        let (a, b) = (host(&pool, 17, of), Rc::new(host(&pool, 18, of)));
        let inner = Rc::new(Inner {
            of,
            a,
            b,
            session: OnceCell::new(),
            wanted: Cell::default(),
            made: Cell::new(0),
            wrong: RefCell::default(),
            idle: Cell::new(0),
        });
        for _ in 0..STEPS {
            inner.pass(STEP);
            while inner.carry() > 0 {}
        }
        let b = &inner.b;
        let socket: Participant = "socket140".parse().expect("a participant");
        let local = Participants::local(socket);
        let enabled = b.top.open_enable(&b.cx, Upper::new(&b.top), local);
        let _stands = enabled.unwrap_or_else(|error| panic!("{}: {error}", of.system));
        let turns = Rc::clone(&inner);
        let pair = Self { inner, body: Rc::new(move || turns.turn()) };
        pair.transactions(WARM, 1);
        pair
    }

    /// Makes so many transactions with replies of so many packets, one after the other.
    ///
    /// # Panics
    /// If one brings no reply.
    pub(super) fn transactions(&self, count: u64, packets: u8) {
        let inner = &self.inner;
        let before = inner.made.get();
        inner.wanted.set((count, packets));
        let ran = inner.a.cx.shepherds().run(Rc::clone(&self.body));
        ran.expect("a shepherd can be made");
        if let Some(wrong) = inner.wrong.take() {
            panic!("{}: {wrong}", inner.of.system);
        }
        assert_eq!(inner.made.get() - before, count, "every transaction ended");
    }

    /// How many frames both hosts have sent.
    #[cfg(test)]
    fn frames(&self) -> u64 {
        self.inner.a.sent() + self.inner.b.sent()
    }
}

impl Inner {
    /// The loop's body: takes the transactions over, or carries frames.
    fn turn(&self) -> Flow {
        let (wanted, packets) = self.wanted.take();
        if wanted > 0 {
            if let Err(wrong) = self.call(wanted, packets) {
                *self.wrong.borrow_mut() = Some(wrong);
            }
            return Flow::Stop;
        }
        if self.carry() == 0 && !self.a.cx.shepherds().has_ready() {
            self.idle.set(self.idle.get() + 1);
            self.pass(Duration::from_millis(1));
        } else {
            self.idle.set(0);
        }
        match self.idle.get() {
            IDLE_MAX => Flow::Stop,
            _ => Flow::Continue,
        }
    }

    fn pass(&self, time: Duration) {
        for cx in [&self.a.cx, &self.b.cx] {
            cx.set_now(cx.now().after(time));
            cx.run_due();
        }
    }

    /// Frames there and back, and what is due at the same instant: the queues of STREAMS.
    #[inline]
    fn carry(&self) -> usize {
        let (a, b) = (&self.a, &self.b);
        a.cx.run_due();
        let there = if self.made.get() < WARM { self.carry_on_shepherd() } else { b.take_from(a) };
        b.cx.run_due();
        let back = a.take_from(b);
        a.cx.run_due();
        there + back
    }

    /// At the beginning the server may have to wait.
    #[cold]
    fn carry_on_shepherd(&self) -> usize {
        let before = self.b.sent();
        let (b, kept) = (Rc::clone(&self.b), self.a.kept());
        let body = move || {
            b.take_all(&kept);
            b.cx.run_due();
            Flow::Stop
        };
        let _ = self.b.cx.shepherds().run(Rc::new(body));
        (self.b.sent() - before) as usize
    }

    fn call(&self, count: u64, packets: u8) -> Result<(), String> {
        let cx = &*self.a.cx;
        let session = match self.session.get() {
            Some(session) => session,
            None => {
                let text = "*,socket140@node18@net10";
                let participants = text.parse::<Participants>();
                let participants = participants.map_err(|error| format!("{text}: {error}"))?;
                let opened = self.a.top.open(cx, Upper::new(&self.a.top), participants);
                let opened = opened.map_err(|error| format!("open: {error}"))?;
                self.session.get_or_init(|| opened)
            }
        };
        let request = [packets; REQUEST];
        let octets = usize::from(packets) * PACKET;
        for _ in 0..count {
            let message = cx.pool().copy_from(HEADROOM, &request).map_err(|e| e.to_string())?;
            let reply = session.call(cx, message).map_err(|error| error.describe(cx))?;
            if reply.len() != octets {
                return Err(format!("a reply of {} octets for {octets}", reply.len()));
            }
            self.made.set(self.made.get() + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::subsystems::CONFIGURATIONS;

    #[test]
    fn a_transaction_takes_a_frame_for_the_request_and_one_for_each_packet() {
        for of in CONFIGURATIONS {
            let pair = Pair::new(of);
            for packets in 1..=8 {
                let before = pair.frames();
                pair.transactions(5, packets);
                let frames = pair.frames() - before;
                let least = 5 * (1 + u64::from(packets));
                assert!(frames >= least, "{} {packets}: {frames} frames", of.system);
            }
        }
    }
}
