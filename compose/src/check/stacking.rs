//! Whether a protocol may stand on another: how many, of which realm, with which participants.

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Shape};
use xk_lang::Diagnostics;

use super::site::Site;
use super::suggest::{self, family_fits};

/// Checks one node against its lowers, which are checked already, and notes what it takes from
/// above.
pub(super) fn check(site: &mut Site<'_>, at: usize, diagnostics: &mut Diagnostics) {
    let Some(entry) = site.entry(at) else { return };
    count(site, at, entry, diagnostics);
    twice(site, at, diagnostics);
    let lowers: Vec<(usize, usize)> = site.known_lowers(at).collect();
    for (place, lower) in lowers {
        let edge = Edge { site, at, upper: entry, place, lower };
        let misfit = [Edge::realm, Edge::family, Edge::guarantees, Edge::answers]
            .iter()
            .find_map(|check| check(&edge));
        if let Some((what, expected, help)) = misfit {
            if let Some(spanned) = site.node(at).lowers.get(place) {
                let error = diagnostics.error(spanned.span, what);
                expected.map(|expected| error.expected(expected));
                help.map(|help| error.help(help));
            }
            site.misfits.insert((at, lower));
        }
    }
    let gives = |(_, lower)| match site.misfits.contains(&(at, lower)) {
        // What lies wrongly is told once, and not of all that stands on it.
        true => Guarantees::ALL,
        false => site.gives[lower],
    };
    let below = site.known_lowers(at).map(gives);
    site.gives[at] = entry.service.over(below.fold(Guarantees::ALL, Guarantees::common));
    let inherited = site.known_lowers(at).find_map(|(_, lower)| site.above[lower]);
    site.above[at] = match entry.above {
        Family::Inherit => inherited,
        own => Some(own),
    };
}

fn count(site: &Site<'_>, at: usize, entry: &Entry, diagnostics: &mut Diagnostics) {
    let node = site.node(at);
    let (min, max, given) = (entry.below.min, entry.below.max, node.lowers.len());
    if given > max {
        let surplus = &node.lowers[max];
        let what = if max == 0 {
            format!("`{}` stands on nothing, so it takes no `{surplus}`", entry.kind)
        } else {
            format!("`{}` takes no further protocol below", entry.kind)
        };
        diagnostics.error(surplus.span, what).expected(how_many(min, max));
    } else if given < min {
        let what = match given {
            0 => format!("`{}` must say what it stands on", node.name),
            _ => format!("`{}` stands on too few protocols", node.name),
        };
        let error = diagnostics.error(node.kind.span, what);
        error.expected(format!("{}, {}", how_many(min, max), what_below(entry)));
        if let Some(help) = arranged(site, at) {
            error.help(help);
        }
    }
}

/// Lowers in the places where they fit, those that were given first, as help.
fn arranged(site: &Site<'_>, at: usize) -> Option<String> {
    let below = site.entry(at)?.below;
    let given = site.lowers[at].iter().flatten().copied();
    let all: Vec<usize> = given.chain(0..site.lowers.len()).collect();
    let mut found: Vec<usize> = Vec::new();
    for place in 0..below.min.max(below.each.len()) {
        let fits = |other: &&usize| !found.contains(other) && could_stand(site, at, place, **other);
        found.push(*all.iter().find(fits)?);
    }
    let names: Vec<&str> = found.iter().map(|lower| site.node(*lower).name.as_str()).collect();
    Some(format!("write `{} {}`", site.node(at).kind, names.join(" ")))
}

/// Whether the node `at` could stand on `other` in this place, as far as that one is checked.
fn could_stand(site: &Site<'_>, at: usize, place: usize, other: usize) -> bool {
    let entry = site.entry(at);
    let above = site.lowers.get(other).is_some_and(|lowers| lowers.contains(&Some(at)));
    let carries = entry.is_some_and(|entry| entry.realm != Realm::Control);
    let is_taken =
        carries && on_wire(site, other) && site.uppers(other).iter().any(|upper| *upper != at);
    other != at && !above && !is_taken && entry.is_some_and(|entry| fits(site, entry, place, other))
}

/// Whether a protocol of this kind could stand on that node, as far as the node is checked.
fn fits(site: &Site<'_>, upper: &Entry, place: usize, lower: usize) -> bool {
    let Some(entry) = site.entry(lower) else {
        return false;
    };
    let above = site.above[lower].or(match entry.above {
        Family::Inherit => None,
        own => Some(own),
    });
    realm_fits(site, upper, lower)
        && above.is_some_and(|family| family_fits(upper, family))
        && site.gives[lower].has(upper.below.needs_at(place))
        && upper.below.asks_at(place).is_none_or(|name| does_answer(entry, name))
}

fn does_answer(entry: &Entry, name: &str) -> bool {
    entry.all_questions().any(|question| question.name == name)
}

