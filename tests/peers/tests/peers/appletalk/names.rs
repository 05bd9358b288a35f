//! Names (NBP), networks and routers (RTMP), zones (ZIP), and what stands on names: printing (PAP)
//! and sessions (ASP).

use std::fs;
use std::time::{Duration, Instant};

use xk_kit::net::appletalk::DdpCable;
use xk_nbp::{NbpLookup, NbpRegister};
use xk_peers::appletalk::{GUEST, OF_OTHERS, Stage, cable, volumes_missing};
use xk_peers::stack::Stack;
use xk_peers::testbed::{PROGRAM_TIME_MAX, Wire};
use xk_rtmp::RtmpTable;
use xk_zip::ZoneList;

use super::addresses::ready;
use super::needs_appletalk;
use super::transactions::{commands_by, commands_of, socket_of};

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
        assert!(begun.elapsed() < PROGRAM_TIME_MAX, "{protocol} does not know yet");
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

/// The zones that a router tells, in the order of their names.
fn zones(stack: &Stack, which: u8) -> Vec<String> {
    let question = ZoneList { which, ..ZoneList::default() };
    let mut zones = ask_until(stack, "zip", &question, |answer| answer.is_done).zones;
    zones.sort();
    zones
}

/// A router of ours beside atalkd on one cable: each learns of the other's networks and zones, and
/// netatalk's programs ask ours and find names behind it; a node of ours asks atalkd for zones.
pub(crate) fn two_routers_share_a_cable(_: Wire) {
    needs_appletalk!();
    let host = cable().join("router");
    host.cable.wait(Stage::Servers);
    let uppers = "rtmp ddp\natp ddp\nzip ddp atp\n";
    let router = host.start_router(&format!(
        "{uppers}nbp ddp zip {{\nregister \"behind:XKernel@Ours\" socket=200\n}}"
    ));
    let begun = Instant::now();
    // atalkd hears of network 30, asks for its zone, and tells it its nodes.
    loop {
        let (_, said) = host.cable.run("getzones");
        if said.lines().any(|line| line == "Ours") {
            assert!(said.lines().any(|line| line == "XK"), "{said}");
            break;
        }
        assert!(begun.elapsed() < PROGRAM_TIME_MAX, "{said}");
        std::thread::sleep(Duration::from_millis(500));
    }
    // Ours is asked directly: all zones, those of the cable, the node's own.
    for (option, all) in [("", &["Ours", "XK"][..]), ("-l ", &["XK"]), ("-m ", &["XK"])] {
        let said = host.cable.exec(&format!("getzones {option}10.85"));
        let mut zones: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
        zones.sort_unstable();
        assert_eq!(zones, all, "{option}: {said}");
    }
    let said = host.cable.exec("aecho -c 3 30.85");
    assert!(said.contains("3 packets received"), "{said}");
    let said = host.cable.exec("nbplkup =:XKernel@Ours");
    assert!(said.contains("behind:XKernel") && said.contains("30.85:200"), "{said}");
    assert_eq!(zones(&router, 0), ["Ours", "XK"]);
    // A node of ours asks the router that it hears, one of the two.
    let node = host.cable.join("zone-list");
    let stack = node.start("net=\"10-19\" node=86", uppers);
    ask_until(&stack, "ddp", &DdpCable::default(), |cable| cable.router.1 != 0);
    assert_eq!(zones(&stack, 0), ["Ours", "XK"]);
    assert_eq!(zones(&stack, 1), ["XK"]);
    drop((stack, router));
    node.testbed.judge(&[]);
    host.testbed.judge(&[]);
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
        assert!(begun.elapsed() < PROGRAM_TIME_MAX, "{said}");
    }
    let said = host.cable.exec("nbplkup =:XKernel");
    assert!(said.contains("ours:XKernel") && said.contains("guest:XKernel"), "{said}");
    // papd registers its printer by itself, some time after it has started.
    let begun = Instant::now();
    let mut printers = Vec::new();
    while printers.is_empty() && begun.elapsed() < PROGRAM_TIME_MAX {
        let found = lookup(&stack, "TestPrinter:LaserWriter@*").found;
        printers = found.iter().map(|it| (it.net, it.node)).collect();
    }
    assert_eq!(printers, [(10, GUEST)]);
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
    xk_testkit::await_that!(
        PROGRAM_TIME_MAX,
        host.cable.exec("nbplkup Ours:LaserWriter").contains(".81:130"),
        "it takes too long"
    );
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
    while report("printer").figure("jobs") < 1 && begun.elapsed() < PROGRAM_TIME_MAX {
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

/// `print` prints a program of PostScript by papd, which it finds by its name.
pub(crate) fn print_prints_by_papd(_: Wire) {
    needs_appletalk!();
    let host = cable().join("print");
    host.cable.wait(Stage::Servers);
    let lines = "rtmp ddp\nzip ddp\nnbp ddp\natp ddp\n\
                 print atp nbp entity=\"TestPrinter:LaserWriter@*\" postscript=#true size=30000 \
                 start=\"3s\"";
    let stack = host.start("net=\"10-19\" node=87", lines);
    let report = stack.finish(PROGRAM_TIME_MAX).pop().expect("a report");
    assert_eq!((report.figure("printed"), report.failed), (1, false), "{report:?}");
    let begun = Instant::now();
    let printed = loop {
        let (_, said) = host.cable.run("busybox cat /tmp/printed");
        if said.trim_end().len() + 1 >= 30_000 || begun.elapsed() > PROGRAM_TIME_MAX {
            break said;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let mut sum = xk_appletalk::ddp::Sum::default();
    // The shell ends what it says with empty lines.
    sum.add(format!("{}\n", printed.trim_end()).as_bytes());
    assert!(printed.contains("% line 00000100 of a job"), "{printed}");
    assert_eq!(u64::from(sum.checksum()), report.figure("sum"), "{} octets", printed.len());
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    // tshark takes PAP for ASP, whose second functions are others.
    host.testbed.judge_without(&["asp"], &[]);
}

/// The octets of an AFP command: code, fields, a name.
fn command(code: u8, fields: &[u8], name: &str) -> Vec<u8> {
    let mut octets = [&[code], fields].concat();
    if !name.is_empty() {
        octets.push(name.len() as u8);
        octets.extend(name.bytes());
    }
    octets
}

/// A workstation of ours makes a file at afpd and writes it, a command block in front of the data,
/// and reads it again.
pub(crate) fn afpd_takes_a_file(_: Wire) {
    needs_appletalk!();
    if let Some(reason) = volumes_missing() {
        xk_testkit::needs::skip(&reason);
        return;
    }
    let host = cable().join("afp-file");
    host.cable.wait(Stage::Servers);
    let stack = host.start("net=\"10-19\" node=88", "atp ddp\nasp atp");
    ready(&stack);
    let server = socket_of(&host.cable, "=:AFPServer");
    let data: Vec<u8> = (0..4000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let expected = data.clone();
    let said = commands_by(&stack, server, move |replies| {
        // What an answer says at a place: the volume's number, the fork's.
        let at = |number: usize| -> [u8; 2] {
            let reply = replies.get(number).and_then(|reply| reply.as_ref().ok());
            reply.and_then(|reply| reply.get(2..4)?.try_into().ok()).unwrap_or_default()
        };
        let (volume, fork) = (at(1), at(3));
        // The folder at the top, and that a name follows.
        let place = [&volume[..], &2_u32.to_be_bytes()].concat();
        Some(match replies.len() {
            0 => {
                let login = b"\x0eAFPVersion 2.1\x0fNo User Authent";
                (command(18, login, ""), 0)
            }
            1 => (command(24, &[0, 0, 0x20], "vol"), 0),
            // FPCreateFile.
            2 => (command(7, &[&[0][..], &place, &[2]].concat(), "written"), 0),
            // FPOpenFork, to read and write.
            3 => (command(26, &[&[0][..], &place, &[0, 0, 0, 3, 2]].concat(), "written"), 0),
            // FPWrite: from the beginning.
            4 => {
                let mut block = command(33, &[0], "");
                block.extend(fork);
                block.extend([0, 0, 0, 0]);
                block.extend((data.len() as u32).to_be_bytes());
                let len = block.len();
                block.extend(&data);
                (block, len)
            }
            // FPRead.
            5 => {
                let mut read = command(27, &[0], "");
                read.extend(fork);
                read.extend([0, 0, 0, 0]);
                read.extend((data.len() as u32).to_be_bytes());
                read.extend([0, 0]);
                (read, 0)
            }
            // FPCloseFork, FPLogout.
            6 => (command(4, &[&[0][..], &fork].concat(), ""), 0),
            7 => (command(20, &[0], ""), 0),
            _ => return None,
        })
    });
    assert!(said.iter().all(Result::is_ok), "{said:?}: {}", host.file("afpd.log"));
    let replies: Vec<&Vec<u8>> = said.iter().flatten().collect();
    assert_eq!(replies[4], &(expected.len() as u32).to_be_bytes(), "the last octet written");
    assert_eq!(replies[5], &expected);
    let size = host.cable.shell("busybox stat -c %s $R/tmp/vol/written");
    assert!(size.contains("4000"), "{size}");
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    // netatalk tells of itself more than tshark knows of.
    host.testbed.judge_without(&["afp"], &[]);
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
