//! Subsystems in graph files: what the check puts in at their edges, refuses, and draws. The
//! catalog is made up: two frameworks, and adapters for three of the six ways between.

use xk_compose::{CheckedGraph, build, check, draw_svg, draw_text};
use xk_core::graph::{Build, BuildError, Catalog, Family, Guarantees, Realm, Service, int};
use xk_core::object::Protocol;
use xk_core::{Entry, Kernel, ProtocolRef};
use xk_lang::Value;

struct Nothing(Option<ProtocolRef>);

impl Protocol for Nothing {
    fn lower(&self) -> Option<&ProtocolRef> {
        self.0.as_ref()
    }

    fn passes_numbers(&self) -> bool {
        self.0.is_some()
    }
}

fn build_one(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(Nothing(None))
}

fn build_adapter(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    build.add(Nothing(Some(build.lower(0)?)))
}

const NODE: &[xk_core::graph::ParamSpec] = &[int("node", 0..=254, 0, "its node")];
const LOW: &[Realm] = &[Realm::Async, Realm::Wire];

const fn ether() -> Entry {
    Entry::layer("ether", "", build_one)
        .above(Family::Ether)
        .on(&[Realm::Wire], &[Family::Link])
        .header_octets(14)
}

const fn ddp() -> Entry {
    Entry::layer("ddp", "", build_one)
        .above(Family::Other("sockets"))
        .on(&[Realm::Async], &[Family::Ether])
        .header_octets(13)
        .numbers(&[("ether", 0x809b)])
        .parameters(NODE)
}

const fn atp() -> Entry {
    Entry::calls("atp", "", build_one)
        .above(Family::Other("sockets"))
        .on(&[Realm::Async], &[Family::Other("sockets")])
        .needs(Guarantees::WHOLE)
        .numbers(&[("ddp", 3)])
}

static WIRE: Entry = Entry::wire("wire", "", build_one);
static BSD: Entry = Entry::framework("bsd", "", build_one).parameters(&[int(
    "mbufs",
    1..=65_536,
    1024,
    "how many",
)]);
static STREAMS: Entry = Entry::framework("streams", "", build_one);
static OWN_ETHER: Entry = ether();
static OWN_DDP: Entry = ddp();
static OWN_ATP: Entry = atp();
static BSD_ETHER: Entry = ether().subsystem("bsd");
static BSD_DDP: Entry = ddp().subsystem("bsd");
static BSD_ATP: Entry = atp().subsystem("bsd");
static BSD_TCP: Entry = Entry::layer("stream", "", build_one)
    .above(Family::Other("sockets"))
    .on(&[Realm::Async], &[Family::Other("sockets")])
    .service(Service::changing(Guarantees::STREAM, Guarantees::WHOLE))
    .numbers(&[("ddp", 9)])
    .subsystem("bsd");
static STREAMS_DDP: Entry = ddp().subsystem("streams");
static STREAMS_ATP: Entry = atp().subsystem("streams");
static ASKS: Entry = Entry::layer("asks", "", build_one)
    .realm(Realm::Control)
    .on(LOW, &[Family::Any])
    .numbers(&[("ddp", 7)]);
static CALLER: Entry = Entry::top("caller", "", build_one).on(&[Realm::Rpc], &[Family::Any]);
static SENDER: Entry = Entry::top("sender", "", build_one)
    .on(LOW, &[Family::Any])
    .needs(Guarantees::WHOLE)
    .numbers(&[("ddp", 4)]);
static ON_XK: Entry = Entry::adapter("bsd-on-xk", "", build_adapter);
static XK_ON: Entry = Entry::adapter("xk-on-bsd", "", build_adapter);
static BSD_ON_STREAMS: Entry = Entry::adapter("bsd-on-streams", "", build_adapter);

fn catalog() -> Catalog {
    Catalog::new(&[
        &WIRE,
        &BSD,
        &STREAMS,
        &OWN_ETHER,
        &OWN_DDP,
        &OWN_ATP,
        &BSD_ETHER,
        &BSD_DDP,
        &BSD_ATP,
        &BSD_TCP,
        &STREAMS_DDP,
        &STREAMS_ATP,
        &ASKS,
        &CALLER,
        &SENDER,
        &ON_XK,
        &XK_ON,
        &BSD_ON_STREAMS,
    ])
    .unwrap()
}

fn source(nodes: &str) -> String {
    format!("host h {{\n{nodes}\n}}\n")
}

fn checked(nodes: &str) -> CheckedGraph {
    match check(&source(nodes), "g", &catalog()) {
        Ok(graph) => graph,
        Err(mistakes) => panic!("{}", mistakes.to_text()),
    }
}

/// A part of the way up in BSD, the ends in the x-kernel.
const MIXED: &str = "atp ddp
caller atp
subsystem bsd mbufs=7 {
    ddp ether node=17
    ether wire
}
wire";

