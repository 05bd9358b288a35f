//! The other side of a cut, in place of a sound one: it sends the frames of a script; and a pair of
//! sound ones whose frames are noted, for seeds.

use crate::harness::Script;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::{Kernel, Message};
use xk_domains::{Arrival, Carrier, FRAME_OCTETS_MAX, HEADROOM, SendError};

/// Number of frames that it has room for before it takes some.
const ROOM: usize = 32;
/// Number of header numbers that it remembers.
const SEEN_MAX: usize = 8;

/// Sends what a script says, and remembers the numbers in the headers of what it is sent: those of
/// requests and sessions.
pub(crate) struct Stranger {
    script: Rc<Script>,
    frames: RefCell<VecDeque<Vec<u8>>>,
    seen: RefCell<VecDeque<[u8; 4]>>,
    room: Cell<usize>,
    is_gone: Cell<bool>,
}

impl Stranger {
    pub(crate) fn new(script: &Rc<Script>) -> Rc<Self> {
        Rc::new(Self {
            script: Rc::clone(script),
            frames: RefCell::default(),
            seen: RefCell::default(),
            room: Cell::new(ROOM),
            is_gone: Cell::new(false),
        })
    }

    /// Sends a frame. With bit 4 of `kind` its first number is one that it has seen, which one says
    /// the octet in its place; with bit 5 its second number.
    pub(crate) fn put(&self, kind: u8, octets: &[u8]) {
        let mut frame = octets.to_vec();
        let seen = self.seen.borrow();
        for (bit, at) in [(4, 4), (5, 8)] {
            if kind >> bit & 1 == 1
                && let Some(number) = frame.get_mut(at..at + 4)
                && let Some(seen) = seen.get(usize::from(number[0]) % SEEN_MAX)
            {
                number.copy_from_slice(seen);
            }
        }
        self.frames.borrow_mut().push_back(frame);
    }

    /// Takes so many of the frames that it was sent.
    pub(crate) fn take(&self, frames: u8) {
        self.room.set(ROOM.min(self.room.get() + usize::from(frames)));
    }

    /// Says nothing any more.
    pub(crate) fn go(&self) {
        self.is_gone.set(true);
    }
}

/// The end of the link, in the form that a port takes.
pub(crate) struct End(pub(crate) Rc<Stranger>);

impl Carrier for End {
    fn room(&self) -> usize {
        self.0.room.get()
    }

    fn frame_octets_max(&self) -> usize {
        FRAME_OCTETS_MAX
    }

    fn send(&self, _: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        let peer = &*self.0;
        assert!(head.len() + body.len() <= FRAME_OCTETS_MAX, "a frame that does not cross");
        match peer.room.get() {
            _ if peer.is_gone.get() => return Err(SendError::Lost),
            0 => return Err(SendError::Full),
            room => peer.room.set(room - 1),
        }
        let mut seen = peer.seen.borrow_mut();
        for number in head.get(4..12).into_iter().flat_map(|numbers| numbers.as_chunks().0) {
            seen.push_front(*number);
        }
        seen.truncate(SEEN_MAX);
        Ok(())
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        let mut frames = self.0.frames.borrow_mut();
        let Some(next) = frames.front() else {
            return if self.0.is_gone.get() { Arrival::Lost } else { Arrival::Nothing };
        };
        match cx.pool().copy_from(HEADROOM, next) {
            Ok(frame) => {
                frames.pop_front();
                Arrival::Frame(frame)
            }
            Err(_) => Arrival::NoBuffers,
        }
    }

    fn is_lost(&self, _: &Kernel) -> bool {
        self.0.is_gone.get()
    }

    fn close(&self) {
        self.0.is_gone.set(true);
        self.0.frames.take();
    }

    /// Waits for the next frame of the script, or for the end.
    fn turn(&self, _: &Kernel) {
        match self.0.script.step() {
            Some((kind, octets)) if kind & 8 == 0 => self.0.put(kind, octets),
            _ => self.0.go(),
        }
    }
}

type Lane = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// Has the other side look after what was sent to it.
type Turn = Rc<RefCell<Option<Box<dyn Fn()>>>>;

/// One end of two queues of octets, with what was sent into this end.
#[derive(Clone, Default)]
pub(crate) struct Pipe {
    out: Lane,
    back: Lane,
    pub(crate) sent: Rc<RefCell<Vec<Vec<u8>>>>,
    pub(crate) turn: Turn,
}

impl Pipe {
    pub(crate) fn pair() -> [Self; 2] {
        let one = Self::default();
        let other =
            Self { out: Rc::clone(&one.back), back: Rc::clone(&one.out), ..Self::default() };
        [one, other]
    }
}

impl Carrier for Pipe {
    fn room(&self) -> usize {
        ROOM
    }

    fn frame_octets_max(&self) -> usize {
        FRAME_OCTETS_MAX
    }

    fn send(&self, _: &Kernel, head: &[u8], body: &Message) -> Result<(), SendError> {
        let frame: Vec<u8> = head.iter().copied().chain(body.octets()).collect();
        self.sent.borrow_mut().push(frame.clone());
        self.out.borrow_mut().push_back(frame);
        Ok(())
    }

    fn receive(&self, cx: &Kernel) -> Arrival {
        let next = self.back.borrow_mut().pop_front();
        let frame = next.and_then(|frame| cx.pool().copy_from(HEADROOM, &frame).ok());
        frame.map_or(Arrival::Nothing, Arrival::Frame)
    }

    fn is_lost(&self, _: &Kernel) -> bool {
        false
    }

    fn close(&self) {
        self.turn.take();
    }

    fn turn(&self, _: &Kernel) {
        if let Some(turn) = &*self.turn.borrow() {
            turn();
        }
    }
}
