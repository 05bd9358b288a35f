//! A kernel under virtual time, and protocols that stand below and above the one under test and
//! remember what they saw.
//!
//! # Example
//! ```
//! use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};
//! use xk_core::{Participants, Upper};
//!
//! let cx = TestKernel::new(1);
//! let bottom = Bottom::add(&cx, "wire", Lower::link(1500));
//! let top = Top::add(&cx, "top");
//! let upper = Upper::new(top.protocol());
//! let session = bottom.protocol().open(&cx, upper, Participants::default()).unwrap();
//! session.push(&cx, cx.message(b"hello")).unwrap();
//! assert!(bottom.take_sent()[0].message.eq_octets(b"hello"));
//! ```

mod bottom;
mod call_bottom;
mod calls;
mod losses;
mod pauses;
mod stations;
mod top;

pub use bottom::{Addressing, Bottom, Family, Lower, OnPush, ReachedBottom, Sent};
pub use call_bottom::{CallBottom, OnCall, in_two_slices};
pub use calls::{CallEnd, Task};
pub use losses::Losses;
pub use stations::Stations;
pub use top::{Event, OnDemux, OnOpen, OnServe, Received, Top};

use core::ops::Deref;
use core::time::Duration;
use std::rc::Rc;
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds, Switch};
use xk_core::{Answer, Ask, Kernel, Message, Part, Pool};
use xk_kit::EthAddr;
use xk_run::switch::CoroutineSwitch;

/// Headroom of every message made here, in octets: as much as an application reserves.
pub const HEADROOM: usize = 128;

/// Largest number of pending timers.
const TIMERS_MAX: usize = 1 << 18;

/// Returns the source of what comes from this peer, as a layer with addresses counts it.
fn source_of(peer: Option<Part>) -> u64 {
    match peer {
        Some(Part::Host(host)) => host.source(),
        Some(Part::Ether(octets)) => EthAddr(octets).source(),
        Some(Part::Number(_, number)) => number,
        _ => 0,
    }
}

/// Called first with every question to a protocol of a test or to its sessions; an unanswered
/// question is answered as usual.
pub type OnAsk = Rc<dyn Fn(&Kernel, &mut Ask<'_>) -> Answer>;

/// A kernel whose clock moves only by [`TestKernel::advance`], and whose shepherds never switch.
pub struct TestKernel {
    kernel: Rc<Kernel>,
}

impl Deref for TestKernel {
    type Target = Kernel;

    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}

impl TestKernel {
    /// A kernel with a pool of the default size; all chance comes from `seed`.
    ///
    /// # Panics
    /// If the machine has no memory for the pool.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let pool = Pool::new(&PoolConfig::default()).expect("memory for a message pool");
        Self::with_pool(seed, pool)
    }

    /// Makes a kernel with this pool.
    #[must_use]
    pub fn with_pool(seed: u64, pool: Pool) -> Self {
        Self::with_parts(seed, pool, Box::new(NoSwitch), TIMERS_MAX)
    }

    /// Makes a kernel with a small pool of so many octets, and so many timers.
    ///
    /// # Panics
    /// If the machine has no memory for the pool.
    #[must_use]
    pub fn small(seed: u64, octets_max: usize, timers_max: usize) -> Self {
        let pool = Pool::new(&PoolConfig::with_octets_max(octets_max));
        let pool = pool.expect("memory for a message pool");
        Self::with_parts(seed, pool, Box::new(NoSwitch), timers_max)
    }

    /// Makes a kernel whose shepherds can block, inside [`Shepherds::run`].
    ///
    /// # Panics
    /// If the machine has no memory for the pool.
    #[must_use]
    pub fn with_switch(seed: u64, switch: Box<dyn Switch>) -> Self {
        let pool = Pool::new(&PoolConfig::default()).expect("memory for a message pool");
        Self::with_parts(seed, pool, switch, TIMERS_MAX)
    }

    /// Makes a kernel whose shepherds have stacks, so that tasks of [`TestKernel::run_tasks`] may
    /// block.
    ///
    /// # Panics
    /// If the machine has no memory for the pool.
    #[must_use]
    pub fn with_stacks(seed: u64) -> Self {
        Self::with_switch(seed, Box::new(CoroutineSwitch::new()))
    }

    fn with_parts(seed: u64, pool: Pool, switch: Box<dyn Switch>, timers_max: usize) -> Self {
        let kernel = Kernel::new(Config {
            random: Random::new(seed),
            pool,
            shepherds: Shepherds::new(switch, Limits::default()),
            timers_max,
        });
        Self { kernel: Rc::new(kernel) }
    }

    /// The kernel itself, for a loop that keeps it.
    #[must_use]
    pub fn share(&self) -> Rc<Kernel> {
        Rc::clone(&self.kernel)
    }

    /// Lets virtual time pass: every timer due by then goes off at its own time. Returns the number
    /// of timers.
    pub fn advance(&self, by: Duration) -> usize {
        let end = self.now().after(by);
        let mut fired = self.run_due();
        while let Some(next) = self.next_expiry().filter(|next| *next <= end) {
            self.set_now(next);
            fired += self.run_due();
        }
        self.set_now(end);
        fired + self.run_due()
    }

    /// Makes a message with these octets and [`HEADROOM`] in front.
    ///
    /// # Panics
    /// If the pool is exhausted.
    #[must_use]
    pub fn message(&self, octets: &[u8]) -> Message {
        self.pool().copy_from(HEADROOM, octets).expect("a buffer for a test message")
    }

    /// Number of descriptors and buffers of the pool in use.
    #[must_use]
    pub fn live(&self) -> (u32, u32) {
        let stats = self.pool().stats();
        (stats.descriptors_live, stats.buffers_live)
    }
}

/// Returns the octets of a message.
#[must_use]
pub fn octets(message: &Message) -> Vec<u8> {
    message.octets().collect()
}

#[cfg(test)]
mod tests;
