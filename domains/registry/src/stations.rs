//! The way to hosts of which the registry has told by which station they are reached: in a
//! program's stack, what a layer of address resolution is in another.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::object::{Enable, OpenError, ProtocolId};
use xk_core::{HostAddr, Kernel, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper};

/// Stands for a station that is still to be told: of no maker (IEEE 802, local administration).
const NOT_TOLD: [u8; 6] = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff];

/// A station, and what leads to it.
struct Station {
    address: [u8; 6],
    /// Number of conversations for which the station is known; all datagrams together are one.
    uses: usize,
    /// The sessions by receiver and selector.
    sessions: Vec<(ProtocolId, ProtocolId, SessionRef)>,
}

/// Stations by which hosts are reached.
#[derive(Default)]
pub(crate) struct Known(RefCell<BTreeMap<HostAddr, Station>>);

impl Known {
    /// The host is reached by this station, for one conversation more.
    pub(crate) fn learn(&self, cx: &Kernel, host: HostAddr, address: [u8; 6]) {
        self.expect(host);
        self.change(cx, host, address);
    }

    /// Expects to be told the station of a host before anything is sent there, for one conversation
    /// more.
    pub(crate) fn expect(&self, host: HostAddr) {
        let new = || Station { address: NOT_TOLD, uses: 0, sessions: Vec::new() };
        self.0.borrow_mut().entry(host).or_insert_with(new).uses += 1;
    }

    /// The host is reached by this station now. If it was by another, what led there has ended.
    pub(crate) fn change(&self, cx: &Kernel, host: HostAddr, address: [u8; 6]) {
        let mut known = self.0.borrow_mut();
        let Some(station) = known.get_mut(&host) else {
            return;
        };
        let is_other = core::mem::replace(&mut station.address, address) != address;
        let gone = if is_other { core::mem::take(&mut station.sessions) } else { Vec::new() };
        drop(known);
        gone.iter().for_each(|(.., session)| session.abort(cx));
    }

    /// For one conversation less. With the last one what led there ends: the next may be led by
    /// another station.
    pub(crate) fn forget(&self, cx: &Kernel, host: HostAddr) {
        let mut known = self.0.borrow_mut();
        if let Some(station) = known.get_mut(&host) {
            station.uses -= 1;
            if station.uses == 0 {
                let gone = known.remove(&host);
                drop(known);
                let sessions = gone.map(|station| station.sessions).unwrap_or_default();
                sessions.iter().for_each(|(.., session)| session.abort(cx));
            }
        }
    }
}

/// The protocol object, on the link.
pub(crate) struct Stations {
    pub(crate) link: ProtocolRef,
    pub(crate) known: Rc<Known>,
}

impl Protocol for Stations {
    /// The link's own session: nothing lies between.
    fn open(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let host = participants.peer_mut()?.pop_host()?.definite()?;
        let address = self.known.0.borrow().get(&host).map(|station| station.address);
        let address = address.ok_or(OpenError::NoRoute)?;
        let ends = Participants::pair(Part::Any, Part::Ether(address));
        let session = self.link.open(cx, upper, ends)?;
        if let Some(station) = self.known.0.borrow_mut().get_mut(&host) {
            let of = (upper.receiver.id(), upper.selector);
            station.sessions.retain(|(receiver, selector, _)| (*receiver, *selector) != of);
            station.sessions.push((of.0, of.1, session.clone()));
        }
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        self.link.open_enable(cx, upper, Participants::local(Part::Any))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.link.open_disable(cx, enable);
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.link)
    }

    fn passes_numbers(&self) -> bool {
        true
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.known.0.take());
    }
}
