//! A link, by methods instead of a text.

use std::fmt::Write as _;
use std::time::Duration;

/// A link of [`World::lan`](crate::World::lan); by default it delays by 10 µs and has no faults.
/// The text of a graph file's parameters also makes one: `r#"delay="5ms" loss="5%""#`.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Link(String);

impl Link {
    /// A link without faults.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        // Writing to a string does not fail.
        let _ = write!(self.0, " {name}={value}");
        self
    }

    fn time(self, name: &str, time: Duration) -> Self {
        self.with(name, format_args!("\"{}ns\"", time.as_nanos()))
    }

    fn share(self, name: &str, share: f64) -> Self {
        self.with(name, format_args!("\"{}%\"", share * 100.0))
    }

    /// Delays each frame by this.
    pub fn delay(self, time: Duration) -> Self {
        self.time("delay", time)
    }

    /// Delays each delivery by a random time of up to `most` in addition.
    pub fn jitter(self, most: Duration) -> Self {
        self.time("jitter", most)
    }

    /// Sends this many bits per second.
    pub fn rate_bit_s(self, bits: u64) -> Self {
        self.with("rate", format_args!("\"{bits}bit\""))
    }

    /// Lets this many frames wait at a port; the default is 100.
    pub fn queue_frames(self, frames: u32) -> Self {
        self.with("queue", frames)
    }

    /// Carries payloads of at most this many octets; the default is 1500.
    pub fn mtu_octets(self, octets: u32) -> Self {
        self.with("mtu", octets)
    }

    /// Loses this share of deliveries, 0 to 1.
    pub fn loss(self, share: f64) -> Self {
        self.share("loss", share)
    }

    /// Delivers this share twice, 0 to 1.
    pub fn duplicate(self, share: f64) -> Self {
        self.share("duplicate", share)
    }

    /// Delivers this share, 0 to 1, later by `later`.
    pub fn reorder(self, share: f64, later: Duration) -> Self {
        self.share("reorder", share).time("reorder_delay", later)
    }

    /// Flips a bit of this share of deliveries, 0 to 1.
    pub fn corrupt(self, share: f64) -> Self {
        self.share("corrupt", share)
    }

    /// Parameters of the link in a graph file.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str>> From<T> for Link {
    fn from(text: T) -> Self {
        Self(text.as_ref().into())
    }
}
