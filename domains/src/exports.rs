//! Sessions of this side that the other side knows by a handle.

use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use xk_core::{Message, Reason, SessionRef};
use xk_kit::Handles;

use crate::frame::Header;

/// The most sessions that the other side knows: twice as many as the largest tables hold.
pub const SESSIONS_MAX: usize = 1 << 17;

/// Frames of one session that wait for a push before them.
const PUSHES_MAX: usize = 1024;

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

/// All of them, by handle.
pub(crate) type Exports = Handles<Rc<Export>>;

/// The session under a handle of its own, which becomes its tag; `None` at the bound.
pub(crate) fn add(all: &Exports, session: &SessionRef) -> Option<Rc<Export>> {
    let make = |handle| {
        Rc::new(Export {
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
        })
    };
    let handle = all.enter(SESSIONS_MAX, make)?;
    session.head().set_tag(handle);
    all.get(handle)
}

/// Finds the export of a session.
pub(crate) fn of(all: &Exports, session: &SessionRef) -> Option<Rc<Export>> {
    all.get(session.head().tag()).filter(|export| export.session == *session)
}
