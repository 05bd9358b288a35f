//! Conversations go to their programs, and come back for their end.

use std::time::Duration;
use xk_registry::NOT_MOVED;
use xk_sim::{LinkConfig, LinkKind};

use crate::app::Plan;
use crate::world::Hosts;

pub(crate) fn seeds() -> Vec<u64> {
    if let Some(seed) = std::env::var("XK_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    let count = if std::env::var_os("XK_LONG").is_some() { 2000 } else { 10 };
    (1..=count).collect()
}

/// A link that loses, doubles and delays, and leaves octets alone: ARP has no checksum, and a
/// program stays with the station that the registry has told.
pub(crate) fn lossy(seed: u64) -> LinkConfig {
    let chance = xk_core::random::Random::new(seed).fork(3);
    let share = |most: u64| chance.below(most) as f64 / 1000.0;
    LinkConfig {
        delay: Duration::from_micros(50 + chance.below(2000)),
        jitter: Duration::from_micros(chance.below(500)),
        rate_bit_s: Some(100_000_000),
        loss: share(40),
        duplicate: share(20),
        ..LinkConfig::new("lan", LinkKind::Hub)
    }
}

const OCTETS: usize = 300_000;

fn carries(seed: u64, is_active: bool, ends_first: bool) {
    let what = format!("XK_SEED={seed} active={is_active} ends first={ends_first}");
    let plan = |ends_first| Plan { octets: OCTETS, ends_first };
    let mut hosts = Hosts::new(seed, lossy(seed), plan(!ends_first));
    let program = hosts.program(plan(ends_first));
    let (peer_id, _, peer) = hosts.peer.clone();
    if is_active {
        hosts.world.spawn(peer_id, {
            let peer = peer.clone();
            move |cx| peer.listen(cx, "port7")
        });
        let app = program.app.clone();
        hosts.world.spawn(program.id, move |cx| app.open(cx, "*, port7@10.0.0.2"));
    } else {
        let app = program.app.clone();
        hosts.world.spawn(program.id, move |cx| app.listen(cx, "port7"));
        hosts.run(Duration::from_millis(1));
        let peer = peer.clone();
        hosts.world.spawn(peer_id, move |cx| peer.open(cx, "*, port7@10.0.0.1"));
    }
    for _ in 0..600 {
        hosts.run(Duration::from_millis(100));
        if program.app.is_done(OCTETS) && peer.is_done(OCTETS) {
            break;
        }
    }
    for (side, app) in [("program", &program.app), ("peer", &peer)] {
        app.see(|streams| {
            let fine = streams.iter().all(|s| !s.is_wrong && s.failed.is_none());
            assert!(fine && app.is_done(OCTETS), "{what}: {side}: {streams:#?}; {}", hosts.told());
        });
    }
    assert_eq!(program.library.head().drops().of(&NOT_MOVED), 0, "{what}");
}

#[test]
fn every_octet_comes_once_and_in_order() {
    for seed in seeds() {
        for is_active in [true, false] {
            for ends_first in [true, false] {
                carries(seed, is_active, ends_first);
            }
        }
    }
}
