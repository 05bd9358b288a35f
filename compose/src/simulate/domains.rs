//! Hosts in several domains: a kernel each, in one world, with cuts between them.

use std::rc::Rc;
use xk_domains::{Carrier, Port, Queue, SLOTS_MIN};
use xk_lang::{Diagnostics, DomainKind, HostInstance};
use xk_sim::{HostId, World};

use super::{SimulationConfig, kernel, rebuild_host};
use crate::build::failed_start;
use crate::cut::build_domain;
use crate::domain::DomainSetup;
use crate::plan::{CheckedGraph, HostPlan};

/// The cuts of a domain, beside its kernel: each with the domain on the other side.
pub struct Cuts(pub Vec<(usize, Rc<Port>)>);

/// The name in a world of a domain of a host; that of the first is the host's own.
pub fn domain_name(host: &str, domain: &str) -> String {
    if domain.is_empty() { host.to_owned() } else { format!("{host}/{domain}") }
}

/// A host in a world.
struct Seats<'a> {
    graph: &'a CheckedGraph,
    host: &'a HostInstance<'a>,
    plan: &'a HostPlan,
    setups: Vec<DomainSetup>,
    config: SimulationConfig,
}

impl<'a> Seats<'a> {
    fn new(
        graph: &'a CheckedGraph,
        host: &'a HostInstance<'a>,
        config: SimulationConfig,
    ) -> Option<Self> {
        let plan = graph.plan_of(host)?;
        Some(Self { graph, host, plan, setups: graph.domains(host), config })
    }

    fn name(&self, domain: usize) -> String {
        let own = self.setups.get(domain).map_or("", |setup| &setup.name);
        domain_name(&self.host.name, own)
    }

    /// The domains that have protocols in the file.
    fn all(&self) -> impl Iterator<Item = usize> {
        let is_open = |at: &usize| self.setups[*at].kind == Some(DomainKind::Open);
        let order = self.plan.domain_order.iter().copied();
        order.filter(|at| !is_open(at)).collect::<Vec<_>>().into_iter()
    }

    fn id(&self, world: &World, domain: usize) -> Option<HostId> {
        world.find(&self.name(domain))
    }

    /// Both ends of what carries frames between two domains, the upper one's first.
    fn carrier(&self, world: &mut World, upper: usize, lower: usize) -> Option<[Queue; 2]> {
        let ids = [self.id(world, upper)?, self.id(world, lower)?];
        // Another one each time that one of the two comes back.
        let boots = ids.map(|id| world.kernel(id).map_or(0, |kernel| kernel.boot_id()));
        let label = u64::from(boots[0]) << 32 | u64::from(boots[1]);
        let chance = world.kernel(ids[0])?.random().fork(label);
        let delay = (self.config.crossing, self.config.crossing_jitter);
        let (down, up) = Queue::delayed(self.config.crossing_slots, delay, &chance);
        let ends = [down.clone(), up.clone()];
        world.join(ids, ends.map(|end| Rc::new(move || end.close()) as Rc<dyn Fn()>));
        Some([down, up])
    }

    /// Builds a domain in its kernel, with these ends of its carriers.
    fn build(
        &self,
        world: &World,
        domain: usize,
        ends: &[(usize, Queue)],
    ) -> Result<(), Box<Diagnostics>> {
        let Some(kernel) = self.id(world, domain).and_then(|id| world.kernel(id)) else {
            return Ok(());
        };
        let mut carrier = |neighbour: usize| {
            let end = ends.iter().find(|(other, _)| *other == neighbour);
            let end = end.map(|(_, end)| Box::new(end.clone()) as Box<dyn Carrier>);
            end.ok_or_else(|| std::io::ErrorKind::NotFound.into())
        };
        let built = build_domain(self.graph, self.host, domain, kernel, &mut carrier)?;
        kernel.surround(Rc::new(Cuts(built.ports)));
        Ok(())
    }

    /// Has a neighbour of `domain` take `end` for the way to it.
    fn reconnect(&self, world: &mut World, neighbour: usize, domain: usize, end: Queue) {
        let id = self.id(world, neighbour);
        let kernel = id.and_then(|id| world.kernel(id));
        let cuts = kernel.and_then(|kernel| kernel.surroundings::<Cuts>());
        let (Some(id), Some(cuts)) = (id.filter(|id| world.is_up(*id)), cuts) else {
            // It comes back later, with carriers of its own.
            end.close();
            return;
        };
        if let Some((_, port)) = cuts.0.iter().find(|(other, _)| *other == domain) {
            let port = Rc::clone(port);
            world.spawn(id, move |cx| port.reconnect(cx, Box::new(end)));
        }
    }
}

