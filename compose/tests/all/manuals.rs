//! The examples in the manuals are graphs, and check.

use crate::waits::sources;
use std::fs;
use std::path::Path;
use xk_catalog::PROTOCOLS;
use xk_compose::check;
use xk_core::Entry;
use xk_core::graph::{
    BlockSpec, BuildError, DURATION_MAX, Guarantees, Look, ParamKind, ParamSpec, Params, Realm,
    Shape, Value,
};
use xk_lang::{Diagnostics, Span, Spanned, Value as Written};

/// The fragments in ```kdl fences of a manual.
fn examples(manual: &str) -> Vec<String> {
    let mut examples = Vec::new();
    let mut open: Option<String> = None;
    for line in manual.lines() {
        match (&mut open, line.trim()) {
            (None, "```kdl") => open = Some(String::new()),
            (Some(_), "```") => examples.extend(open.take()),
            (Some(text), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, _) => {}
        }
    }
    examples
}

#[test]
fn every_manual_has_an_example_that_checks() {
    let catalog = xk_catalog::standard();
    let mut wrong = String::new();
    for entry in PROTOCOLS {
        let examples = examples(&entry.manual_text());
        if examples.is_empty() {
            wrong += &format!("{}: no example in the manual\n", entry.kind);
        }
        for mut example in examples {
            // A host alone is enough of an example; its link is taken for granted.
            if !example.contains("\nlink ") && !example.starts_with("link ") {
                example.push_str("link lan\n");
            }
            if let Err(mistakes) = check(&example, entry.kind, &catalog) {
                wrong += &format!("{example}{mistakes}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_graphs_on_the_page_of_the_language_check() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/graph.md");
    let examples = examples(&fs::read_to_string(page).unwrap());
    assert_eq!(examples.len(), 3);
    for example in examples {
        let checked = check(&example, "graph.md", &xk_catalog::standard());
        let graph = checked.unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert!(graph.warnings().is_empty(), "{}", graph.warnings());
    }
}

/// As `xk help` shows it, a default can be written in a graph, and means the same there.
#[test]
fn every_default_reads() {
    for entry in PROTOCOLS {
        let blocks = entry.blocks.iter();
        let inner = blocks.flat_map(|block| block.arguments.iter().chain(block.properties));
        for spec in entry.parameters.iter().chain(inner) {
            let Some(default) = spec.default else {
                continue;
            };
            let written =
                Spanned::new(Written::from(default.to_string().as_str()), Span::default());
            let mut found = Diagnostics::new("", "");
            let read: Option<Value> = match spec.kind {
                ParamKind::Integer { min, max } => {
                    written.integer(&mut found, min..=max).map(Value::Integer)
                }
                ParamKind::Duration { min } => {
                    written.duration(&mut found, min..=DURATION_MAX).map(Value::Duration)
                }
                ParamKind::Rate => written.rate(&mut found).map(Value::Rate),
                ParamKind::Fraction => written.fraction(&mut found).map(Value::Fraction),
                ParamKind::Octets => written.octets(&mut found).map(Value::Octets),
                ParamKind::Bool | ParamKind::Text(_) => Some(default.into()),
                ParamKind::Participant(_) | ParamKind::Peers(_) => Some(default.into()),
                ParamKind::Word(words) => {
                    let is_one = words.iter().any(|word| Value::Text(*word) == default);
                    is_one.then(|| default.into())
                }
            };
            let what = format!("{}: the default of `{}`", entry.kind, spec.name);
            assert_eq!(read, Some(Value::from(default)), "{what}");
        }
    }
}

/// A line of a graph for a kind, with this parameter or with this property of a block.
fn given(kind: &str, spec: &ParamSpec, block: Option<&BlockSpec>, value: &str) -> String {
    match block {
        None => format!("{kind} {}={value}", spec.name),
        Some(block) => {
            let arguments = " x".repeat(block.arguments.len());
            format!("{kind} {{ {}{arguments} {}={value}; }}", block.name, spec.name)
        }
    }
}

/// Every time that a graph may say has bounds, and what lies beyond them is a mistake that names
/// them; so is one that is negative, has no unit, or is none at all. 0 is one of them unless the
/// text of the parameter says what it means.
#[test]
fn every_time_has_bounds() {
    let (links, catalog) = (xk_sim::LINKS, xk_catalog::standard());
    let entries = PROTOCOLS.iter().map(|e| (e.kind, e.parameters, e.blocks, "host one"));
    let all = entries.chain([("link lan", links.parameters, links.blocks, "")]);
    let mut count = 0;
    for (kind, parameters, blocks, host) in all {
        let of_blocks = blocks
            .iter()
            .flat_map(|block| block.properties.iter().map(move |spec| (spec, Some(block))));
        for (spec, block) in parameters.iter().map(|spec| (spec, None)).chain(of_blocks) {
            let ParamKind::Duration { min } = spec.kind else {
                continue;
            };
            count += 1;
            let refused = |value: &str| {
                let line = given(kind, spec, block, value);
                let text = if host.is_empty() { line } else { format!("{host} {{ {line}; }}\n") };
                let found = check(&text, "times.kdl", &catalog).err();
                let all = found.iter().flat_map(|found| found.sorted());
                let bounds = format!("a time from {min:?} to {DURATION_MAX:?}");
                let mut of_it = all.filter(|one| one.expected.iter().any(|e| e.contains(&bounds)));
                of_it.next().map(|one| one.what.clone())
            };
            for value in
                ["\"-1s\"", "\"5\"", "5", "\"s\"", "\"18446744073709551616ns\"", "\"876001h\""]
            {
                let what = refused(value).unwrap_or_else(|| panic!("{kind} {}={value}", spec.name));
                assert!(what.contains(value.trim_matches('"')), "{kind}: {what}");
            }
            for value in ["\"1ns\"", "\"876000h\""] {
                assert_eq!(refused(value), None, "{kind} {}={value}", spec.name);
            }
            let default = spec.default.map(|default| default.to_string());
            let says = spec.doc.contains("0s:") || default.as_deref() == Some("0s");
            assert_eq!(refused("\"0s\"").is_none(), says, "{kind} {}: {}", spec.name, spec.doc);
        }
    }
    assert!(count > 30, "only {count} times");
}

/// The names of the drop reasons that a folder's sources define.
fn reasons(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            reasons(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            reasons_of(&path, found);
        }
    }
}

fn reasons_of(file: &Path, found: &mut Vec<String>) {
    let source = fs::read_to_string(file).unwrap();
    let names = source.split("Reason::new(\"").skip(1);
    found.extend(names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
}

#[test]
fn every_reason_of_the_rpc_realm_is_explained() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/rpc.md")).unwrap();
    let mut found = Vec::new();
    for entry in PROTOCOLS {
        // An anchor's are in its own report.
        let is_virtual = entry.kind.starts_with("vip");
        let is_meant = entry.realm == Realm::Rpc
            || is_virtual
            || matches!(entry.kind, "fragment" | "rm" | "rdgram");
        if let Some(folder) = sources(entry.kind).filter(|_| is_meant) {
            reasons(&folder, &mut found);
        }
    }
    for name in ["rpc/call.rs", "rpc/onc.rs", "net/neighbour.rs"] {
        reasons_of(&root.join("kit/src").join(name), &mut found);
    }
    assert!(found.len() > 40, "{found:?}");
    found.retain(|reason| !page.contains(&format!("`{reason}`")));
    assert_eq!(found, [""; 0], "not in docs/rpc.md");
}

/// True for what joins subsystems or stands for one.
fn is_between(entry: &Entry) -> bool {
    matches!(entry.shape, Shape::Adapter | Shape::Framework)
}

/// Kinds of protocols whose entries are so, wires in one word; most of all as all but the others.
fn kinds(is_so: impl Fn(&Entry) -> bool) -> String {
    let is_wire = |entry: &Entry| entry.shape == Shape::Wire;
    let is_layer = |entry: &&Entry| entry.shape != Shape::Top && !is_wire(entry);
    let named = |of: &[&Entry]| of.iter().map(|e| format!("`{}`", e.kind)).collect::<Vec<_>>();
    // A subsystem's protocols give and need what those of their kinds do.
    let own = PROTOCOLS.iter().filter(|e| e.subsystem.is_none() && !is_between(e));
    let (are, others): (Vec<&Entry>, Vec<&Entry>) = own.partition(|e| is_so(e));
    let others: Vec<_> = others.into_iter().filter(is_layer).collect();
    if are.len() > 2 * others.len() {
        return format!("all but {}", named(&others).join(", "));
    }
    let (wires, others): (Vec<_>, Vec<_>) = are.into_iter().partition(|e| is_wire(e));
    let mut words = named(&others);
    if !wires.is_empty() {
        words.insert(0, "wires".into());
    }
    match words.is_empty() {
        true => "none".into(),
        false => words.join(", "),
    }
}

/// The table of guarantees on the page of the language is what the catalog says.
#[test]
fn the_page_of_the_language_says_who_lacks_and_who_needs_a_guarantee() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/graph.md");
    let page = fs::read_to_string(page).unwrap();
    let mut wrong = String::new();
    for (name, one) in [
        ("exact lengths", Guarantees::EXACT),
        ("whole messages", Guarantees::WHOLE),
        ("order", Guarantees::ORDER),
        ("reliability", Guarantees::RELIABLE),
        ("a way back", Guarantees::REPLY),
        ("promptness", Guarantees::PROMPT),
        ("a stream", Guarantees::STREAM),
        ("neighbours", Guarantees::NEIGHBOURS),
        ("routes", Guarantees::ROUTES),
        ("addresses", Guarantees::RESOLVER),
        ("names", Guarantees::NAMES),
        ("credentials", Guarantees::CREDENTIALS),
        ("transactions", Guarantees::TRANSACTIONS),
        ("partial order", Guarantees::PARTIAL),
        ("total order", Guarantees::TOTAL),
        ("to many", Guarantees::MANY),
        ("instant", Guarantees::INSTANT),
    ] {
        let lacks = kinds(|entry| {
            entry.shape != Shape::Top && !entry.service.over(Guarantees::ALL).has(one)
        });
        let adds = kinds(|entry| entry.service.adds.has(one));
        let needs =
            kinds(|entry| (0..entry.below.max.min(9)).any(|at| entry.below.needs_at(at).has(one)));
        let columns = format!("| {lacks} | {adds} | {needs} |");
        let is_row = |row: &str| row.starts_with(&format!("| {name}: ")) && row.ends_with(&columns);
        if !page.lines().any(is_row) {
            wrong += &format!("no row `| {name}: ... {columns}`\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The check looks at the hardware address of each wire that takes one, without its device.
#[test]
fn every_wire_tells_of_a_hardware_address_that_is_none() {
    let takes = |entry: &&&Entry| {
        entry.realm == Realm::Wire && entry.parameters.iter().any(|spec| spec.name == "address")
    };
    for entry in PROTOCOLS.iter().filter(takes) {
        let mut params = Params::default();
        let is_needed = |spec: &&ParamSpec| spec.required || spec.name == "peer";
        for spec in entry.parameters.iter().filter(is_needed) {
            params.set(spec.name, Value::Text("127.0.0.1:1".into()));
        }
        for wrong in ["zz:00", "01:00:00:00:00:01"] {
            params.set("address", Value::Text(wrong.into()));
            let looked = entry.probe.map(|look| look(&params, Look::Parameters));
            let is_told = matches!(looked, Some(Err(BuildError::Param { name: "address", .. })));
            assert!(is_told, "`{} address={wrong:?}` passes: {looked:?}", entry.kind);
        }
    }
}
