//! Attacks on a station and its ARP.

use super::octets::{FRAME_OCTETS_MAX, Octets};
use super::{Generator, TYPE_ARP, TYPE_IP};
use core::net::Ipv4Addr;
use xk_kit::EthAddr;

const REQUEST: u16 = 1;
const REPLY: u16 = 2;

impl Generator {
    /// An ARP packet (RFC 826).
    pub(super) fn arp(&self, out: &mut Octets<'_>) {
        let (host, source) = (self.target.host, self.source());
        let station = Self::station_of(source);
        let (operation, sender, asked) = match self.below(8) {
            // A host that wants to talk: what it says of itself is worth an entry.
            0..=2 => (REQUEST, (station, source), host),
            3 => (REPLY, (station, source), host),
            // An announcement.
            4 => (REQUEST, (station, source), source),
            // A claim of the target's own host.
            5 => (REQUEST, (station, host), host),
            // Hosts and stations that cannot be.
            6 => {
                let odd = [
                    Ipv4Addr::UNSPECIFIED,
                    Ipv4Addr::BROADCAST,
                    Ipv4Addr::LOCALHOST,
                    Ipv4Addr::new(224, 0, 0, 1),
                ];
                let stations = [
                    EthAddr::BROADCAST,
                    EthAddr::ZERO,
                    self.target.ether,
                    EthAddr([1, 0, 0x5e, 0, 0, 1]),
                ];
                (REQUEST, (*self.pick(&stations), *self.pick(&odd)), host)
            }
            _ => (self.word(), (station, source), self.source()),
        };
        // What claims the target's host goes to the target alone: others would believe it.
        let to = match sender.1 == host || self.once_in(2) {
            true => self.target.ether,
            false => EthAddr::BROADCAST,
        };
        out.put(&to.0);
        out.put(&station.0);
        out.put(&TYPE_ARP.to_be_bytes());
        let start = out.len();
        for word in [1, TYPE_IP, 0x0604, operation] {
            out.put(&word.to_be_bytes());
        }
        out.put(&sender.0.0);
        out.put(&sender.1.octets());
        out.put(&self.target.ether.0);
        out.put(&asked.octets());
        if self.once_in(16) {
            // Any field, any value.
            out.set_u16(start + 2 * self.below(14) as usize, self.word());
        }
        if self.once_in(32) {
            out.truncate(self.below(42) as usize);
        }
    }

    /// A frame of any kind.
    pub(super) fn ethernet(&self, out: &mut Octets<'_>) {
        let count = self.below(FRAME_OCTETS_MAX as u64 + 1) as usize;
        if self.once_in(4) {
            return self.garbage(out, count);
        }
        let source = Self::station_of(self.source());
        let groups = [EthAddr::BROADCAST, EthAddr([1, 0, 0x5e, 0, 0, 1])];
        let to = match self.below(8) {
            0 => *self.pick(&groups),
            1 => source,
            _ => self.target.ether,
        };
        let from = match self.below(8) {
            0 => *self.pick(&groups),
            1 => self.target.ether,
            2 => EthAddr::ZERO,
            _ => source,
        };
        out.put(&to.0);
        out.put(&from.0);
        let number = match self.below(4) {
            // IEEE 802.3: a length, right or wrong.
            0 => self.below(1600) as u16,
            // VLAN, IPv6, PPPoE, LLDP.
            1 => *self.pick(&[0x8100, 0x86dd, 0x8864, 0x88cc]),
            2 => *self.pick(&[TYPE_IP, TYPE_ARP]),
            _ => self.word(),
        };
        out.put(&number.to_be_bytes());
        if number < 1536 && self.once_in(2) {
            let llc: [&[u8]; 4] = [
                &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
                &[0xaa, 0xaa, 3, 0, 0, 0],
                &[0x42, 0x42, 3],
                &[0xe0, 0xe0, 0xbf],
            ];
            let llc: &[u8] = self.pick::<&[u8]>(&llc);
            out.put(llc);
        }
        self.garbage(out, count.saturating_sub(out.len()));
    }
}
