//! What is drawn in one frame: a whole host, or each of its domains.

use xk_lang::{DomainKind, Host};

use super::label;
use crate::plan::HostPlan;

/// Boxes that stand on each other, by their places in these lists.
pub(super) struct Tower {
    /// For each box the node that it is, or that it stands for, and its lines.
    pub(super) boxes: Vec<(usize, Vec<String>)>,
    pub(super) lowers: Vec<Vec<usize>>,
    /// Each box after all that it stands on.
    pub(super) order: Vec<usize>,
}

/// A domain of a host, and the domains that it stands on.
pub(super) struct Part {
    pub(super) title: String,
    pub(super) tower: Tower,
    pub(super) lowers: Vec<usize>,
}

/// All nodes of a host.
pub(super) fn whole(host: &Host, plan: &HostPlan) -> Tower {
    Tower {
        boxes: host.nodes.iter().map(label::of_node).enumerate().collect(),
        lowers: plan.places().iter().map(|place| place.lowers().to_vec()).collect(),
        order: plan.order().to_vec(),
    }
}

/// The domains of a host, with the order in which they stand on each other; none if it has but the
/// first.
pub(super) fn domains(host: &Host, plan: &HostPlan) -> (Vec<Part>, Vec<usize>) {
    let is_drawn = |at: &usize| *at > 0 || plan.places().iter().any(|place| place.domain() == 0);
    if host.domains.is_empty() {
        return (Vec::new(), Vec::new());
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
            _ => tower(host, plan, domain),
        };
        Part { title, tower, lowers }
    });
    let parts = parts.collect();
    let order = plan.domain_order().iter().filter_map(|at| place(*at)).collect();
    (parts, order)
}

/// What may be had, a box each.
fn granted(written: &xk_lang::Domain) -> Tower {
    let boxes: Vec<_> =
        written.grants.iter().map(|grant| (usize::MAX, vec![label::of_grant(grant)])).collect();
    Tower { lowers: vec![Vec::new(); boxes.len()], order: (0..boxes.len()).collect(), boxes }
}

/// The nodes of a domain, and in parentheses what stands for those of others below them.
fn tower(host: &Host, plan: &HostPlan, domain: usize) -> Tower {
    let mut tower = Tower { boxes: Vec::new(), lowers: Vec::new(), order: Vec::new() };
    for &at in plan.order() {
        let place = &plan.places()[at];
        if place.domain() != domain {
            continue;
        }
        let lowers = place.lowers().iter().map(|&lower| {
            let there = tower.boxes.iter().position(|(node, _)| *node == lower);
            there.unwrap_or_else(|| {
                tower.boxes.push((lower, vec![format!("({})", host.nodes[lower].name)]));
                tower.lowers.push(Vec::new());
                tower.boxes.len() - 1
            })
        });
        let lowers: Vec<usize> = lowers.collect();
        tower.boxes.push((at, label::of_node(&host.nodes[at])));
        tower.lowers.push(lowers);
    }
    tower.order = (0..tower.boxes.len()).collect();
    tower
}