/// Adds a host to a world, a kernel for each of its domains.
pub(super) fn add_host(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    world: &mut World,
    config: SimulationConfig,
) -> Result<(), Box<Diagnostics>> {
    let Some(seats) = Seats::new(graph, host, config) else {
        return Ok(());
    };
    if config.crossing_slots < SLOTS_MIN {
        let mut diagnostics = graph.diagnostics();
        let what = format!("no message crosses where {} frames have room", config.crossing_slots);
        diagnostics
            .error(xk_lang::Span::default(), what)
            .help(format!("let `crossing_slots` be {SLOTS_MIN} at least"));
        return Err(Box::new(diagnostics));
    }
    for domain in seats.all() {
        let name = seats.name(domain);
        let kernel = kernel(graph, host, world, &name, config);
        world.add_host(&name, kernel);
    }
    let mut ends: Vec<(usize, usize, Queue)> = Vec::new();
    for upper in seats.all() {
        for &lower in seats.plan.domains[upper].lowers() {
            if let Some([down, up]) = seats.carrier(world, upper, lower) {
                ends.extend([(upper, lower, down), (lower, upper, up)]);
            }
        }
    }
    for domain in seats.all() {
        let own = ends.iter().filter(|(of, ..)| *of == domain);
        let own: Vec<_> = own.map(|(_, other, end)| (*other, end.clone())).collect();
        seats.build(world, domain, &own)?;
    }
    Ok(())
}

/// Whether all domains are up on which the one of this name stands.
pub(super) fn may_start(graph: &CheckedGraph, world: &World, name: &str) -> bool {
    let (of, own) = name.split_once('/').unwrap_or((name, ""));
    let Some(host) = graph.host(of) else {
        return false;
    };
    let Some(seats) = Seats::new(graph, &host, SimulationConfig::default()) else {
        return false;
    };
    let at = seats.setups.iter().position(|setup| setup.name == own);
    let plan = at.and_then(|at| seats.plan.domains.get(at));
    let is_up = |lower: &usize| seats.id(world, *lower).is_some_and(|id| world.is_up(id));
    plan.is_some_and(|plan| plan.lowers().iter().all(is_up))
}

/// Builds and starts again what was taken down by [`World::crash`]: a host, or a domain of one, by
/// its name in the world ([`domain_name`]). The domains next to it find it back, and what stands on
/// it enables again. `None` if there is none of this name.
///
/// # Errors
/// The first protocol that could not be built or started, with its place in the file.
pub fn restart(
    graph: &CheckedGraph,
    world: &mut World,
    name: &str,
    config: SimulationConfig,
) -> Result<Option<HostId>, Box<Diagnostics>> {
    let (of, own) = name.split_once('/').unwrap_or((name, ""));
    let (Some(id), Some(host)) = (world.find(name), graph.host(of)) else {
        return Ok(None);
    };
    let Some(seats) = Seats::new(graph, &host, config).filter(|seats| seats.setups.len() > 1)
    else {
        rebuild_host(graph, world, name, config)?;
        return started(graph, &host, world, id);
    };
    let Some(domain) = seats.setups.iter().position(|setup| setup.name == own) else {
        return Ok(None);
    };
    let kernel = kernel(graph, &host, world, name, config);
    world.reboot(id, kernel);
    let plan = &seats.plan.domains[domain];
    let (mut own, mut below, mut above) = (Vec::new(), Vec::new(), Vec::new());
    for &lower in plan.lowers() {
        if let Some([down, up]) = seats.carrier(world, domain, lower) {
            own.push((lower, down));
            below.push((lower, up));
        }
    }
    for &upper in plan.uppers() {
        if let Some([down, up]) = seats.carrier(world, upper, domain) {
            own.push((upper, up));
            above.push((upper, down));
        }
    }
    for (lower, end) in below {
        seats.reconnect(world, lower, domain, end);
    }
    seats.build(world, domain, &own)?;
    let started = started(graph, &host, world, id)?;
    for (upper, end) in above {
        seats.reconnect(world, upper, domain, end);
    }
    Ok(started)
}

fn started(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    world: &mut World,
    id: HostId,
) -> Result<Option<HostId>, Box<Diagnostics>> {
    match world.start_host(id) {
        Ok(()) => Ok(Some(id)),
        Err((protocol, error)) => Err(Box::new(failed_start(graph, host, &protocol, error))),
    }
}
