//! Both sides of a cut whose lower one sends everything back, or keeps it.

use crate::cores::place;
use crate::uppers::Each;
use std::cell::{Cell, OnceCell};
use std::io;
use std::rc::Rc;
use std::thread::{JoinHandle, spawn};
use xk_core::control::QuestionType;
use xk_core::object::{CallError, Closing, OpenError, ProtocolId, PushError, Refused};
use xk_core::shepherd::Flow;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Session, SessionRef, Upper,
};
use xk_domains::ring::Ring;
use xk_domains::{Known, Port, add_port, lower_proxy, upper_proxy};
use xk_kit::control::{IsLocalHost, MaxPacket};
use xk_run::{HostClock, Idle, Runner, RunnerStats, real_kernel};

/// Octets of each kernel's pool.
const POOL_OCTETS: usize = 1 << 22;
/// The number of the mirror on both sides, and of what is above it.
const MIRROR: ProtocolId = ProtocolId(0);
const OWN_FIRST: u32 = 1000;
/// Looks for a frame between two looks at the clock.
const LOOKS: u32 = 1 << 10;

fn known() -> Known {
    static QUESTIONS: [QuestionType; 2] =
        [QuestionType::of::<MaxPacket>(), QuestionType::of::<IsLocalHost>()];
    Known::of(&[]).with(&QUESTIONS)
}

/// A kernel on one side of a cut.
struct Side {
    cx: Rc<Kernel>,
    port: Rc<Port>,
}

impl Side {
    fn new(ring: Ring, own_first: u32) -> Self {
        let cx = Rc::new(real_kernel(POOL_OCTETS).expect("memory for a pool"));
        let mirror = xk_core::Node { kind: "mirror", name: "mirror".into(), numbers_below: None };
        cx.join_host(vec![mirror], own_first);
        let port = Port::new(Box::new(ring), known());
        Self { cx, port }
    }

    fn look(&self) {
        self.port.poll(&self.cx, usize::MAX);
        self.port.flush(&self.cx);
    }
}

/// The side below: looks after the port as long as there is another side.
pub(super) struct Below(Side);

impl Below {
    /// One that sends everything back.
    pub(super) fn new(ring: Ring) -> Self {
        Self::with(ring, Mirror { reflects: true })
    }

    /// One that takes what comes.
    pub(super) fn sink(ring: Ring) -> Self {
        Self::with(ring, Mirror { reflects: false })
    }

    fn with(ring: Ring, mirror: Mirror) -> Self {
        let side = Side::new(ring, OWN_FIRST);
        let Side { cx, port } = &side;
        port.grant(&cx.add_protocol("mirror", "mirror", mirror));
        port.admit(|cx: &Kernel, port: &Rc<Port>, of| {
            Some(upper_proxy(cx, port, of, "top", "top"))
        });
        add_port(cx, port, "port");
        Self(side)
    }

    /// Sleeps while nothing comes, until the other side is gone; what the loop has done.
    pub(super) fn sleep(&self) -> io::Result<RunnerStats> {
        let (cx, port) = (Rc::clone(&self.0.cx), Rc::clone(&self.0.port));
        let runner = Runner::new(cx, Idle::Sleep)?;
        runner.run(None, Rc::new(move |_| port.is_lost()))?;
        Ok(runner.stats())
    }

    /// Looks again and again.
    pub(super) fn spin(&self) {
        let clock = HostClock::start();
        while !self.0.port.is_lost() {
            self.0.cx.set_now(clock.now());
            for _ in 0..LOOKS {
                self.0.look();
                std::hint::spin_loop();
            }
        }
    }
}

/// The side above, with a session to the mirror.
pub(super) struct Above {
    side: Side,
    /// The side below, if it is of this thread, too.
    below: Option<Below>,
    lower: ProtocolRef,
    top: ProtocolRef,
    session: OnceCell<SessionRef>,
    received: Rc<Cell<u64>>,
}

impl Above {
    pub(super) fn new(ring: Ring, below: Option<Below>) -> Rc<Self> {
        let side = Side::new(ring, 2 * OWN_FIRST);
        let Side { cx, port } = &side;
        let lower = lower_proxy(cx, port, MIRROR, "mirror", "mirror");
        add_port(cx, port, "port");
        let received = Rc::<Cell<u64>>::default();
        let count = Rc::clone(&received);
        let top = cx.add_protocol("top", "top", Each(move |_| count.set(count.get() + 1)));
        let above = Rc::new(Self { side, below, lower, top, session: OnceCell::new(), received });
        above.on_shepherd(|above| {
            let _ = above.session.set(above.open());
        });
        above
    }

