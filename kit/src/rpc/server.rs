//! The servers above a layer, and the enables below that the layer makes for them.

use crate::net::offers::Offers;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{Enable, OpenError, ProtocolId};
use xk_core::{Kernel, Participant, ProtocolRef, Upper};

/// A protocol above that serves.
struct Server {
    number: u32,
    receiver: ProtocolRef,
    selector: ProtocolId,
    enables: usize,
}

/// The protocols above that serve, one for each number. A layer with a single server uses the
/// number
/// 0.
#[derive(Default)]
pub struct Servers(RefCell<Vec<Server>>);

impl Servers {
    /// The protocol that serves under this number, and the protocol whose number selects it; `None`
    /// if there is no server.
    pub fn get(&self, number: u32) -> Option<(ProtocolRef, ProtocolId)> {
        let servers = self.0.borrow();
        let found = servers.iter().find(|server| server.number == number)?;
        Some((found.receiver.clone(), found.selector))
    }

    /// Counts an enable of `upper` under this number. Call this before the enable of the layer
    /// below, which may block: then another protocol finds the number in use.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another protocol serves under it.
    pub fn enter(&self, number: u32, upper: Upper<'_>) -> Result<(), OpenError> {
        let mut servers = self.0.borrow_mut();
        match servers.iter_mut().find(|server| server.number == number) {
            Some(server) if server.receiver != *upper.receiver => return Err(OpenError::InUse),
            Some(server) => server.enables += 1,
            None => servers.push(Server {
                number,
                receiver: upper.receiver.clone(),
                selector: upper.selector,
                enables: 1,
            }),
        }
        Ok(())
    }

    /// Takes back an enable under this number. After the last one the number has no server.
    pub fn leave(&self, number: u32) {
        let mut servers = self.0.borrow_mut();
        let place = servers.iter().position(|server| server.number == number);
        if let Some(place) = place
            && let Some(server) = servers.get_mut(place)
        {
            server.enables -= 1;
            if server.enables == 0 {
                let gone = servers.swap_remove(place);
                drop(servers);
                drop(gone);
            }
        }
    }

    /// Removes all servers, for the layer's `stop`.
    pub fn clear(&self) {
        let gone = self.0.take();
        drop(gone);
    }
}

/// The protocols that serve, for a layer that passes their offers to the layer below.
#[derive(Default)]
pub struct OfferingServers {
    servers: Servers,
    offers: Offers,
    /// Number and participant of each enable.
    enabled: RefCell<BTreeMap<u64, (u32, Participant)>>,
    enables_made: Cell<u64>,
}

impl OfferingServers {
    /// As [`Servers::get`].
    pub fn get(&self, number: u32) -> Option<(ProtocolRef, ProtocolId)> {
        self.servers.get(number)
    }

    /// Enables `this` on `lower` with this participant, for `upper` to serve under a number.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another protocol serves under the number; the error of `lower`.
    pub fn enable(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        (this, upper): (&ProtocolRef, Upper<'_>),
        (number, local): (u32, &Participant),
    ) -> Result<Enable, OpenError> {
        self.servers.enter(number, upper)?;
        let made = self.offers.make(cx, lower, this, local);
        made.inspect_err(|_| self.servers.leave(number))?;
        let enable = self.enables_made.get();
        self.enables_made.set(enable + 1);
        self.enabled.borrow_mut().insert(enable, (number, local.clone()));
        Ok(Enable(enable))
    }

    /// Takes an enable back. After the last one under its number, the number has no server.
    pub fn disable(&self, cx: &Kernel, lower: &ProtocolRef, enable: Enable) {
        let gone = self.enabled.borrow_mut().remove(&enable.0);
        if let Some((number, local)) = gone {
            self.offers.withdraw(cx, lower, &local);
            self.servers.leave(number);
        }
    }

    /// Removes all servers and offers, for the layer's `stop`.
    pub fn clear(&self) {
        self.servers.clear();
        self.offers.clear();
        self.enabled.borrow_mut().clear();
    }
}
