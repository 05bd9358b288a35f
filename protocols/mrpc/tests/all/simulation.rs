//! Calls are executed at most once, on a bad network between hosts that crash.

use crate::net::*;
use xk_mrpc::Config;
use xk_testkit::calls::model::{self, Subject};

#[test]
fn executed_once_at_most() {
    model::executed_once_at_most(&Subject {
        draw: |random| Config {
            channels: 1 + random.below(4) as u16,
            fragment: [0, 1024, 200][random.below(3) as usize],
            // So that free ones have to go for others.
            processes_max: 2 + random.below(8) as usize,
            ..config()
        },
        boot: |seed, host, config, procedure| boot(seed, ethernet(host), *config, procedure),
        request_octets_max: |config| if config.fragment == 200 { 3_000 } else { 16_000 },
        reply_octets_max: 16_384,
    });
}
