//! The channels to one peer: a fixed number, opened when they are first needed and kept, and a
//! queue before them.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::{CallCause, CallError, OpenError, PushError, SessionId, SessionSlot};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Answer, Ask, Kernel, Message, Participants, ProtocolRef, SessionRef, Upper};
use xk_kit::rpc::call::{CallOptions, CancelCall};

/// What became of the wait of one call for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It waits.
    Waits,
    /// A channel, or the right to open one, is its own.
    Granted,
    /// Whoever called took it back.
    Cancelled,
}

/// One call that waits for a channel.
struct Waiter {
    session: Cell<SessionId>,
    tag: Cell<u64>,
    turn: Cell<Turn>,
    channel: SessionSlot,
    semaphore: Semaphore,
}

/// A call with a name, while a channel carries it.
struct Tagged {
    session: SessionId,
    tag: u64,
    channel: SessionRef,
}

/// The channels to one peer.
pub(crate) struct ChannelPool {
    lower: ProtocolRef,
    /// The layer that holds the channels.
    upper: ProtocolRef,
    participants: Participants,
    channels_max: usize,
    /// How many sessions above use it. Without any it keeps no channel.
    users: Cell<u32>,
    idle: RefCell<Vec<SessionRef>>,
    /// Channels that are open, or about to be.
    opened: Cell<usize>,
    /// Some channel, for questions.
    some: SessionSlot,
    waiters: RefCell<VecDeque<Rc<Waiter>>>,
    /// Waiters for the next calls, so that none is made for each.
    spare: RefCell<Vec<Rc<Waiter>>>,
    tagged: RefCell<Vec<Tagged>>,
}

impl ChannelPool {
    /// A pool with its first channel, so that a peer that cannot be had is known at once. It has
    /// one user.
    pub(crate) fn open(
        cx: &Kernel,
        lower: &ProtocolRef,
        upper: &ProtocolRef,
        participants: Participants,
        channels_max: usize,
    ) -> Result<Self, OpenError> {
        let first = lower.open(cx, Upper::new(upper), participants.clone())?;
        let mut idle = Vec::with_capacity(channels_max);
        idle.push(first.clone());
        Ok(Self {
            lower: lower.clone(),
            upper: upper.clone(),
            participants,
            channels_max,
            users: Cell::new(1),
            idle: RefCell::new(idle),
            opened: Cell::new(1),
            some: SessionSlot::new(Some(first)),
            waiters: RefCell::default(),
            spare: RefCell::default(),
            tagged: RefCell::default(),
        })
    }

    /// Whom it leads to.
    pub(crate) fn participants(&self) -> &Participants {
        &self.participants
    }

    /// Some channel, for questions about the way to the peer.
    pub(crate) fn some_channel(&self) -> Option<SessionRef> {
        self.some.get()
    }

    /// How many channels are open.
    pub(crate) fn opened(&self) -> usize {
        self.opened.get()
    }

    /// One more session above uses it.
    pub(crate) fn join(&self) {
        self.users.set(self.users.get() + 1);
    }

    /// A session above goes. True if it was the last: then the channels are closed.
    pub(crate) fn leave(&self, cx: &Kernel) -> bool {
        self.users.set(self.users.get().saturating_sub(1));
        if self.users.get() > 0 {
            return false;
        }
        drop(self.some.take());
        let idle = self.idle.take();
        self.opened.set(self.opened.get() - idle.len());
        for channel in idle {
            channel.close(cx);
        }
        true
    }

    /// Lets go of everything, without closing: the graph is being taken down.
    pub(crate) fn clear(&self) {
        let kept = (self.some.take(), self.idle.take(), self.tagged.take());
        drop(kept);
    }

    /// Carries a request of the session `session` over a channel of its own and gives what comes
    /// back.
    #[inline(always)]
    pub(crate) fn call(
        &self,
        cx: &Kernel,
        session: SessionId,
        request: Message,
    ) -> Result<Message, CallError> {
        if request.has_attributes() {
            return self.call_with_options(cx, session, request);
        }
        let idle = self.idle.borrow_mut().pop();
        let channel = match idle {
            Some(channel) => channel,
            None => self.another(cx, session, None)?,
        };
        let result = channel.call(cx, request);
        self.give_back(cx, channel);
        result
    }

    #[inline(never)]
    fn call_with_options(
        &self,
        cx: &Kernel,
        session: SessionId,
        request: Message,
    ) -> Result<Message, CallError> {
        let options = request.attribute::<CallOptions>();
        let tag = options.map_or(0, |options| options.tag);
        let idle = self.idle.borrow_mut().pop();
        let channel = match idle {
            Some(channel) => channel,
            None => self.another(cx, session, options)?,
        };
        if tag != 0 {
            self.tagged.borrow_mut().push(Tagged { session, tag, channel: channel.clone() });
        }
        let result = channel.call(cx, request);
        if tag != 0 {
            let mut tagged = self.tagged.borrow_mut();
            if let Some(at) = tagged.iter().position(|call| call.channel == channel) {
                tagged.swap_remove(at);
            }
        }
        self.give_back(cx, channel);
        result
    }

    /// Opens one more channel if there may be one, else waits for one.
    #[inline(never)]
    fn another(
        &self,
        cx: &Kernel,
        session: SessionId,
        options: Option<CallOptions>,
    ) -> Result<SessionRef, CallError> {
        if self.opened.get() < self.channels_max {
            self.opened.set(self.opened.get() + 1);
            return self.open_another(cx);
        }
        match self.wait(cx, session, options)? {
            Some(channel) => Ok(channel),
            None => self.open_another(cx),
        }
    }

