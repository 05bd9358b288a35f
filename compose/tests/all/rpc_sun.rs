//! ONC RPC in parts, as the graphs put it together: every call has its reply in spite of losses,
//! over whatever stack.

use crate::sim::{checked, report, source, started};
use std::time::Duration;
use xk_core::Time;
use xk_sim::World;

/// Runs a graph with this seed until its callers are done.
fn run(source: &str, seed: u64) -> World {
    let mut world = started(&checked(source), seed);
    world.run_until_finished(Time::ZERO + Duration::from_secs(300));
    world
}

/// The figure of this name in a protocol's report.
fn figure(world: &World, host: &str, protocol: &str, name: &str) -> u64 {
    crate::sim::figure(&report(world, host, protocol), name)
}

/// Every call of both callers has the reply that it must have; but of the long ones, of twelve
/// frames each, a few find no way through in six tries.
fn all_are_answered(name: &str) {
    all_of(name, &source(&format!("{name}.kdl")));
}

fn all_of(name: &str, source: &str) {
    for seed in 1..4 {
        let world = run(source, seed);
        for caller in ["ping", "echo"] {
            let of = |line: &str| figure(&world, "alice", caller, line);
            assert_eq!(of("calls"), 50, "{name} {caller}, seed {seed}");
            let ends = of("replies") + of("reqrep: timed out after 6 tries");
            assert_eq!(ends, 50, "{name} {caller}, seed {seed}");
            let least = if caller == "ping" { 50 } else { 47 };
            assert!(of("replies") >= least, "{name} {caller}, seed {seed}");
            assert_eq!(of("wrong"), 0, "{name} {caller}, seed {seed}");
        }
    }
}

#[test]
fn on_udp() {
    all_are_answered("rpc-sun");
}

#[test]
fn on_records_over_tcp() {
    all_are_answered("rpc-sun-tcp");
}

#[test]
fn on_fragment() {
    all_are_answered("rpc-sun-fragment");
}

#[test]
fn on_channel() {
    all_are_answered("rpc-sun-channel");
}

#[test]
fn with_credentials() {
    all_are_answered("rpc-sun-auth");
}

#[test]
fn with_credentials_through_a_layer_that_looks_on() {
    let name = "rpc-sun-auth";
    let source = source("rpc-sun-auth.kdl")
        .replace("authnone sunselect", "authnone watch")
        .replace("authsys sunselect", "tracer sunselect name=watch\n    authsys watch")
        .replace("authshort sunselect", "authshort watch");
    assert!(source.matches(" watch").count() > 4, "{source}");
    all_of(name, &source);
}

#[test]
fn at_a_port_that_the_port_mapper_knows() {
    all_are_answered("rpc-portmap");
}

/// Short frames arrive padded; what is no part of a message is not delivered as one.
#[test]
fn octets_that_a_link_adds_are_no_part_of_a_message() {
    let stacks = [
        ("reqrep eth { number eth=0x3967; }", "02:00:00:00:00:02"),
        ("vip arp ip\nreqrep vip", "10.0.0.2"),
        ("vipaddr arp ip\nfragment vipaddr\nvipsize vipaddr fragment\nreqrep vipsize", "10.0.0.2"),
    ];
    for (layers, to) in stacks {
        for size in [0, 1, 4, 20, 46, 100] {
            let host = |name: &str, n: u32, top: &str| {
                format!(
                    "host {name} {{\nsim link=lan address=\"02:00:00:00:00:0{n}\"\neth sim\narp eth\n\
                     ip arp {{ address \"10.0.0.{n}/24\"; }}\n{layers}\nsunselect reqrep\nsunprog sunselect\n{top}\n}}\n"
                )
            };
            let calls = format!(
                "caller sunprog to=\"procedure1@version1@program536870913@{to}\" count=10 size={size}"
            );
            let source = host("a", 1, &calls)
                + &host("b", 2, "procedures sunprog at=\"*@version1@program536870913\"")
                + "link lan delay=\"1ms\"\n";
            let world = run(&source, 1);
            let figures =
                ["replies", "wrong", "octets"].map(|name| figure(&world, "a", "caller", name));
            assert_eq!(figures, [10, 0, 10 * size], "{layers}, {size} octets");
        }
    }
}

