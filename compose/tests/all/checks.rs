//! The mistakes that the check finds, on a catalog of made-up protocols: each rule once, and all at
//! once.

use crate::said::{as_written, said};
use xk_core::control::question;
use xk_core::graph::Catalog;
use xk_core::graph::{
    Build, BuildError, Family, ParamKind, Realm, Shape, block, flag, int, optional, required,
};
use xk_core::object::Protocol;
use xk_core::{Entry, ProtocolRef};

struct Nothing;

impl Protocol for Nothing {}

fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    match build.params.text("address") {
        Some("bad") => Err(BuildError::Param {
            name: "address",
            index: 0,
            expected: "an address like 1".into(),
        }),
        _ => build.add(Nothing),
    }
}

const fn layer(kind: &'static str) -> Entry {
    Entry::layer(kind, "", build)
}

const LOW: &[Realm] = &[Realm::Async, Realm::Wire];

static WIRE: Entry = Entry::wire("wire", "", build).parameters(&[optional(
    "mtu",
    ParamKind::Octets,
    "the largest payload",
)]);
static SPY: Entry = Entry::filter("spy", "", build).questions(&[question("spied", "")]);
static FRAMES: Entry =
    layer("frames").above(Family::Ether).on(&[Realm::Wire], &[Family::Link]).header_octets(14);
static FINDER: Entry = layer("finder")
    .shape(Shape::Virtual)
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Ether])
    .numbers(&[("frames", 0x806)]);
#[rustfmt::skip]
static NET: Entry = layer("net")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .lowers(1..=4)
    .header_octets(20)
    .numbers(&[("frames", 0x800)])
    .blocks(&[
        block("address", 1..=2,
            &[required("address", ParamKind::Text("an address"), "its own")],
            &[optional("on", ParamKind::Text("a lower"), "where")],
            "its address"),
    ])
    .parameters(&[
        int("ttl", 1..=255, 64, "hops"),
        flag("forward", false, "whether it is a router"),
    ]);
static PORTS: Entry = layer("ports")
    .above(Family::Port)
    .on(&[Realm::Async], &[Family::Host])
    .header_octets(8)
    .numbers(&[("net", 17)])
    .questions(&[question("keep-ends", "")]);
static SPEAKER: Entry = layer("speaker")
    .realm(Realm::Control)
    .on(LOW, &[Family::Any])
    .lowers(2..=3)
    .asks(&["spied", "keep-ends"])
    .shape(Shape::Virtual);
static APP: Entry = Entry::top("app", "", build)
    .on(LOW, &[Family::Any])
    .numbers(&[("net", 254), ("frames", 0x88b6)])
    .parameters(&[optional("address", ParamKind::Text("an address"), "whom it talks to")]);

fn catalog() -> Catalog {
    let tap = xk_catalog::standard().find("tap").unwrap();
    let own = [&WIRE, &SPY, &FRAMES, &FINDER, &NET, &PORTS, &SPEAKER, &APP];
    Catalog::new(&[&own[..], &[&xk_sim::ENTRY, tap]].concat()).unwrap()
}

#[test]
fn each_rule_is_said_as_written() {
    as_written("checks", &catalog());
}

#[test]
fn any_nesting_of_cycles_ends() {
    let mut nodes = String::new();
    for n in 0..300 {
        nodes += &format!("spy s{} s{} name=s{n}\n", (n * 7 + 1) % 300, (n * 11 + 5) % 300);
    }
    assert!(said(&format!("host h {{\n{nodes}\n}}\n"), &catalog()).contains("a cycle"));
}
