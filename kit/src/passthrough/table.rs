//! The wrapped sessions of one pass-through layer.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use xk_core::{ProtocolRef, SessionRef};

/// What a session and the layer's table know of one wrapped session.
pub(super) struct Joint {
    pub(super) lower: SessionRef,
    pub(super) upper: ProtocolRef,
    /// True while the hold is there that an `open` of the lower session took.
    pub(super) holds: Cell<bool>,
}

/// Wrapped sessions; the lower session's tag is the place + 1.
#[derive(Default)]
pub(super) struct Table {
    pub(super) places: Vec<Option<(SessionRef, Rc<Joint>)>>,
    free: Vec<u32>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn get(&self, lower: &SessionRef) -> Option<&(SessionRef, Rc<Joint>)> {
        let place = (lower.head().tag() as usize).checked_sub(1)?;
        self.places.get(place)?.as_ref().filter(|(_, joint)| joint.lower == *lower)
    }

    pub(super) fn insert(&mut self, session: SessionRef, joint: Rc<Joint>) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as u32
        });
        joint.lower.head().set_tag(place + 1);
        if let Some(slot) = self.places.get_mut(place as usize) {
            *slot = Some((session, joint));
        }
    }

    pub(super) fn remove(&mut self, lower: &SessionRef) -> Option<(SessionRef, Rc<Joint>)> {
        self.get(lower)?;
        let place = lower.head().tag() - 1;
        self.free.push(place);
        self.places.get_mut(place as usize)?.take()
    }
}
