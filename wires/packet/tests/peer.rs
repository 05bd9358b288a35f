//! The device on both ends of a veth pair, and against the host's own stack.

#[path = "peer/runs.rs"]
mod runs;

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use xk_packet::{
    FrameInfo, InterfaceError, Options, PacketDevice, PacketError, TransmitError, Transmitted,
};
use xk_testkit::netns::{Net, Space};
use xk_testkit::{await_that, needs_root, peer};

fn main() -> ExitCode {
    peer::main(&[
        ("frames_cross_both_ways", frames_cross_both_ways),
        ("own_frames_are_not_received", own_frames_are_not_received),
        ("a_vlan_tag_survives", a_vlan_tag_survives),
        ("uncomputed_checksums_are_told", uncomputed_checksums_are_told),
        ("the_ring_fills_and_empties", the_ring_fills_and_empties),
        ("a_reused_slot_spoils_no_frame", a_reused_slot_spoils_no_frame),
        ("lost_frames_are_counted", lost_frames_are_counted),
        ("long_frames_come_whole_while_there_is_room", long_frames_come_whole_while_there_is_room),
        ("runs_cross_whole", runs::cross_whole),
        ("impossible_frames_are_refused", impossible_frames_are_refused),
        ("a_panic_spoils_nothing", a_panic_spoils_nothing),
        ("promiscuity_ends_with_the_device", promiscuity_ends_with_the_device),
        ("an_interface_going_down_is_told", an_interface_going_down_is_told),
        ("errors_tell_the_case", errors_tell_the_case),
    ])
}

/// More than anything takes, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);

/// An EtherType for experiments (IEEE 802, section 9.2.3).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

/// Two spaces joined by a veth pair, `v0` and `v1`.
#[derive(Debug)]
struct Pair {
    net: Net,
    left: Space,
    right: Space,
}

fn pair(label: &str) -> Pair {
    let net = Net::new(label).unwrap();
    let (left, right) = (net.space().unwrap(), net.space().unwrap());
    net.veth(&left, "v0", &right, "v1").unwrap();
    Pair { net, left, right }
}

fn open(space: &Space, name: &str, options: &Options) -> PacketDevice {
    space.enter(|| PacketDevice::open(name, options)).unwrap().unwrap()
}

/// Sends one frame at once.
fn send(device: &mut PacketDevice, parts: &[&[u8]]) {
    assert_eq!(device.transmit(parts).unwrap(), Transmitted::Queued);
    assert_eq!(device.flush().unwrap(), 0);
}

/// Waits until the descriptor tells of a frame.
fn wait(device: &PacketDevice) {
    let mut wanted = [PollFd::from_borrowed_fd(device.fd().as_fd(), PollFlags::IN)];
    let limit = Timespec { tv_sec: 2, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut wanted, Some(&limit)).unwrap(), 1, "nothing came");
}

/// The frames that arrive until there are `count`, or none comes for half a second.
fn frames(device: &mut PacketDevice, count: usize) -> Vec<(Vec<u8>, FrameInfo)> {
    let mut found = Vec::new();
    let mut last = Instant::now();
    while found.len() < count && last.elapsed() < Duration::from_millis(500) {
        match device.receive(16, |frame, info| found.push((frame.to_vec(), info))) {
            0 => std::thread::sleep(Duration::from_millis(1)),
            _ => last = Instant::now(),
        }
    }
    found
}

fn frames_cross_both_ways() {
    needs_root!("ip");
    let pair = pair("packet cross");
    let mut left = open(&pair.left, "v0", &Options::default());
    let mut right = open(&pair.right, "v1", &Options::default());
    assert_eq!((left.name(), left.mtu(), left.frame_octets_max()), ("v0", 1500, 1518));
    let (here, there) = (left.hardware_address(), right.hardware_address());
    assert_ne!(here, there);
    for at in 0..600u16 {
        send(&mut left, &[&there, &here, &EXPERIMENT, b"down", &at.to_be_bytes()]);
        send(&mut right, &[&here, &there, &EXPERIMENT, b"back", &at.to_be_bytes()]);
        let (down, back) = (frames(&mut right, 1), frames(&mut left, 1));
        let expected = [&there[..], &here, &EXPERIMENT, b"down", &at.to_be_bytes()].concat();
        assert_eq!(down[0].0, expected);
        assert_eq!(&back[0].0[14..], [&b"back"[..], &at.to_be_bytes()].concat());
        let info = down[0].1;
        assert_eq!((info.wire_octets, info.truncated, info.checksum_not_ready), (20, false, false));
    }
    let counted = left.statistics().unwrap();
    assert_eq!(
        (counted.received, counted.queued, counted.dropped, counted.inconsistent),
        (600, 600, 0, 0)
    );
}