fn how_many(min: usize, max: usize) -> String {
    match (min, max) {
        (_, 0) => "no protocol below".into(),
        (1, 1) => "one protocol below".into(),
        (min, max) if min == max => format!("{min} protocols below"),
        (0, max) => format!("at most {max} protocols below"),
        (min, max) => format!("{min} to {max} protocols below"),
    }
}

/// Describes what a protocol wants below: "of realm async or wire that takes hosts".
fn what_below(entry: &Entry) -> String {
    let realms: Vec<String> = entry.below.realms.iter().map(Realm::to_string).collect();
    let mut text = format!("of realm {}", realms.join(" or "));
    let open = |f: &Family| matches!(f, Family::Any | Family::Inherit);
    if !entry.below.families.iter().any(open) && !entry.below.families.is_empty() {
        text += &format!(" that takes {}", families(entry.below.families));
    }
    text
}

/// A node that would do in place of `lower`, as help: the nearest below that, then any.
fn instead(site: &Site<'_>, at: usize, (place, lower): (usize, usize)) -> Option<String> {
    let mut below = vec![lower];
    let mut seen = 0;
    while let Some(&next) = below.get(seen) {
        let lowers = site.known_lowers(next).map(|(_, lower)| lower);
        let fresh: Vec<usize> = lowers.filter(|lower| !below.contains(lower)).collect();
        below.extend(fresh);
        seen += 1;
    }
    let others = (0..site.lowers.len()).filter(|other| !site.uppers(at).contains(other));
    let all = below.into_iter().skip(1).chain(others);
    let entry = site.entry(at)?;
    let mut would_do = all.filter(|&other| {
        let is_taken = site.lowers[at].contains(&Some(other));
        !is_taken && could_stand(site, at, place, other) && suggest::is_numbered(site, entry, other)
    });
    let other = would_do.next()?;
    Some(format!("let it stand on `{}`", site.node(other).name))
}

fn families<'a>(families: impl IntoIterator<Item = &'a Family>) -> String {
    let names: Vec<String> = families.into_iter().map(Family::to_string).collect();
    names.join(" or ")
}

/// Describes the addresses with which a protocol opens its lowers; that it can also do without is
/// left out.
fn opens(entry: &Entry) -> String {
    let all = entry.below.families;
    let mut named = all.iter().filter(|family| **family != Family::Link).peekable();
    match named.peek() {
        Some(_) => families(named),
        None => families(all),
    }
}

fn twice(site: &Site<'_>, at: usize, diagnostics: &mut Diagnostics) {
    let node = site.node(at);
    for (place, lower) in site.lowers[at].iter().enumerate() {
        let first = site.lowers[at].iter().position(|other| other == lower);
        if let (Some(_), Some(first)) = (lower, first)
            && first < place
        {
            let spanned = &node.lowers[place];
            diagnostics
                .error(spanned.span, format!("`{}` stands on `{spanned}` twice", node.name))
                .help("name another in its place, or leave it out")
                .also(node.lowers[first].span, "the first time");
        }
    }
}

/// The realm of a node; a transparent layer has that of what it stands on as well.
fn realm_fits(site: &Site<'_>, upper: &Entry, lower: usize) -> bool {
    let mut at = lower;
    // As many steps as there are nodes: enough for any tower, and an end in any circle.
    for _ in 0..=site.lowers.len() {
        let Some(entry) = site.entry(at) else {
            return true;
        };
        if !site.is_filter(at) || site.lowers[at].is_empty() {
            let below = &upper.below.realms;
            let looks_on = upper.shape == Shape::Filter && below.contains(&Realm::Async);
            let any = below.is_empty() || looks_on;
            let stands = !matches!(entry.shape, Shape::Top | Shape::Framework);
            return any && stands || upper.below.realms.contains(&entry.realm);
        }
        match site.known_lowers(at).next() {
            Some((_, below)) => at = below,
            None => return true,
        }
    }
    true
}

/// Mistake at an edge: what is wrong, what would be right, and what helps.
type Misfit = (String, Option<String>, Option<String>);

/// A node and one that it stands on.
struct Edge<'a> {
    site: &'a Site<'a>,
    at: usize,
    upper: &'static Entry,
    place: usize,
    lower: usize,
}

