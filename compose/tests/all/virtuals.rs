//! Checks of layers without a header that choose among those below, on a catalog of made-up
//! protocols.

use xk_compose::check;
use xk_core::Entry;
use xk_core::graph::Catalog;
use xk_core::graph::{
    DerivedNumber, Family, Guarantees, Needed, NeededOn, ParamKind, Realm, Service, Shape,
    StackingRules, block, int, optional, required,
};
use xk_core::object::Protocol;

struct Nothing;

impl Protocol for Nothing {}

const fn layer(kind: &'static str, above: Family, below: &'static [Family]) -> Entry {
    Entry::layer(kind, "", |build| build.add(Nothing))
        .above(above)
        .on(&[Realm::Async, Realm::Wire], below)
}

const HOST: &[Family] = &[Family::Host];

static WIRE: Entry = Entry::wire("wire", "", |build| build.add(Nothing));
static SPY: Entry = Entry::filter("spy", "", |build| build.add(Nothing));
static FRAMES: Entry = layer("frames", Family::Ether, &[Family::Link]).header_octets(14);
static FINDER: Entry = layer("finder", Family::Host, &[Family::Ether])
    .shape(Shape::Virtual)
    .numbers(&[("frames", 0x806)]);
static NET: Entry = layer("net", Family::Host, HOST)
    .lowers(1..=4)
    .service(Service::changing(Guarantees::ROUTES, Guarantees::NEIGHBOURS))
    .header_octets(20)
    .numbers(&[("frames", 0x800)]);
static CHOOSER: Entry = layer("chooser", Family::Host, HOST)
    .shape(Shape::Virtual)
    .lowers(2..=2)
    .needs_each(&[Guarantees::NEIGHBOURS, Guarantees::ROUTES])
    .stacking_rules(&StackingRules {
        derived: &[DerivedNumber { on: "frames", from: "net", base: "base", below: 256 }],
        ..StackingRules::NONE
    })
    .parameters(&[int("base", 0..=65280, 14592, "what is added")]);
/// Chooses among several, without rules for numbers.
static SIZER: Entry = layer("sizer", Family::Host, HOST)
    .shape(Shape::Virtual)
    .lowers(2..=8)
    .stacking_rules(&StackingRules { rising: Some("limit"), ..StackingRules::NONE })
    .blocks(&[block("limit", 0..=7, &[required("octets", ParamKind::Octets, "")], &[], "")]);
static CUTTER: Entry =
    layer("cutter", Family::Host, HOST).header_octets(25).numbers(&[("net", 101)]);
static CALLS: Entry =
    layer("calls", Family::Host, HOST).header_octets(36).numbers(&[("net", 90), ("cutter", 7)]);
static PORTS: Entry = layer("ports", Family::Port, HOST).header_octets(8).numbers(&[("net", 17)]);
static RECORDS: Entry =
    layer("records", Family::Port, &[Family::Port]).needs(Guarantees::STREAM).header_octets(4);
/// Must be told its own name, and where it is found.
static WHO: Entry = layer("who", Family::Other("names"), &[Family::Host, Family::Port])
    .header_octets(4)
    .numbers(&[("net", 77), ("frames", 0x77)])
    .stacking_rules(&StackingRules {
        needed: &[
            Needed {
                parameter: "own",
                on: NeededOn::Kind { kind: "finder", unless: "net" },
                why: "nobody knows it there",
                instead: "say it",
            },
            Needed {
                parameter: "place",
                on: NeededOn::Family(Family::Port),
                why: "there are many",
                instead: "name one",
            },
        ],
        ..StackingRules::NONE
    })
    .parameters(&[
        optional("own", ParamKind::Text("a name"), ""),
        optional("place", ParamKind::Text("a place"), ""),
    ]);
/// Has numbers of its own on both.
static BOTH: Entry =
    layer("both", Family::Host, HOST).header_octets(4).numbers(&[("net", 253), ("frames", 0x88b5)]);
static LARGE: Entry = layer("large", Family::Host, HOST).header_octets(4).numbers(&[("net", 300)]);
static NOBODY: Entry = layer("nobody", Family::Host, HOST).header_octets(4);

