//! An upper protocol of the rpc realm that serves what a test wants served.

use core::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::{
    Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper, reason,
};
use xk_kit::rpc::call::MyProcedure;

/// Serves a request; may block. The reply, or why there is none.
pub type OnServe = Rc<dyn Fn(&Kernel, &SessionRef, Message) -> Result<Message, &'static Reason>>;

#[derive(Default)]
struct TopState {
    served: Cell<u64>,
    serving: Cell<u32>,
    serving_most: Cell<u32>,
    opened: RefCell<Vec<(SessionRef, Option<u32>)>>,
    refuse_open: Cell<Option<&'static Reason>>,
    on_serve: RefCell<Option<OnServe>>,
    forgets: Cell<bool>,
}

/// The highest protocol of a test of the rpc realm: replies to every request with its octets,
/// unless told otherwise.
#[derive(Clone)]
pub struct CallTop {
    state: Rc<TopState>,
    protocol: ProtocolRef,
}

impl CallTop {
    /// Adds one to a kernel, of the kind `top`.
    pub fn add(cx: &Kernel, name: &str) -> Self {
        let state = Rc::new(TopState::default());
        let protocol = cx.add_protocol("top", name, TopProtocol(Rc::clone(&state)));
        Self { state, protocol }
    }

    /// The protocol.
    #[must_use]
    pub fn protocol(&self) -> &ProtocolRef {
        &self.protocol
    }

    /// Opens a session on `lower`.
    ///
    /// # Errors
    /// What `lower` answers.
    pub fn open(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        lower.open(cx, Upper::new(&self.protocol), participants)
    }

    /// Enables on `lower`.
    ///
    /// # Errors
    /// What `lower` answers.
    pub fn enable(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        lower.open_enable(cx, Upper::new(&self.protocol), participants)
    }

    /// How many requests reached it.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.state.served.get()
    }

    /// How many requests it serves now.
    #[must_use]
    pub fn serving(&self) -> u32 {
        self.state.serving.get()
    }

    /// The most requests that it served at one time.
    #[must_use]
    pub fn serving_most(&self) -> u32 {
        self.state.serving_most.get()
    }

    /// The sessions made on its behalf since the last look, with the procedure that each stands
    /// for.
    #[must_use]
    pub fn take_opened(&self) -> Vec<(SessionRef, Option<u32>)> {
        self.state.opened.take()
    }

    /// Lets it refuse every session made on its behalf from now on, or none.
    pub fn refuse_open(&self, reason: Option<&'static Reason>) {
        self.state.refuse_open.set(reason);
    }

    /// Lets it keep no sessions for [`CallTop::take_opened`]; at first it keeps them.
    pub fn forget(&self, forgets: bool) {
        self.state.forgets.set(forgets);
    }

    /// Serves requests in another way, or as at first.
    pub fn on_serve(&self, on_serve: Option<OnServe>) {
        drop(self.state.on_serve.replace(on_serve));
    }
}

struct TopProtocol(Rc<TopState>);

impl Protocol for TopProtocol {
    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        if let Some(reason) = self.0.refuse_open.get() {
            return Err(reason);
        }
        let asked = lower.ask(cx, MyProcedure::default());
        let number = asked.map(|answer| answer.number);
        lower.head().set_tag(number.unwrap_or(0));
        if !self.0.forgets.get() {
            self.0.opened.borrow_mut().push((lower.clone(), number));
        }
        Ok(())
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let state = &self.0;
        state.served.set(state.served.get() + 1);
        let on_serve = state.on_serve.borrow().clone();
        let Some(on_serve) = on_serve else {
            return Ok(request);
        };
        let Ok(rest) = cx.pool().empty(0) else {
            return Err(this.refuse(request, &reason::NO_BUFFERS));
        };
        state.serving.set(state.serving.get() + 1);
        state.serving_most.set(state.serving_most.get().max(state.serving.get()));
        let reply = on_serve(cx, lower, request);
        state.serving.set(state.serving.get() - 1);
        reply.map_err(|why| this.refuse(rest, why))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let kept = (self.0.opened.take(), self.0.on_serve.take());
        drop(kept);
    }
}
