//! A conversation that a program carries on, as the registry knows it.

use core::cell::{Cell, RefCell};
use xk_core::{Kernel, Part, Participant, Participants, ProtocolRef, SessionRef, Upper};
use xk_kit::control::{MyHost, MyPort};
use xk_kit::net::moving::{KeepEnds, bring};
use xk_kit::net::stream::StreamAbort;
use xk_kit::net::template::Headers;

/// A conversation that a program carries on.
pub(super) struct Right {
    /// The protocol beside the registry that has begun it.
    pub(super) transport: ProtocolRef,
    pub(super) ends: Participants,
    pub(super) channel: u32,
    /// The station that led to the peer when it was looked at last.
    pub(super) station: Cell<[u8; 6]>,
    /// A right to send to that, if it is not the first one.
    pub(super) extended: Cell<Option<u32>>,
    /// The session that keeps the ends, of a transport whose conversations do not move.
    pub(super) held: RefCell<Option<SessionRef>>,
}

/// The station that messages with these headers go to.
pub(super) fn station(headers: &Headers) -> [u8; 6] {
    headers.sent.station().and_then(|octets| octets.first_chunk().copied()).unwrap_or_default()
}

/// The local end of a session that receives from everybody, as for `open`.
pub(super) fn port_of(cx: &Kernel, session: &SessionRef) -> Option<Participants> {
    let port = Part::port(session.ask(cx, MyPort::default())?.port);
    let host = Part::Host(session.ask(cx, MyHost::default())?.host);
    Some(Participants::pair(Participant::of(host).with(port), Participant::of(Part::Any)))
}

impl Right {
    pub(super) fn new(of: (ProtocolRef, Participants), channel: u32, headers: &Headers) -> Self {
        let ((transport, ends), station) = (of, Cell::new(station(headers)));
        let (extended, held) = (Cell::new(None), RefCell::default());
        Self { transport, ends, channel, station, extended, held }
    }

    /// Has the ends kept, under this number for `keeper`: if they are, the headers as they are now,
    /// if it `looks` for these and the protocol says. A session keeps those that do not move.
    pub(super) fn keep(
        &self,
        cx: &Kernel,
        (keeper, number): (&ProtocolRef, u32),
        looks: bool,
    ) -> Option<Option<Headers>> {
        let (ends, of) = (self.ends.clone(), Some(keeper.clone()));
        let headers = looks.then(Headers::default);
        let asked = KeepEnds { ends, keep: true, keeper: of, number, headers, done: false };
        if let Some(answer) = self.transport.ask(cx, asked) {
            self.held.take().inspect(|held| held.ease(cx));
            return answer.done.then_some(answer.headers);
        }
        if self.held.borrow().is_none() {
            let opened = self.transport.open(cx, Upper::new(keeper), self.ends.clone()).ok()?;
            drop(self.held.replace(Some(opened)));
        }
        let held = self.held.borrow().clone().filter(|held| !held.head().is_closed());
        held.map(|held| looks.then(|| Headers::of(cx, &held)).flatten())
    }

    /// Has the ends kept no longer.
    pub(super) fn free(&self, cx: &Kernel) {
        if let Some(held) = self.held.take() {
            return held.ease(cx);
        }
        let asked = KeepEnds { ends: self.ends.clone(), ..KeepEnds::default() };
        let _ = self.transport.ask(cx, asked);
    }

    /// The transport has this state, and expects the conversation; false if it is none.
    pub(super) fn bring(&self, cx: &Kernel, state: &[u8]) -> bool {
        bring(cx, &self.transport, &self.ends, state)
    }

    /// The registry goes on with the conversation that was brought, to its end; false if it cannot.
    pub(super) fn go_on(&self, cx: &Kernel, this: &ProtocolRef) -> bool {
        let opened = self.transport.open(cx, Upper::new(this), self.ends.clone());
        let goes_on = opened.as_ref().map(|session| session.close(cx)).is_ok();
        if !goes_on {
            self.free(cx);
        }
        goes_on
    }

    /// Resets the peer of a program that is gone. An open finds the connection half open at the
    /// peer, whose answer tells by which numbers it is reset (RFC 9293, section 3.5.1; RFC 5961,
    /// section 4.2).
    pub(super) fn reset(&self, cx: &Kernel, this: &ProtocolRef) {
        let has_no_peer = self.held.borrow().is_some();
        self.free(cx);
        if has_no_peer {
            return;
        }
        if let Ok(session) = self.transport.open(cx, Upper::new(this), self.ends.clone()) {
            let _ = session.ask(cx, StreamAbort);
            session.close(cx);
        }
    }
}
