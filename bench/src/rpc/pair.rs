//! Two kernels of one thread with a cable between them: a shepherd of the first calls, the loop
//! that its waits leave to another carries the frames.

use super::stacks::{Stack, USERS};
use super::users::{call, request};
use crate::cable::Host;
use crate::uppers::Echo;
use crate::uppers::counter;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::numbers::Number;
use xk_core::random::Random;
use xk_core::shepherd::{Flow, Limits, Shepherds};
use xk_core::{Kernel, Pool, ProtocolRef, SessionRef, Upper};
use xk_run::switch::CoroutineSwitch;

/// Turns without a frame, each a millisecond, after which nothing will come any more.
const IDLE_MAX: u32 = 20_000;
/// Calls by which everything is found, opened and warm.
const WARM: u64 = 8;

/// A caller and its server.
pub(crate) struct Pair {
    inner: Rc<Inner>,
    body: Rc<dyn Fn() -> Flow>,
}

struct Inner {
    stack: Stack,
    a: Host,
    b: Rc<Host>,
    user: ProtocolRef,
    /// Messages that were sent back.
    answered: Rc<Cell<u64>>,
    session: OnceCell<SessionRef>,
    octets: RefCell<Rc<[u8]>>,
    /// How many calls are to be made, until a shepherd has taken them over.
    wanted: Cell<u64>,
    made: Cell<u64>,
    wrong: RefCell<Option<String>>,
    idle: Cell<u32>,
}

fn host(pool: &Pool, number: u8, stack: Stack) -> Host {
    let config = Config {
        random: Random::new(u64::from(number)),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(CoroutineSwitch::new()), Limits::default()),
        timers_max: 1 << 12,
    };
    let address = format!("10.0.0.{number}");
    let host = Host::composed(config, number, &stack.lines("cable", &address), stack.top());
    for (lower, number) in USERS {
        let upper = "user";
        let _ = host.cx.numbers_mut().add(Number { upper, lower, number });
    }
    host
}

impl Pair {
    /// Both hosts, with calls behind them that make everything warm.
    ///
    /// # Panics
    /// If a call brings no reply.
    pub(crate) fn new(stack: Stack) -> Self {
        let pool = Pool::new(&PoolConfig::default()).expect("memory for a pool");
        let (a, b) = (host(&pool, 1, stack), Rc::new(host(&pool, 2, stack)));
        let procedure = b.cx.add_protocol("user", "user", Echo { holds: true });
        let enabled = b.top.open_enable(&b.cx, Upper::new(&procedure), stack.serves());
        let _ = enabled.expect("the procedure is free");
        let (asker, answered) = counter();
        let inner = Rc::new(Inner {
            stack,
            answered,
            user: a.cx.add_protocol("user", "user", asker),
            a,
            b,
            session: OnceCell::new(),
            octets: RefCell::new(Rc::from([])),
            wanted: Cell::new(0),
            made: Cell::new(0),
            wrong: RefCell::default(),
            idle: Cell::new(0),
        });
        let turns = Rc::clone(&inner);
        let pair = Self { inner, body: Rc::new(move || turns.turn()) };
        pair.calls(WARM);
        pair
    }

    /// A pair whose requests have so many octets.
    pub(crate) fn with_octets(stack: Stack, octets: usize) -> Self {
        let pair = Self::new(stack);
        *pair.inner.octets.borrow_mut() = vec![0x5a; octets].into();
        pair.calls(WARM);
        pair
    }

    /// How many frames both hosts have sent.
    #[cfg(test)]
    pub(crate) fn frames(&self) -> u64 {
        self.inner.a.sent() + self.inner.b.sent()
    }

    /// Makes so many calls, one after the other.
    ///
    /// # Panics
    /// If one brings no reply.
    pub(crate) fn calls(&self, count: u64) {
        let inner = &self.inner;
        let before = inner.made.get();
        inner.wanted.set(count);
        let ran = inner.a.cx.shepherds().run(Rc::clone(&self.body));
        ran.expect("a shepherd can be made");
        if let Some(wrong) = inner.wrong.take() {
            panic!("{}: {wrong}", inner.stack.name());
        }
        assert_eq!(inner.made.get() - before, count, "every call was answered");
    }
}

impl Inner {
    /// The loop's body: takes the calls over, or carries frames.
    fn turn(&self) -> Flow {
        let wanted = self.wanted.take();
        if wanted > 0 {
            if let Err(wrong) = self.call(wanted) {
                *self.wrong.borrow_mut() = Some(wrong);
            }
            return Flow::Stop;
        }
        if self.carry() == 0 && !self.a.cx.shepherds().has_ready() {
            self.wait_a_little();
        } else {
            self.idle.set(0);
        }
        match self.idle.get() {
            IDLE_MAX => Flow::Stop,
            _ => Flow::Continue,
        }
    }

    #[inline]
    fn carry(&self) -> usize {
        let there = if self.made.get() < WARM {
            self.carry_on_shepherd()
        } else {
            self.b.take_from(&self.a)
        };
        there + self.a.take_from(&self.b)
    }

    /// At the beginning the server may have to wait, for an address.
    #[cold]
    fn carry_on_shepherd(&self) -> usize {
        let before = self.b.sent();
        let (b, kept) = (Rc::clone(&self.b), self.a.kept());
        let body = move || {
            b.take_all(&kept);
            Flow::Stop
        };
        let _ = self.b.cx.shepherds().run(Rc::new(body));
        (self.b.sent() - before) as usize
    }

    /// Nothing is under way: time goes on, until something is sent again.
    #[cold]
    fn wait_a_little(&self) {
        self.idle.set(self.idle.get() + 1);
        for cx in [&self.a.cx, &self.b.cx] {
            cx.set_now(cx.now().after(Duration::from_millis(1)));
            cx.run_due();
        }
    }

    fn call(&self, count: u64) -> Result<(), String> {
        let cx = &*self.a.cx;
        let session = match self.session.get() {
            Some(session) => session,
            None => {
                let participants = self.stack.calls("10.0.0.2");
                let opened = self.a.top.open(cx, Upper::new(&self.user), participants);
                let opened = opened.map_err(|error| format!("open: {error}"))?;
                self.session.get_or_init(|| opened)
            }
        };
        let octets = Rc::clone(&self.octets.borrow());
        for _ in 0..count {
            if self.stack.has_calls() {
                call(cx, session, &octets).map_err(|error| error.describe(cx))?;
            } else {
                self.ask(cx, session, &octets)?;
            }
            self.made.set(self.made.get() + 1);
        }
        Ok(())
    }

    /// Sends one message, and carries frames until it has come back.
    fn ask(&self, cx: &Kernel, session: &SessionRef, octets: &[u8]) -> Result<(), String> {
        let before = self.answered.get();
        let message = request(cx, octets).ok_or("no buffers")?;
        session.push(cx, message).map_err(|error| error.to_string())?;
        while self.answered.get() == before {
            match self.carry() {
                0 => self.wait_a_little(),
                _ => self.idle.set(0),
            }
            if self.idle.get() == IDLE_MAX {
                return Err("no answer".into());
            }
        }
        Ok(())
    }
}
