//! What a graph says of ATP.

use core::time::Duration;
use xk_appletalk::atp::{Options, Want};

xk_core::settings! {
    /// What is asked for where a request says nothing itself, and bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        xo: bool = flag(true, "whether requests are executed exactly once, and not at least once"),
        tries: u8 = int(0..=255, 5, "how often a request is sent; 0: until its user takes it back"),
        interval: Duration = duration(Duration::from_secs(2),
            "the time between two sendings, in steps of 100 ms"),
        release: Duration = duration(Duration::from_secs(30),
            "how long the responder remembers a request that is executed exactly once, rounded up \
             to 30 s, 1, 2, 4 or 8 min"),
        requests_max: usize = int(1..=16_384, 1024, "transactions of its own under way at most"),
        remembered_max: usize = int(1..=65_536, 1024, "transactions of others that it remembers"),
    }
}

impl Settings {
    pub(super) fn options(self) -> Options {
        let Self { xo, tries, interval, release, .. } = self;
        Options::request(&Want::usual(xo, tries, interval, release), 0)
    }
}
