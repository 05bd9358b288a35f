//! Ways to neighbouring domains: what takes frames there, and what is lent across it.

use crate::failure::Failure;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use xk_compose::{CheckedGraph, Crossing};
use xk_core::Pool;
use xk_domains::Carrier;
use xk_domains::messages::{Data, Messages};
use xk_domains::ring::{Kin, Lending, Ring, Terms};
use xk_lang::HostInstance;

/// Time that two neighbours wait for each other.
const MEET_WITHIN: Duration = Duration::from_secs(20);

/// The way to reach a neighbour.
pub(super) enum Meeting {
    /// In this process.
    Ring(Box<Ring>, Kin),
    /// In another one.
    Socket(OwnedFd),
}

/// A neighbour of a domain.
#[derive(Clone, Copy)]
struct Neighbour {
    place: usize,
    /// Kind of carrier to it, if it is another process.
    crossing: Crossing,
    /// True if it lies above.
    is_upper: bool,
    /// True if it may read this domain's pool, being another process.
    reads: bool,
}

/// All neighbours of a domain, whose pool lies in a file.
#[derive(Clone)]
pub(super) struct Ways {
    domain: usize,
    pool: Arc<OwnedFd>,
    neighbours: Vec<Neighbour>,
}

/// Carrier of frames to a neighbour.
type To = Box<dyn Carrier>;

/// Carrier of frames to a neighbour, before the domain's kernel has it.
pub(super) enum NeighbourCarrier {
    Messages(Messages),
    Ring(Box<Ring>, Terms),
}

impl NeighbourCarrier {
    /// This for a kernel with this pool.
    pub(super) fn carrier(self, pool: &Pool) -> Result<To, Failure> {
        Ok(match self {
            Self::Messages(messages) => Box::new(messages),
            Self::Ring(ring, terms) => Box::new(Lending::new(*ring, pool, terms).map_err(none)?),
        })
    }
}

fn none(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("no connection to a neighbour: {error}"))
}

impl Ways {
    /// Finds the neighbours of a domain of a host.
    pub(super) fn of(
        graph: &CheckedGraph,
        host: &HostInstance<'_>,
        domain: usize,
        pool: Arc<OwnedFd>,
    ) -> Self {
        let setups = graph.domains(host);
        let plan = graph.plan_of(host).and_then(|plan| plan.domains().get(domain));
        let neighbour = |place: usize| {
            let is_upper = plan.is_some_and(|plan| plan.uppers().contains(&place));
            let upper = setups.get(if is_upper { place } else { domain });
            let crossing = upper.map_or_else(Crossing::default, |setup| setup.crossing);
            Neighbour { place, crossing, is_upper, reads: graph.lends(host, domain, place) }
        };
        let neighbours = plan.into_iter().flat_map(|plan| plan.neighbours()).map(neighbour);
        Self { domain, pool, neighbours: neighbours.collect() }
    }

    /// Agrees with a neighbour on a way.
    pub(super) fn to(&self, place: usize, meeting: Meeting) -> Result<NeighbourCarrier, Failure> {
        let found = self.neighbours.iter().find(|neighbour| neighbour.place == place);
        let neighbour = found.ok_or_else(|| none("it is no neighbour"))?;
        let (ring, kin) = match (meeting, neighbour.crossing) {
            (Meeting::Ring(ring, kin), _) => (ring, Some(kin)),
            (Meeting::Socket(socket), Crossing::Messages) => {
                return Ok(NeighbourCarrier::Messages(Messages::new(socket, Data::InBand)));
            }
            (Meeting::Socket(socket), Crossing::Mapped) => {
                return Ok(NeighbourCarrier::Messages(Messages::new(socket, Data::Mapped)));
            }
            (Meeting::Socket(socket), Crossing::Memory) if neighbour.is_upper => {
                (Ring::grant(socket, MEET_WITHIN).map(Box::new).map_err(none)?, None)
            }
            (Meeting::Socket(socket), Crossing::Memory) => {
                (Ring::ask(socket, MEET_WITHIN).map(Box::new).map_err(none)?, None)
            }
        };
        let pool = (kin.is_some() || neighbour.reads).then_some(&*self.pool);
        let terms = Terms::agree(&ring, pool, kin, MEET_WITHIN).map_err(none)?;
        Ok(NeighbourCarrier::Ring(ring, terms))
    }

    /// Agrees with all neighbours, in one order for the whole host, so that no two wait for each
    /// other through a third.
    pub(super) fn meet(
        &self,
        mut meetings: Vec<(usize, Meeting)>,
        pool: &Pool,
    ) -> Result<Vec<(usize, To)>, Failure> {
        meetings.sort_by_key(|(other, _)| (self.domain.min(*other), self.domain.max(*other)));
        let meet = |(other, meeting)| Ok((other, self.to(other, meeting)?.carrier(pool)?));
        meetings.into_iter().map(meet).collect()
    }
}
