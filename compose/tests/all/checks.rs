//! The mistakes that the check finds, on a catalog of made-up protocols: each rule once, and all at
//! once.

use xk_compose::check;
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
    Catalog::new(&[&WIRE, &SPY, &FRAMES, &FINDER, &NET, &PORTS, &SPEAKER, &APP, &xk_sim::ENTRY])
        .unwrap()
}

/// Text of the check about a host with these nodes.
fn said(nodes: &str) -> String {
    let source = format!("host h {{\n{nodes}\n}}\n");
    match check(&source, "g", &catalog()) {
        Ok(graph) => graph.warnings().to_text(),
        Err(mistakes) => mistakes.to_text(),
    }
}

const STACK: &str =
    "wire\nframes wire\nfinder frames\nnet finder { address a }\nports net\napp ports";

#[test]
fn a_sound_host_passes_in_any_order() {
    assert_eq!(said(STACK), "");
    let mut lines: Vec<&str> = STACK.lines().collect();
    lines.reverse();
    assert_eq!(said(&lines.join("\n")), "");
    assert_eq!(said(&STACK.replace("frames wire", "frames spy\nspy wire")), "");
    assert_eq!(said(&STACK.replace("net finder", "spy finder\nnet spy")), "");
}

#[test]
fn participants_that_do_not_fit_name_what_is_missing() {
    let text = said("wire\nframes wire\nports frames");
    assert!(
        text.contains("`ports` opens `frames` with hosts, but `frames` takes hardware addresses"),
        "{text}"
    );
    assert!(
        text.contains("put `finder` and `net` between: `finder frames; net finder; ports net`"),
        "{text}"
    );
}

#[test]
fn realms_that_do_not_fit_are_told() {
    assert!(said("wire\napp wire\nports app").contains("nothing can stand on `app`"));
    let text = said("wire\nframes wire\nframes frames name=f2");
    assert!(text.contains("`frames` cannot stand on `frames`, which is of realm async"), "{text}");
    assert!(text.contains("expected: a protocol of realm wire that takes no addresses"), "{text}");
}

#[test]
fn the_number_of_lowers_is_checked() {
    let text = said("wire\nframes");
    assert!(text.contains("g:3:1: error: `frames` must say what it stands on"), "{text}");
    assert!(text.contains("help: write `frames wire`"), "{text}");
    assert!(said("wire\nwire name=w2\nframes wire w2").contains("takes no further protocol below"));
    assert!(said("wire\nwire wire name=w2").contains("`wire` stands on nothing"));
}

#[test]
fn cycles_are_named_whole() {
    let text = said("spy c name=a\nspy a name=b\nspy b name=c");
    assert!(text.contains("a cycle: `a` stands on `c` stands on `b` stands on `a`"), "{text}");
    assert_eq!(text.matches("error").count(), 1, "{text}");
}

#[test]
fn type_numbers_are_checked() {
    let ports_on = said(&STACK.replace("ports net", "ports finder"));
    assert!(ports_on.contains("`ports` has no type number on `frames`"), "{ports_on}");
    let twice = said(&format!("{STACK}\nports net name=p2"));
    assert!(twice.contains("`p2` has the same type number on `net` as `ports`: 17"), "{twice}");
    let mended = format!("{STACK}\nports net name=p2 {{ number net=99; }}");
    assert_eq!(said(&mended), "");
    let wrong = said(&format!("{STACK}\nports net name=p2 {{ number ent=99; }}"));
    assert!(wrong.contains("`p2` does not stand on `ent`"), "{wrong}");
    assert!(wrong.contains("did you mean `net`?"), "{wrong}");
    let large = said(&format!("{STACK}\nports net name=p2 {{ number net=4294967296; }}"));
    assert!(large.contains("the type number 4294967296 is too large"), "{large}");
    let none = said(&STACK.replace("app ports", "app ports { number ports=1; }"));
    assert!(none.contains("`ports` does not tell its uppers apart by type numbers"), "{none}");
}

#[test]
fn an_mtu_must_leave_room() {
    let with = |mtu: u32| said(&STACK.replacen("wire", &format!("wire mtu={mtu}"), 1));
    assert_eq!(with(29), "");
    let text = with(28);
    assert!(
        text.contains("an MTU of 28 octets leaves no room for data: the headers above take 28"),
        "{text}"
    );
    assert!(text.contains("net 20, ports 8"), "{text}");
}