    /// Opens a channel that is counted already.
    fn open_another(&self, cx: &Kernel) -> Result<SessionRef, CallError> {
        let both = self.participants.clone();
        let opened = self.lower.open(cx, Upper::new(&self.upper), both);
        if let (Ok(channel), false) = (&opened, self.some.is_some()) {
            drop(self.some.replace(Some(channel.clone())));
        }
        opened.map_err(|error| {
            self.give_up(cx);
            CallCause::Push(match error {
                OpenError::NoRoute => PushError::NoRoute,
                OpenError::NoBuffers => PushError::NoBuffers,
                _ => PushError::QueueFull,
            })
            .into()
        })
    }

    /// Waits for a channel, behind those who wait already. `None`: the right to open one.
    fn wait(
        &self,
        cx: &Kernel,
        session: SessionId,
        options: Option<CallOptions>,
    ) -> Result<Option<SessionRef>, CallError> {
        let limit = CallOptions::clip(options, cx.now(), Duration::MAX)
            .ok_or(CallCause::TimedOut { tries: 0 })?;
        let waiter = self.spare.borrow_mut().pop().unwrap_or_else(new_waiter);
        waiter.session.set(session);
        waiter.tag.set(options.map_or(0, |options| options.tag));
        waiter.turn.set(Turn::Waits);
        self.waiters.borrow_mut().push_back(Rc::clone(&waiter));
        let limit = Some(limit).filter(|limit| *limit != Duration::MAX);
        let waited = cx.wait(&waiter.semaphore, limit);
        let (turn, channel) = (waiter.turn.get(), waiter.channel.take());
        if waited.is_err() && turn != Turn::Waits {
            // What was decided came after the wait had ended otherwise: its signal is nobody's.
            waiter.semaphore.try_wait();
        }
        let result = match (turn, waited) {
            (Turn::Granted, Ok(())) => Ok(channel),
            (Turn::Cancelled, _) => Err(CallCause::Cancelled.into()),
            (Turn::Granted, Err(error)) => {
                self.pass_on(cx, channel);
                Err(failed(error))
            }
            (Turn::Waits, waited) => {
                self.waiters.borrow_mut().retain(|other| !Rc::ptr_eq(other, &waiter));
                Err(waited.map_or_else(failed, |()| CallCause::Closed.into()))
            }
        };
        self.spare.borrow_mut().push(waiter);
        result
    }

    /// A call is over: its channel goes to who waits longest, or is kept.
    #[inline(always)]
    fn give_back(&self, cx: &Kernel, channel: SessionRef) {
        if channel.head().is_closed() || self.users.get() == 0 {
            return self.retire(cx, channel);
        }
        if self.waiters.borrow().is_empty() {
            self.idle.borrow_mut().push(channel);
        } else {
            self.pass_on(cx, Some(channel));
        }
    }

    #[inline(never)]
    fn pass_on(&self, cx: &Kernel, channel: Option<SessionRef>) {
        let next = self.waiters.borrow_mut().pop_front();
        match (next, channel) {
            (Some(waiter), channel) => grant(cx, &waiter, channel),
            (None, Some(channel)) => self.idle.borrow_mut().push(channel),
            (None, None) => self.opened.set(self.opened.get() - 1),
        }
    }

    /// A channel that is closed, or that nobody needs any more. Who waits longest may open another
    /// in its place.
    #[cold]
    fn retire(&self, cx: &Kernel, channel: SessionRef) {
        if self.some.get().as_ref() == Some(&channel) {
            drop(self.some.take());
        }
        if !channel.head().is_closed() {
            channel.close(cx);
        }
        self.give_up(cx);
    }

    /// A place for a channel has become free.
    #[cold]
    fn give_up(&self, cx: &Kernel) {
        self.pass_on(cx, None);
    }

    /// Takes back the call of `session` with this tag, whether it waits here or a channel carries
    /// it.
    pub(crate) fn cancel(&self, cx: &Kernel, session: SessionId, tag: u64) -> Answer {
        let is_it =
            |waiter: &Rc<Waiter>| (waiter.session.get(), waiter.tag.get()) == (session, tag);
        let waiter = {
            let mut waiters = self.waiters.borrow_mut();
            let place = waiters.iter().position(is_it);
            place.and_then(|place| waiters.remove(place))
        };
        if let Some(waiter) = waiter {
            waiter.turn.set(Turn::Cancelled);
            cx.signal(&waiter.semaphore);
            return Answer::Answered;
        }
        let channel = {
            let tagged = self.tagged.borrow();
            let mut calls = tagged.iter();
            let found = calls.find(|call| (call.session, call.tag) == (session, tag));
            found.map(|call| call.channel.clone())
        };
        channel.map_or(Answer::Unknown, |channel| {
            channel.control(cx, &mut Ask::new(&mut CancelCall { tag }))
        })
    }
}

fn new_waiter() -> Rc<Waiter> {
    Rc::new(Waiter {
        session: Cell::new(SessionId(0)),
        tag: Cell::new(0),
        turn: Cell::new(Turn::Waits),
        channel: SessionSlot::default(),
        semaphore: Semaphore::new(0),
    })
}

fn grant(cx: &Kernel, waiter: &Waiter, channel: Option<SessionRef>) {
    waiter.turn.set(Turn::Granted);
    drop(waiter.channel.replace(channel));
    cx.signal(&waiter.semaphore);
}

/// How a call ended that never had a channel.
fn failed(error: WaitError) -> CallError {
    match error {
        WaitError::TimedOut => CallCause::TimedOut { tries: 0 }.into(),
        other => other.into(),
    }
}