fn own_frames_are_not_received() {
    needs_root!("ip");
    let pair = pair("packet own");
    let mut left = open(&pair.left, "v0", &Options { bypass_queues: false, ..Options::default() });
    let mut right = open(&pair.right, "v1", &Options::default());
    send(&mut left, &[&[0xff; 12], &EXPERIMENT, b"to all"]);
    assert_eq!(frames(&mut right, 1).len(), 1);
    assert!(frames(&mut left, 1).is_empty());
}

fn a_vlan_tag_survives() {
    needs_root!("ip");
    let pair = pair("packet vlan");
    let mut left = open(&pair.left, "v0", &Options::default());
    let mut right = open(&pair.right, "v1", &Options::default());
    let full = vec![7; 1500];
    for payload in [&b"tagged"[..], &full] {
        let parts = [
            &right.hardware_address()[..],
            &left.hardware_address(),
            &[0x81, 0, 0x20, 5],
            &EXPERIMENT,
            payload,
        ];
        send(&mut left, &parts);
        let found = frames(&mut right, 1);
        assert_eq!(found[0].0, parts.concat());
        assert_eq!((found[0].1.wire_octets, found[0].1.truncated), (18 + payload.len(), false));
    }
}

fn uncomputed_checksums_are_told() {
    needs_root!("ip");
    let pair = pair("packet checksum");
    pair.left.address("v0", "10.93.0.1/24").unwrap();
    let mut right = open(&pair.right, "v1", &Options::default());
    pair.left.neighbour("v0", "10.93.0.2", right.hardware_address()).unwrap();
    let socket = pair.left.enter(|| UdpSocket::bind("10.93.0.1:7000").unwrap()).unwrap();
    let mut sum_is_told_missing = |payload: &[u8]| {
        socket.send_to(payload, "10.93.0.2:7001").unwrap();
        let (frame, info) = frames(&mut right, 1).pop().unwrap();
        assert_eq!(&frame[42..], payload);
        // RFC 768: the sum over pseudo-header, header and data is all ones when the field is right.
        let mut words =
            u32::from(frame[23]) + u32::from(u16::from_be_bytes([frame[38], frame[39]]));
        for pair in frame[26..].chunks(2) {
            words += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
        words = (words & 0xffff) + (words >> 16);
        let right = (words & 0xffff) + (words >> 16) == 0xffff;
        assert_eq!(right, !info.checksum_not_ready);
        info.checksum_not_ready
    };
    assert!(sum_is_told_missing(b"with offload"));
    pair.left.offload_off("v0").unwrap();
    assert!(!sum_is_told_missing(b"without offload"));
}

fn the_ring_fills_and_empties() {
    needs_root!("ip");
    let pair = pair("packet full");
    let mut left = open(&pair.left, "v0", &Options { tx_slots: 1, ..Options::default() });
    let mut right = open(&pair.right, "v1", &Options::default());
    for _ in 0..3 {
        let (mut queued, begun) = (0u8, Instant::now());
        loop {
            match left.transmit(&[&[0xff; 12], &EXPERIMENT, &[queued]]).unwrap() {
                Transmitted::Queued => queued += 1,
                _ if queued >= 32 => break,
                // The receiver's handling of the last frame frees its slot, a moment later.
                _ => assert!(begun.elapsed() < STEP_TIME_MAX, "{queued} slots are free"),
            }
        }
        assert_eq!(queued, 32, "a block of 64 KiB holds 32 slots of 2 KiB");
        assert!(frames(&mut right, 1).is_empty(), "nothing leaves before a flush");
        assert_eq!(left.flush().unwrap(), 0);
        let found = frames(&mut right, 32);
        let marks: Vec<u8> = found.iter().map(|(frame, _)| frame[14]).collect();
        assert_eq!(marks, (0..32).collect::<Vec<u8>>());
    }
    assert_eq!(left.flush().unwrap(), 0);
}

fn a_reused_slot_spoils_no_frame() {
    needs_root!("ip");
    let pair = pair("packet reuse");
    pair.right.address("v1", "10.93.0.2/24").unwrap();
    let mut left = open(&pair.left, "v0", &Options { tx_slots: 1, ..Options::default() });
    let there = open(&pair.right, "v1", &Options::default()).hardware_address();
    // A reader that comes late: each of the 32 slots is used twice while the frames wait in its
    // queue, which has room for 64.
    let socket = pair.right.enter(|| UdpSocket::bind("10.93.0.2:7001").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    for mark in 0..64u8 {
        let ip = [0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 93, 0, 1, 10, 93, 0, 2];
        let sum: u32 =
            ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let udp = [0x1b, 0x58, 0x1b, 0x59, 0x05, 0xc8, 0, 0];
        let parts = [
            &there[..],
            &[2, 0, 0, 0, 0, 1, 8, 0],
            &ip[..10],
            &sum.to_be_bytes(),
            &ip[12..],
            &udp,
            &[mark; 1472],
        ];
        send(&mut left, &parts);
        std::thread::sleep(Duration::from_micros(200));
    }
    let mut octets = [0; 2048];
    for mark in 0..64u8 {
        let count = socket.recv(&mut octets).unwrap();
        assert_eq!(count, 1472);
        assert!(octets[..count].iter().all(|octet| *octet == mark), "frame {mark} was overwritten");
    }
}

fn lost_frames_are_counted() {
    needs_root!("ip");
    let pair = pair("packet lost");
    let mut left = open(&pair.left, "v0", &Options::default());
    let mut right = open(&pair.right, "v1", &Options { rx_slots: 1, ..Options::default() });
    for _ in 0..100 {
        assert_eq!(left.transmit(&[&[0xff; 12], &EXPERIMENT]).unwrap(), Transmitted::Queued);
    }
    assert_eq!(left.flush().unwrap(), 0);
    await_that!(
        STEP_TIME_MAX,
        right.statistics().unwrap().dropped >= 68,
        "{:?}",
        right.statistics()
    );
    assert_eq!(right.receive(10, |_, _| {}), 10);
    assert_eq!(frames(&mut right, 100).len(), 22);
    let counted = right.statistics().unwrap();
    assert_eq!((counted.received, counted.dropped), (32, 68));
    assert_eq!(right.statistics().unwrap(), counted, "asking does not forget");
    send(&mut left, &[&[0xff; 12], &EXPERIMENT, b"again"]);
    assert_eq!(frames(&mut right, 1).len(), 1);
}

fn long_frames_come_whole_while_there_is_room() {
    needs_root!("ip");
    let pair = pair("packet long");
    let little = Options { long_octets: 1, ..Options::default() };
    let mut right = open(&pair.right, "v1", &little);
    pair.left.mtu("v0", 9000).unwrap();
    pair.right.mtu("v1", 9000).unwrap();
    let mut left = open(&pair.left, "v0", &Options::default());
    let payload: Vec<u8> = (0..9000u32).map(|at| at as u8).collect();
    for _ in 0..2 {
        // The first is always taken, be the room ever so small; the second no longer fits.
        for _ in 0..2 {
            send(&mut left, &[&[0xff; 12], &EXPERIMENT, &payload]);
        }
        send(&mut left, &[&[0xff; 12], &EXPERIMENT, b"short"]);
        let found = frames(&mut right, 3);
        let (frame, info) = &found[0];
        assert!(!info.truncated && info.wire_octets == 9014, "{info:?}");
        assert_eq!(frame[14..], payload);
        let (frame, info) = &found[1];
        assert!(
            info.truncated && info.wire_octets == 9014 && (1518..2048).contains(&frame.len()),
            "{info:?} {}",
            frame.len()
        );
        assert_eq!(frame[14..], payload[..frame.len() - 14]);
        assert!(!found[2].1.truncated);
        assert_eq!(found[2].0[14..], *b"short");
    }
}

fn impossible_frames_are_refused() {
    needs_root!("ip");
    let pair = pair("packet refuse");
    let mut left = open(&pair.left, "v0", &Options::default());
    let (short, long) = (left.transmit(&[&[0; 13]]), left.transmit(&[&[0; 14], &[0; 1501]]));
    assert_eq!(short.unwrap_err(), TransmitError::TooShort { octets: 13 });
    assert_eq!(long.unwrap_err(), TransmitError::TooLong { octets: 1515, octets_max: 1514 });
    let tagged = left.transmit(&[&[0; 12], &[0x81, 0, 0, 1, 8, 0], &[0; 1501]]);
    assert_eq!(tagged.unwrap_err(), TransmitError::TooLong { octets: 1519, octets_max: 1518 });
    assert_eq!((left.flush().unwrap(), left.statistics().unwrap().queued), (0, 0));
}

fn a_panic_spoils_nothing() {
    needs_root!("ip");
    let pair = pair("packet panic");
    let mut left = open(&pair.left, "v0", &Options::default());
    let mut right = open(&pair.right, "v1", &Options::default());
    for mark in [1, 2] {
        send(&mut left, &[&[0xff; 12], &[0x81, 0, 0, 5], &EXPERIMENT, &[mark; 46]]);
    }
    wait(&right);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        right.receive(1, |_, _| std::panic::resume_unwind(Box::new("the caller's mistake")))
    }));
    assert!(panicked.is_err());
    let found = frames(&mut right, 1);
    assert_eq!(found[0].0[18..], [2; 46]);
}

