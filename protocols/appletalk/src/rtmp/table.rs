//! The routing table of a router (Inside AppleTalk, chapter 5, "Maintenance of the routing table").

use super::{DISTANCE_BAD, DISTANCE_MAX, Data, Route};
use crate::addr::{NetRange, Node};
use alloc::vec::Vec;
use core::time::Duration;

/// Interval at which entries that were not confirmed grow older.
pub const VALIDITY: Duration = Duration::from_secs(20);

/// A cable that the router is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The router's own address there.
    pub me: Node,
    /// The networks of the cable.
    pub range: NetRange,
    /// Whether it is told as a range; LocalTalk is not.
    pub is_extended: bool,
}

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Confirmed in the last period.
    Good,
    /// Not confirmed for a period.
    Suspect,
    /// Not confirmed for two; not used, and told as bad.
    Bad,
    /// Told as bad for a period; the next one removes it.
    Worse,
}

/// Event of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The entry's router told it, or another one at most as far.
    Confirmed,
    /// The entry's router says that it cannot be reached.
    Withdrawn,
    /// A period passed.
    Aged,
}

impl EntryState {
    /// The state that follows; `None` if the entry goes.
    const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (_, Event::Confirmed) => Some(Self::Good),
            (Self::Good | Self::Suspect, Event::Withdrawn) => Some(Self::Bad),
            (Self::Bad, Event::Withdrawn) => Some(Self::Bad),
            (Self::Worse, Event::Withdrawn) => Some(Self::Worse),
            (Self::Good, Event::Aged) => Some(Self::Suspect),
            (Self::Suspect, Event::Aged) => Some(Self::Bad),
            (Self::Bad, Event::Aged) => Some(Self::Worse),
            (Self::Worse, Event::Aged) => None,
        }
    }

    /// True if datagrams are sent along such an entry.
    #[must_use]
    pub const fn is_used(self) -> bool {
        matches!(self, Self::Good | Self::Suspect)
    }
}

/// Networks behind other routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The networks.
    pub range: NetRange,
    /// Whether they are told as a range.
    pub is_extended: bool,
    /// Routers to pass; 1 to 15.
    pub distance: u8,
    /// The port that leads there, by its place in the table.
    pub port: usize,
    /// The next router.
    pub next: Node,
    /// State of the entry.
    pub state: EntryState,
}

/// Result of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Networks that were not known.
    pub added: usize,
    /// Networks that overlap others, and are not believed.
    pub conflicts: usize,
    /// Networks for which there is no room.
    pub full: usize,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Table {
    ports: Vec<Port>,
    entries: Vec<Entry>,
    max: usize,
}

impl Table {
    /// A router on these cables, with room for so many networks behind others.
    #[must_use]
    pub const fn new(ports: Vec<Port>, max: usize) -> Self {
        Self { ports, entries: Vec::new(), max }
    }

    /// The cables.
    #[must_use]
    pub fn ports(&self) -> &[Port] {
        &self.ports
    }

    /// Changes a cable, which has another address or other networks; entries that overlap them go.
    pub fn set_port(&mut self, at: usize, port: Port) {
        if let Some(place) = self.ports.get_mut(at) {
            *place = port;
            self.entries.retain(|entry| !entry.range.overlaps(port.range));
        }
    }

    /// The networks behind other routers.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes data in that came over a port; `None` if it is not of that cable, or this router's
    /// own.
    pub fn heard(&mut self, port: usize, data: &Data) -> Option<Merged> {
        let cable = self.ports.get(port)?;
        if data.cable() != Some(cable.range) || !cable.range.contains(data.sender.net) {
            return None;
        }
        if self.ports.iter().any(|port| port.me == data.sender) {
            return None;
        }
        let mut merged = Merged::default();
        data.routes.iter().for_each(|route| self.merge(port, data.sender, route, &mut merged));
        Some(merged)
    }

