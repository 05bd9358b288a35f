//! Limits of a layer: sessions and offers.

use super::Receiver;
use crate::net::drop_sources::PARAMETER;
use xk_core::graph::{Build, BuildError, ParamSpec, int};
use xk_core::map::Receives;
use xk_core::object::Payer;

/// Offers that a layer takes unless it says otherwise.
const OFFERS_MAX: usize = 256;

/// The parameter of a layer that says how many sessions it holds, `usual` unless a graph says.
pub const fn sessions_max(usual: i64) -> ParamSpec {
    let what = "how many sessions it holds; idle ones are evicted for new ones";
    int("sessions_max", 1..=16_777_216, usual, what)
}

impl Receives for Receiver {
    fn payer(&self) -> Option<Payer> {
        match self {
            Self::Protocol(upper) => upper.head().payer(),
            Self::Session(session) => session.head().payer(),
        }
    }
}

/// Largest numbers of sessions and offers of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Sessions; idle ones are evicted for new ones.
    pub sessions: usize,
    /// Sessions from which on an idle one makes room for each that a message makes.
    pub idle: usize,
    /// Passive sessions of one upper protocol; 0 sets no bound of its own.
    pub passive: usize,
    /// Standing offers.
    pub offers: usize,
    /// Sources whose drops are counted apart, if the layer counts them.
    pub sources: Option<usize>,
}

impl Bounds {
    /// Bounds for this many sessions, and the usual number of offers.
    #[must_use]
    pub fn sessions(sessions: usize) -> Self {
        Self { sessions, idle: sessions, passive: 0, offers: OFFERS_MAX, sources: None }
    }

    /// As the parameters `sessions_max`, `idle_max`, `passive_max`, `enables_max` and `sources_max`
    /// say, each where the entry has it.
    ///
    /// # Errors
    /// [`BuildError`] without `sessions_max`.
    pub(super) fn read(build: &Build<'_>) -> Result<Self, BuildError> {
        let usual = Self::sessions(build.int("sessions_max")?);
        Ok(Self {
            idle: build.int("idle_max").unwrap_or(usual.idle),
            passive: build.int("passive_max").unwrap_or(usual.passive),
            offers: build.int("enables_max").unwrap_or(usual.offers),
            sources: build.int(PARAMETER.name).ok(),
            ..usual
        })
    }
}