fn catalog() -> Catalog {
    Catalog::new(&[
        &WIRE, &SPY, &FRAMES, &FINDER, &NET, &CHOOSER, &SIZER, &CUTTER, &CALLS, &PORTS, &BOTH,
        &LARGE, &NOBODY, &RECORDS, &WHO,
    ])
    .unwrap()
}

const STACK: &str = "wire\nframes wire\nfinder frames\nnet finder\nchooser finder net";

fn checked(nodes: &str) -> Result<xk_compose::CheckedGraph, String> {
    let source = format!("host h {{\n{STACK}\n{nodes}\n}}\n");
    check(&source, "g", &catalog()).map_err(|mistakes| mistakes.to_text())
}

/// Text of the check about these nodes on the usual stack.
fn said(nodes: &str) -> String {
    match checked(nodes) {
        Ok(graph) => graph.warnings().to_text(),
        Err(text) => text,
    }
}

/// The numbers that one node has by the graph, by the names of the protocols below.
fn planned(nodes: &str, name: &str) -> Vec<(String, u32)> {
    let graph = checked(nodes).unwrap();
    let host = &graph.graph().hosts[0];
    let at = host.nodes.iter().position(|n| *n.name == *name).unwrap();
    let places = graph.plan(0).unwrap().places();
    let numbers = places[at].numbers().iter();
    numbers.map(|(lower, number)| (host.nodes[*lower].name.to_string(), *number)).collect()
}

#[test]
fn a_number_follows_from_another() {
    let frames = |number| vec![("frames".to_owned(), number)];
    assert_eq!(planned("calls chooser", "calls"), frames(0x395a));
    assert_eq!(planned("spy chooser\ncalls spy", "calls"), frames(0x395a));
    let sized = "cutter chooser\nsizer chooser cutter\ncalls sizer";
    assert_eq!(planned(sized, "calls"), frames(0x395a));
    assert_eq!(planned(sized, "cutter"), frames(0x3965));
    // What the graph gives goes first, on the one and on the other.
    let own = "calls chooser { number net=91; }";
    let both = vec![("net".to_owned(), 91), ("frames".to_owned(), 0x395b)];
    assert_eq!(planned(own, "calls"), both);
    let own = "calls chooser { number frames=4660; }";
    assert_eq!(planned(own, "calls"), frames(4660));
    assert_eq!(planned("both chooser", "both"), vec![]);
}

#[test]
fn the_base_is_a_parameter() {
    let nodes = "chooser finder net name=second base=20480\ncalls second";
    assert_eq!(planned(nodes, "calls"), vec![("frames".to_owned(), 20480 + 90)]);
}

#[test]
fn two_uppers_with_one_number_clash_on_both() {
    let text = said("calls chooser\ncalls chooser name=c2");
    assert!(text.contains("`c2` has the same type number on `net` as `calls`: 90"), "{text}");
    assert!(text.contains("`c2` has the same type number on `frames` as `calls`: 14682"), "{text}");
    assert_eq!(said("calls chooser\ncalls chooser name=c2 { number net=91; }"), "");
}

#[test]
fn without_a_number_none_follows() {
    let text = said("nobody chooser");
    assert!(text.contains("`nobody` has no type number on `net`"), "{text}");
    assert_eq!(text.matches("error").count(), 1, "{text}");
    let text = said("large chooser");
    assert!(
        text.contains("no type number on `frames` follows from the number 300 of `large` on `net`"),
        "{text}"
    );
    assert!(text.contains("a number from 0 to 255"), "{text}");
}

#[test]
fn lowers_have_their_places() {
    let text = said("chooser net finder name=second\ncalls second");
    let wrong = "g:7:9: error: `second` cannot stand on `net` in this place: it leads to hosts by \
                 its own routes";
    assert!(text.contains(wrong), "{text}");
    assert!(text.contains("`finder` in this place: it leads to hosts on its link alone"), "{text}");
    assert!(text.contains("help: write `chooser finder net`"), "{text}");
    assert_eq!(text.matches("error").count(), 2, "{text}");
    // Through layers that only look on.
    let spied =
        "spy finder\nspy net name=s2\nchooser spy s2 name=second\ncalls second { number net=91; }";
    assert_eq!(said(spied), "");
    let text = said("spy net\nchooser spy finder name=second");
    assert!(text.contains("`second` cannot stand on `spy` in this place"), "{text}");
    let text = said("net finder name=n2\nchooser net n2 name=second");
    assert!(text.contains("help: write `chooser finder net`"), "{text}");
    let text = said("chooser finder finder name=second");
    assert!(text.contains("`second` stands on `finder` twice"), "{text}");
    assert!(text.contains("name another in its place"), "{text}");
}

