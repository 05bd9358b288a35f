//! Contents of one frame: a whole host, each of its domains, or the lines of one subsystem.

use xk_core::graph::Shape;
use xk_lang::{DomainKind, Host};

use super::label;
use crate::plan::HostPlan;

/// Boxes that stand on each other, by their places in these lists.
pub(super) struct Tower {
    pub(super) boxes: Vec<Item>,
    pub(super) lowers: Vec<Vec<usize>>,
    /// Each box after all that it stands on.
    pub(super) order: Vec<usize>,
}

/// A box.
pub(super) enum Item {
    /// A node, with what is written in its box.
    Node { at: usize, lines: Vec<String> },
    /// A box for a node of another domain, or for a grant.
    Other { lines: Vec<String> },
    /// A frame with a title around others.
    Frame { title: String, tower: Tower },
}

/// All that is drawn in a host's frame.
pub(super) fn host(host: &Host, plan: &HostPlan) -> Tower {
    let is_drawn = |at: &usize| *at > 0 || plan.places().iter().any(|place| place.domain() == 0);
    if host.domains.is_empty() {
        return frames(host, plan, whole(host, plan));
    }
    let drawn: Vec<usize> = (0..plan.domains().len()).filter(is_drawn).collect();
    let place = |domain: usize| drawn.iter().position(|at| *at == domain);
    let parts = drawn.iter().map(|&domain| {
        let written = domain.checked_sub(1).and_then(|at| host.domains.get(at));
        let (title, mut lowers) = match written {
            None => ("first domain".to_owned(), Vec::new()),
            Some(written) => {
                let granted = written.grants.iter().filter_map(|grant| {
                    let name = grant.args.first()?.value.to_string();
                    let at = host.nodes.iter().position(|node| *node.name == name)?;
                    Some(plan.places().get(at)?.domain())
                });
                (label::of_domain(written), granted.collect())
            }
        };
        lowers.extend(plan.domains()[domain].lowers());
        let mut lowers: Vec<usize> = lowers.into_iter().filter_map(place).collect();
        lowers.sort_unstable();
        lowers.dedup();
        let tower = match written {
            Some(written) if written.kind == DomainKind::Open => granted(written),
            _ => frames(host, plan, tower(host, plan, domain)),
        };
        (Item::Frame { title, tower }, lowers)
    });
    let (boxes, lowers) = parts.unzip();
    let order = plan.domain_order().iter().filter_map(|at| place(*at)).collect();
    Tower { boxes, lowers, order }
}

/// All nodes of a host.
fn whole(host: &Host, plan: &HostPlan) -> Tower {
    Tower {
        boxes: (0..host.nodes.len()).map(|at| node(host, plan, at)).collect(),
        lowers: plan.places().iter().map(|place| place.lowers().to_vec()).collect(),
        order: plan.order().to_vec(),
    }
}

fn node(host: &Host, plan: &HostPlan, at: usize) -> Item {
    let is_adapter = plan.places()[at].entry().shape == Shape::Adapter;
    let lines = match is_adapter {
        true => vec![host.nodes[at].kind.replace('-', " ")],
        false => label::of_node(&host.nodes[at]),
    };
    Item::Node { at, lines }
}

/// Grants, a box each.
fn granted(written: &xk_lang::Domain) -> Tower {
    let other = |grant| Item::Other { lines: vec![label::of_grant(grant)] };
    let boxes: Vec<Item> = written.grants.iter().map(other).collect();
    Tower { lowers: vec![Vec::new(); boxes.len()], order: (0..boxes.len()).collect(), boxes }
}

