//! Sessions of this side that the other side knows by a handle.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::{Message, Reason, SessionRef};

use crate::frame::Header;

/// The most sessions that the other side knows: twice as many as the largest tables hold.
pub const SESSIONS_MAX: usize = 1 << 17;

/// Frames of one session that wait for a push before them.
const PUSHES_MAX: usize = 1024;

/// Bits of a handle that say the place, plus 1; those above count how often it was used.
const PLACE_BITS: u32 = 20;

/// The place that a handle says; `None` if it says none.
pub(crate) fn place(handle: u32) -> Option<usize> {
    let place = (handle & ((1 << PLACE_BITS) - 1)).checked_sub(1)? as usize;
    (place < SESSIONS_MAX).then_some(place)
}

/// A session that the other side knows.
pub(crate) struct Export {
    /// The session.
    pub(crate) session: SessionRef,
    /// The other side's name of the session.
    pub(crate) handle: u32,
    /// Number of opens done here; a close that knows of fewer is of no effect.
    pub(crate) opens: Cell<u32>,
    /// The other side holds it, and so does this one for it.
    pub(crate) is_held: Cell<bool>,
    /// The other side held it and has closed it.
    pub(crate) was_closed: Cell<bool>,
    /// True while it is held until the other side has said whether it is wanted.
    pub(crate) is_offered: Cell<bool>,
    /// Frames that came while a push before them waits below: pushes, and questions about them.
    pub(crate) waiting: RefCell<VecDeque<(Header, Message)>>,
    /// A push waits below.
    pub(crate) is_pushing: Cell<bool>,
    /// The other side's last release while a push waits.
    pub(crate) let_go: Cell<Option<Header>>,
    /// Messages on their way up whose refusal the caller waits for.
    pub(crate) going_up: Cell<u32>,
    /// Why the other side refused it.
    pub(crate) refused: Cell<Option<&'static Reason>>,
    /// Why it did not want the session.
    pub(crate) unwanted: Cell<Option<&'static Reason>>,
}

impl Export {
    /// Has a frame wait until the pushes before it are done; gives it back if too many do.
    pub(crate) fn wait(&self, header: Header, frame: Message) -> Result<(), Message> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= PUSHES_MAX {
            return Err(frame);
        }
        waiting.push_back((header, frame));
        Ok(())
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Exports {
    places: RefCell<Vec<(u32, Option<Rc<Export>>)>>,
    free: RefCell<Vec<u32>>,
}

impl Exports {
    /// The session under a handle of its own, which becomes its tag; `None` at the bound.
    pub(crate) fn add(&self, session: &SessionRef) -> Option<Rc<Export>> {
        let mut places = self.places.borrow_mut();
        let at = match self.free.borrow_mut().pop() {
            Some(at) => at as usize,
            None if places.len() == SESSIONS_MAX => return None,
            None => {
                places.push((0, None));
                places.len() - 1
            }
        };
        let (used, place) = &mut places[at];
        *used = used.wrapping_add(1) & ((1 << (32 - PLACE_BITS)) - 1);
        let handle = *used << PLACE_BITS | (at as u32 + 1);
        let export = Rc::new(Export {
            session: session.clone(),
            handle,
            opens: Cell::new(0),
            is_held: Cell::new(false),
            was_closed: Cell::new(false),
            is_offered: Cell::new(false),
            waiting: RefCell::default(),
            is_pushing: Cell::new(false),
            let_go: Cell::new(None),
            going_up: Cell::new(0),
            refused: Cell::new(None),
            unwanted: Cell::new(None),
        });
        session.head().set_tag(handle);
        *place = Some(Rc::clone(&export));
        Some(export)
    }

    /// Finds the export of a handle that is in use.
    pub(crate) fn find(&self, handle: u32) -> Option<Rc<Export>> {
        let places = self.places.borrow();
        let (used, export) = places.get(place(handle)?)?;
        export.as_ref().filter(|_| *used == handle >> PLACE_BITS).cloned()
    }

    /// Finds the export of a session.
    pub(crate) fn of(&self, session: &SessionRef) -> Option<Rc<Export>> {
        self.find(session.head().tag()).filter(|export| export.session == *session)
    }

    /// The handle is of no use any more.
    pub(crate) fn remove(&self, export: &Export) {
        let Some(at) = place(export.handle) else {
            return;
        };
        let taken = match self.places.borrow_mut().get_mut(at) {
            Some((used, place)) if *used == export.handle >> PLACE_BITS => place.take(),
            _ => None,
        };
        if taken.is_some() {
            self.free.borrow_mut().push(at as u32);
        }
    }

    /// Number of exports.
    pub(crate) fn len(&self) -> usize {
        self.places.borrow().iter().filter(|(_, export)| export.is_some()).count()
    }

    /// All of them, which are no longer known to the other side.
    pub(crate) fn take_all(&self) -> Vec<Rc<Export>> {
        let mut places = self.places.borrow_mut();
        // How often each was used stays, so that no handle of before is one of now.
        *self.free.borrow_mut() = (0..places.len() as u32).collect();
        places.iter_mut().filter_map(|(_, export)| export.take()).collect()
    }
}