    fn look(&self) {
        if let Some(below) = &self.below {
            below.0.look();
        }
        self.side.look();
    }

    fn open(&self) -> SessionRef {
        let opened = self.lower.open(&self.side.cx, Upper::new(&self.top), Participants::default());
        opened.expect("the mirror opens")
    }

    fn session(&self) -> &SessionRef {
        self.session.get().expect("it is opened first")
    }

    /// Has it done by a shepherd, which others stand in for while it is suspended.
    fn on_shepherd(self: &Rc<Self>, act: impl Fn(&Self) + 'static) {
        let (above, begun, done) = (Rc::clone(self), Cell::new(false), Cell::new(false));
        let body = move || {
            if !begun.replace(true) {
                act(&above);
                done.set(true);
            } else if !done.get() {
                above.look();
            }
            if done.get() { Flow::Stop } else { Flow::Continue }
        };
        self.side.cx.shepherds().run(Rc::new(body)).expect("a shepherd");
    }

    /// Pushes messages of so many octets, in batches, and takes each back.
    pub(super) fn exchange(self: Rc<Self>, octets: usize, batch: u64) -> impl FnMut(u64) {
        move |operations| {
            let cx = &*self.side.cx;
            let mut left = operations;
            while left > 0 {
                let now = left.min(batch);
                let end = self.received.get() + now;
                for _ in 0..now {
                    let message = cx.pool().alloc(128, octets).expect("the pool has room");
                    self.session().push(cx, message).expect("the ring has room");
                }
                while self.received.get() < end {
                    self.look();
                }
                left -= now;
            }
        }
    }

    /// Pushes a message of so many octets; false if there is no room for it.
    pub(super) fn send(&self, octets: usize) -> bool {
        let cx = &*self.side.cx;
        let sent = cx.pool().alloc(128, octets).is_ok_and(|m| self.session().push(cx, m).is_ok());
        self.side.look();
        sent
    }

    /// Asks a question of which the answer is known on this side.
    pub(super) fn ask_fact(self: Rc<Self>) -> impl FnMut(u64) {
        move |operations| {
            for _ in 0..operations {
                let asked = self.session().ask(&self.side.cx, MaxPacket::default());
                assert!(asked.is_some(), "the mirror answers");
            }
        }
    }

    /// Does something again and again that suspends the shepherd.
    pub(super) fn suspended(self: Rc<Self>, act: fn(&Self)) -> impl FnMut(u64) {
        move |operations| {
            self.on_shepherd(move |above| (0..operations).for_each(|_| act(above)));
        }
    }

    /// Asks a question that crosses.
    pub(super) fn ask(&self) {
        let asked = self.session().ask(&self.side.cx, IsLocalHost::default());
        assert!(asked.is_some(), "the mirror answers");
    }

    /// Makes an empty call.
    pub(super) fn call(&self) {
        let cx = &*self.side.cx;
        let request = cx.pool().empty(128).expect("the pool has room");
        drop(self.session().call(cx, request).expect("the mirror replies"));
    }

    /// Opens the session once more, and closes it.
    pub(super) fn open_and_close(&self) {
        self.open().close(&self.side.cx);
    }
}

impl Drop for Above {
    fn drop(&mut self) {
        self.side.port.stop();
    }
}

/// Runs the side below on a thread of its own, on this core; ends with the side above.
pub(super) fn on_thread(ring: Ring, core: Option<usize>) -> JoinHandle<()> {
    spawn(move || {
        let _ = place(core);
        Below::new(ring).spin();
    })
}

/// Sends back what is pushed, or keeps it, and replies to a call with the request.
struct Mirror {
    reflects: bool,
}

impl Protocol for Mirror {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let to = self.reflects.then(|| upper.receiver.clone());
        Ok(cx.new_session(this, upper.receiver, Reflection(to)))
    }
}

struct Reflection(Option<ProtocolRef>);

impl Session for Reflection {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        match &self.0 {
            Some(to) => to.demux(cx, this, message).map_err(|_| PushError::QueueFull),
            None => Ok(()),
        }
    }

    fn call(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<Message, CallError> {
        Ok(message)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        Err(this.refuse(cx, message, &xk_core::reason::NO_PORT))
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = 1500;
        } else if let Some(question) = ask.get::<IsLocalHost>() {
            question.local = true;
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        Closing::Done
    }
}
