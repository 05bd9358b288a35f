//! The fixture for layers that let everything through: they fit any edge, so one fixture serves
//! them all.

use xk_core::Entry;
use xk_core::graph::Params;

use super::{Fixture, LAWS, Side, all, headers};
use crate::kernel::{Family, Lower};

/// A layer over hosts of a family, or over a link.
struct Through {
    entry: &'static Entry,
    params: Params,
    over: Option<Family>,
}

impl Fixture for Through {
    fn entry(&self) -> &'static Entry {
        self.entry
    }

    fn params(&self, _: Side) -> Params {
        self.params.clone()
    }

    fn lower(&self, side: Side) -> Lower {
        self.over.map_or(Lower::link(1500), |family| Lower::host(side.host(family), 253))
    }

    fn sessions_max(&self) -> usize {
        // Of the layer below it wraps 4096, and releases closed ones when they have become as
        // many.
        2 * 4096 + 64
    }
}

/// Checks a pass-through layer with these parameters on a link and on a layer that takes hosts. The
/// laws that it cannot break are left out: it has no type number, and on a link there are no
/// strangers.
///
/// # Panics
/// If it breaks a law.
pub fn keeps_the_laws(entry: &'static Entry, params: &Params) {
    for (over, left_out) in [(None, 6), (Some(Family::V4), 1), (Some(Family::V6), 1)] {
        let params = params.clone();
        let findings = all(&Through { entry, params, over });
        println!("{findings}");
        // One that changes messages says nothing of their headers.
        let untold = findings.skipped.iter().filter(|(law, _)| *law == headers::NAME).count();
        assert_eq!(findings.held.len() + left_out + untold, LAWS.len(), "{findings}");
    }
}