#[test]
fn a_guarantee_is_missed_through_a_filter_as_well() {
    let lack = "it does not carry a stream, which opens and ends";
    let text = said("ports net\nrecords ports");
    assert!(text.contains(&format!("`records` cannot stand on `ports`: {lack}")), "{text}");
    let text = said("ports net\nspy ports\nrecords spy");
    assert!(text.contains(&format!("`records` cannot stand on `spy`: {lack}")), "{text}");
}

#[test]
fn what_would_do_is_named() {
    let text = said("chooser net name=second");
    assert!(text.contains("2 protocols below, of realm async or wire that takes"), "{text}");
    assert!(text.contains("help: write `chooser finder net`"), "{text}");
    let text = said("ports net\ncalls ports");
    assert!(text.contains("help: let it stand on `net`"), "{text}");
}

#[test]
fn a_parameter_is_needed_where_nobody_else_says_the_same() {
    let host = |nodes: &str| {
        let source = format!("host h {{\nwire\nframes wire\nfinder frames\n{nodes}\n}}\n");
        match check(&source, "g", &catalog()) {
            Ok(graph) => graph.warnings().to_text(),
            Err(mistakes) => mistakes.to_text(),
        }
    };
    let text = host("who finder");
    assert!(
        text.contains("g:5:5: error: `who` needs `own` on `finder`: nobody knows it there"),
        "{text}"
    );
    assert!(text.contains("help: say it"), "{text}");
    assert_eq!(text.matches("error").count(), 1, "{text}");
    let text = host("spy finder\nwho spy");
    assert!(text.contains("`who` needs `own` on `spy`"), "{text}");
    for fine in [
        "who finder own=me",
        "net finder\nwho finder",
        "spy finder\nnet spy\nwho finder",
        "net finder\nwho net",
        "who finder own=me\nwho finder name=second { number frames=78; }",
    ] {
        assert_eq!(host(fine), "", "{fine}");
    }
    // One on another layer of the kind says nothing of this one.
    let other = "wire name=w2\nframes w2 name=f2\nfinder f2 name=there\nnet there\nwho finder";
    assert!(host(other).contains("`who` needs `own`"), "{}", host(other));
}

#[test]
fn a_parameter_is_needed_where_the_layer_below_takes_such_addresses() {
    let text = said("ports net\nwho ports");
    assert!(text.contains("`who` needs `place` on `ports`: there are many"), "{text}");
    assert_eq!(said("ports net\nwho ports place=here"), "");
    assert_eq!(said("who net"), "");
}

#[test]
fn who_carries_larger_messages_comes_behind() {
    let text = said("cutter chooser\nsizer cutter chooser\ncalls sizer { number cutter=9; }");
    assert!(
        text.contains(
"g:8:7: error: `sizer` wants the layer for the smallest messages first: what `cutter` carries whole, `chooser`, on which \
             it stands, carries by itself"
        ),
        "{text}"
    );
    assert!(text.contains("help: write `sizer chooser cutter`"), "{text}");
    assert_eq!(text.matches("error").count(), 1, "{text}");
    // Of three, and not right below one another.
    let text = said("cutter net\nspy cutter\nsizer chooser spy net");
    assert!(text.contains("help: write `sizer chooser net spy`"), "{text}");
    // Of `chooser` only a part goes through `net`.
    assert_eq!(said("sizer chooser net"), "");
    // What goes where may be said in any order, but for the others.
    let own = |blocks| format!("cutter chooser\nsizer cutter chooser {{ {blocks} }}");
    assert_eq!(said(&own("limit 100")), "");
    let three = "cutter net\nspy net\nsizer spy cutter net { limit 100; }";
    assert!(said(three).contains("what `cutter` carries whole"), "{}", said(three));
}
