//! An application of streams: sends octets of which each follows from its place, checks those that
//! come, and ends in order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use xk_core::object::Popped;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, Upper,
};
use xk_kit::net::stream::{
    StreamAbort, StreamError, StreamEvent, StreamNotice, StreamShutdown, StreamSpace,
};

/// So few octets are sent without asking for room, and not again: as an echo does.
pub(crate) const PROMPT_OCTETS_MAX: usize = 1000;

/// Plan for each of its streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Octets to be sent.
    pub(crate) octets: usize,
    /// The direction is ended once all were sent; otherwise once the peer has ended its own.
    pub(crate) ends_first: bool,
}

/// A stream, and what came of it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) session: Option<SessionRef>,
    pub(crate) sent: usize,
    pub(crate) received: usize,
    pub(crate) is_wrong: bool,
    pub(crate) has_ended: bool,
    pub(crate) failed: Option<StreamError>,
    is_shut: bool,
    is_pumping: Rc<Cell<bool>>,
}

#[derive(Default)]
struct State {
    streams: RefCell<Vec<Stream>>,
}

/// The application, and its protocol object.
#[derive(Clone)]
pub(crate) struct App {
    state: Rc<State>,
    pub(crate) this: ProtocolRef,
    lower: ProtocolRef,
}

struct Body {
    state: Rc<State>,
    plan: Plan,
}

fn octet(place: usize) -> u8 {
    (place.wrapping_mul(31) ^ place >> 8) as u8
}

impl App {
    pub(crate) fn add(cx: &Kernel, name: &str, lower: ProtocolRef, plan: Plan) -> Self {
        let state = Rc::<State>::default();
        let this = cx.add_protocol("app", name, Body { state: Rc::clone(&state), plan });
        Self { state, this, lower }
    }

    /// Opens a stream.
    pub(crate) fn open(&self, cx: &Kernel, ends: &str) {
        let ends: Participants = ends.parse().expect("participants");
        let opened = self.lower.open(cx, Upper::new(&self.this), ends);
        match opened {
            Ok(session) => self.state.add(session),
            Err(error) => panic!("it opens: {error}"),
        }
    }

    /// Breaks all streams off.
    pub(crate) fn reset(&self, cx: &Kernel) {
        let mut streams = self.state.streams.borrow_mut();
        let all: Vec<_> = streams.iter_mut().filter_map(|stream| stream.session.take()).collect();
        drop(streams);
        for session in all {
            let _ = session.ask(cx, StreamAbort);
            session.close(cx);
        }
    }

    /// Takes peers at a port.
    pub(crate) fn listen(&self, cx: &Kernel, port: &str) {
        let local: Participants = port.parse().expect("participants");
        self.lower.open_enable(cx, Upper::new(&self.this), local).map(drop).expect("it is free");
    }

    pub(crate) fn see<T>(&self, look: impl FnOnce(&[Stream]) -> T) -> T {
        look(&self.state.streams.borrow())
    }

    /// True once all octets of each have come, and both ends said that it is over.
    pub(crate) fn is_done(&self, octets: usize) -> bool {
        self.see(|all| {
            !all.is_empty() && all.iter().all(|s| s.session.is_none() && s.received == octets)
        })
    }
}

impl State {
    fn add(&self, session: SessionRef) {
        let mut streams = self.streams.borrow_mut();
        session.head().set_tag(streams.len() as u32 + 1);
        streams.push(Stream {
            session: Some(session),
            sent: 0,
            received: 0,
            is_wrong: false,
            has_ended: false,
            failed: None,
            is_shut: false,
            is_pumping: Rc::default(),
        });
    }

    fn with<T>(&self, session: &SessionRef, act: impl FnOnce(&mut Stream) -> T) -> Option<T> {
        let at = (session.head().tag() as usize).checked_sub(1)?;
        self.streams.borrow_mut().get_mut(at).map(act)
    }
}

impl Body {
    /// Sends what there is room for.
    fn pump(&self, cx: &Kernel, session: &SessionRef) {
        let state = &self.state;
        let Some(pumping) = state.with(session, |stream| Rc::clone(&stream.is_pumping)) else {
            return;
        };
        if pumping.replace(true) {
            return;
        }
        loop {
            let sent = state.with(session, |stream| stream.sent).unwrap_or(self.plan.octets);
            let left = self.plan.octets - sent;
            if left == 0 {
                break;
            }
            let asked = || session.ask(cx, StreamSpace::default()).map_or(0, |space| space.octets);
            let is_prompt = self.plan.octets <= PROMPT_OCTETS_MAX;
            let space = if is_prompt { u32::MAX } else { asked() };
            let octets = left.min(space as usize).min(3000);
            if octets == 0 {
                break;
            }
            let octets: Vec<u8> = (sent..sent + octets).map(octet).collect();
            let Ok(message) = cx.pool().copy_from(128, &octets) else {
                break;
            };
            if session.push(cx, message).is_err() && !is_prompt {
                break;
            }
            state.with(session, |stream| stream.sent += octets.len());
        }
        pumping.set(false);
        self.end(cx, session);
    }

    /// Ends this direction, and releases what has ended in both.
    fn end(&self, cx: &Kernel, session: &SessionRef) {
        let plan = self.plan;
        let shuts = self.state.with(session, |stream| {
            let is_time = plan.ends_first || stream.has_ended;
            let shuts = !stream.is_shut && stream.sent == plan.octets && is_time;
            stream.is_shut |= shuts;
            shuts
        });
        if shuts == Some(true) {
            let _ = session.ask(cx, StreamShutdown);
        }
        let over = self.state.with(session, |stream| {
            (stream.is_shut && stream.has_ended).then(|| stream.session.take()).flatten()
        });
        if let Some(session) = over.flatten() {
            session.close(cx);
        }
    }
}

impl Protocol for Body {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        lower.hold();
        self.state.add(lower.clone());
        Ok(())
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        self.state.with(lower, |stream| {
            for octet_came in message.octets() {
                stream.is_wrong |= octet_came != octet(stream.received);
                stream.received += 1;
            }
        });
        drop(message);
        // One that was opened by the peer begins with what that says.
        self.pump(cx, lower);
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(StreamNotice { session, event }) = ask.get::<StreamNotice>() else {
            return Answer::Unknown;
        };
        let (session, event) = (session.clone(), *event);
        match event {
            StreamEvent::Connected | StreamEvent::Writable => self.pump(cx, &session),
            StreamEvent::EndOfStream => {
                self.state.with(&session, |stream| stream.has_ended = true);
                self.pump(cx, &session);
            }
            StreamEvent::Failed(why) => {
                let gone = self.state.with(&session, |stream| {
                    stream.failed = Some(why);
                    stream.session.take()
                });
                if let Some(session) = gone.flatten() {
                    session.close(cx);
                }
            }
            StreamEvent::Closed => {}
        }
        Answer::Answered
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.state.streams.take());
    }
}
