//! A router's knowledge of zones: those of each cable to which it has a route.

use super::{ListKind, NetInfo, NetInfoRequest, Reply, multicast};
use crate::addr::NetRange;
use crate::name::Name;
use alloc::vec::Vec;

/// Zones of one cable at most.
const CABLE_ZONES_MAX: usize = 255;

/// Zones by cable; a cable's first zone is its default.
#[derive(Clone, Debug)]
pub struct Zones {
    cables: Vec<Cable>,
    max: usize,
}

#[derive(Clone, Debug)]
struct Cable {
    range: NetRange,
    zones: Vec<Name>,
    /// Whether these are all; until then they are asked for.
    is_complete: bool,
    /// Whether the router is on it, and knows its zones by itself.
    is_own: bool,
}

/// Why zones are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// There are as many cables as there may be.
    #[error("no room for further networks")]
    Full,
    /// Zones of networks that were not asked for.
    #[error("zones of networks that were not asked for")]
    Unsolicited,
}

impl Zones {
    /// No zones, and room for so many cables.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { cables: Vec::new(), max }
    }

    fn find(&self, net: u16) -> Option<&Cable> {
        self.cables.iter().find(|cable| cable.range.contains(net))
    }

    /// Says which zones a cable of the router's has, the default first.
    ///
    /// # Errors
    /// [`ZoneError::Full`].
    pub fn set_own(&mut self, range: NetRange, zones: &[Name]) -> Result<(), ZoneError> {
        self.cables.retain(|cable| !cable.range.overlaps(range));
        if self.cables.len() >= self.max {
            return Err(ZoneError::Full);
        }
        let zones = zones.iter().take(CABLE_ZONES_MAX).copied().collect();
        self.cables.push(Cable { range, zones, is_complete: true, is_own: true });
        Ok(())
    }

    /// Keeps to these cables behind other routers: forgets others, and will ask for new ones.
    ///
    /// # Errors
    /// [`ZoneError::Full`] if not all have room.
    pub fn keep(
        &mut self,
        ranges: impl Iterator<Item = NetRange> + Clone,
    ) -> Result<(), ZoneError> {
        self.cables
            .retain(|cable| cable.is_own || ranges.clone().any(|range| range == cable.range));
        for range in ranges {
            if self.cables.iter().any(|cable| cable.range.overlaps(range)) {
                continue;
            }
            if self.cables.len() >= self.max {
                return Err(ZoneError::Full);
            }
            self.cables.push(Cable { range, zones: Vec::new(), is_complete: false, is_own: false });
        }
        Ok(())
    }

    /// The cables whose zones are to be asked for.
    pub fn missing(&self) -> impl Iterator<Item = NetRange> {
        self.cables.iter().filter(|cable| !cable.is_complete).map(|cable| cable.range)
    }

    /// Takes a reply in. Answers how many zones are new.
    ///
    /// # Errors
    /// [`ZoneError::Unsolicited`] if some are of cables that were not asked for; the others are
    /// taken.
    pub fn heard(&mut self, reply: &Reply) -> Result<usize, ZoneError> {
        let (mut added, mut result) = (0, Ok(()));
        for (net, zone) in &reply.zones {
            let asked = |cable: &&mut Cable| cable.range.first() == *net && !cable.is_complete;
            let Some(cable) = self.cables.iter_mut().find(asked) else {
                result = Err(ZoneError::Unsolicited);
                continue;
            };
            if zone.is_empty() || cable.zones.contains(zone) || cable.zones.len() >= CABLE_ZONES_MAX
            {
                continue;
            }
            cable.zones.push(*zone);
            added += 1;
        }
        // A plain reply has all zones of each cable in it; an extended one says how many there are.
        for (net, _) in &reply.zones {
            let cables = self.cables.iter_mut().filter(|cable| cable.range.first() == *net);
            cables.for_each(|cable| {
                cable.is_complete |= reply.total.is_none_or(|all| cable.zones.len() >= all.into());
            });
        }
        result.map(|()| added)
    }

    /// The zones of the cable that a network is of, the default first; none if they are not known.
    #[must_use]
    pub fn of(&self, net: u16) -> &[Name] {
        self.find(net).filter(|cable| cable.is_complete).map_or(&[], |cable| &cable.zones)
    }

    /// The answers to a query.
    #[must_use]
    pub fn answer(&self, nets: &[u16]) -> Vec<Reply> {
        let mut replies = Vec::new();
        for net in nets {
            let zones = self.of(*net);
            let whole = zones.iter().map(|zone| (*net, *zone)).collect();
            match replies.last_mut() {
                _ if zones.is_empty() => {}
                // One that has several zones is told by itself.
                _ if zones.len() > 1 => replies.extend(Reply::extended(*net, zones)),
                Some(Reply { total: None, zones }) if zones.len() < 14 => zones.extend(whole),
                _ => replies.push(Reply { total: None, zones: whole }),
            }
        }
        replies
    }

    /// The cables that a zone has nodes on.
    pub fn cables_of(&self, zone: &Name) -> impl Iterator<Item = NetRange> {
        let has = |cable: &&Cable| cable.zones.contains(zone);
        self.cables.iter().filter(has).map(|cable| cable.range)
    }

    /// The answer to a node of the cable with this network that asks about it.
    #[must_use]
    pub fn net_info(&self, net: u16, request: &NetInfoRequest) -> Option<NetInfo> {
        let cable = self.find(net)?;
        let default = cable.zones.first()?;
        let is_there = cable.zones.contains(&request.zone);
        let instead = (!is_there).then_some(*default);
        Some(NetInfo {
            range: cable.range,
            asked: request.zone,
            multicast: Some(multicast(&instead.unwrap_or(request.zone))),
            instead,
            is_only: cable.zones.len() == 1,
        })
    }

    /// All zones, each once.
    #[must_use]
    pub fn all(&self) -> Vec<Name> {
        let mut all: Vec<Name> = Vec::new();
        for zone in self.cables.iter().flat_map(|cable| &cable.zones) {
            if !all.contains(zone) {
                all.push(*zone);
            }
        }
        all
    }

    /// The list that a node of the cable with this network asks for.
    #[must_use]
    pub fn list(&self, kind: ListKind, net: u16) -> Vec<Name> {
        match kind {
            ListKind::All => self.all(),
            ListKind::Local => self.of(net).to_vec(),
            ListKind::MyZone => self.of(net).iter().take(1).copied().collect(),
        }
    }
}
