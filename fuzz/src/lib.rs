//! The fuzz harness: everything that reads outside input is fed with anything, and must keep its
//! laws.
//!
//! A target is a function of octets that panics when something is wrong. The program `xk-fuzz`
//! mutates the committed seeds under `fuzz/corpus` for a few seconds per target, as part of
//! `cargo xtask test`. `cargo xtask fuzz` builds it, on the same stable toolchain, so that it
//! counts the edges of the program's flow that an input reaches: what reaches a new one is mutated
//! further, and with `--keep` becomes, shortened, part of the corpus. The crate in `fuzz/libfuzzer`
//! hands the same targets to libFuzzer.
//!
//! ```text
//! cargo xtask fuzz --seconds 600 --target tcp --keep yes
//! cargo run -p xk-fuzz -- list
//! cargo run -p xk-fuzz -- smoke --seconds 30 --target stack --seed 7
//! cargo run -p xk-fuzz -- replay stack fuzz/artifacts/stack-0123456789abcdef
//! cargo run -p xk-fuzz -- seeds
//! ```
//!
//! Every choice comes from one seed, so that a run can be repeated. An input that fails is
//! shortened, written to `fuzz/artifacts` (which git ignores), and the command that replays it is
//! printed. Once the mistake is mended, the input belongs under `fuzz/corpus`, whose files
//! `cargo test -p xk-fuzz` replays.

pub mod attack;
pub mod canary;
pub mod coverage;
mod coverage_unsafe;
pub mod frame;
mod harness;
pub mod mutate;
pub mod novelty;
#[path = "../../apps/cli/src/control/request.rs"]
mod request;
pub mod runner;
pub mod seeds;
pub mod stack;
mod stranger;
mod targets;
mod xdr;

use std::path::PathBuf;
use xk_core::message::HeapArena;
use xk_core::participant::Participants;
use xk_testkit::messages::{run_loans_script, run_script, small_pool};

/// Longest input, in octets.
pub const INPUT_OCTETS_MAX: usize = 4096;

/// Octets of the arena in which message scripts run: small, so that they meet its end.
const SCRIPT_ARENA_OCTETS: usize = 1 << 16;

/// Something that reads outside input.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name, also of its folder under `fuzz/corpus`.
    pub name: &'static str,
    /// A line about its input.
    pub about: &'static str,
    /// Panics if `data` breaks a law.
    pub run: fn(&[u8]),
}

/// All targets, in the order in which they run.
#[must_use]
pub fn targets() -> &'static [Target] {
    TARGETS
}

/// The target of this name; the canary can be had by its name, too.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    let mut all = TARGETS.iter().chain([&canary::TARGET]);
    all.find(|target| target.name == name).copied()
}

/// A target by name, what it is about, and its function.
const fn to(name: &'static str, about: &'static str, run: fn(&[u8])) -> Target {
    Target { name, about, run }
}