fn promiscuity_ends_with_the_device() {
    needs_root!("ip");
    let pair = pair("packet promiscuous");
    let shown = || pair.left.exec(&["ip", "-d", "link", "show", "v0"]).unwrap();
    let device = open(&pair.left, "v0", &Options { promiscuous: true, ..Options::default() });
    assert!(shown().contains("promiscuity 1"), "{}", shown());
    drop(device);
    assert!(shown().contains("promiscuity 0"), "{}", shown());
}

fn an_interface_going_down_is_told() {
    needs_root!("ip");
    let pair = pair("packet down");
    let mut left = open(&pair.left, "v0", &Options::default());
    assert!(left.take_error().unwrap().is_none());
    pair.left.ip(&["link", "set", "v0", "down"]).unwrap();
    assert_eq!(left.take_error().unwrap().unwrap().kind(), std::io::ErrorKind::NetworkDown);
    assert!(left.take_error().unwrap().is_none());
    assert_eq!(left.transmit(&[&[0xff; 12], &EXPERIMENT]).unwrap(), Transmitted::Queued);
    assert_eq!(left.flush().unwrap_err().kind(), std::io::ErrorKind::NetworkDown);
    pair.left.up("v0").unwrap();
    let mut right = open(&pair.right, "v1", &Options::default());
    assert_eq!(left.flush().unwrap(), 0);
    assert_eq!(frames(&mut right, 1).len(), 1, "the frame stayed in the ring");
    pair.left.ip(&["link", "del", "v0"]).unwrap();
    assert_eq!(left.transmit(&[&[0xff; 12], &EXPERIMENT]).unwrap(), Transmitted::Queued);
    assert!(left.flush().is_err());
    assert_eq!(left.receive(1, |_, _| {}), 0);
}

