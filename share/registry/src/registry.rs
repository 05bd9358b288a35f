//! The registry: which programs carry on which conversations, and what becomes of those whose
//! program is gone.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::control::Describe;
use xk_core::object::{Closing, OpenError, ProtocolId};
use xk_core::{
    Answer, Ask, Kernel, Participants, Protocol, ProtocolRef, Session, SessionRef, Upper,
};
use xk_kit::control::{MaxPacket, MyEther};
use xk_kit::net::moving::{KeepEnds, bring, ends_of};
use xk_kit::net::stream::StreamAbort;
use xk_kit::net::template::Headers;
use xk_netio::{GrantChannel, GrantRight, Rate, RevokeChannel, RevokeRight};

use crate::questions::{EndRight, GiveBack, OpenChannel, TakeOver};

/// Programs at one time at most.
pub const PROGRAMS_MAX: usize = 64;
/// Conversations of one program at most.
pub const RIGHTS_MAX: usize = 8192;
/// Octets of a state that a program gives back at most.
pub const STATE_OCTETS_MAX: usize = 4 << 20;

/// A conversation that a program carries on.
struct Right {
    /// The protocol beside the registry that has begun it.
    transport: ProtocolRef,
    ends: Participants,
}

impl Right {
    /// Has the ends kept for the program, or no longer; false if the protocol cannot.
    fn keep(&self, cx: &Kernel, keep: bool) -> bool {
        let asked = KeepEnds { ends: self.ends.clone(), keep, done: false };
        self.transport.ask(cx, asked).is_some_and(|answer| answer.done)
    }

    /// The registry goes on with a state that was given back; false if it is none.
    fn go_on(&self, cx: &Kernel, this: &ProtocolRef, state: &[u8]) -> bool {
        let opened = bring(cx, &self.transport, &self.ends, state)
            .then(|| self.transport.open(cx, Upper::new(this), self.ends.clone()));
        match opened {
            Some(Ok(session)) => session.close(cx),
            _ => {
                self.keep(cx, false);
                return false;
            }
        }
        true
    }

    /// Its program is gone: the peer is to hear of it. An open finds the connection half open at
    /// the peer, whose answer tells by which numbers it is reset (RFC 9293, section 3.5.1; RFC
    /// 5961, section 4.2).
    fn reset(&self, cx: &Kernel, this: &ProtocolRef) {
        self.keep(cx, false);
        if let Ok(session) = self.transport.open(cx, Upper::new(this), self.ends.clone()) {
            let _ = session.ask(cx, StreamAbort);
            session.close(cx);
        }
    }
}

/// What a program leaves behind.
enum Left {
    Channel(u32),
    Right(Right),
}

struct Shared {
    /// The network I/O module.
    netio: ProtocolRef,
    /// How much a program may send.
    rate: Rate,
    programs: Cell<usize>,
    left: RefCell<VecDeque<Left>>,
    /// A shepherd clears away what is left, or will.
    is_clearing: Cell<bool>,
    /// Conversations that went on here, or were reset, for programs that ended.
    taken_back: Cell<u64>,
    reset: Cell<u64>,
}

/// The protocol object.
pub struct Registry(Rc<Shared>);

/// Adds one to a kernel, for programs that compose without a graph file: above a network I/O
/// module, of which each program gets a channel with this rate.
pub fn add(cx: &Kernel, name: &str, netio: ProtocolRef, rate: Rate) -> ProtocolRef {
    let shared = Shared {
        netio,
        rate,
        programs: Cell::new(0),
        left: RefCell::default(),
        is_clearing: Cell::new(false),
        taken_back: Cell::new(0),
        reset: Cell::new(0),
    };
    cx.add_protocol(crate::KIND, name, Registry(Rc::new(shared)))
}

impl Shared {
    /// Has a shepherd that may wait clear away what is left.
    fn clear(&self, cx: &Kernel, this: &ProtocolRef) {
        if !self.is_clearing.replace(true) && cx.schedule_protocol(this, Duration::ZERO, 0).is_err()
        {
            self.is_clearing.set(false);
        }
    }
}

impl Protocol for Registry {
    /// A program's place; one for each receiver.
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.0;
        if shared.programs.get() >= PROGRAMS_MAX {
            return Err(OpenError::Full);
        }
        shared.programs.set(shared.programs.get() + 1);
        let program = Program {
            shared: Rc::clone(shared),
            of: upper.receiver.id(),
            channel: Cell::new(None),
            rights: RefCell::default(),
            coming: RefCell::default(),
        };
        Ok(cx.new_session(this, upper.receiver, program))
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.0;
        ask.answer::<Describe>(|question| {
            question.text = alloc::format!(
                "{} programs, {} conversations taken back, {} reset",
                shared.programs.get(),
                shared.taken_back.get(),
                shared.reset.get()
            );
        })
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        let shared = &self.0;
        loop {
            let next = shared.left.borrow_mut().pop_front();
            match next {
                Some(Left::Channel(number)) => {
                    let _ = shared.netio.ask(cx, RevokeChannel { number, was_there: false });
                }
                Some(Left::Right(right)) => {
                    shared.reset.set(shared.reset.get() + 1);
                    right.reset(cx, this);
                }
                None => break,
            }
        }
        shared.is_clearing.set(false);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.left.take());
    }
}

