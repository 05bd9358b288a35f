//! The parts that a run may do without: faults, chances of links, programs. So `xk sweep shrink`
//! makes a failing run small, whose world is built by code.
//!
//! `XK_PARTS` names a file where a run lists them as they come, each with its moment, and the end.
//! `XK_KEEP` has a run do without all that it does not name, and `XK_UNTIL` ends it at a moment, in
//! seconds, as if its time were over.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::Duration;
use xk_core::Time;

/// The parts of the worlds of this thread.
#[derive(Default)]
struct Parts {
    /// `None` if all are kept.
    kept: Option<BTreeSet<String>>,
    until: Option<Time>,
    list: Option<File>,
    /// Counts of each that has come.
    counts: BTreeMap<String, u32>,
}

thread_local! {
    static PARTS: RefCell<Parts> = RefCell::default();
}

/// Begins a run of this thread: as the environment says.
///
/// # Panics
/// If that is no moment, or no file can be there.
pub(crate) fn begin() {
    let kept = std::env::var("XK_KEEP").ok();
    let kept = kept.map(|text| text.split_whitespace().map(str::to_owned).collect());
    let until = std::env::var("XK_UNTIL").ok().map(|text| {
        let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
        let form = || panic!("XK_UNTIL=\"{text}\" is no number of seconds");
        Time::ZERO.after(seconds.unwrap_or_else(form))
    });
    let list = std::env::var_os("XK_PARTS").map(|path| {
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.unwrap_or_else(|error| panic!("XK_PARTS={}: {error}", path.display()))
    });
    PARTS.set(Parts { kept, until, list, counts: BTreeMap::new() });
}

/// Whether a part of a run is to be: the next one of this kind, of a host or link.
pub(crate) fn has(kind: &str, of: &str, now: Time) -> bool {
    let name = name(kind, of);
    PARTS.with_borrow_mut(|parts| {
        let count = parts.counts.entry(name.clone()).or_default();
        *count += 1;
        let name = format!("{name}:{count}");
        parts.tell(&name, now);
        parts.keeps(&name)
    })
}

/// Whether a link is to have a chance.
pub(crate) fn has_chance(kind: &str, of: &str, now: Time) -> bool {
    let name = name(kind, of);
    PARTS.with_borrow_mut(|parts| {
        if parts.counts.insert(name.clone(), 1).is_none() {
            parts.tell(&name, now);
        }
        parts.keeps(&name)
    })
}

/// Whether some parts are left out: then those that need them cannot be.
pub(crate) fn are_fewer() -> bool {
    PARTS.with_borrow(|parts| parts.kept.is_some())
}

/// End of the run, if one is given.
pub(crate) fn until() -> Option<Time> {
    PARTS.with_borrow(|parts| parts.until)
}

/// Tells when a world has ended.
pub(crate) fn end(now: Time) {
    PARTS.with_borrow_mut(|parts| parts.tell("end", now));
}

impl Parts {
    fn keeps(&self, name: &str) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.contains(name))
    }

    fn tell(&mut self, name: &str, now: Time) {
        if let Some(list) = &mut self.list {
            // What cannot be told is not left out.
            let _ = list.write_all(format!("{name} {}\n", now.as_ns()).as_bytes());
        }
    }
}

/// A name for a shell's word.
fn name(kind: &str, of: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "-_./".contains(c) { c } else { '_' };
    format!("{kind}:{}", of.chars().map(plain).collect::<String>())
}
