//! A session: one upper protocol's end of a conversation through one lower session.

use crate::STALE;
use crate::window::{Turn, Window};
use crate::wire::{HEADER_OCTETS, Header, MESSAGE_OCTETS_MAX};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::num::NonZeroU16;
use core::time::Duration;
use xk_core::control::{Describe, Question};
use xk_core::kernel::Timer;
use xk_core::object::{Closing, PushError, Refused, SessionTable};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef, reason};
use xk_kit::control::{MaxPacket, OptPacket};

/// The key that a message is demultiplexed by: the lower session and the type number.
pub(crate) type Key = (u64, u16);

/// What the graph says of every session of an instance.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// How many numbers ahead a message may be and is kept.
    pub(crate) hold: usize,
    /// How long a message that is missing is waited for.
    pub(crate) wait: Duration,
}

/// Asked of a session: what became of the peer's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages that were given up: they never came, or came too late.
    pub missing: u64,
    /// Messages that came before their turn and were kept.
    pub reordered: u64,
    /// Messages kept at this moment.
    pub held: u64,
}

impl Question for Tally {
    const NAME: &'static str = "seq-tally";
}

pub(crate) struct SeqSession {
    sessions: Rc<SessionTable<Key>>,
    number: NonZeroU16,
    upper: ProtocolRef,
    lower: SessionRef,
    /// Tells the peer this session from an earlier one with the same participants.
    run: u32,
    /// The sequence number of the next message sent.
    next: Cell<u32>,
    window: RefCell<Window>,
    wait: Duration,
    /// Runs while a message is kept: then the first gap is given up.
    timer: Cell<Option<Timer>>,
}

impl SeqSession {
    pub(crate) fn new(
        sessions: Rc<SessionTable<Key>>,
        number: NonZeroU16,
        upper: ProtocolRef,
        lower: SessionRef,
        run: u32,
        settings: Settings,
    ) -> Self {
        Self {
            sessions,
            number,
            upper,
            lower,
            run,
            next: Cell::new(0),
            window: RefCell::new(Window::new(settings.hold)),
            wait: settings.wait,
            timer: Cell::new(None),
        }
    }

    /// Hands up what is kept and whose turn has come. Refusals are counted by who refuses; nobody below waits for them.
    fn deliver(&self, cx: &Kernel, this: &SessionRef) {
        while let Some(message) = self.next_in_order() {
            drop(self.upper.demux(cx, this, message));
        }
    }

    // A function of its own: the borrow ends here, before the message goes up.
    fn next_in_order(&self) -> Option<Message> {
        self.window.borrow_mut().next()
    }

    /// Gives the first gap up.
    #[cold]
    fn skip(&self, cx: &Kernel, this: &SessionRef) {
        self.window.borrow_mut().skip();
        self.deliver(cx, this);
    }

    /// Sets the timer anew for the gap that is the first one now.
    #[cold]
    fn watch(&self, cx: &Kernel, this: &SessionRef) {
        if let Some(timer) = self.timer.take() {
            cx.cancel(timer);
        }
        while self.is_waiting() {
            if let Ok(timer) = cx.schedule(this, self.wait, 0) {
                self.timer.set(Some(timer));
                return;
            }
            // No timer left: better to go on without the missing ones than to keep the others for ever.
            self.skip(cx, this);
        }
    }

    fn is_waiting(&self) -> bool {
        self.window.borrow().is_waiting()
    }

    fn tally(&self) -> Tally {
        let window = self.window.borrow();
        Tally {
            missing: window.missing,
            reordered: window.reordered,
            held: window.held() as u64,
        }
    }
}

impl Session for SeqSession {
    #[inline]
    fn push(&self, cx: &Kernel, _: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let Ok(length) = u16::try_from(message.len()) else {
            return Err(PushError::TooBig {
                max: MESSAGE_OCTETS_MAX as u32,
            });
        };
        let sequence = self.next.get();
        let header = Header {
            number: self.number,
            length,
            run: self.run,
            sequence,
        };
        message
            .push_array(&header.emit())
            .map_err(|_| PushError::NoBuffers)?;
        self.next.set(sequence.wrapping_add(1));
        let sent = self.lower.push(cx, message);
        if sent.is_err() && self.next.get() == sequence.wrapping_add(1) {
            // The peer would wait for a number that never left.
            self.next.set(sequence);
        }
        sent.map_err(for_the_layer_above)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        // `demux` has brought the header together and checked it.
        let Some(&[_, _, _, _, r0, r1, r2, r3, s0, s1, s2, s3]) = message.pop_array() else {
            return Err(this.refuse(cx, message, &reason::TRUNCATED));
        };
        let run = u32::from_be_bytes([r0, r1, r2, r3]);
        let sequence = u32::from_be_bytes([s0, s1, s2, s3]);
        loop {
            let turn = self
                .window
                .borrow_mut()
                .place((run, sequence), cx.now(), message);
            match turn {
                Turn::Now(first) => {
                    let taken = self.upper.demux(cx, this, first);
                    if self.timer.get().is_some() {
                        self.deliver(cx, this);
                        self.watch(cx, this);
                    }
                    return taken;
                }
                Turn::Later => {
                    if self.timer.get().is_none() {
                        self.watch(cx, this);
                    }
                    return Ok(());
                }
                Turn::Never(message) => return Err(this.refuse(cx, message, &STALE)),
                Turn::Full(again) => {
                    self.skip(cx, this);
                    self.watch(cx, this);
                    message = again;
                }
            }
        }
    }

    fn timeout(&self, cx: &Kernel, this: &SessionRef, _: u64) {
        self.timer.set(None);
        self.skip(cx, this);
        self.watch(cx, this);
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Tally>() {
            *question = self.tally();
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Describe>() {
            let Tally { missing, held, .. } = self.tally();
            let number = self.number;
            question.text = alloc::format!("seq > {number}, {missing} missing, {held} held");
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            let _ = ask.answer::<MaxPacket>(|q| q.octets = less_header(q.octets));
            let _ = ask.answer::<OptPacket>(|q| q.octets = less_header(q.octets));
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if let Some(timer) = self.timer.take() {
            cx.cancel(timer);
        }
        let left = self.window.borrow_mut().drain();
        left.for_each(|message| this.discard(cx, message, &reason::CLOSED));
        let key = (self.lower.id().0, self.number.get());
        self.sessions.release(&key, this);
        // What was opened for it is closed with it; one that a message made holds the lower one
        // only while it is held.
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        Closing::Done
    }
}

/// How much of the lower layer's largest message is left for the layer above, in octets.
fn less_header(octets: u32) -> u32 {
    octets
        .saturating_sub(HEADER_OCTETS as u32)
        .min(MESSAGE_OCTETS_MAX as u32)
}

/// What the layer below answers counts our header.
#[cold]
fn for_the_layer_above(error: PushError) -> PushError {
    match error {
        PushError::TooBig { max } => PushError::TooBig {
            max: less_header(max),
        },
        other => other,
    }
}