/// A program's session.
struct Program {
    shared: Rc<Shared>,
    /// What stands for the program: the receiver of its sessions.
    of: ProtocolId,
    /// Its channel at the module.
    channel: Cell<Option<u32>>,
    /// By number.
    rights: RefCell<BTreeMap<u32, Right>>,
    /// A state that is being given back, and of which right.
    coming: RefCell<(u32, Vec<u8>)>,
}

impl Program {
    fn open_channel(&self, cx: &Kernel, question: &mut OpenChannel) -> Option<()> {
        let netio = &self.shared.netio;
        if let Some(number) = self.channel.take() {
            let _ = netio.ask(cx, RevokeChannel { number, was_there: false });
        }
        question.address = netio.ask(cx, MyEther::default())?.address;
        question.frame_octets_max = netio.ask(cx, MaxPacket::default())?.octets;
        let granted = netio.ask(cx, GrantChannel::new(self.shared.rate))?;
        self.channel.set(granted.ticket.map(|_| granted.number));
        (question.ticket, question.door) = (granted.ticket, granted.door);
        Some(())
    }

    /// The right to carry a session on. What the program says is no more than which one; all else
    /// the session is asked.
    fn take_over(&self, cx: &Kernel, this: &SessionRef, session: &SessionRef) -> Option<u32> {
        let is_own = session.head().upper() == self.of && !session.head().is_closed();
        if !is_own || self.rights.borrow().len() >= RIGHTS_MAX {
            return None;
        }
        let channel = self.channel.get()?;
        let transport = session.protocol(cx)?;
        let right = Right { transport, ends: ends_of(cx, session)? };
        let headers = Headers::of(cx, session)?;
        if !right.keep(cx, true) {
            return None;
        }
        let of = (right.transport.id(), right.ends.clone());
        let asked = GrantRight { channel, headers, of, number: None };
        let granted = self.shared.netio.ask(cx, asked).and_then(|granted| granted.number);
        match granted {
            // The program has gone meanwhile, its channel with it.
            Some(_) if this.head().is_closed() => self.leave(cx, this, [Left::Right(right)]),
            Some(number) => drop(self.rights.borrow_mut().insert(number, right)),
            None => drop(right.keep(cx, false)),
        }
        granted
    }

    /// Takes a part of a state; false if it is not the next of one of its rights, or too long.
    fn give_back(&self, question: &mut GiveBack) -> bool {
        let Some(part) = question.part.take() else {
            return false;
        };
        if !self.rights.borrow().contains_key(&question.right) {
            return false;
        }
        let (right, state) = &mut *self.coming.borrow_mut();
        if question.at == 0 {
            *right = question.right;
            state.clear();
        }
        let is_next = (*right, state.len()) == (question.right, question.at as usize);
        if !is_next || state.len() + part.len() > STATE_OCTETS_MAX {
            return false;
        }
        state.extend(part.octets());
        true
    }

    fn end_right(&self, cx: &Kernel, this: &SessionRef, question: &EndRight) -> bool {
        let right = self.rights.borrow_mut().remove(&question.right);
        let Some(right) = right else {
            return false;
        };
        let asked = RevokeRight { number: question.right, was_there: false };
        let _ = self.shared.netio.ask(cx, asked);
        let (of, state) = self.coming.take();
        if question.state_octets == 0 {
            right.keep(cx, false);
            return true;
        }
        let is_whole = (of, state.len()) == (question.right, question.state_octets as usize);
        let protocol = this.protocol(cx).filter(|_| is_whole);
        let goes_on = protocol.is_some_and(|protocol| right.go_on(cx, &protocol, &state));
        let count = &self.shared.taken_back;
        count.set(count.get() + u64::from(goes_on));
        if !goes_on {
            self.leave(cx, this, [Left::Right(right)]);
        }
        goes_on
    }

    fn leave(&self, cx: &Kernel, this: &SessionRef, all: impl IntoIterator<Item = Left>) {
        self.shared.left.borrow_mut().extend(all);
        if let Some(protocol) = this.protocol(cx) {
            self.shared.clear(cx, &protocol);
        }
    }
}

impl Session for Program {
    fn any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<OpenChannel>() {
            let _ = self.open_channel(cx, question);
        } else if let Some(question) = ask.get::<TakeOver>() {
            let session = question.session.clone();
            question.right = self.take_over(cx, this, &session);
        } else if let Some(question) = ask.get::<GiveBack>() {
            question.taken = self.give_back(question);
        } else if let Some(question) = ask.get::<EndRight>() {
            question.done = self.end_right(cx, this, question);
        } else if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("{} conversations", self.rights.borrow().len());
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    /// The program has gone: what it had is no more, and its peers are told.
    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let shared = &self.shared;
        shared.programs.set(shared.programs.get() - 1);
        let channel = self.channel.take().map(Left::Channel);
        let rights = self.rights.take().into_values().map(Left::Right);
        drop(self.coming.take());
        self.leave(cx, this, channel.into_iter().chain(rights));
        Closing::Done
    }
}