static TARGETS: &[Target] = &[
    to("eth-wire", "Ethernet headers", targets::eth::wire),
    to("arp-wire", "ARP packets", targets::arp::wire),
    to("ip-wire", "IPv4 headers", targets::ip::wire),
    to("icmp-wire", "ICMP messages", targets::icmp::wire),
    to("igmp-wire", "IGMP messages", targets::igmp::wire),
    to("udp-wire", "UDP headers", targets::udp::wire),
    to("tcp-wire", "TCP headers", targets::tcp::wire),
    to("select-wire", "headers of SELECT", targets::select::wire),
    to("objects-wire", "headers and answers about objects", targets::objects::wire),
    to("objects-places", "places, searches and moves of objects", targets::objects::places),
    to("portmap-wire", "what a port mapper is sent", targets::portmap::wire),
    to("mrpc-wire", "headers of mrpc", targets::mrpc::wire),
    to("vmtp-wire", "headers of VMTP", targets::vmtp::wire),
    to("apple-wire", "packets of AARP, DDP, NBP, RTMP and ZIP", targets::apple::wire),
    to("atp-wire", "headers of ATP, and options", targets::atp::wire),
    to("reqrep-wire", "transactions of Sun RPC", targets::reqrep::wire),
    to("authsys-wire", "credentials of Sun RPC", targets::authsys::wire),
    to("null-wire", "headers of null", targets::null::wire),
    to("fragment-wire", "headers of FRAGMENT", targets::fragment::wire),
    to("psync-wire", "lists of the members of a conversation", targets::psync::list),
    to("psync-base", "bases of members that come back", targets::psync::base),
    to("psync-graph", "the context graph of Psync", targets::psync::graph),
    to("groupcall-wire", "headers of calls to many", targets::groupcall::wire),
    to("groupcall", "replies to calls of many, and calls of members", targets::groupcall::calls),
    to("membership-wire", "votes on members", targets::membership::wire),
    to("membership", "agreement on members", targets::membership::agreement),
    to("replica-wire", "requests to replicas, and snapshots", targets::replica::wire),
    to("sr-wire", "headers and reports of SR", targets::sr::wire),
    to("sr", "invocations between machines of SR", targets::sr::machines),
    to("channel-wire", "headers of CHANNEL", targets::channel::wire),
    to("eth", "one Ethernet station", targets::eth::stack),
    to("arp", "ARP between two layers", targets::arp::stack),
    to("ip", "IP between two layers", targets::ip::stack),
    to("icmp", "ICMP between two layers", targets::icmp::stack),
    to("igmp", "IGMP on a layer that tells of groups", targets::igmp::stack),
    to("udp", "UDP between two layers", targets::udp::stack),
    to("tcp", "TCP between two layers", targets::tcp::stack),
    to("tcp-state", "TCP connections that come from elsewhere", targets::tcp::state),
    to("fragment", "FRAGMENT between two layers", targets::fragment::stack),
    to("psync", "Psync between two layers", targets::psync::stack),
    to("channel", "CHANNEL between two layers", targets::channel::stack),
    to("vipadv", "who runs virtual protocols, between two layers", targets::vipadv::stack),
    to("mrpc", "Sprite RPC between two layers, both halves", targets::mrpc::stack),
    to("vmtp", "VMTP between two layers, both halves", targets::vmtp::stack),
    to("apple", "an AppleTalk node or router with all of its protocols", targets::apple::stack),
    to("atp", "ATP between two layers", targets::atp::stack),
    to("bsd", "a host of the BSD subsystem, and its users", targets::bsd::host),
    to("streams", "a host of STREAMS, and its users", targets::streams::host),
    to("streams-udp", "packets to UDP of STREAMS", targets::streams::udp),
    to("tpi-wire", "primitives between transport users and providers", targets::tpi::wire),
    to("tpi", "scripts of messages to providers of STREAMS", targets::tpi::providers),
    to("reqrep", "REQUEST.REPLY between two layers", targets::reqrep::stack),
    to("rm", "records in a stream", targets::rm::stack),
    to("stack", "the whole Internet stack, a host or a router", stack::run),
    to("attack", "a small network under attack, and questions to its hosts", attack::run),
    to("request", "what clients ask a running graph", request),
    to("graph", "graph files, read", targets::graph::read),
    to("check", "graph files, checked against the catalog and drawn", check),
    to("question", "questions from another address space", targets::question::question),
    to("rpcgen", "files of the RPC language", targets::rpcgen::file),
    to("xdr", "values of all types of the RPC language", xdr::run),
    to("message", "scripts of operations on messages", message),
    to("loans", "scripts of loans and returns between two pools, some made up", run_loans_script),
    to("participants", "participants as text", participants),
    to("shm-ring", "shared memory that a hostile peer writes into", targets::shm::ring),
    to("cut", "frames from the other side of a cut", targets::cut::frames),
    to("attach", "what programs send to the door where they attach", targets::cut::attach),
    to("netio", "rights and frames of channels, beside a model", targets::netio::rights),
];

/// Checks text as a graph file; what passes is drawn.
fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let catalog = xk_catalog::standard();
    match xk_compose::check(&text, "fuzz.kdl", &catalog) {
        Err(mistakes) => {
            assert!(mistakes.has_errors(), "refused without an error");
            novelty::note_text(&mistakes.sorted().first().map(|d| &d.what));
        }
        Ok(graph) => {
            assert!(!graph.warnings().has_errors(), "passed with an error");
            if graph.host_count() < 100 {
                let _ = xk_compose::draw_text(&graph, None, 80);
                let _ = xk_compose::draw_svg(&graph, None);
            }
        }
    }
}

fn message(data: &[u8]) {
    if let Ok(arena) = HeapArena::new(SCRIPT_ARENA_OCTETS) {
        run_script(&small_pool(Box::new(arena)), data);
    }
}

/// Reads a line as a request to a running graph.
fn request(data: &[u8]) {
    let line = String::from_utf8_lossy(data);
    match request::Request::parse(&line) {
        Ok(request::Request::Trace { messages }) => {
            assert!((1..=request::TRACES_MAX).contains(&messages));
        }
        Ok(request::Request::Capture { edge }) => novelty::note(&edge.len().min(8)),
        Ok(request::Request::About) => novelty::note(&"about"),
        Ok(request::Request::Begin) => novelty::note(&"begin"),
        Ok(request::Request::Dump) => novelty::note(&"dump"),
        Ok(request::Request::Unfinished) => novelty::note(&"unfinished"),
        Ok(request::Request::Watch) => novelty::note(&"watch"),
        Ok(request::Request::Watched { is_last }) => novelty::note(&is_last),
        Ok(request::Request::Stream { pops, .. }) => novelty::note(&("stream", pops)),
        Ok(request::Request::Upgrade) => novelty::note(&"upgrade"),
        Ok(request::Request::Device { name }) => {
            novelty::note(&name.map(|name| name.len().min(8)));
        }
        Ok(request::Request::HandOver) => novelty::note(&"hand-over"),
        Ok(request::Request::Taken) => novelty::note(&"taken"),
        // What it names is the input's own.
        Err(what) => novelty::note_text(&what.split('`').next()),
    }
}

/// Reads text as participants; what is read must print as something that reads the same.
fn participants(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(read) = text.parse::<Participants>() else {
        return;
    };
    let printed = read.to_string();
    let again = printed.parse::<Participants>();
    assert_eq!(again.as_ref(), Ok(&read), "`{printed}` reads differently");
}

/// The folder of this crate, where corpus and artifacts lie.
#[must_use]
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
