//! The user of a measured graph with TCP at its top: a protocol that asks, answers, sends,
//! receives, or connects again and again.
//!
//! What arrives is copied into memory of the user's, as `read` would, and what it sends comes from
//! there.

use super::course::{Course, Top};
use super::endpoint::{Endpoint, Task};
use super::exchange::KNOCK;
use super::pattern::{Pattern, WRITE_OCTETS};
use crate::uppers::Echo;
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::rc::Rc;
use xk_core::object::{OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, Reason,
    SessionRef, Upper,
};
use xk_kit::net::stream::{StreamEvent, StreamNotice, StreamSpace};

/// Room for the headers of TCP, IP and Ethernet, in octets.
const HEADROOM: usize = 128;
/// The ports that connections are opened from, one after the other, so that one that waits for late
/// segments is not met soon.
const PORT_FIRST: u16 = 20_000;
const PORT_COUNT: u32 = 40_000;

/// The user; clones are the same one.
#[derive(Clone)]
pub(super) struct StreamUser(Rc<Inner>);

struct Inner {
    course: Course,
    flows: u32,
    octets: usize,
    lower: ProtocolRef,
    /// Our end, without its port, and the peer's.
    ends: (Participant, Participant),
    port: u16,
    pattern: Pattern,
    buffer: RefCell<Vec<u8>>,
    session: RefCell<Option<SessionRef>>,
    /// Place in the stream: octets that were pushed, or have come.
    at: Cell<u64>,
    /// Octets of the current answer that have come.
    got: Cell<usize>,
    opened: Cell<u32>,
}

impl StreamUser {
    /// One that speaks from `mine` to `peer`, or serves the port of `mine`.
    pub(super) fn new(
        end: &Endpoint,
        (mine, peer): (Participant, Participant),
        port: u16,
        lower: ProtocolRef,
    ) -> Self {
        Self(Rc::new(Inner {
            course: Course::new(end),
            flows: end.system.flows(),
            octets: end.octets.clamp(1, WRITE_OCTETS),
            lower,
            ends: (mine, peer),
            port,
            pattern: Pattern::default(),
            buffer: RefCell::new(vec![0; WRITE_OCTETS]),
            session: RefCell::default(),
            at: Cell::new(0),
            got: Cell::new(0),
            opened: Cell::new(0),
        }))
    }
}

impl Inner {
    /// Opens the next connection.
    fn open(&self, cx: &Kernel, this: &ProtocolRef) {
        let number = self.opened.get();
        self.opened.set(number.wrapping_add(1));
        let port = match self.course.task {
            Task::Connect | Task::Send => PORT_FIRST + (number % PORT_COUNT) as u16,
            _ => self.port,
        };
        let (mine, peer) = self.ends.clone();
        let participants = Participants::pair(mine.with(Part::port(port)), peer);
        match self.lower.open(cx, Upper::new(this), participants) {
            Ok(session) => *self.session.borrow_mut() = Some(session),
            Err(_) => self.course.breaks("a connection was not opened"),
        }
    }

    /// Sends one message of the agreed length.
    fn ask(&self, cx: &Kernel, session: &SessionRef) {
        let message = cx.pool().copy_from(HEADROOM, self.pattern.at(0, self.octets));
        let went = message.is_ok_and(|message| session.push(cx, message).is_ok());
        if !went {
            self.course.breaks("a message was not taken");
        }
    }

    /// Sends as much as there is room for.
    fn fill(&self, cx: &Kernel, session: &SessionRef) {
        while session
            .ask(cx, StreamSpace::default())
            .is_some_and(|space| space.octets as usize >= self.octets)
        {
            // To push may end in here again: the place moves on before.
            let at = self.at.get();
            let octets = black_box(self.pattern.at(at, self.octets));
            let Ok(message) = cx.pool().copy_from(HEADROOM, octets) else {
                return;
            };
            self.at.set(at + self.octets as u64);
            if session.push(cx, message).is_err() {
                self.course.breaks("octets for which there was space were refused");
                return;
            }
        }
    }