/// The nodes of a domain, and in parentheses what stands for those of others below them.
fn tower(host: &Host, plan: &HostPlan, domain: usize) -> Tower {
    let mut tower = Tower { boxes: Vec::new(), lowers: Vec::new(), order: Vec::new() };
    // The node that each box is, or stands for.
    let mut nodes: Vec<usize> = Vec::new();
    for &at in plan.order() {
        let place = &plan.places()[at];
        if place.domain() != domain {
            continue;
        }
        let lowers = place.lowers().iter().map(|&lower| {
            let there = nodes.iter().position(|node| *node == lower);
            there.unwrap_or_else(|| {
                let lines = vec![format!("({})", host.nodes[lower].name)];
                nodes.push(lower);
                tower.boxes.push(Item::Other { lines });
                tower.lowers.push(Vec::new());
                tower.boxes.len() - 1
            })
        });
        let lowers: Vec<usize> = lowers.collect();
        nodes.push(at);
        tower.boxes.push(node(host, plan, at));
        tower.lowers.push(lowers);
    }
    tower.order = (0..tower.boxes.len()).collect();
    tower
}

/// The tower with a frame around what is of one subsystem. What of it stands on another and bears
/// that one as well is in two frames, so that each frame stands wholly above what is below it.
fn frames(host: &Host, plan: &HostPlan, flat: Tower) -> Tower {
    if host.subsystems.is_empty() {
        return flat;
    }
    let subsystem = |item: &Item| match item {
        Item::Node { at, .. } => host.nodes[*at].subsystem,
        _ => None,
    };
    let of: Vec<Option<usize>> = flat.boxes.iter().map(subsystem).collect();
    // How often the way down leads from one subsystem into another.
    let mut crossed = vec![0_usize; of.len()];
    for &at in &flat.order {
        let below = flat.lowers[at].iter();
        let below = below.map(|&lower| crossed[lower] + usize::from(of[lower] != of[at]));
        crossed[at] = below.max().unwrap_or(0);
    }
    let mut framed: Vec<(usize, usize)> = Vec::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut group_of = vec![usize::MAX; of.len()];
    for at in 0..of.len() {
        let heads = matches!(flat.boxes[at], Item::Node { at, .. }
            if plan.places()[at].entry().shape == Shape::Framework);
        let key = of[at].map(|subsystem| (subsystem, crossed[at]));
        let known = framed.iter().position(|other| Some(*other) == key);
        group_of[at] = match known {
            _ if heads => continue,
            Some(known) => known,
            None => {
                framed.push(key.unwrap_or((usize::MAX, at)));
                groups.push(Vec::new());
                groups.len() - 1
            }
        };
        groups[group_of[at]].push(at);
    }
    let lowers_of = |group: &Vec<usize>| {
        let own = group.first().map(|at| group_of[*at]);
        let below = group.iter().flat_map(|at| &flat.lowers[*at]).map(|lower| group_of[*lower]);
        let mut below: Vec<usize> = below.filter(|other| Some(*other) != own).collect();
        below.sort_unstable();
        below.dedup();
        below
    };
    let lowers: Vec<Vec<usize>> = groups.iter().map(lowers_of).collect();
    let mut order: Vec<usize> = Vec::with_capacity(groups.len());
    while let Some(next) = (0..groups.len()).find(|group| {
        !order.contains(group) && lowers[*group].iter().all(|lower| order.contains(lower))
    }) {
        order.push(next);
    }
    let place_in = |group: &[usize], at: usize| group.iter().position(|other| *other == at);
    let mut items: Vec<Option<Item>> = flat.boxes.into_iter().map(Some).collect();
    let boxes = groups.iter().zip(&framed).filter_map(|(group, key)| {
        let Some(subsystem) = host.subsystems.get(key.0) else {
            return items[*group.first()?].take();
        };
        let inner = |at: &usize| {
            flat.lowers[*at].iter().filter_map(|lower| place_in(group, *lower)).collect()
        };
        let tower = Tower {
            lowers: group.iter().map(inner).collect(),
            order: flat.order.iter().filter_map(|at| place_in(group, *at)).collect(),
            boxes: group.iter().filter_map(|at| items[*at].take()).collect(),
        };
        let title = label::of_subsystem(&host.nodes[subsystem.node]);
        Some(Item::Frame { title, tower })
    });
    Tower { boxes: boxes.collect(), lowers, order }
}