    fn merge(&mut self, port: usize, sender: Node, route: &Route, merged: &mut Merged) {
        let is_direct = self.ports.iter().any(|port| port.range == route.range);
        if is_direct {
            return;
        }
        let is_bad = route.distance >= DISTANCE_MAX;
        let event = if is_bad { Event::Withdrawn } else { Event::Confirmed };
        let found = self.entries.iter_mut().find(|entry| entry.range == route.range);
        if let Some(entry) = found {
            let is_from_it = (entry.port, entry.next) == (port, sender);
            let distance = route.distance + 1;
            let is_better = !is_bad && (distance <= entry.distance || !entry.state.is_used());
            if let Some(state) = entry.state.after(event).filter(|_| is_from_it || is_better) {
                entry.state = state;
                if !is_bad {
                    (entry.distance, entry.port, entry.next) = (distance, port, sender);
                    entry.is_extended = route.is_extended;
                }
            }
            return;
        }
        if is_bad {
            return;
        }
        let mut ranges = self.ports.iter().map(|port| port.range);
        let overlaps = |range: NetRange| range.overlaps(route.range);
        if ranges.any(overlaps) || self.entries.iter().any(|entry| overlaps(entry.range)) {
            merged.conflicts += 1;
        } else if self.entries.len() >= self.max {
            merged.full += 1;
        } else {
            merged.added += 1;
            self.entries.push(Entry {
                range: route.range,
                is_extended: route.is_extended,
                distance: route.distance + 1,
                port,
                next: sender,
                state: EntryState::Good,
            });
        }
    }

    /// A period of [`VALIDITY`] has passed. Answers the networks that are forgotten.
    pub fn age(&mut self) -> Vec<NetRange> {
        let mut gone = Vec::new();
        self.entries.retain_mut(|entry| match entry.state.after(Event::Aged) {
            Some(state) => {
                entry.state = state;
                true
            }
            None => {
                gone.push(entry.range);
                false
            }
        });
        gone
    }

    /// Routes that this router tells over a port: all that do not lead over that port (split
    /// horizon), or all.
    #[must_use]
    pub fn update(&self, port: usize, splits_horizon: bool) -> Option<Data> {
        let cable = self.ports.get(port)?;
        let is_told = |at: usize| at != port || !splits_horizon;
        let ports = self.ports.iter().enumerate().filter(|(at, _)| is_told(*at));
        let direct = ports.map(|(_, Port { range, is_extended, .. })| Route {
            range: *range,
            is_extended: *is_extended,
            distance: 0,
        });
        let behind = self.entries.iter().filter(|entry| is_told(entry.port)).map(|entry| Route {
            range: entry.range,
            is_extended: entry.is_extended,
            distance: if entry.state.is_used() { entry.distance } else { DISTANCE_BAD },
        });
        let routes = direct.chain(behind).collect();
        let range = cable.is_extended.then_some(cable.range);
        Some(Data { sender: cable.me, range, routes })
    }

    /// Answer of this router to a request for the cable's networks.
    #[must_use]
    pub fn response(&self, port: usize) -> Option<Data> {
        self.update(port, true).map(|data| Data { routes: Vec::new(), ..data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;

    #[test]
    fn states() {
        let states = [EntryState::Good, EntryState::Suspect, EntryState::Bad, EntryState::Worse];
        let mut table = String::new();
        for state in states {
            for event in [Event::Confirmed, Event::Withdrawn, Event::Aged] {
                table += &format!("{state:?} {event:?} -> {:?}\n", state.after(event));
            }
        }
        assert_eq!(
            table,
            "Good Confirmed -> Some(Good)\nGood Withdrawn -> Some(Bad)\n\
             Good Aged -> Some(Suspect)\n\
             Suspect Confirmed -> Some(Good)\nSuspect Withdrawn -> Some(Bad)\n\
             Suspect Aged -> Some(Bad)\n\
             Bad Confirmed -> Some(Good)\nBad Withdrawn -> Some(Bad)\nBad Aged -> Some(Worse)\n\
             Worse Confirmed -> Some(Good)\nWorse Withdrawn -> Some(Worse)\nWorse Aged -> None\n"
        );
    }
}
