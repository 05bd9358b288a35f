//! Small protocols that the benchmarks put below and above what they measure.

use std::cell::RefCell;
use std::rc::Rc;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Arrivals, Burst, Enable, OpenError, Outgoing, PushError, Refused};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::wire::Wire;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Pool, Protocol, ProtocolRef, Session, SessionRef,
    Upper,
};
use xk_kit::control::{MaxPacket, MyEther, OptPacket};
use xk_kit::net::template::Headers;
use xk_run::switch::CoroutineSwitch;

/// A pool of the usual size.
pub(crate) fn pool() -> Pool {
    Pool::new(&PoolConfig::default()).expect("memory for a pool")
}

/// Configuration of a kernel whose shepherds do not wait.
pub(crate) fn config(pool: &Pool, seed: u8, timers_max: usize) -> Config {
    let limits = Limits { shepherds_max: 1, ..Limits::default() };
    let shepherds = Shepherds::new(Box::new(NoSwitch), limits);
    Config { random: Random::new(seed.into()), pool: pool.clone(), shepherds, timers_max }
}

/// Configuration of a kernel whose shepherds may wait.
pub(crate) fn waiting_config(pool: &Pool, seed: u8) -> Config {
    let shepherds = Shepherds::new(Box::new(CoroutineSwitch::new()), Limits::default());
    Config { shepherds, ..config(pool, seed, 1 << 12) }
}

/// A kernel for one measurement.
pub(crate) fn kernel() -> Rc<Kernel> {
    Rc::new(Kernel::new(config(&pool(), 1, 1 << 16)))
}

/// Behaviour of the bottom with messages that are pushed into it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bottom {
    /// Drops it.
    Sink,
    /// Passes it up again at once.
    Mirror,
    /// Keeps it for `take`.
    Keep,
}

/// The bottom anchor of a measured stack.
pub(crate) struct BottomWire {
    what: Bottom,
    octets_max: u32,
    ether: [u8; 6],
    upper: RefCell<Option<ProtocolRef>>,
    session: RefCell<Option<SessionRef>>,
    kept: Rc<Arrivals>,
}

impl BottomWire {
    pub(crate) fn new(what: Bottom, ether: [u8; 6]) -> Self {
        Self {
            what,
            octets_max: 1514,
            ether,
            upper: RefCell::default(),
            session: RefCell::default(),
            kept: Rc::default(),
        }
    }

    /// The place in which pushed messages are kept.
    pub(crate) fn kept(&self) -> Rc<Arrivals> {
        Rc::clone(&self.kept)
    }
}

struct BottomSession {
    what: Bottom,
    octets_max: u32,
    upper: ProtocolRef,
    kept: Rc<Arrivals>,
}

impl Session for BottomSession {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        match self.what {
            Bottom::Sink => drop(message),
            Bottom::Mirror => this.pop(cx, message).map_err(|_| PushError::Unreachable)?,
            Bottom::Keep => self.kept.queue_mut().push_back(message),
        }
        Ok(())
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        if self.what == Bottom::Keep {
            self.kept.queue_mut().extend(burst.drain(..));
            return Ok(());
        }
        burst.drain(..).try_for_each(|message| self.push(cx, this, message))
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Headers>() {
            return question.found(Some(Headers::of_wire(self.octets_max as usize)));
        }
        this.protocol(cx).map_or(Answer::Unknown, |p| p.control(cx, ask))
    }
}

impl Protocol for BottomWire {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        if let Some(session) = &*self.session.borrow() {
            session.hold();
            return Ok(session.clone());
        }
        let body = BottomSession {
            what: self.what,
            octets_max: self.octets_max,
            upper: upper.receiver.clone(),
            kept: Rc::clone(&self.kept),
        };
        let session = cx.new_session(this, upper.receiver, body);
        *self.session.borrow_mut() = Some(session.clone());
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        *self.upper.borrow_mut() = Some(upper.receiver.clone());
        self.open(cx, this, upper, participants).map(|_| Enable(0))
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if ask.answer::<MaxPacket>(|q| q.octets = self.octets_max).is_answered()
            || ask.answer::<OptPacket>(|q| q.octets = self.octets_max).is_answered()
        {
            return Answer::Answered;
        }
        ask.answer::<MyEther>(|q| q.address = self.ether)
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.upper.borrow_mut().take();
        self.session.borrow_mut().take();
        self.kept.clear();
    }
}

impl Wire for BottomWire {
    /// Takes nothing: the benchmark carries arrivals in.
    fn poll(&self, _: &Kernel, _: &ProtocolRef, _: usize) -> usize {
        0
    }
}
