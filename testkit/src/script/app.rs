//! The application above: speaks the interface of streams and remembers what it is told.

use super::spec::Told;
use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::object::{Popped, SessionId};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef,
};
use xk_kit::net::stream::{StreamEvent, StreamNotice, StreamRoom};

#[derive(Default)]
struct State {
    told: RefCell<VecDeque<(SessionId, Told)>>,
    octets: RefCell<Vec<(SessionId, Vec<u8>)>>,
    accepted: RefCell<Vec<(SessionRef, u16)>>,
    /// Room that connections find: none if `None`; else the largest segment that they are told of,
    /// in octets, and the octets of theirs that are kept.
    room: Cell<Option<(u16, u32)>>,
}

/// An application protocol.
pub(super) struct App {
    state: Rc<State>,
    pub(super) protocol: ProtocolRef,
}

impl App {
    pub(super) fn add(cx: &Kernel) -> Self {
        let state = Rc::new(State::default());
        state.room.set(Some((u16::MAX, u32::MAX)));
        let protocol = cx.add_protocol("app", "app", Body(Rc::clone(&state)));
        Self { state, protocol }
    }

    /// Whether it takes one peer more, of which segments at most, in octets, that is told, and how
    /// many octets it may send.
    pub(super) fn set_room(&self, room: Option<(u16, u32)>) {
        self.state.room.set(room);
    }

    /// Octets that have come up since the last look.
    pub(super) fn take_octets(&self) -> Vec<(SessionId, Vec<u8>)> {
        self.state.octets.take()
    }

    /// The sessions made for an enable since the last look, with the peer's port.
    pub(super) fn take_accepted(&self) -> Vec<(SessionRef, u16)> {
        self.state.accepted.take()
    }

    /// The oldest event of a session.
    pub(super) fn next_of(&self, session: SessionId) -> Option<Told> {
        let mut told = self.state.told.borrow_mut();
        let at = told.iter().position(|(id, _)| *id == session)?;
        told.remove(at).map(|(_, told)| told)
    }

    /// The oldest event of any session; it stays.
    pub(super) fn left(&self) -> Option<Told> {
        self.state.told.borrow().front().map(|(_, told)| *told)
    }

    pub(super) fn clear(&self) {
        self.state.told.take();
        let dropped = (self.state.octets.take(), self.state.accepted.take());
        drop(dropped);
    }
}

struct Body(Rc<State>);

impl Protocol for Body {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut participants: Participants,
    ) -> Result<(), &'static Reason> {
        lower.hold();
        let port = participants.peer_mut().and_then(|peer| peer.pop_port());
        let port = port.ok().and_then(|port| port.value()).unwrap_or(0);
        let state = &self.0;
        state.accepted.borrow_mut().push((lower.clone(), port));
        let told = (lower.id(), Told::Accepted);
        state.told.borrow_mut().push_back(told);
        Ok(())
    }

    fn demux(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        let octets = message.octets().collect();
        self.0.octets.borrow_mut().push((lower.id(), octets));
        Ok(())
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(notice) = ask.get::<StreamNotice>() else {
            let found = self.0.room.get();
            return ask.answer::<StreamRoom>(|room| {
                room.full = found.is_none();
                (room.segment_max, room.receive_buffer) = found.unwrap_or((u16::MAX, u32::MAX));
            });
        };
        let told = match notice.event {
            StreamEvent::Connected => Told::Connected,
            StreamEvent::Writable => Told::Writable,
            StreamEvent::EndOfStream => Told::EndOfStream,
            StreamEvent::Failed(why) => Told::Failed(why),
            StreamEvent::Closed => Told::Closed,
        };
        let told = (notice.session.id(), told);
        self.0.told.borrow_mut().push_back(told);
        Answer::Answered
    }
}