fn errors_tell_the_case() {
    needs_root!("ip");
    let Pair { net, left, .. } = pair("packet errors");
    let refused = |name: &str, options: &Options| {
        left.enter(|| PacketDevice::open(name, options)).unwrap().unwrap_err()
    };
    for name in ["none", "", "a-name-that-is-too-long"] {
        let error = refused(name, &Options::default());
        assert!(
            matches!(
                &error,
                PacketError::Interface(InterfaceError::Missing { existing, .. })
                    if existing == &["lo", "v0"]
            ),
            "{error}"
        );
    }
    left.ip(&["tuntap", "add", "dev", "tun0", "mode", "tun"]).unwrap();
    assert!(matches!(
        refused("tun0", &Options::default()),
        PacketError::Interface(InterfaceError::NotEthernet { .. })
    ));
    assert!(matches!(
        refused("v0", &Options { rx_slots: 0, ..Options::default() }),
        PacketError::Rings { .. }
    ));
    let loopback = left.enter(|| PacketDevice::open("lo", &Options::default())).unwrap().unwrap();
    assert_eq!(loopback.mtu(), 65_536);
    let error = left
        .enter(|| {
            let none = rustix::thread::CapabilitySet::empty();
            let none = rustix::thread::CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            // This thread alone gives its privilege up.
            rustix::thread::set_capabilities(None, none).unwrap();
            PacketDevice::open("v0", &Options::default()).unwrap_err()
        })
        .unwrap();
    assert!(matches!(error, PacketError::NotPermitted { .. }), "{error}");
    assert!(error.to_string().contains("sudo setcap cap_net_raw+ep $(which xk)"), "{error}");
    drop(net);
}
