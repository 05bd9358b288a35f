//! Calls between two kernels of one thread with a cable between them: a shepherd of the first
//! calls, the loop that its waits leave to another carries the frames.

use crate::cable::Host;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use xk_core::SessionRef;
use xk_core::shepherd::Flow;

/// Turns without a frame, each a millisecond, after which nothing will come any more.
const IDLE_MAX: u32 = 20_000;
/// Calls by which everything is found, opened and warm.
const WARM: u64 = 8;

/// A system that makes calls: an RPC of xk or of another library.
pub(crate) trait Caller: Sized + 'static {
    /// Whether a host has queues that are served when their time has come, which is at once.
    const HAS_QUEUES: bool;

    /// The name that stands before its errors.
    fn name(&self) -> &'static str;

    /// Opens the session that is called through.
    ///
    /// # Errors
    /// That there is none, and why.
    fn open(&self, a: &Host) -> Result<SessionRef, String>;

    /// Makes one call.
    ///
    /// # Errors
    /// That it brings no reply, and why.
    fn call(&self, turns: &Turns<Self>, session: &SessionRef) -> Result<(), String>;
}

/// A caller and its server.
pub(crate) struct Calls<C> {
    turns: Rc<Turns<C>>,
    body: Rc<dyn Fn() -> Flow>,
}

/// State that the loop turns with.
pub(crate) struct Turns<C> {
    pub(crate) a: Host,
    pub(crate) b: Rc<Host>,
    caller: C,
    session: OnceCell<SessionRef>,
    /// Number of calls to be made, until a shepherd has taken them over.
    wanted: Cell<u64>,
    made: Cell<u64>,
    wrong: RefCell<Option<String>>,
    idle: Cell<u32>,
}

impl<C: Caller> Calls<C> {
    /// Both hosts, with calls behind them that make everything warm.
    ///
    /// # Panics
    /// If a call brings no reply.
    pub(crate) fn new(a: Host, b: Host, caller: C) -> Self {
        let turns = Rc::new(Turns {
            a,
            b: Rc::new(b),
            caller,
            session: OnceCell::new(),
            wanted: Cell::new(0),
            made: Cell::new(0),
            wrong: RefCell::default(),
            idle: Cell::new(0),
        });
        let turned = Rc::clone(&turns);
        let calls = Self { turns, body: Rc::new(move || turned.turn()) };
        calls.warm_up();
        calls
    }

    pub(crate) fn warm_up(&self) {
        self.make(WARM);
    }

    pub(crate) fn caller(&self) -> &C {
        &self.turns.caller
    }

    /// Number of frames that both hosts have sent.
    #[cfg(test)]
    pub(crate) fn frames(&self) -> u64 {
        self.turns.a.sent() + self.turns.b.sent()
    }

    /// Makes so many calls, one after the other.
    ///
    /// # Panics
    /// If one brings no reply.
    pub(crate) fn make(&self, count: u64) {
        let turns = &self.turns;
        let before = turns.made.get();
        turns.wanted.set(count);
        let ran = turns.a.cx.shepherds().run(Rc::clone(&self.body));
        ran.expect("a shepherd can be made");
        if let Some(wrong) = turns.wrong.take() {
            panic!("{}: {wrong}", turns.caller.name());
        }
        assert_eq!(turns.made.get() - before, count, "every call was answered");
    }
}

impl<C: Caller> Turns<C> {
    /// The loop's body: takes the calls over, or carries frames.
    fn turn(&self) -> Flow {
        let wanted = self.wanted.take();
        if wanted > 0 {
            if let Err(wrong) = self.call(wanted) {
                *self.wrong.borrow_mut() = Some(wrong);
            }
            return Flow::Stop;
        }
        match self.goes_on(self.carry() > 0 || self.a.cx.shepherds().has_ready()) {
            true => Flow::Continue,
            false => Flow::Stop,
        }
    }

    /// While nothing is under way time goes on, until something is sent again. False if nothing
    /// will.
    #[inline]
    pub(crate) fn goes_on(&self, is_busy: bool) -> bool {
        if is_busy {
            self.idle.set(0);
            return true;
        }
        self.idle.set(self.idle.get() + 1);
        pass(&self.a, &self.b, Duration::from_millis(1));
        self.idle.get() < IDLE_MAX
    }

    /// Carries frames; how many.
    #[inline]
    pub(crate) fn carry(&self) -> usize {
        if self.made.get() < WARM {
            return self.carry_on_shepherd();
        }
        carry::<C>(&self.a, &self.b)
    }

    /// At the beginning the server may have to wait, for an address.
    #[cold]
    fn carry_on_shepherd(&self) -> usize {
        let before = self.b.sent();
        let (b, kept) = (Rc::clone(&self.b), self.a.kept());
        run_due::<C>(&self.a);
        let body = move || {
            b.take_all(&kept);
            run_due::<C>(&b);
            Flow::Stop
        };
        let _ = self.b.cx.shepherds().run(Rc::new(body));
        run_due::<C>(&self.b);
        let back = self.a.take_from(&self.b);
        run_due::<C>(&self.a);
        (self.b.sent() - before) as usize + back
    }

    fn call(&self, count: u64) -> Result<(), String> {
        let session = match self.session.get() {
            Some(session) => session,
            None => {
                let opened = self.caller.open(&self.a)?;
                self.session.get_or_init(|| opened)
            }
        };
        for _ in 0..count {
            self.caller.call(self, session)?;
            self.made.set(self.made.get() + 1);
        }
        Ok(())
    }
}

#[inline]
fn run_due<C: Caller>(host: &Host) {
    if C::HAS_QUEUES {
        host.cx.run_due();
    }
}

/// Carries frames there and back, and does what is due at the same instant.
#[inline]
pub(crate) fn carry<C: Caller>(a: &Host, b: &Host) -> usize {
    run_due::<C>(a);
    let there = b.take_from(a);
    run_due::<C>(b);
    let back = a.take_from(b);
    run_due::<C>(a);
    there + back
}

/// Lets time pass for both hosts.
#[cold]
pub(crate) fn pass(a: &Host, b: &Host, time: Duration) {
    for cx in [&a.cx, &b.cx] {
        cx.set_now(cx.now().after(time));
        cx.run_due();
    }
}
