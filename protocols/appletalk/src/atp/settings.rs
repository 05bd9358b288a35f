//! Parameters of an ATP in a graph, alike in all frameworks.

/// Declares the settings of an ATP in a crate that has `xk-core`: what a request asks for that says
/// nothing itself, and the parameters of its own that follow.
#[macro_export]
macro_rules! atp_settings {
    ($(#[$attribute:meta])* pub struct $name:ident { $($own:tt)* }) => {
        xk_core::settings! {
            $(#[$attribute])*
            pub struct $name {
                xo: bool = flag(true,
                    "whether requests are executed exactly once, and not at least once"),
                tries: u8 = int(0..=255, 5,
                    "how often a request is sent; 0: until its user gives up"),
                interval: core::time::Duration = duration(core::time::Duration::from_secs(2),
                    "the time between two sendings"),
                release: core::time::Duration = duration(core::time::Duration::from_secs(30),
                    "how long the responder remembers a request that is executed exactly once, \
                     rounded up to 30 s, 1, 2, 4 or 8 min"),
                $($own)*
            }
        }

        impl $name {
            /// Returns what a request asks for that says nothing itself.
            pub(crate) fn want(&self) -> $crate::atp::Want {
                $crate::atp::Want::usual(self.xo, self.tries, self.interval, self.release)
            }
        }
    };
}
