//! Where a switch has heard which station: a bounded table with ageing.

use crate::network::PortId;
use core::time::Duration;
use std::collections::BTreeMap;
use xk_core::Time;

/// A hardware address.
pub(crate) type Address = [u8; 6];

/// The table of stations (IEEE 802.1D-2004 section 7.9).
pub(crate) struct Stations {
    heard: BTreeMap<Address, (PortId, Time)>,
    max: usize,
    ageing: Duration,
    /// When it pays again to look for old entries in a full table.
    sweep_at: Time,
}

impl Stations {
    pub(crate) fn new(max: usize, ageing: Duration) -> Self {
        Self {
            heard: BTreeMap::new(),
            max,
            ageing,
            sweep_at: Time::ZERO,
        }
    }

    /// Notes where a station is. False if the table is full; group addresses are no stations (section 7.8).
    pub(crate) fn learn(&mut self, now: Time, station: Address, port: PortId) -> bool {
        if station[0] & 1 != 0 {
            return true;
        }
        if let Some(entry) = self.heard.get_mut(&station) {
            *entry = (port, now);
            return true;
        }
        if self.heard.len() >= self.max && now >= self.sweep_at {
            let ageing = self.ageing;
            self.heard
                .retain(|_, (_, heard)| now.since(*heard) < ageing);
            let oldest = self.heard.values().map(|(_, heard)| *heard).min();
            self.sweep_at = oldest.unwrap_or(now) + ageing;
        }
        if self.heard.len() >= self.max {
            return false;
        }
        self.heard.insert(station, (port, now));
        true
    }

    /// Where a station is, if it was heard recently.
    pub(crate) fn find(&self, now: Time, station: &Address) -> Option<PortId> {
        let (port, heard) = self.heard.get(station)?;
        (now.since(*heard) < self.ageing).then_some(*port)
    }
}
