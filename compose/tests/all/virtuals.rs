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
fn what_does_not_fit_is_said_as_written() {
    crate::said::as_written("virtuals", &catalog());
}
