//! Calls in steady state, over a pipe between two kernels' worth of layers in one kernel: nothing
//! is allocated, and two packets go.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::object::{Enable, OpenError, PushError, Served};
use xk_core::shepherd::Flow;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Session, SessionRef,
    Upper,
};
use xk_kit::rpc::call::PROCEDURE;
use xk_mrpc::Config;
use xk_run::switch::CoroutineSwitch;
use xk_testkit::conformance::{CountingAllocator, allocations, counts_allocations};
use xk_testkit::kernel::TestKernel;

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// One end of the pipe: what is pushed waits in the other end's queue.
struct End {
    queue: RefCell<VecDeque<Message>>,
    session: RefCell<Option<SessionRef>>,
    upper: RefCell<Option<ProtocolRef>>,
}

struct Pipe {
    here: Rc<End>,
    there: Rc<End>,
}

struct PipeSession {
    there: Rc<End>,
    pushed: Cell<u64>,
}

impl End {
    fn new() -> Rc<Self> {
        Rc::new(Self {
            queue: RefCell::new(VecDeque::with_capacity(64)),
            session: RefCell::default(),
            upper: RefCell::default(),
        })
    }

    /// Delivers one message; false if there is none.
    fn deliver(&self, cx: &Kernel) -> bool {
        let Some(message) = self.queue.borrow_mut().pop_front() else {
            return false;
        };
        let (session, upper) = (self.session.borrow().clone(), self.upper.borrow().clone());
        if let (Some(session), Some(upper)) = (session, upper) {
            drop(upper.demux(cx, &session, message));
        }
        true
    }
}

impl Protocol for Pipe {
    fn open(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let session = self.here.session.borrow().clone().unwrap();
        session.hold();
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let body = PipeSession { there: Rc::clone(&self.there), pushed: Cell::new(0) };
        let session = cx.new_session(this, upper.receiver, body);
        *self.here.session.borrow_mut() = Some(session);
        *self.here.upper.borrow_mut() = Some(upper.receiver.clone());
        Ok(Enable(0))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.here.session.take();
        self.here.upper.take();
    }
}

impl Session for PipeSession {
    fn push(&self, _: &Kernel, _: &SessionRef, message: Message) -> Result<(), PushError> {
        self.pushed.set(self.pushed.get() + 1);
        self.there.queue.borrow_mut().push_back(message);
        Ok(())
    }
}

/// Gives requests back.
struct Server(ProtocolRef);

impl Protocol for Server {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.0.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn call_demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, message: Message) -> Served {
        Ok(message)
    }
}

/// Makes so many calls of so many octets and a third more; answers the allocations of the last
/// three quarters.
fn calls(count: u32, len: usize) -> (u64, u64) {
    let cx = TestKernel::with_switch(1, Box::new(CoroutineSwitch::new()));
    let (a, b) = (End::new(), End::new());
    let pipe = |here: &Rc<End>, there: &Rc<End>, name| {
        let (here, there) = (Rc::clone(here), Rc::clone(there));
        cx.add_protocol("pipe", name, Pipe { here, there })
    };
    let (pipe_a, pipe_b) = (pipe(&a, &b, "a"), pipe(&b, &a, "b"));
    let client = xk_mrpc::add(&cx, "client", pipe_a, Config::default());
    let server = xk_mrpc::add(&cx, "server", pipe_b, Config::default());
    let app = cx.add_protocol("app", "app", Server(server));
    cx.start().unwrap();
    let peer = Participant::of(Part::Number(PROCEDURE, 3));
    let both = Participants::pair(Participant::new(), peer);
    let session = client.open(&cx, Upper::new(&app), both).unwrap();
    let octets = vec![7; len];
    let result: Rc<Cell<Option<(u64, u64)>>> = Rc::default();
    let task = {
        let (result, session) = (Rc::clone(&result), session.clone());
        move |cx: &Kernel| {
            let (mut before, mut pushed) = (0, 0);
            for number in 0..count {
                if number == count / 4 {
                    (before, pushed) = (allocations(), session.head().sent());
                }
                let message = cx.pool().copy_from(128, &octets).unwrap();
                let reply = session.call(cx, message).unwrap();
                assert!(reply.len() == octets.len());
            }
            let calls = session.head().sent() - pushed;
            result.set(Some((allocations() - before, calls)));
        }
    };
    let task = RefCell::new(Some(task));
    let (kernel, done) = (cx.share(), Rc::clone(&result));
    let body = move || {
        let next = task.borrow_mut().take();
        if let Some(task) = next {
            task(&kernel);
        }
        while kernel.shepherds().on_loop() && (a.deliver(&kernel) || b.deliver(&kernel)) {}
        match done.get() {
            Some(_) => Flow::Stop,
            None => Flow::Continue,
        }
    };
    cx.shepherds().run(Rc::new(body)).unwrap();
    drop(session);
    let figures = result.get().expect("all calls were made");
    cx.stop();
    figures
}

#[test]
fn nothing_is_allocated_per_call() {
    assert!(counts_allocations());
    for len in [0, 64, 1000, 1464, 16_384] {
        let (allocated, made) = calls(400, len);
        assert_eq!((allocated, made), (0, 300), "{len} octets");
    }
}

/// Figures for a person: `cargo test --release -p xk-mrpc --test all steady -- --ignored
/// --nocapture`. With `XK_CALLS=1000` and `XK_OCTETS=0` just these calls, for a profiler.
#[test]
#[ignore = "a measurement"]
fn how_long_a_call_takes() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let (Some(count), Some(len)) = (number("XK_CALLS"), number("XK_OCTETS")) {
        calls(count, len as usize);
        return;
    }
    for len in [0, 64, 16_384] {
        let mut best = u128::MAX;
        for _ in 0..20 {
            let begin = std::time::Instant::now();
            calls(2_000, len);
            best = best.min(begin.elapsed().as_nanos() / 2_000);
        }
        println!("{len} octets: {best} ns a call, both ends, switches and all");
    }
}