/// The layer of programs answers procedure 0 itself; what stands on it puts nothing in front of
/// such calls, whichever domain it lies in.
#[test]
fn the_null_procedure_is_called_through_a_layer_with_headers() {
    const TOP: &str = "deadline sunprog";
    for above in [TOP.to_owned(), format!("domain d {{ {TOP} }}")] {
        for procedure in [0, 1] {
            let host = |name: &str, top: &str| {
                let above = above.replace(TOP, &format!("{TOP}; {top}"));
                format!("host {name} {{ sim link=lan; channel sim; sunselect channel\n")
                    + &format!("sunprog sunselect; {above}; }}\n")
            };
            let program = "version1@program536870913";
            let calls = format!("caller deadline to=\"procedure{procedure}@{program}\" count=5");
            let source = host("a", &calls)
                + &host("b", &format!("procedures deadline at=\"*@{program}\""))
                + "link lan kind=pointtopoint\n";
            let world = run(&source, 1);
            let name = if above == TOP { "a" } else { "a/d" };
            assert_eq!(figure(&world, name, "caller", "replies"), 5, "{source}");
        }
    }
}

/// Whatever `sim` makes up, a station that is given an address has it alone.
#[test]
fn an_address_that_is_given_is_made_up_by_no_other() {
    let host = |name: &str, n: u8, given: &str, top: &str| {
        format!("host {name} {{ sim link=lan {given}; eth sim; arp eth\n")
            + &format!("ip arp {{ address \"10.0.0.{n}/24\"; }}; reqrep ip; {top}; }}\n")
    };
    // The second host's would be that, if the first had none; the other way round as well.
    for given in [["address=\"02:00:00:00:00:02\"", ""], ["", "address=\"02:00:00:00:00:01\""]] {
        let source = host("a", 1, given[0], "caller reqrep to=\"10.0.0.2\" count=5")
            + &host("b", 2, given[1], "procedures reqrep procedure=1")
            + "link lan delay=\"1ms\"\n";
        let world = run(&source, 1);
        assert_eq!(figure(&world, "a", "caller", "replies"), 5, "{source}");
    }
}

/// A layer of authentication is asked whether it writes credentials, wherever it lies: behind what
/// looks on, in the same domain or in another.
#[test]
fn credentials_are_asked_for_across_a_cut_below_a_filter() {
    let program = "version1@program536870913";
    let client = format!("caller authnone to=\"procedure1@{program}\" count=5");
    let server = format!("procedures authnone at=\"*@{program}\"");
    let host = |name: &str, auth: &str, top: &str| {
        let auth = auth.replace("TOP", top);
        format!("host {name} {{ sim link=lan; channel sim; sunselect channel; {auth} }}\n")
    };
    let plain = "authnone sunselect; TOP";
    let cut = [
        "domain d { tracer sunselect; authnone tracer; TOP }",
        "domain d { tracer sunselect }; domain e { authnone tracer; TOP }",
        "domain d { tracer sunselect; fault tracer }; domain e { authnone fault }; domain f { TOP }",
    ];
    for [a, b] in cut.iter().flat_map(|cut| [[cut, plain], [plain, cut]]) {
        let source = host("a", a, &client) + &host("b", b, &server);
        let world = run(&(source.clone() + "link lan kind=pointtopoint\n"), 1);
        let own = ["a", "a/d", "a/e", "a/f"].into_iter().filter(|name| {
            let kernel = world.find(name).and_then(|id| world.kernel(id));
            let caller = kernel.and_then(|kernel| kernel.find_protocol("caller"));
            caller.is_some_and(|caller| !caller.is_proxy())
        });
        let name = own.last().unwrap();
        let figures = ["replies", "wrong"].map(|of| figure(&world, name, "caller", of));
        assert_eq!(figures, [5, 0], "{source}");
    }
}
