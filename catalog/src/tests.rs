use super::*;
use std::collections::BTreeMap;
use xk_core::graph::{BuildError, CatalogError};

#[test]
fn the_standard_list_is_consistent() {
    assert_eq!(standard().entries().len(), PROTOCOLS.len());
    assert!(find("null").is_some() && find("nil").is_none());
}

#[test]
fn entries_speak_for_themselves() {
    for entry in PROTOCOLS {
        let kind = entry.kind;
        assert!(!entry.summary.is_empty(), "{kind}: no summary");
        assert!(
            entry.manual_text().starts_with("# Synopsis"),
            "{kind}: the manual does not begin with its synopsis"
        );
        assert!(entry.below.min <= entry.below.max, "{kind}: more lowers needed than allowed");
        let mut names: Vec<&str> = entry.parameters.iter().map(|spec| spec.name).collect();
        names.extend(entry.blocks.iter().map(|spec| spec.name));
        let inner = entry.blocks.iter().flat_map(|b| [b.arguments, b.properties]);
        let mut specs = inner.flatten().chain(entry.parameters);
        assert!(
            specs.all(|spec| !spec.doc.is_empty())
                && entry.blocks.iter().all(|b| !b.doc.is_empty()),
            "{kind}: a parameter that nothing is said of, and no manual repeats them"
        );
        names.sort_unstable();
        assert!(
            names.windows(2).all(|pair| pair[0] != pair[1]),
            "{kind}: a parameter or block twice"
        );
        assert!(
            !names.contains(&"name") && !names.contains(&"number"),
            "{kind}: `name` and `number` belong to the language"
        );
    }
}

/// Questions and reasons cross to another address space by their keys: no two have the same.
#[test]
fn every_question_and_reason_is_found_by_its_key() {
    let mut keys = BTreeMap::new();
    let shared = xk_kit::questions::SHARED.iter();
    for question in shared.chain(PROTOCOLS.iter().flat_map(|e| e.questions).filter_map(|q| q.own)) {
        let first = *keys.entry(question.key).or_insert(question.name);
        assert_eq!(first, question.name, "two names of one key: one of them needs another name");
    }
    for question in PROTOCOLS.iter().flat_map(|entry| entry.questions) {
        let known = keys.get(&xk_core::name_key(question.name));
        assert_eq!(known, Some(&question.name), "in no table: `own_question`, or kit's `SHARED`");
    }
    assert!(keys.len() > 70, "only {} questions", keys.len());

    let mut keys = BTreeMap::new();
    let shared = [xk_core::reason::COMMON, xk_kit::reasons::SHARED, xk_domains::REASONS];
    for reason in shared.into_iter().chain(PROTOCOLS.iter().map(|entry| entry.reasons)).flatten() {
        let what = (reason.name, reason.class);
        let first = *keys.entry(reason.key()).or_insert(what);
        assert_eq!(first, what, "two reasons of one key: one of them needs another name");
    }
    assert!(keys.len() > 110, "only {} reasons", keys.len());
}

const fn entry(kind: &'static str) -> Entry {
    Entry::layer(kind, "", |_| Err(BuildError::Lower { at: 0 }))
}

#[test]
fn contradictions_are_told() {
    static A: Entry = entry("a").numbers(&[("b", 1), ("b", 2)]);
    let error = Catalog::new(&[&A]).err().map(|e| e.to_string());
    assert_eq!(
        error.as_deref(),
        Some("`a` on `b` has the type number 1 in the entry of `a` and 2 in that of `a`")
    );
    static UPPER: Entry = entry("upper").numbers(&[("lower", 17)]);
    static LOWER: Entry = entry("lower").numbers_above(&[("upper", 18), ("other", 6)]);
    for (entries, said) in [
        ([&UPPER, &LOWER], "17 in the entry of `upper` and 18 in that of `lower`"),
        ([&LOWER, &UPPER], "18 in the entry of `lower` and 17 in that of `upper`"),
    ] {
        let error = Catalog::new(&entries).err().map(|e| e.to_string());
        assert_eq!(error, Some(format!("`upper` on `lower` has the type number {said}")));
    }
    let alone = Catalog::new(&[&LOWER]).expect("no other says anything");
    assert_eq!(alone.numbers().find_kinds("other", "lower"), Some(6));
    assert_eq!(Catalog::new(&[&A, &A]).err(), Some(CatalogError::Kind("a")));
}