impl Edge<'_> {
    fn suggestion(&self) -> Option<String> {
        suggest::between(self.site, self.upper, self.lower).or_else(|| self.other())
    }

    fn other(&self) -> Option<String> {
        instead(self.site, self.at, (self.place, self.lower))
    }

    fn realm(&self) -> Option<Misfit> {
        let Self { site, upper, lower, .. } = *self;
        if realm_fits(site, upper, lower) || upper.below.max == 0 {
            return None;
        }
        let lower = site.behind(lower);
        let entry = site.entry(lower)?;
        let name = &site.node(lower).name;
        let what = match entry.realm {
            _ if entry.shape == Shape::Framework => {
                format!("nothing can stand on `{name}`, which represents a subsystem")
            }
            Realm::Top => format!("nothing can stand on `{name}`, an upper end of the graph"),
            realm => {
                format!("`{}` cannot stand on `{name}`, which is of realm {realm}", upper.kind)
            }
        };
        let expected = format!("a protocol {}", what_below(upper));
        Some((what, Some(expected), self.suggestion()))
    }

    fn family(&self) -> Option<Misfit> {
        let Self { site, upper, lower, .. } = *self;
        let taken = site.above[lower]?;
        if family_fits(upper, taken) || upper.below.max == 0 {
            return None;
        }
        let (kind, name) = (upper.kind, &site.node(site.behind(lower)).name);
        let opens = opens(upper);
        let what = format!("`{kind}` opens `{name}` with {opens}, but `{name}` takes {taken}");
        let expected = format!("a protocol {}", what_below(upper));
        Some((what, Some(expected), self.suggestion()))
    }

    /// Whether the layer below guarantees what the upper needs; of one too many it is told already.
    fn guarantees(&self) -> Option<Misfit> {
        let Self { site, at, upper, place, lower } = *self;
        let needs = Some(upper.below.needs_at(place)).filter(|_| place < upper.below.max)?;
        let lack = site.gives[lower].lack(needs)?;
        let here = if upper.below.each.is_empty() { "" } else { " in this place" };
        let (name, below) = (site.name(at), &site.node(site.behind(lower)).name);
        let what = format!("`{name}` cannot stand on `{below}`{here}: {lack}");
        let help = match upper.below.each {
            [] => self.other().or_else(|| suggest::between(site, upper, lower)),
            _ => arranged(site, at),
        };
        Some((what, None, help))
    }

    /// Whether the layer below answers what the upper asks of it.
    fn answers(&self) -> Option<Misfit> {
        let Self { site, at, upper, place, lower } = *self;
        let lower = site.behind(lower);
        let entry = site.entry(lower)?;
        let asked = upper.below.asks_at(place).filter(|name| !does_answer(entry, name))?;
        let (name, below) = (&site.node(at).name, &site.node(lower).name);
        let what = format!(
            "`{name}` cannot stand on `{below}` in this place: that does not answer `{asked}`"
        );
        Some((what, None, arranged(site, at)))
    }
}

/// A wire carries one protocol, beside those that only ask it something; a wire that carries none
/// is probably forgotten.
pub(super) fn check_wires(site: &Site<'_>, diagnostics: &mut Diagnostics) {
    // A name that no node has may have meant the wire.
    let clear = site.lowers.iter().flatten().all(Option::is_some);
    for at in 0..site.lowers.len() {
        let Some(entry) = site.entry(at) else {
            continue;
        };
        let node = site.node(at);
        let uppers = site.uppers(at);
        if entry.shape == Shape::Wire && uppers.is_empty() && clear && names(site, at) {
            diagnostics
                .warning(node.name.span, format!("nothing stands on `{}`", node.name))
                .help("it will drop whatever arrives");
        }
        if !on_wire(site, at) {
            continue;
        }
        let carried = uppers
            .iter()
            .copied()
            .filter(|upper| site.entry(*upper).is_none_or(|entry| entry.realm != Realm::Control));
        let carried: Vec<usize> = carried.collect();
        if let [first, second, ..] = &*carried {
            let edge = |upper: usize| {
                let place = site.lowers[upper].iter().position(|l| *l == Some(at));
                let lowers = &site.node(upper).lowers;
                let lower = place.and_then(|place| lowers.get(place));
                lower.map_or(site.node(upper).kind.span, |l| l.span)
            };
            let what = format!("a second protocol stands on the wire `{}`", node.name);
            diagnostics
                .error(edge(*second), what)
                .expected("one protocol on each wire")
                .help("put a protocol between that tells messages apart, such as `eth`")
                .also(edge(*first), "the first one");
        }
    }
}

/// True for the first node of its name.
fn names(site: &Site<'_>, at: usize) -> bool {
    let own = &site.node(at).name;
    site.host.nodes.iter().position(|node| node.name == *own) == Some(at)
}

/// True for a wire, and for transparent layers right on one.
fn on_wire(site: &Site<'_>, at: usize) -> bool {
    let mut at = at;
    for _ in 0..=site.lowers.len() {
        match site.entry(at) {
            Some(entry) if entry.realm == Realm::Wire => return true,
            _ if site.is_filter(at) => {}
            _ => return false,
        }
        match site.known_lowers(at).next() {
            Some((_, lower)) => at = lower,
            None => return false,
        }
    }
    false
}
