//! Checks that what the chapters say is so: every fragment is part of the sources, every output is
//! what comes out.

use std::fs;
use std::path::{Path, PathBuf};

#[allow(unused_imports, dead_code)]
#[path = "../examples/simulate.rs"]
mod simulate;

#[allow(unused_imports, dead_code)]
#[path = "../examples/deadlines.rs"]
mod deadlines;

/// Pages about what every protocol's author needs.
const PAGES: [&str; 3] = ["../message.md", "../paths.md", "../embed.md"];

/// Tests of other crates that chapter 13 shows.
const OTHERS: [&str; 3] =
    ["../../sockets/tokio/tests", "../../sockets/world/tests", "../../wires/host/tests"];

/// The graph of chapter 10, and where the layers of chapters 10 and 14 lie.
const CALLS: &str = "../../graphs/rpc-deadline.kdl";
const LAYER: &str = "../../protocols/deadline";
const MANY: &str = "../../protocols/fanout";

/// The graph of chapter 14.
const ROOM: &str = "../../graphs/fanout.kdl";

/// A fenced block: its language and its lines, without the indentation.
struct Block {
    place: String,
    language: String,
    lines: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == ending) {
                found.push(path);
            }
        }
    }
    found
}

fn trimmed(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).collect()
}

fn blocks() -> Vec<Block> {
    let mut found = Vec::new();
    let pages = PAGES.map(|page| root().join(page));
    for path in files(".", "md").into_iter().chain(pages) {
        let text = fs::read_to_string(&path).unwrap();
        let mut open: Option<Block> = None;
        for (at, line) in text.lines().enumerate() {
            match (line.strip_prefix("```"), open.as_mut()) {
                (Some(language), None) => {
                    open = Some(Block {
                        place: format!("{}:{}", path.display(), at + 1),
                        language: language.to_owned(),
                        lines: Vec::new(),
                    });
                }
                (Some(_), Some(_)) => found.extend(open.take()),
                (None, Some(block)) => block.lines.push(line.trim().to_owned()),
                (None, None) => {}
            }
        }
    }
    found
}

#[test]
fn fragments_are_part_of_the_sources() {
    let mut sources = [CALLS, ROOM].map(|graph| trimmed(&read(graph))).to_vec();
    let own = [("src", "rs"), ("tests", "rs"), ("examples", "rs"), (".", "kdl")];
    let others = OTHERS.into_iter().chain([LAYER, MANY]).map(|folder| (folder, "rs"));
    for (folder, ending) in own.into_iter().chain(others) {
        for path in files(folder, ending) {
            sources.push(trimmed(&fs::read_to_string(path).unwrap()));
        }
    }
    let mut checked = 0;
    for block in blocks() {
        if !["rust", "kdl"].contains(&block.language.as_str()) {
            continue;
        }
        let n = block.lines.len();
        assert!(
            n > 0 && sources.iter().any(|s| s.windows(n).any(|w| w == block.lines)),
            "{}: no file holds these lines",
            block.place
        );
        checked += 1;
    }
    assert!(checked > 10, "only {checked} fragments were found");
}

#[test]
fn the_output_is_what_comes_out() {
    let out = simulate::run(&read("seq.kdl"), "seq.kdl", 1).unwrap();
    println!("{out}");
    let lines = trimmed(&out);
    assert_eq!(simulate::run(&read("seq.kdl"), "seq.kdl", 1).unwrap(), out);
    let calls = deadlines::tell(&read(CALLS), 1).unwrap();
    println!("{calls}");
    let room = simulate::run(&read(ROOM), "fanout.kdl", 1).unwrap();
    println!("{room}");
    let outputs = [lines, trimmed(&calls), trimmed(&room)];
    for block in blocks().into_iter().filter(|b| b.language == "text") {
        let place = &block.place;
        assert!(outputs.contains(&block.lines), "{place} is no output");
    }
    let shown: Vec<_> = blocks().into_iter().map(|block| block.lines).collect();
    assert!(outputs.iter().all(|out| shown.contains(out)), "{shown:?}");
}

