//! Notes of a target while it runs, so that inputs that reach something new can be kept and mutated
//! further.
//!
//! This goes beyond coverage, and stands in for it where the program was built without counters: a
//! target notes whatever tells one course of events from another, such as the reasons of its drops.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

/// Most notes that are remembered per target.
const NOTES_MAX: usize = 1 << 16;

thread_local! {
    static SEEN: RefCell<(HashSet<u64>, bool)> = RefCell::default();
}

/// Notes that the target met this.
pub fn note(what: &impl Hash) {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(what);
    SEEN.with_borrow_mut(|(seen, new)| {
        if seen.len() < NOTES_MAX && seen.insert(hash) {
            *new = true;
        }
    });
}

/// Notes a text, such as that of a mistake; numbers and names in it are left out, or every one
/// would be new.
pub fn note_text(text: &Option<impl AsRef<str>>) {
    let Some(text) = text else { return };
    let mut quoted = false;
    let kept: String = text
        .as_ref()
        .chars()
        .filter(|c| {
            quoted ^= *c == '`';
            !quoted && !c.is_ascii_digit()
        })
        .collect();
    note(&kept);
}

/// Whether something was noted for the first time since the last call.
pub fn take() -> bool {
    SEEN.with_borrow_mut(|(_, new)| std::mem::take(new))
}

/// Forgets everything, before another target.
pub fn forget() {
    SEEN.take();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_counts() {
        forget();
        note(&("dropped", 1));
        assert!(take());
        note(&("dropped", 1));
        assert!(!take());
        note_text(&Some("`a` lacks 5"));
        note_text(&Some("`b` lacks 6"));
        assert!(take());
        note_text(&Some("`c` lacks 7"));
        assert!(!take());
        forget();
    }
}
