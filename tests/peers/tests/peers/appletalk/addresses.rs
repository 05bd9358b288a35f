//! Addresses (AARP), echoes (AEP), checksums.

use std::path::Path;
use std::time::{Duration, Instant};

use xk_aarp::AarpTable;
use xk_aep::AepFigures;
use xk_appletalk::addr::AtAddr;
use xk_appletalk::ddp;
use xk_kit::net::appletalk::DdpCable;
use xk_peers::appletalk::{BRIDGE, GUEST, OF_OTHERS, Stage, cable};
use xk_peers::stack::Stack;
use xk_peers::testbed::{PROGRAM_TIME_MAX, Wire};
use xk_testkit::netns::Space;

use super::needs_appletalk;

/// Begins to bring the guest up: the tests that need its router come late.
pub(crate) fn the_guest_starts(_: Wire) {
    needs_appletalk!();
    cable().wait(Stage::Node);
}

/// Waits until the stack's node has its address, and gives that.
pub(super) fn ready(stack: &Stack) -> (u16, u8) {
    let begun = Instant::now();
    loop {
        let known = stack.ask("ddp", DdpCable::default());
        if known.is_ready {
            return (known.net, known.node);
        }
        assert!(begun.elapsed() < PROGRAM_TIME_MAX, "{known:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn program(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    folder.join(name).display().to_string()
}

pub(crate) fn echoes_both_ways(_: Wire) {
    needs_appletalk!();
    let host = cable().join("echoes");
    host.cable.wait(Stage::Node);
    let sizes = [1, 16, 100, 585];
    let probes: String = sizes
        .iter()
        .map(|size| {
            format!(
                "probe aep name=probe{size} to=\"node{GUEST}@net10\" start=\"3s\" count=5 \
                 interval=\"50ms\" timeout=\"10s\" size={size}\n"
            )
        })
        .collect();
    let stack = host.start("net=\"10-19\" node=40", &probes);
    let (net, node) = ready(&stack);
    assert!((10..=19).contains(&net) && node == 40, "{net}.{node}");
    let said = host.cable.exec(&format!("aecho -c 3 {net}.{node}"));
    assert!(said.contains("3 packets received, 0% packet loss"), "{said}");
    for report in stack.finish(PROGRAM_TIME_MAX) {
        assert_eq!(report.figure("received"), 5, "{report:?}");
        assert!(!report.failed, "{report:?}");
    }
    assert_eq!(stack.ask("aep", AepFigures::default()).answered, 3);
    let table = stack.ask("aarp", AarpTable::default());
    assert_eq!((table.me, table.conflicts), (Some((net, node)), 0));
    assert!(table.nodes.iter().any(|(net, node, hw)| (*net, *node) == (10, GUEST) && hw.is_some()));
    stack.assert_drops_only(&OF_OTHERS);
    drop(stack);
    host.testbed.judge(&[]);
}

/// Another's address is left alone, and ours is defended.
pub(crate) fn a_node_is_defended(_: Wire) {
    needs_appletalk!();
    let host = cable().join("defended");
    host.cable.wait(Stage::Node);
    // The guest's own, which it defends; and any, which is another.
    let stack = host.start(&format!("net=\"10\" node={GUEST}"), "");
    std::thread::sleep(Duration::from_secs(4));
    assert!(!stack.ask("ddp", DdpCable::default()).is_ready);
    assert_eq!(stack.ask("aarp", AarpTable::default()).me, None);
    drop(stack);
    assert!(host.testbed.count("ours.pcapng", "aarp.opcode == 2") > 0, "the guest's answer");
    // On a cable of its own another guest looks for a node that is ours.
    let guest = host.bare_guest();
    let ours = host.start_on("x1", "second", "net=\"30-39\" node=50", "");
    let (net, node) = ready(&ours);
    assert_eq!(node, 50);
    let command = format!("python3 {} vec0 30 39 {net} 50", program("atif.py"));
    let said = guest.exec(&command, PROGRAM_TIME_MAX).unwrap();
    let taken = said.trim().rsplit_once("has ").expect("an address").1;
    assert_ne!(taken, format!("{net}.50"), "{said}");
    assert_eq!(ours.ask("aarp", AarpTable::default()).me, Some((net, 50)));
    let said = guest.exec(&format!("echoes {net}.50"), PROGRAM_TIME_MAX).unwrap();
    assert!(said.contains("3 packets received"), "{said}");
    drop(ours);
    host.testbed.judge(&[]);
}

/// Sends a datagram as a frame, from a device of a space.
fn send((space, device): (&Space, &str), [to, from]: [[u8; 6]; 2], datagram: &[u8]) {
    let mut frame = [to, from].concat();
    frame.extend_from_slice(&(8 + datagram.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b]);
    frame.extend_from_slice(datagram);
    let hex: String = frame.iter().map(|octet| format!("{octet:02x}")).collect();
    space.exec(&["python3", &program("frames.py"), device, &hex]).unwrap();
}

/// Linux and we compute the sum alike, and neither answers what is damaged.
pub(crate) fn datagrams_with_wrong_sums_are_dropped(_: Wire) {
    needs_appletalk!();
    let host = cable().join("sums");
    host.cable.wait(Stage::Node);
    // Without a sum it is answered, too.
    let probe = "probe aep to=\"node17@net10\" start=\"3s\" count=3 timeout=\"10s\" size=100";
    let stack = host.start("net=\"10\" node=60 checksum=#false", probe);
    ready(&stack);
    let reports = stack.finish(PROGRAM_TIME_MAX);
    assert_eq!(reports[0].figure("received"), 3, "{reports:?}");
    stack.assert_drops_only(&OF_OTHERS);
    let table = stack.ask("aarp", AarpTable::default());
    let guest = table.nodes.iter().find(|(_, node, _)| *node == GUEST).and_then(|(.., hw)| *hw);
    let guest = guest.expect("its hardware");
    // A socket that no probe is given, for those lie above 127.
    const ASKER: u8 = 100;
    let (its, ours) = (AtAddr::new(10, GUEST, 4), AtAddr::new(10, 60, ASKER));
    let echo = |to, from| ddp::join(to, from, 4, b"\x01sums", true).expect("a datagram");
    let damaged = |mut datagram: Vec<u8>| {
        datagram[3] ^= 1;
        datagram
    };
    // As if we had asked from a socket that is not there: of two requests one is answered.
    let from_us = (&host.space, "x0");
    send(from_us, [guest, host.hw], &damaged(echo(its, ours)));
    send(from_us, [guest, host.hw], &echo(its, ours));
    let to_us = (host.cable.space(), BRIDGE);
    let [from, to] = [(10, GUEST, ASKER), (10, 60, 4)].map(|(n, at, s)| AtAddr::new(n, at, s));
    send(to_us, [host.hw, guest], &damaged(echo(to, from)));
    send(to_us, [host.hw, guest], &echo(to, from));
    let begun = Instant::now();
    let drops = |reason| {
        let drops = stack.drops();
        let of_it = drops.into_iter().filter(|(name, why, _)| name == "ddp" && *why == reason);
        of_it.map(|(.., count)| count).sum::<u64>()
    };
    let asker = format!("ddp.dst_socket == {ASKER}");
    let answers = || host.testbed.count("ours.pcapng", &asker);
    while stack.ask("aep", AepFigures::default()).answered < 1 && begun.elapsed() < PROGRAM_TIME_MAX
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(drops("bad checksum"), 1);
    assert_eq!(stack.ask("aep", AepFigures::default()).answered, 1);
    drop(stack);
    // One from the guest to us, one from us to the guest.
    assert_eq!(answers(), 2);
    host.testbed.judge(&[("hecksum", "two are damaged")]);
}
