//! Names (NBP), networks and routers (RTMP), zones (ZIP), and what stands on names: printing (PAP)
//! and sessions (ASP).

use std::fs;
use std::time::{Duration, Instant};

use xk_kit::net::appletalk::DdpCable;
use xk_nbp::{NbpLookup, NbpRegister};
use xk_peers::appletalk::{GUEST, OF_OTHERS, Stage, cable};
use xk_peers::stack::Stack;
use xk_peers::testbed::{PATIENCE, Wire};
use xk_rtmp::RtmpTable;

use super::addresses::ready;
use super::needs_appletalk;
use super::transactions::{commands_of, socket_of};

/// Asks until `is_done`.
fn ask_until<Q: xk_core::control::Question + Clone + Send + 'static>(
    stack: &Stack,
    protocol: &str,
    question: &Q,
    is_done: impl Fn(&Q) -> bool,
) -> Q {
    let begun = Instant::now();
    loop {
        let answer = stack.ask(protocol, question.clone());
        if is_done(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{protocol} does not know yet");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn lookup(stack: &Stack, name: &str) -> NbpLookup {
    let question = NbpLookup { name: name.to_owned(), ..NbpLookup::default() };
    ask_until(stack, "nbp", &question, |answer| answer.is_done)
}

fn register(stack: &Stack, name: &str, socket: u8) -> bool {
    let question = NbpRegister { name: name.to_owned(), socket, ..NbpRegister::default() };
    ask_until(stack, "nbp", &question, |answer| answer.is_done).is_taken
}

/// A node that knows nothing learns of networks, router and zone from atalkd.
pub(crate) fn a_node_learns_of_its_cable(_: Wire) {
    needs_appletalk!();
    let host = cable().join("learns");
    host.cable.wait(Stage::Router);
    let stack = host.start("", "rtmp ddp\nzip ddp");
    let known = ask_until(&stack, "ddp", &DdpCable::default(), |cable| {
        // Its first address is of no cable; the one that lasts is probed for meanwhile.
        let is_moved = cable.is_known && (10..=19).contains(&cable.net);
        is_moved && cable.is_ready && cable.router.1 != 0 && !cable.zone.is_empty()
    });
    assert_eq!((known.first, known.last), (10, 19));
    assert_eq!((known.router, &known.zone[..]), ((10, GUEST), &b"XK"[..]));
    assert_eq!(stack.ask("rtmp", RtmpTable::default()).router, Some((10, GUEST)));
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    host.testbed.judge(&[]);
}

pub(crate) fn names_are_found_both_ways(_: Wire) {
    needs_appletalk!();
    let host = cable().join("names");
    host.cable.wait(Stage::Servers);
    let names = "rtmp ddp\nzip ddp\nnbp ddp {\nregister \"ours:XKernel\" socket=200\n}";
    let stack = host.start("net=\"10-19\" node=80", names);
    let (net, node) = ready(&stack);
    // The zone is known by then, without which a router is not asked.
    ask_until(&stack, "ddp", &DdpCable::default(), |cable| !cable.zone.is_empty());
    let begun = Instant::now();
    loop {
        let said = host.cable.exec("nbplkup ours:XKernel");
        if said.contains(&format!("{net}.{node}:200")) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{said}");
    }
    let said = host.cable.exec("nbplkup =:XKernel");
    assert!(said.contains("ours:XKernel") && said.contains("guest:XKernel"), "{said}");
    let found = lookup(&stack, "TestPrinter:LaserWriter@*").found;
    assert_eq!(found.iter().map(|it| (it.net, it.node)).collect::<Vec<_>>(), [(10, GUEST)]);
    let found = lookup(&stack, "=:XKernel@XK").found;
    assert!(found.iter().any(|it| it.name.starts_with("guest:XKernel")), "{found:?}");
    // A name that another has.
    assert!(!register(&stack, "guest:XKernel", 201));
    assert!(register(&stack, "second:XKernel", 201));
    let (status, said) = host.cable.run("nbprgstr ours:XKernel");
    assert!(status != 0 || said.contains("Can't register"), "{said}");
    stack.assert_drops_only(&[&OF_OTHERS[..], &["nbp: name exists"]].concat());
    drop(stack);
    host.testbed.judge(&[]);
}

/// netatalk's client prints on our printer, which it finds by its name.
pub(crate) fn pap_prints_on_ours(_: Wire) {
    needs_appletalk!();
    let host = cable().join("printer");
    host.cable.wait(Stage::Servers);
    let lines =
        "rtmp ddp\nzip ddp\nnbp ddp\natp ddp\nprinter atp nbp entity=\"Ours:LaserWriter@*\"";
    let stack = host.start("net=\"10-19\" node=81", lines);
    ready(&stack);
    let begun = Instant::now();
    while !host.cable.exec("nbplkup Ours:LaserWriter").contains(".81:130") {
        assert!(begun.elapsed() < PATIENCE);
    }
    let octets: Vec<u8> = (0..30_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let file = host.folder().join("job");
    fs::write(&file, &octets).unwrap();
    let said =
        host.cable.shell(&format!("cp {} $R/tmp/job; at pap -p Ours /tmp/job", file.display()));
    assert!(said.contains("Connected to Ours"), "{said}");
    let begun = Instant::now();
    let report = |name: &str| {
        stack.reports().into_iter().find(|report| report.name == name).expect("a report")
    };
    while report("printer").figure("jobs") < 1 && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    let printed = report("printer");
    let mut sum = xk_appletalk::ddp::Sum::default();
    sum.add(&octets);
    assert_eq!((printed.figure("jobs"), printed.figure("failed")), (1, 0), "{printed:?}");
    assert_eq!(printed.figure("octets"), octets.len() as u64, "{printed:?}");
    assert_eq!(printed.figure("sum"), u64::from(sum.checksum()), "{printed:?}");
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    // tshark takes PAP for ASP, whose second functions are others.
    host.testbed.judge_without(&["asp"], &[]);
}

/// A workstation of ours logs in at afpd, in a session of `asp`, and asks for its volumes.
pub(crate) fn afpd_executes_commands(_: Wire) {
    needs_appletalk!();
    let host = cable().join("asp");
    host.cable.wait(Stage::Servers);
    let stack = host.start("net=\"10-19\" node=82", "atp ddp\nasp atp");
    ready(&stack);
    let server = socket_of(&host.cable, "=:AFPServer");
    let login = [&[18, 14][..], b"AFPVersion 2.1", &[15], b"No User Authent"].concat();
    let commands = [vec![16, 0], login, vec![16, 0], vec![20, 0]];
    let replies = commands_of(&stack, server, commands.to_vec());
    // FPGetSrvrParms before FPLogin is an error; behind it, it names the volume; FPLogout.
    assert!(replies[0].is_err(), "{replies:?}");
    let replies: Vec<&Vec<u8>> = replies[1..].iter().map(|it| it.as_ref().unwrap()).collect();
    assert!(replies[1].windows(3).any(|at| at == b"vol"), "{replies:?}");
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    // netatalk tells of itself more than tshark knows of.
    host.testbed.judge_without(&["afp"], &[]);
}
