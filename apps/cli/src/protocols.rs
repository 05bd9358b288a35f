//! `xk protocols`: what graphs can be made of.

use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use xk_core::Entry;
use xk_core::graph::{Below, Family, Realm, Shape};

/// List the protocols and wires that graphs can use
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn main(_: &Args) -> Result<(), Failure> {
    let catalog = xk_catalog::standard();
    let mut entries: Vec<&Entry> = catalog.entries().to_vec();
    entries.sort_by_key(|entry| {
        (entry.subsystem, entry.shape == Shape::Adapter, rank(entry.realm), entry.kind)
    });
    let mut table = Table::new(&["kind", "realm", "takes from above", "stands on", "summary"]);
    for entry in entries {
        table.row([
            named(entry),
            entry.realm.to_string(),
            above(entry),
            below(&entry.below),
            entry.summary.to_owned(),
        ]);
    }
    output::print(&table.render());
    output::print("\n`xk help KIND` shows the manual of one.\n");
    Ok(())
}

/// The kind as the catalog finds it: `SUBSYSTEM/KIND` for one of a subsystem's.
pub(crate) fn named(entry: &Entry) -> String {
    match entry.subsystem {
        Some(subsystem) => format!("{subsystem}/{}", entry.kind),
        None => entry.kind.to_owned(),
    }
}

/// From the wires up.
fn rank(realm: Realm) -> u8 {
    match realm {
        Realm::Wire => 0,
        Realm::Async => 1,
        Realm::Rpc => 2,
        Realm::Control => 3,
        Realm::Top => 4,
    }
}

/// Describes the addresses that a protocol takes from above.
pub(crate) fn above(entry: &Entry) -> String {
    if entry.realm == Realm::Top {
        return "-".into();
    }
    family(entry.above)
}

/// Describes a protocol's lowers in a few words: their number, and the addresses with which it
/// opens them.
pub(crate) fn below(below: &Below) -> String {
    if below.max == 0 {
        return "-".into();
    }
    let count = match (below.min, below.max) {
        (min, max) if min == max => min.to_string(),
        (min, usize::MAX) => format!("{min} or more"),
        (min, max) => format!("{min} to {max}"),
    };
    let families: Vec<String> = below.families.iter().copied().map(family).collect();
    format!("{count}: {}", families.join(" or "))
}

fn family(family: Family) -> String {
    match family {
        Family::Inherit => "as below".into(),
        other => other.to_string(),
    }
}
