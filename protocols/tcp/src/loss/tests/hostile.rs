//! A peer that says anything at all: nothing panics, the books balance, and there is always
//! something to wait for.

use super::MSS;
use crate::Seq;
use crate::congestion::{NAMES, by_name};
use crate::loss::{Ack, Due, Recovery, SackBlock};
use core::time::Duration;
use proptest::prelude::*;
use std::vec::Vec;
use xk_core::Time;

#[derive(Clone, Debug)]
enum Step {
    Pump { octets: u32, is_limited: bool },
    Ack { part: u32, blocks: Vec<(u32, u32)>, echo_ms: Option<u64>, flags: u8 },
    Timer { is_late: bool },
    SetMss(u32, bool),
    Probe,
}

/// An offset around what is outstanding, some of them far out.
fn offsets() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..60_u32, 1 => any::<u32>()]
}

fn steps() -> impl Strategy<Value = Vec<(Step, u64)>> {
    let ack = (
        0..1200_u32,
        proptest::collection::vec((offsets(), offsets()), 0..6),
        proptest::option::of(0..10_000_u64),
        any::<u8>(),
    )
        .prop_map(|(part, blocks, echo_ms, flags)| Step::Ack { part, blocks, echo_ms, flags });
    let step = prop_oneof![
        4 => (1..3 * MSS, any::<bool>())
            .prop_map(|(octets, is_limited)| Step::Pump { octets, is_limited }),
        8 => ack,
        2 => any::<bool>().prop_map(|is_late| Step::Timer { is_late }),
        1 => (1..100_000_u32, any::<bool>()).prop_map(|(mss, lost)| Step::SetMss(mss, lost)),
        1 => Just(Step::Probe),
    ];
    proptest::collection::vec((step, 0..400_u64), 1..120)
}

fn apply(recovery: &mut Recovery, step: &Step, now: Time) {
    let (una, nxt) = (recovery.board().una(), recovery.board().nxt());
    match step {
        Step::Pump { octets, is_limited } => {
            while let Some(lost) = recovery.next_lost(now) {
                assert!(recovery.resent(lost.start, now));
            }
            for _ in 0..50 {
                if recovery.may_send(now) < *octets {
                    break;
                }
                assert!(recovery.sent(*octets, now).is_ok());
            }
            if *is_limited {
                recovery.limited_by_application();
            }
        }
        Step::Ack { part, blocks, echo_ms, flags } => {
            let part = if *part > 1000 { 0 } else { *part };
            let ack = una + (u64::from(nxt.since(una)) * u64::from(part) / 1000) as u32;
            let at = |offset: u32| ack + offset.wrapping_mul(MSS / 2);
            let block = |&(from, len): &(u32, u32)| SackBlock {
                start: at(from) - 2 * MSS,
                end: at(from.wrapping_add(len)) - 2 * MSS,
            };
            let sack: Vec<SackBlock> = blocks.iter().map(block).collect();
            let told = Ack {
                ack,
                sack: &sack,
                echoed: echo_ms.map(|ms| now.before(Duration::from_millis(ms))),
                duplicate: flags & 1 > 0,
                ece: flags & 6 == 6,
                waiting: flags & 8 > 0,
            };
            let acked = recovery.acknowledge(&told, now);
            assert_eq!(acked.acked_octets, ack.since(una));
        }
        Step::Timer { is_late } => {
            let Some((_, at)) = recovery.timer(*is_late) else {
                return;
            };
            let at = if *is_late { at.max(now) } else { now };
            if let Due::ResendProbe(lost) = recovery.on_timer(at, *is_late) {
                assert!(recovery.resent(lost.start, at));
            }
        }
        Step::SetMss(mss, lost) => recovery.set_mss(*mss, *lost),
        Step::Probe => {
            let start = Seq(una.0.wrapping_add(MSS));
            recovery.resent(start, now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_that_a_peer_says_does_harm(
        steps in steps(),
        number in 0..NAMES.len(),
        is_sack: bool,
    ) {
        let congestion = by_name(NAMES[number], MSS).unwrap();
        let mut recovery = Recovery::new((MSS, 300), congestion, Seq(u32::MAX - 20 * MSS));
        let mut now = Time::ZERO;
        recovery.sent(1, now).unwrap();
        recovery.established(MSS, is_sack, now);
        for (step, ms) in &steps {
            now += Duration::from_millis(*ms);
            apply(&mut recovery, step, now);
            recovery.board().check();
            prop_assert!(recovery.board().segments() <= 300);
            prop_assert!(recovery.congestion().window() > 0);
            prop_assert_eq!(recovery.board().is_empty(), recovery.timer(false).is_none());
        }
        // An honest end of it.
        let nxt = recovery.board().nxt();
        recovery.acknowledge(&Ack::plain(nxt), now);
        prop_assert!(recovery.board().is_empty());
        prop_assert_eq!(recovery.timer(false), None);
    }
}
