//! Calls are executed at most once, on a bad network between hosts that crash.

use crate::net::*;
use xk_testkit::calls::model::{self, Subject};
use xk_vmtp::Settings;

#[test]
fn executed_once_at_most() {
    model::executed_once_at_most(&Subject {
        draw: |random| Settings {
            entities: 1 + random.below(4) as u16,
            gap: [0, 0, 8][random.below(3) as usize],
            // So that some have to go for others.
            records_max: 2 + random.below(8) as usize,
            ..config()
        },
        boot: |seed, host, config, procedure| boot(seed, ethernet(host), *config, procedure),
        request_octets_max: |_| 40_000,
        reply_octets_max: 60_000,
    });
}
