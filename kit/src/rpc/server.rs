//! The one protocol above a layer that serves, and what is enabled below for it.

use crate::net::offers::Offers;
use alloc::collections::BTreeMap;
use core::cell::{Cell, RefCell};
use xk_core::object::{Enable, OpenError};
use xk_core::{Kernel, Participant, ProtocolRef};

/// The protocol that serves, while it enables anything.
#[derive(Default)]
pub struct Server {
    upper: RefCell<Option<ProtocolRef>>,
    offers: Offers,
    /// By the number of the enable.
    enabled: RefCell<BTreeMap<u64, Participant>>,
    enables_made: Cell<u64>,
}

impl Server {
    /// The protocol that serves, if there is one.
    pub fn upper(&self) -> Option<ProtocolRef> {
        self.upper.borrow().clone()
    }

    /// Whether it is this protocol that serves.
    pub fn is(&self, upper: &ProtocolRef) -> bool {
        self.upper.borrow().as_ref() == Some(upper)
    }

    /// Enables `this` on `lower` with this participant for `upper`.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another protocol serves, or what `lower` answers.
    pub fn enable(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        (this, upper): (&ProtocolRef, &ProtocolRef),
        local: &Participant,
    ) -> Result<Enable, OpenError> {
        if self.upper().is_some_and(|other| other != *upper) {
            return Err(OpenError::InUse);
        }
        // Before the layer below is told, which may block: a second protocol finds it in use.
        let before = self.upper.replace(Some(upper.clone()));
        drop(before);
        let number = self.enables_made.get();
        self.enables_made.set(number + 1);
        self.enabled.borrow_mut().insert(number, local.clone());
        let made = self.offers.make(cx, lower, this, local);
        made.inspect_err(|_| drop(self.forget(number)))?;
        Ok(Enable(number))
    }

    /// Takes an enable back; with the last one nothing serves.
    pub fn disable(&self, cx: &Kernel, lower: &ProtocolRef, Enable(number): Enable) {
        if let Some(local) = self.forget(number) {
            self.offers.withdraw(cx, lower, &local);
        }
    }

    fn forget(&self, number: u64) -> Option<Participant> {
        let local = self.enabled.borrow_mut().remove(&number);
        if self.enabled.borrow().is_empty() {
            let gone = self.upper.take();
            drop(gone);
        }
        local
    }

    /// Forgets all; for a protocol's `stop`.
    pub fn clear(&self) {
        self.offers.clear();
        self.enabled.borrow_mut().clear();
        let gone = self.upper.take();
        drop(gone);
    }
}
