//! The fixture for layers that let everything through: they fit any edge, so one fixture serves
//! them all.

use core::net::Ipv4Addr;

use xk_core::graph::Params;
use xk_core::{Entry, Part, Participants};

use super::{Fixture, LAWS, Side, all};
use crate::kernel::Lower;

/// What the layer stands on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Link,
    Hosts,
}

struct Through {
    entry: &'static Entry,
    params: Params,
    edge: Edge,
}

fn host(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

impl Fixture for Through {
    fn entry(&self) -> &'static Entry {
        self.entry
    }

    fn params(&self, _: Side) -> Params {
        self.params.clone()
    }

    fn lower(&self, side: Side) -> Lower {
        match self.edge {
            Edge::Link => Lower::link(1500),
            Edge::Hosts => Lower::host(host(side), 253),
        }
    }

    fn open(&self, side: Side) -> Participants {
        match self.edge {
            Edge::Link => Participants::default(),
            Edge::Hosts => Participants::pair(Part::Any, Part::host(host(side.other()))),
        }
    }

    fn sessions_max(&self) -> usize {
        // Of the layer below it wraps 4096, and lets go of closed ones when they have become as
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
    for (edge, left_out) in [(Edge::Link, 5), (Edge::Hosts, 1)] {
        let params = params.clone();
        let findings = all(&Through { entry, params, edge });
        println!("{findings}");
        assert_eq!(findings.held.len() + left_out, LAWS.len(), "{findings}");
    }
}
