//! Whatever a path does, all octets are acknowledged in the end, and the scoreboard's books balance
//! after each step.

use super::path::{Path, Wish, World};
use core::time::Duration;
use proptest::prelude::*;
use xk_core::Time;

fn paths() -> impl Strategy<Value = Path> {
    (
        (1_u64..200, 1_u64..200),
        prop_oneof![Just(0_u32), 0..20_000_u32, 0..300_000_u32],
        prop_oneof![Just(0_u32), 0..300_000_u32],
        (prop_oneof![Just(0_u32), 0..200_000_u32], 1_u64..60),
        prop_oneof![Just(0_u32), 0..100_000_u32],
        proptest::option::of((0_u64..3_000, 0_u64..3_000)),
        proptest::option::of((0_u64..3_000, 0_u64..3_000)),
        10_000_u64..400_000,
    )
        .prop_map(
            |((rate, rtt), loss, ack_loss, (reorder, late), duplicate, stall, outage, queue)| {
                let span = |(from, ms): (u64, u64)| (Time::from_ms(from), Time::from_ms(from + ms));
                Path {
                    loss_ppm: loss,
                    ack_loss_ppm: ack_loss,
                    reorder_ppm: reorder,
                    held_up: Duration::from_millis(late),
                    duplicate_ppm: duplicate,
                    stall: stall.map(span),
                    outage: outage.map(span),
                    queue_octets: queue,
                    mark_octets: (queue % 3 == 0).then_some(queue / 2),
                    ..Path::new(rate, rtt)
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn everything_is_acknowledged(
        path in paths(),
        seed: u64,
        octets in 1_u64..600_000,
        congestion in prop_oneof![Just("newreno"), Just("cubic"), Just("bbr")],
        is_sack: bool,
        has_timestamps: bool,
    ) {
        let mut world = World::new(path, seed);
        let octets = Some(octets);
        let flow = world.add(Wish { octets, is_sack, has_timestamps, ..Wish::endless(congestion) });
        world.run_until(Time::from_s(20_000));
        let flow = &world.flows[flow];
        prop_assert_eq!(Some(flow.delivered), octets, "{:?}", flow.recovery);
        prop_assert!(flow.recovery.board().is_empty());
        prop_assert_eq!(flow.recovery.timer(false), None);
        prop_assert_eq!(flow.recovery.in_flight_octets(), 0);
    }
}
