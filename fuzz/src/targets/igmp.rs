//! IGMP: its messages, and the protocol between a network layer that tells of groups, routers and
//! other members.

use crate::harness::{Rig, Script, integers};
use core::time::Duration;
use xk_core::{HostAddr, Part};
use xk_igmp::wire::{Packet, SOURCE_LEN};
use xk_kit::net::checksum;
use xk_kit::net::groups::{CameBy, Filter, GroupChanged, WatchedLink};
use xk_testkit::kernel::Lower;

/// The host, and groups that a script may name.
const OWN: [u8; 4] = [10, 0, 0, 1];
const GROUPS_MAX: i64 = 8;

/// A group by an octet: sixteen, and all systems.
fn group(octet: u8) -> [u8; 4] {
    if octet & 0x80 == 0 { [239, 0, 0, octet & 15] } else { [224, 0, 0, 1] }
}

/// Reads `data` as a message; the sources of a query lie within it.
pub(crate) fn wire(data: &[u8]) {
    if let Ok(Packet::Query(query)) = Packet::parse(data) {
        assert!(query.sources().count() * SOURCE_LEN <= data.len(), "more sources than octets");
        assert!((1..=3).contains(&query.version), "a version that there is");
    }
}

/// Lets `data` act on the protocol: joins and leaves, messages of routers and members with a
/// checksum that fits, time. What is sent are messages with records that fit, and no more than the
/// groups that there are.
pub(crate) fn stack(data: &[u8]) {
    let lower = Lower { opt_packet: 100, ..Lower::host(OWN, 2) };
    let rig = Rig::new(lower, 64, &xk_igmp::ENTRY, &integers(&[("groups_max", GROUPS_MAX)]));
    // Protocol number 2.
    rig.cx.numbers_mut().override_pair(rig.layer.id(), rig.bottom.protocol().id(), 2);
    rig.start();
    let link = WatchedLink { interface: 0, host: OWN.into(), octets: 100 };
    let _ = rig.layer.ask(&rig.cx, link);
    let script = Script::new(data);
    while let Some((act, octets)) = script.step() {
        match act & 7 {
            0 => {
                rig.cx.advance(Duration::from_millis(100) * octets.len() as u32);
            }
            1..=3 => {
                let mut filter = Filter { excludes: act & 8 != 0, sources: Vec::new() };
                for source in octets.iter().skip(1) {
                    let _ = filter.insert([192, 0, 2, source & 31].into());
                }
                let group = group(octets.first().copied().unwrap_or(0)).into();
                let _ = rig.layer.ask(&rig.cx, GroupChanged { interface: 0, group, filter });
            }
            4 if act & 0xf8 == 0 => {
                let _ = rig.layer.ask(&rig.cx, link);
            }
            _ => arrive(&rig, act, octets),
        }
        rig.bottom.drain_sent(|sent| {
            let octets: Vec<u8> = sent.message.octets().collect();
            assert!(octets.len() <= 76 && Packet::parse(&octets).is_ok(), "{octets:?}");
        });
    }
    rig.cx.advance(Duration::from_secs(100_000));
    let sent = rig.bottom.take_sent().len();
    assert!(sent <= 1000, "{sent} packets after the end");
    rig.stop();
}

/// A message to all systems or to a group, with a checksum that fits unless it says otherwise.
fn arrive(rig: &Rig, act: u8, octets: &[u8]) {
    let mut octets = octets.to_vec();
    if act & 8 == 0 && octets.len() >= 8 {
        octets[2..4].fill(0);
        if act & 16 == 0 {
            let [a, b, c, d] = group(octets[7]);
            octets[4..8].copy_from_slice(&[a, b, c, d]);
        }
        let sum = checksum::checksum(&octets);
        octets[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let Some(mut message) = rig.message(&octets, usize::from(act)) else { return };
    let came_by = CameBy { interface: act >> 7, alerts: act & 32 == 0 };
    if message.set_attribute(came_by).is_ok() {
        let peer = Some(Part::Host([10, 0, 0, 2 + (act >> 6 & 1)].into()));
        let to = HostAddr::from(group(octets.get(7).copied().unwrap_or(0x80)));
        let _ = rig.bottom.inject_cast(&rig.cx, peer, to, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::random::Random;

    fn step(act: u8, octets: &[u8]) -> Vec<u8> {
        [&[act, octets.len() as u8], octets].concat()
    }

    fn script() -> Vec<u8> {
        [
            step(9, &[1]),
            step(1, &[2, 1, 2, 3]),
            step(0, &[0; 30]),
            step(21, &[0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]),
            step(0, &[0; 11]),
            step(5, &[0x11, 10, 0, 0, 0, 0, 0, 2, 2, 125, 0, 1, 192, 0, 2, 1]),
            step(1, &[2, 2, 4]),
            step(0, &[0; 11]),
            step(21, &[0x11, 10, 0, 0, 0, 0, 0, 0]),
            step(5, &[0x16, 0, 0, 0, 0, 0, 0, 1]),
            step(0, &[0; 11]),
            step(1, &[1]),
            step(21, &[0x11, 0, 0, 0, 0, 0, 0, 0]),
            step(9, &[3]),
            step(0, &[0; 200]),
            step(4, &[]),
        ]
        .concat()
    }

    #[test]
    fn damaged_scripts_do_no_harm() {
        let script = script();
        stack(&script);
        let random = Random::new(1);
        for _ in 0..300 {
            let mut damaged = script.clone();
            for _ in 0..=random.below(12) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.next_u64() as u8;
            }
            stack(&damaged);
            wire(&damaged);
        }
    }
}