#[test]
fn whatever_the_seed_who_waits_no_longer_keeps_nobody_busy() {
    let source = read(CALLS);
    for seed in 1..=10 {
        let with = deadlines::run(&source, seed).unwrap();
        let without = deadlines::run(&deadlines::without(&source), seed).unwrap();
        println!("seed {seed}:\n  with {with:?}\n  without {without:?}");
        assert_eq!(with.busy, 0, "bob has time for all");
        // But for one now and then whose frames are lost too often to come in time.
        assert!(with.near >= 198, "calls that can be replied to are");
        assert!(without.busy > 20, "without the layer he has not");
        // Carol is too far away for a call of 100 ms.
        assert_eq!((with.far, without.far), (0, 0));
        assert!(without.near < 200);
        // At most once, and once for each reply, whatever is lost or doubled.
        assert!((with.near..=200).contains(&with.executed));
        assert!((without.near..=200).contains(&without.executed));
    }
}

/// The number behind `what` in the output.
fn figure(out: &str, what: &str) -> u64 {
    let (_, rest) = out.split_once(what).expect(what);
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit());
    digits.into_iter().next().unwrap().parse().unwrap()
}

#[test]
fn whatever_the_seed_nothing_comes_twice() {
    for seed in 1..=20 {
        let out = simulate::run(&read("seq.kdl"), "seq.kdl", seed).unwrap();
        assert_eq!(figure(&out, "duplicates"), 0, "seed {seed}:\n{out}");
        assert_eq!(figure(&out, "corrupt"), 0, "seed {seed}:\n{out}");
        // What a layer misses was lost on the link; a loss at the very end is not noticed.
        let missing: u64 = out.split("missing").skip(1).map(|rest| figure(rest, " ")).sum();
        assert!(missing <= figure(&out, ", lost"), "seed {seed}:\n{out}");
        assert_eq!(figure(&out, "probe: sent"), 1000, "seed {seed}");
    }
}

#[test]
fn without_the_layer_duplicates_come_through() {
    let source = read("seq.kdl");
    let source = source
        .replace("    seq udp wait=\"10ms\"\n", "")
        .replace("echo seq port=7 {\n        number seq=7\n    }", "echo udp port=7")
        .replace("probe seq", "probe udp")
        .replace("size=64 {\n        number seq=7\n    }", "size=64");
    let out = simulate::run(&source, "plain.kdl", 1).unwrap();
    assert!(figure(&out, "duplicates") > 0, "{out}");
}

#[test]
fn it_stands_on_anything() {
    let stacks = [
        ("sim link=line address=\"02:00:00:00:00:02\"\n eth sim", "eth", "02:00:00:00:00:02"),
        (
            "sim link=line\n eth sim\n arp eth\n ip arp { address \"10.0.0.{N}/24\"; }",
            "ip",
            "10.0.0.2",
        ),
        (
            "sim link=line address=\"02:00:00:00:00:02\"\n eth sim\n seq eth name=inner",
            "inner",
            "02:00:00:00:00:02",
        ),
    ];
    for (below, lower, peer) in stacks {
        let alice = below.replace("{N}", "1").replace("02:00:00:00:00:02", "02:00:00:00:00:01");
        let bob = below.replace("{N}", "2");
        let source = format!(
            "host alice {{\n {alice}\n seq {lower} name=top\n \
             probe top to=\"{peer}\" count=100 interval=\"1ms\" {{ number top=7; }}\n}}\n\
             host bob {{\n {bob}\n seq {lower} name=top\n echo top {{ number top=7; }}\n}}\n\
             link line kind=pointtopoint delay=\"1ms\" duplicate=\"10%\" reorder=\"10%\"\n"
        );
        let out = simulate::run(&source, "stack.kdl", 1).unwrap_or_else(|text| panic!("{text}"));
        assert!(out.contains("received 100, lost 0"), "{lower}:\n{out}");
        assert_eq!(figure(&out, "duplicates"), 0, "{lower}:\n{out}");
    }
}

#[test]
fn a_mistake_in_the_graph_is_shown_with_its_place() {
    let text = simulate::run(&read("seq.kdl").replace("wait=", "wiat="), "seq.kdl", 1).unwrap_err();
    assert!(text.starts_with("seq.kdl:"), "{text}");
    assert!(text.contains("wait"), "{text}");
}