    /// Takes octets in, as a program would; checks them as long as nothing is measured yet. Answers
    /// how many.
    fn read(&self, message: &Message) -> usize {
        let mut buffer = self.buffer.borrow_mut();
        let mut offset = 0;
        while offset < message.len() {
            let octets = message.copy_to(offset, &mut buffer);
            offset += octets;
            self.took(black_box(&buffer[..octets]));
        }
        offset
    }

    /// A receiver has taken octets.
    fn took(&self, octets: &[u8]) {
        if self.course.task != Task::Receive {
            return;
        }
        let mut window = self.course.window.borrow_mut();
        let at = self.at.get();
        // Of several streams it is not known here whose these are.
        if self.flows == 1 && !window.measures() && *octets != *self.pattern.at(at, octets.len()) {
            self.course.breaks("what came is not what was sent");
        }
        self.at.set(at + octets.len() as u64);
        window.saw_octets(octets.len() as u64);
    }

    /// The answer is whole: the next question, or the next connection.
    fn next(&self, cx: &Kernel, this: &ProtocolRef, session: &SessionRef) {
        let goes_on = self.course.goes_on(cx.now());
        if self.course.task == Task::Ask {
            if goes_on {
                self.ask(cx, session);
            }
            return;
        }
        let held = self.session.take();
        if let Some(held) = held {
            held.close(cx);
        }
        if goes_on {
            self.open(cx, this);
        }
    }

    fn hear(&self, cx: &Kernel, session: &SessionRef, event: StreamEvent) {
        match (event, self.course.task) {
            (StreamEvent::Connected, Task::Ask) => self.ask(cx, session),
            (StreamEvent::Connected | StreamEvent::Writable, Task::Send) => self.fill(cx, session),
            (StreamEvent::Connected, Task::Connect) => {
                let octet = cx.pool().copy_from(HEADROOM, &[1]);
                let _ = octet.map(|octet| session.push(cx, octet));
            }
            (StreamEvent::EndOfStream | StreamEvent::Failed(_), Task::Accept) => session.close(cx),
            (StreamEvent::Failed(_), Task::Ask | Task::Connect | Task::Receive) => {
                self.course.breaks("a connection broke");
            }
            _ => {}
        }
    }
}

impl Protocol for StreamUser {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let inner = &*self.0;
        if inner.course.task.is_passive() {
            let local = Participants::local(Part::port(inner.port));
            let _stands = inner.lower.open_enable(cx, Upper::new(this), local)?;
        } else {
            // A wire may have to find its peer first; a SYN that goes too early is repeated after a
            // second.
            let _ = cx.schedule_protocol(this, KNOCK, 0);
        }
        Ok(())
    }

    fn open_done(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        participants: Participants,
    ) -> Result<(), &'static Reason> {
        Echo { holds: true }.open_done(cx, this, lower, participants)
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let inner = &*self.0;
        match inner.course.task {
            Task::Ask | Task::Connect => {
                inner.got.set(inner.got.get() + inner.read(&message));
                drop(message);
                if inner.got.get() >= inner.octets {
                    inner.got.set(0);
                    inner.next(cx, this, lower);
                }
            }
            Task::Receive => {
                inner.read(&message);
            }
            // An answer that does not go is missed by its asker.
            Task::Answer | Task::Accept => {
                let _ = lower.push(cx, message);
            }
            _ => {}
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(notice) = ask.get::<StreamNotice>() else {
            return Answer::Unknown;
        };
        let (session, event) = (notice.session.clone(), notice.event);
        self.0.hear(cx, &session, event);
        Answer::Answered
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        for _ in 0..self.0.flows {
            self.0.open(cx, this);
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.session.take());
    }
}

impl Top for StreamUser {
    fn course(&self) -> &Course {
        &self.0.course
    }
}