#[test]
fn parameters_are_checked() {
    let with = |params: &str| {
        said(&STACK.replace("net finder { address a }", &format!("net finder {params}")))
    };
    assert!(with("tll=9 { address a }").contains("did you mean `ttl`?"));
    assert!(with("ttl=0 { address a }").contains("a whole number from 1 to 255"));
    assert!(with("forward=yes { address a }").contains("`#true` or `#false`"));
    assert!(with("").contains("`net` needs the block `address`"));
    assert!(with("address=a").contains("write it in braces: `{ address a }`"));
    assert!(
        with("{ address a; ttl 9; }")
            .contains("write it as a property, before the braces: `ttl=9`")
    );
    assert!(with("{ address; }").contains("`address` lacks its value"));
    assert!(with("{ address a b; }").contains("`address` takes no further value"));
    assert!(with("{ address a no=b; }").contains("did you mean `on`?"));
    assert!(with("{ address a; address b; address c; }").contains("too many blocks"));
    let built = said(&STACK.replace("app ports", "app ports address=bad"));
    assert!(built.contains("the string `bad` does not fit here"), "{built}");
    assert!(built.contains("an address like 1"), "{built}");
}

#[test]
fn wires_carry_one_protocol() {
    let text = said("wire\nframes wire\napp wire");
    assert!(text.contains("a second protocol stands on the wire `wire`"), "{text}");
    let text = said("wire\nspy wire\nframes spy\napp spy");
    assert!(text.contains("a second protocol stands on the wire `spy`"), "{text}");
    assert!(said("wire").contains("warning: nothing stands on `wire`"));
}

#[test]
fn what_must_answer_a_question_does() {
    let host = STACK.replace("frames wire", "spy wire\nframes spy");
    assert_eq!(said(&format!("{host}\nspeaker spy ports")), "");
    let text = said(&format!("{host}\nspeaker spy net"));
    assert!(text.contains("`speaker` cannot stand on `net` in this place"), "{text}");
    assert!(text.contains("that does not answer `keep-ends`"), "{text}");
    let text = said(&format!("{host}\nspeaker ports spy"));
    assert!(text.contains("write `speaker spy ports`"), "{text}");
}

#[test]
fn links_are_checked() {
    let said = |source: &str| match check(source, "g", &catalog()) {
        Ok(graph) => graph.warnings().to_text(),
        Err(mistakes) => mistakes.to_text(),
    };
    let host = "host h count=4 { sim link=\"lan{n%2}\"; frames sim; }\n";
    assert_eq!(said(&format!("{host}link lan0\nlink lan1\n")), "");
    let text = said(&format!("{host}link lan0\n"));
    assert!(text.contains("there is no link called `lan1`"), "{text}");
    assert!(text.contains("did you mean `lan0`?"), "{text}");
    let text = said(&format!("{host}link lan0\nlink lan1\nlink lan2 dealy=\"1ms\"\n"));
    assert!(text.contains("warning: no wire hangs on the link `lan2`"), "{text}");
    assert!(text.contains("did you mean `delay`?"), "{text}");
    let three = host.replace("count=4", "count=6");
    let text = said(&format!("{three}link lan0 kind=pointtopoint\nlink lan1\n"));
    assert!(text.contains("on this one hang 3"), "{text}");
    let text =
        said(&format!("{host}link lan0 {{ partition until=\"1s\" between=h9; }}\nlink lan1\n"));
    assert!(text.contains("there is no host called `h9`"), "{text}");
}

#[test]
fn everything_is_told_in_one_run() {
    let text =
        said("wire mut=3\nfarmes wire\nfinder wire\nnet fidner { address a }\napp app name=b");
    for wanted in [
        "did you mean `mtu`?",
        "did you mean `frames`?",
        "did you mean `finder`?",
        "no node called `app`",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

#[test]
fn any_nesting_of_cycles_ends() {
    let mut nodes = String::new();
    for n in 0..300 {
        nodes += &format!("spy s{} s{} name=s{n}\n", (n * 7 + 1) % 300, (n * 11 + 5) % 300);
    }
    assert!(said(&nodes).contains("a cycle"));
}