#[test]
fn adapters_stand_at_the_edges_between_subsystems() {
    let graph = checked(MIXED);
    let host = &graph.graph().hosts[0];
    let plan = graph.plan(0).unwrap();
    let nodes = host.nodes.iter().zip(plan.places());
    let of: Vec<_> = nodes
        .map(|(node, place)| {
            let names = place.lowers().iter().map(|at| host.nodes[*at].name.as_str());
            (node.name.as_str(), place.entry().kind, names.collect::<Vec<_>>().join(" "))
        })
        .collect();
    let expected = [
        ("atp", "atp", "atp/ddp"),
        ("caller", "caller", "atp"),
        ("bsd", "bsd", ""),
        ("ddp", "ddp", "ether"),
        ("ether", "ether", "ether/wire"),
        ("wire", "wire", ""),
        ("atp/ddp", "xk-on-bsd", "ddp"),
        ("ether/wire", "bsd-on-xk", "wire"),
    ];
    assert_eq!(of, expected.map(|(name, kind, lowers)| (name, kind, lowers.to_owned())));
    assert_eq!(plan.places()[3].entry().subsystem, Some("bsd"));
    assert_eq!(plan.order().first(), Some(&2), "what stands for a subsystem comes first");
    let mbufs = host.nodes[2].param("mbufs").map(|param| &param.value.value);
    assert_eq!(mbufs, Some(&Value::Integer(7)));
}

/// A filter between blocks has an adapter above it and one below, in whatever order the lines are.
#[test]
fn the_order_of_lines_changes_no_adapter() {
    let lines = [
        "sim link=lan",
        "subsystem bsd { ether sim; ip ether { address \"10.0.0.1/24\"; } }",
        "tracer ip",
        "subsystem streams { udp tracer; }",
        "probe udp to=\"port7@10.0.0.2\"",
    ];
    for turn in 0..lines.len() {
        let mut lines = lines;
        lines.rotate_left(turn);
        for is_back in [false, true] {
            let text = format!("host h {{\n{}\n}}\nlink lan\n", lines.join("\n"));
            let graph = check(&text, "g", &xk_catalog::standard());
            let graph = graph.unwrap_or_else(|mistakes| panic!("{}", mistakes.to_text()));
            let names = graph.graph().hosts[0].nodes.iter().map(|node| node.name.as_str());
            let mut adapters: Vec<_> = names.filter(|name| name.contains('/')).collect();
            adapters.sort_unstable();
            assert_eq!(adapters, ["ether/sim", "probe/udp", "tracer/ip", "udp/tracer"], "{text}");
            if !is_back {
                lines.reverse();
            }
        }
    }
}

#[test]
fn a_host_with_subsystems_is_built_with_its_numbers() {
    let graph = checked(&MIXED.replace("atp ddp", "atp ddp { number ddp=11; }"));
    let kernel = Kernel::new(config());
    let built = build(&graph, &graph.host("h").unwrap(), &kernel).ok().unwrap();
    let id = |name| built.find(name).unwrap().id();
    assert_eq!(kernel.type_number(id("atp"), id("atp/ddp")), Some(11));
    assert_eq!(kernel.type_number(id("ddp"), id("ether")), Some(0x809b));
    assert_eq!(kernel.protocols().len(), 8);
}

fn config() -> xk_core::kernel::Config {
    use xk_core::message::{Pool, PoolConfig};
    use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
    xk_core::kernel::Config {
        random: xk_core::random::Random::new(7),
        pool: Pool::new(&PoolConfig::with_octets_max(1 << 20)).unwrap(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 64,
    }
}

#[test]
fn what_does_not_fit_is_said_as_written() {
    crate::said::as_written("subsystems", &catalog());
}

#[test]
fn domains_go_together_with_subsystems() {
    let domains = "wire
        domain low thread { subsystem bsd { ether wire; ddp ether; } }
        domain high thread { atp ddp; caller atp; }";
    let graph = checked(domains);
    let host = &graph.graph().hosts[0];
    let lies = |name: &str| host.node(name).unwrap().domain;
    assert_eq!((lies("ether/wire"), lies("atp/ddp")), (Some(0), Some(0)), "beside bsd's");
}

#[test]
fn hosts_alike_have_subsystems_alike() {
    let text = format!("host h count=3 {{\n{}\n}}\n", MIXED.replace("node=17", "node=\"{n}\""));
    let graph = check(&text, "g", &catalog()).ok().unwrap();
    let host = graph.host("h2").unwrap();
    assert_eq!(host.nodes().len(), 8);
    assert_eq!(graph.plan_of(&host).unwrap().order().len(), 8);
}

#[test]
fn subsystems_are_drawn_as_frames() {
    let graph = checked(MIXED);
    let text = draw_text(&graph, None, 100);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/subsystems.txt");
    if std::env::var_os("XK_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap(), "{text}");
    let svg = draw_svg(&graph, None);
    assert!(svg.contains("subsystem bsd, mbufs 7"), "{svg}");
    assert!(svg.contains("xk on bsd") && svg.contains("bsd on xk"), "{svg}");
    let cut = "wire
        domain low thread { subsystem bsd { ether wire; ddp ether; } }
        domain high thread { atp ddp; caller atp; }";
    let text = draw_text(&checked(cut), None, 100);
    assert!(text.contains("low: thread") && text.contains("subsystem bsd"), "{text}");
}
