//! The stations that a switch has heard, with their ports: a bounded table with ageing.

use crate::network::PortId;
use core::time::Duration;
use std::collections::BTreeMap;
use xk_core::Time;

/// A hardware address.
pub(crate) type Address = [u8; 6];

struct Station {
    address: Address,
    port: PortId,
    heard: Time,
}

/// The table of stations (IEEE 802.1D-2004 section 7.9).
pub(crate) struct Stations {
    list: Vec<Station>,
    /// Place of each one in the list.
    places: BTreeMap<Address, u32>,
    max: usize,
    ageing: Duration,
    /// Time at which it pays again to look for old entries in a full table.
    sweep_at: Time,
}

impl Stations {
    pub(crate) fn new(max: usize, ageing: Duration) -> Self {
        Self { list: Vec::new(), places: BTreeMap::new(), max, ageing, sweep_at: Time::ZERO }
    }

    /// A station's place. `hint` is where it was last, or anything: what is there is compared.
    fn place(&self, station: &Address, hint: &mut u32) -> Option<usize> {
        let hinted = *hint as usize;
        if self.list.get(hinted).is_some_and(|s| s.address == *station) {
            return Some(hinted);
        }
        *hint = *self.places.get(station)?;
        Some(*hint as usize)
    }

    /// Notes where a station is. False if the table is full; group addresses are no stations
    /// (section 7.8).
    pub(crate) fn learn(
        &mut self,
        now: Time,
        station: Address,
        port: PortId,
        hint: &mut u32,
    ) -> bool {
        if station[0] & 1 != 0 {
            return true;
        }
        if let Some(place) = self.place(&station, hint) {
            let known = &mut self.list[place];
            (known.port, known.heard) = (port, now);
            return true;
        }
        if self.list.len() >= self.max && now >= self.sweep_at {
            self.sweep(now);
        }
        if self.list.len() >= self.max {
            return false;
        }
        *hint = self.list.len() as u32;
        self.places.insert(station, *hint);
        self.list.push(Station { address: station, port, heard: now });
        true
    }

    /// Forgets stations that were not heard for long.
    fn sweep(&mut self, now: Time) {
        let ageing = self.ageing;
        self.list.retain(|s| now.since(s.heard) < ageing);
        let places = self.list.iter().map(|s| s.address).zip(0..);
        self.places = places.collect();
        let oldest = self.list.iter().map(|s| s.heard).min();
        self.sweep_at = oldest.unwrap_or(now) + ageing;
    }

    /// The port of a station, if it was heard recently.
    pub(crate) fn find(&self, now: Time, station: &Address, hint: &mut u32) -> Option<PortId> {
        let found = &self.list[self.place(station, hint)?];
        (now.since(found.heard) < self.ageing).then_some(found.port)
    }
}
