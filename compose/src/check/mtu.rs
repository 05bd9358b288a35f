//! Whether a maximum packet leaves room for the headers above it.

use xk_core::graph::{Family, Params, Shape, Value};
use xk_lang::{Diagnostics, Span};

use super::links::Links;
use super::site::Site;

/// Octets of headers that pile up above a node, and the nodes that they belong to.
#[derive(Clone, Default)]
struct Pile {
    octets: usize,
    names: Vec<String>,
}

/// Compares every `mtu` with the headers of the tallest tower above it. An MTU counts what a frame
/// carries behind the hardware header; for a layer other than a link's own it counts the layer's
/// own header as well.
pub(super) fn check(
    site: &Site<'_>,
    order: &[usize],
    links: Links<'_>,
    diagnostics: &mut Diagnostics,
) {
    let mut piles: Vec<Pile> = vec![Pile::default(); site.lowers.len()];
    let mut framed: Vec<Pile> = piles.clone();
    for &at in order.iter().rev() {
        let uppers = site.uppers(at);
        piles[at] = tallest(uppers.iter().map(|&upper| with_own(site, upper, &piles)));
        let above_wire = |upper: &usize| match site.entry(*upper) {
            // The hardware header is not part of the MTU.
            _ if site.above[*upper] == Some(Family::Ether) && !site.is_filter(*upper) => {
                piles[*upper].clone()
            }
            _ if site.is_filter(*upper) => framed[*upper].clone(),
            _ => with_own(site, *upper, &piles),
        };
        framed[at] = tallest(uppers.iter().map(above_wire));
        let Some((mtu, span, also)) = mtu_of(site, at, links) else {
            continue;
        };
        let is_link = site.above[at] == Some(Family::Ether);
        let pile = match site.entry(at) {
            Some(entry) if entry.shape == Shape::Wire => framed[at].clone(),
            Some(_) if is_link => piles[at].clone(),
            _ => with_own(site, at, &piles),
        };
        if !pile.names.is_empty() && mtu <= pile.octets {
            let what = format!(
                "an MTU of {mtu} octets leaves no room for data: the headers above take {}",
                pile.octets
            );
            let error = diagnostics.error(span, what);
            error
                .label(pile.names.join(", "))
                .expected(format!("more than {} octets", pile.octets));
            if let Some(also) = also {
                error.also(also, "the link's MTU");
            }
        }
    }
}

fn tallest(piles: impl Iterator<Item = Pile>) -> Pile {
    piles.max_by_key(|pile| pile.octets).unwrap_or_default()
}

/// The pile above a node, and the node's own header.
fn with_own(site: &Site<'_>, at: usize, piles: &[Pile]) -> Pile {
    let mut pile = piles[at].clone();
    if let Some(entry) = site.entry(at)
        && entry.header_octets > 0
    {
        pile.octets = pile.octets.saturating_add(entry.header_octets);
        pile.names.insert(0, format!("{} {}", entry.kind, entry.header_octets));
    }
    pile
}

/// The MTU that the graph gives a node, by a parameter or by the link it hangs on, and the one or
/// two places where the graph says so.
fn mtu_of(site: &Site<'_>, at: usize, links: Links<'_>) -> Option<(usize, Span, Option<Span>)> {
    let node = site.node(at);
    if let Some(param) = node.param("mtu") {
        return Some((octets(&site.params[at])?, param.value.span, None));
    }
    let link = node.param("link").filter(|_| site.entry(at).is_some_and(|e| e.links.is_some()))?;
    let name = site.params[at].text("link")?;
    let index = links.written.iter().position(|link| *link.name == name)?;
    let also = links.written[index].param("mtu").map(|mtu| mtu.value.span);
    Some((octets(links.params.get(index)?)?, link.value.span, also))
}

fn octets(params: &Params) -> Option<usize> {
    match params.get("mtu")? {
        Value::Octets(octets) => usize::try_from(*octets).ok(),
        Value::Integer(octets) => usize::try_from(*octets).ok().filter(|o| *o > 0),
        _ => None,
    }
}
