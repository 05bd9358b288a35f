//! The groups that a switch hears hosts ask for, with their ports (RFC 4541, section 2.1).

use crate::network::PortId;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use xk_core::{Message, Time};
use xk_kit::net::checksum::checksum;

/// Time for which a port is taken for a member's or an asking router's, if it is not heard again:
/// two intervals of queries and a response (RFC 3376, sections 8.4, 8.5).
const MEMBER_FOR: Duration = Duration::from_secs(260);
/// Time that members have to answer a router that asks for one group (RFC 3376, section 8.8).
const LAST_MEMBER_FOR: Duration = Duration::from_secs(2);

/// Octets up to the end of an IP header without options.
const HEADERS: usize = 34;
const ETHERNET: usize = 14;
const ETHERTYPE_IP: [u8; 2] = [0x08, 0x00];
const IGMP: u8 = 2;
/// Octets of an IGMP message that are looked at.
const IGMP_MAX: usize = 1500;

const QUERY: u8 = 0x11;
const REPORT_1: u8 = 0x12;
const REPORT_2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_3: u8 = 0x22;
/// Kinds of records (RFC 3376, section 4.2.12) that ask for a group: all sources but some.
const EXCLUDES: [u8; 2] = [2, 4];
/// Kinds that ask for some sources, if there are any.
const INCLUDES: [u8; 3] = [1, 3, 5];

type Group = [u8; 4];

/// The table of groups.
pub(crate) struct Snooping {
    /// Ports that have members, by group, and the time until which they count.
    members: BTreeMap<(Group, PortId), Time>,
    /// Ports that have a router which asks.
    routers: BTreeMap<PortId, Time>,
    members_max: usize,
    /// Time until which some router, or a switch without an address, is taken to ask: without one,
    /// members are silent.
    asked_until: Time,
    /// Time until which members are missing, the table having been full.
    missing_until: Time,
}

impl Snooping {
    pub(crate) fn new(members_max: usize) -> Self {
        Self {
            members: BTreeMap::new(),
            routers: BTreeMap::new(),
            members_max,
            asked_until: Time::ZERO,
            missing_until: Time::ZERO,
        }
    }

    /// Returns the ports that a frame to a group goes to, in order; `None` for all.
    pub(crate) fn ports(
        &mut self,
        now: Time,
        from: PortId,
        frame: &Message,
    ) -> Option<BTreeSet<PortId>> {
        let mut front = [0; HEADERS];
        if frame.copy_to(0, &mut front) < HEADERS || front[12..14] != ETHERTYPE_IP {
            return None;
        }
        let group = [front[30], front[31], front[32], front[33]];
        let is_fragment = u16::from_be_bytes([front[20], front[21]]) & 0x3fff != 0;
        if front[23] == IGMP && !is_fragment {
            let header = usize::from(front[14] & 0x0f) * 4;
            let octets = usize::from(u16::from_be_bytes([front[16], front[17]]));
            let mut message = [0; IGMP_MAX];
            let copied = frame.copy_to(ETHERNET + header, &mut message);
            let message = message.get(..octets.checked_sub(header)?.min(copied))?;
            if message.len() < 8 || checksum(message) != 0 {
                return None;
            }
            let has_source = front[26..30] != [0; 4];
            return self.heard(now, from, message, has_source);
        }
        // Members of a link's own groups do not tell of them (section 2.1.2, 2).
        if group[..3] == [224, 0, 0] || now >= self.asked_until || now < self.missing_until {
            return None;
        }
        let members = self.members.range((group, PortId(0))..=(group, PortId(u32::MAX)));
        let members = members.filter(|(_, until)| now < **until).map(|((_, port), _)| *port);
        let mut to = self.routers(now, from);
        to.extend(members.filter(|port| *port != from));
        Some(to)
    }

    /// Takes an IGMP message to the account, and answers where it goes.
    fn heard(
        &mut self,
        now: Time,
        from: PortId,
        message: &[u8],
        has_source: bool,
    ) -> Option<BTreeSet<PortId>> {
        let group = [message[4], message[5], message[6], message[7]];
        match message[0] {
            QUERY => {
                self.asked_until = now + MEMBER_FOR;
                if has_source {
                    self.routers.insert(from, now + MEMBER_FOR);
                }
                // A router that has set this flag asks for others, which have asked already.
                let suppresses = message.get(8).is_some_and(|flags| flags & 8 != 0);
                if group != [0; 4] && !suppresses {
                    let range = (group, PortId(0))..=(group, PortId(u32::MAX));
                    for (_, until) in self.members.range_mut(range) {
                        *until = (*until).min(now + LAST_MEMBER_FOR);
                    }
                }
                return None;
            }
            REPORT_1 | REPORT_2 => self.joined(now, from, group),
            REPORT_3 => {
                let count = u16::from_be_bytes([message[6], message[7]]);
                let mut records = &message[8..];
                for _ in 0..count {
                    let &[kind, aux, n0, n1, a, b, c, d, ..] = records else {
                        break;
                    };
                    let sources = usize::from(u16::from_be_bytes([n0, n1]));
                    if EXCLUDES.contains(&kind) || INCLUDES.contains(&kind) && sources > 0 {
                        self.joined(now, from, [a, b, c, d]);
                    }
                    let octets = 8 + sources * 4 + usize::from(aux) * 4;
                    records = records.get(octets..).unwrap_or_default();
                }
            }
            // The router asks whether another is left, and the port's time ends if none answers.
            LEAVE => {}
            _ => return None,
        }
        // To routers alone (section 2.1.1, 1): a member that heard it would keep its own back.
        if now >= self.asked_until {
            return None;
        }
        Some(self.routers(now, from))
    }

    /// Returns the ports of routers, but for the one that the frame came from.
    fn routers(&self, now: Time, from: PortId) -> BTreeSet<PortId> {
        let routers = self.routers.iter().filter(|(port, until)| now < **until && **port != from);
        routers.map(|(port, _)| *port).collect()
    }

    fn joined(&mut self, now: Time, port: PortId, group: Group) {
        let is_known = self.members.contains_key(&(group, port));
        if !is_known && self.members.len() >= self.members_max && now >= self.missing_until {
            self.members.retain(|_, until| now < *until);
        }
        if is_known || self.members.len() < self.members_max {
            self.members.insert((group, port), now + MEMBER_FOR);
        } else {
            self.missing_until = now + MEMBER_FOR;
        }
    }
}
