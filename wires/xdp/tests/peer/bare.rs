//! The socket without a graph.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use xk_testkit::needs_root;
use xk_xdp::{Fate, InterfaceError, Mode, Options, Share, XdpError, XdpSocket};

use crate::scene::{MODES, open, pair, try_open};

/// An EtherType for experiments (IEEE 802, section 9.2.3).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

/// The frames that arrive until there are `count`, or none comes for half a second.
fn frames(socket: &mut XdpSocket, count: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut last = Instant::now();
    while found.len() < count && last.elapsed() < Duration::from_millis(500) {
        let seen = socket.receive(16, |frame| {
            found.push(frame.to_vec());
            Fate::Done
        });
        match seen {
            0 => std::thread::sleep(Duration::from_millis(1)),
            _ => last = Instant::now(),
        }
    }
    found
}

pub(crate) fn frames_cross_both_ways() {
    needs_root!("ip");
    for mode in MODES {
        let pair = pair("xdp cross");
        let mut left = open(&pair.left, "v0", mode);
        let mut right = open(&pair.right, "v1", mode);
        assert_eq!((left.mode(), left.mtu()), (Some(mode), 1500));
        let (here, there) = (left.hardware_address(), right.hardware_address());
        assert_ne!(here, there);
        // More than the rings have entries, of all lengths.
        for at in 0..3000usize {
            let fill: Vec<u8> = (0..at % 1500).map(|octet| (octet + at) as u8).collect();
            let down = [&there[..], &here, &EXPERIMENT, &fill].concat();
            let back = [&here[..], &there, &EXPERIMENT, &fill].concat();
            assert!(left.transmit(&down) && right.transmit(&back));
            assert!(left.flush().unwrap() && right.flush().unwrap());
            assert_eq!(frames(&mut right, 1), [down], "{mode} {at}");
            assert_eq!(frames(&mut left, 1), [back], "{mode} {at}");
        }
        let counted = left.statistics().unwrap();
        assert_eq!((counted.received, counted.queued), (3000, 3000));
        assert_eq!((counted.inconsistent, counted.losses), Default::default());
    }
}

pub(crate) fn a_burst_comes_whole() {
    needs_root!("ip");
    for mode in MODES {
        let pair = pair("xdp burst");
        let mut left = open(&pair.left, "v0", mode);
        let mut right = open(&pair.right, "v1", mode);
        for round in 0..20u8 {
            for mark in 0..200u8 {
                let frame = [&[0xff; 12][..], &EXPERIMENT, &[round, mark]].concat();
                assert!(left.transmit(&frame));
            }
            assert!(left.flush().unwrap(), "{mode}: all go in one flush");
            let marks: Vec<[u8; 2]> =
                frames(&mut right, 200).iter().map(|frame| [frame[14], frame[15]]).collect();
            let sent: Vec<[u8; 2]> = (0..200).map(|mark| [round, mark]).collect();
            assert_eq!(marks, sent, "{mode}");
        }
    }
}

pub(crate) fn frames_return_from_their_place() {
    needs_root!("ip");
    for mode in MODES {
        let pair = pair("xdp return");
        let mut left = open(&pair.left, "v0", mode);
        let mut right = open(&pair.right, "v1", mode);
        for at in 0..3000u32 {
            let frame = [&[0xff; 12][..], &EXPERIMENT, &at.to_be_bytes()].concat();
            assert!(left.transmit(&frame));
            left.flush().unwrap();
            let begun = Instant::now();
            let answer = |frame: &mut [u8]| {
                frame[17] ^= 0xff;
                Fate::Return(18)
            };
            while right.receive(1, answer) == 0 {
                assert!(begun.elapsed() < Duration::from_secs(20), "{mode} {at}");
            }
            right.flush().unwrap();
            let expected = [&frame[..17], &[!frame[17]]].concat();
            assert_eq!(frames(&mut left, 1), [expected], "{mode} {at}");
        }
        assert_eq!(right.statistics().unwrap().not_returned, 0);
    }
}

/// A frame for this hardware address, of this EtherType, with zeroes and an IPv4 address at a
/// place.
fn frame(to: [u8; 6], ether_type: u16, host_at: usize, host: Ipv4Addr) -> Vec<u8> {
    let mut frame = [&to[..], &[2; 6], &ether_type.to_be_bytes(), &[0; 50]].concat();
    frame[host_at..host_at + 4].copy_from_slice(&host.octets());
    frame
}

pub(crate) fn the_program_takes_what_is_ours() {
    needs_root!("ip");
    let pair = pair("xdp program");
    let (ours, other) = ([2, 0, 0, 0, 0xfe, 9], [2, 0, 0, 0, 0xfe, 8]);
    let near = [3, 0, 0, 0, 0xfe, 9];
    let (host, alien) = (Ipv4Addr::new(10, 9, 0, 2), Ipv4Addr::new(10, 9, 0, 1));
    let second = Ipv4Addr::new(255, 254, 253, 252);
    let (ip, arp, experiment, high) = (0x0800, 0x0806, 0x88b5, 0xfffe);
    let (ip_at, arp_at) = (30, 38);
    let with = |address, ether_types: &[u16], hosts: &[Ipv4Addr]| Share {
        address,
        ether_types: ether_types.to_vec(),
        hosts: hosts.to_vec(),
    };
    let judge = |share: Share, cases: &[(Vec<u8>, bool)]| {
        let options = Options { mode: Mode::Generic, share, ..Options::default() };
        let socket = try_open(&pair.left, "v0", &options).unwrap();
        for (at, (frame, ours)) in cases.iter().enumerate() {
            let taken = socket.would_take(frame).unwrap();
            assert_eq!(taken, *ours, "{:?}, case {at}", options.share);
        }
    };
    judge(Share::default(), &[(frame(other, ip, ip_at, alien), true), (vec![0; 14], true)]);
    judge(
        with(Some(ours), &[], &[]),
        &[
            (frame(ours, ip, ip_at, alien), true),
            (frame(ours, experiment, 20, alien), true),
            (frame(other, ip, ip_at, host), false),
            (frame(near, ip, ip_at, host), false),
            (frame([0xff; 6], arp, arp_at, host), false),
            (ours.iter().chain(&[0; 8]).copied().collect(), true),
        ],
    );
    judge(
        with(None, &[experiment, high], &[]),
        &[
            (frame(other, experiment, 20, alien), true),
            (frame(ours, high, 20, alien), true),
            (frame(ours, ip, ip_at, host), false),
            (frame(ours, 0xb588, 20, host), false),
        ],
    );
    let by_host = [
        (frame(ours, ip, ip_at, host), true),
        (frame(ours, ip, ip_at, second), true),
        (frame(ours, arp, arp_at, host), true),
        (frame(ours, arp, arp_at, second), true),
        (frame(ours, ip, ip_at, alien), false),
        (frame(ours, ip, arp_at, host), false),
        (frame(ours, arp, arp_at, alien), false),
        (frame(ours, arp, ip_at, host), false),
        (frame(ours, experiment, ip_at, host), false),
        // One octet less than the address needs.
        (frame(ours, ip, ip_at, host)[..33].to_vec(), false),
        (frame(ours, ip, ip_at, host)[..34].to_vec(), true),
        (frame(ours, arp, arp_at, host)[..41].to_vec(), false),
        (frame(ours, arp, arp_at, host)[..42].to_vec(), true),
    ];
    judge(with(None, &[], &[host, second]), &by_host);
    judge(with(Some(ours), &[], &[host, second]), &by_host);
    judge(
        with(Some(ours), &[experiment], &[host]),
        &[
            (frame(ours, experiment, 20, alien), true),
            (frame(ours, ip, ip_at, host), true),
            (frame(ours, ip, ip_at, alien), false),
            (frame(other, experiment, 20, host), false),
            (frame(other, ip, ip_at, host), false),
        ],
    );
    let most: Vec<u16> = (0..16).map(|n| 0x9000 + n).collect();
    let hosts: Vec<Ipv4Addr> = (0..16).map(|n| Ipv4Addr::new(10, 9, 0, n)).collect();
    judge(
        with(Some(ours), &most, &hosts),
        &[
            (frame(ours, 0x900f, 20, alien), true),
            (frame(ours, 0x9010, 20, alien), false),
            (frame(ours, ip, ip_at, hosts[15]), true),
            (frame(ours, arp, arp_at, hosts[0]), true),
            (frame(ours, arp, arp_at, Ipv4Addr::new(10, 9, 0, 16)), false),
        ],
    );
}

pub(crate) fn frames_of_others_reach_linux() {
    needs_root!("ip");
    for mode in MODES {
        let pair = pair("xdp others");
        pair.left.address("v0", "10.94.0.1/24").unwrap();
        pair.right.address("v1", "10.94.0.2/24").unwrap();
        let options = Options {
            mode,
            share: Share { ether_types: vec![0x88b5], ..Share::default() },
            ..Options::default()
        };
        let mut ours = try_open(&pair.right, "v1", &options).unwrap();
        let bind = |address: &str| UdpSocket::bind(address).unwrap();
        let there = pair.right.enter(|| bind("10.94.0.2:7000")).unwrap();
        let here = pair.left.enter(|| bind("10.94.0.1:7000")).unwrap();
        there.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        here.send_to(b"for Linux", "10.94.0.2:7000").unwrap();
        let mut octets = [0; 64];
        assert_eq!(there.recv(&mut octets).unwrap(), 9);
        assert!(frames(&mut ours, 1).is_empty(), "{mode}");
    }
}

pub(crate) fn binds_again_at_once() {
    needs_root!("ip");
    let pair = pair("xdp again");
    for at in 0..20 {
        for mode in MODES {
            let mut left = open(&pair.left, "v0", mode);
            let mut right = open(&pair.right, "v1", mode);
            assert!(left.transmit(&[at; 60]));
            left.flush().unwrap();
            assert_eq!(frames(&mut right, 1), [vec![at; 60]], "{mode}");
        }
    }
}

pub(crate) fn impossible_frames_are_refused() {
    needs_root!("ip");
    let pair = pair("xdp refuse");
    let mut left = open(&pair.left, "v0", Mode::Generic);
    assert!(!left.transmit(&[0; 13]) && !left.transmit(&[0; 1793]));
    assert!(left.transmit(&[0; 14]) && left.flush().unwrap());
    // Until the ring is full.
    let queued = (0..5000).take_while(|_| left.transmit(&[0; 60])).count();
    assert!((1023..=1024).contains(&queued), "{queued}");
    assert!(left.flush().unwrap() && left.transmit(&[0; 60]));
}

pub(crate) fn errors_tell_the_case() {
    needs_root!("ip");
    let pair = pair("xdp errors");
    let told = |name: &str, options: &Options| match try_open(&pair.left, name, options) {
        Ok(_) => panic!("{name} {options:?}: opened"),
        Err(error) => (error.to_string(), error),
    };
    let (text, error) = told("none", &Options::default());
    assert!(matches!(error, XdpError::Interface(InterfaceError::Missing { .. })), "{text}");
    assert!(text.contains("v0"), "{text}");
    let queue = Options { queue: 9, mode: Mode::Generic, ..Options::default() };
    let (text, error) = told("v0", &queue);
    assert!(matches!(error, XdpError::NoQueue { queue: 9, .. }), "{text}");
    let zero_copy = Options { mode: Mode::ZeroCopy, ..Options::default() };
    let (text, error) = told("v0", &zero_copy);
    assert!(matches!(error, XdpError::Mode { .. }), "{text}");
    assert!(text.contains("(veth)") && text.contains("mode=auto"), "{text}");
    for frames in [0, 1 << 15] {
        let sizes = Options { frames, ..Options::default() };
        let (text, error) = told("v0", &sizes);
        assert!(matches!(error, XdpError::Setting { .. }), "{text}");
    }
    let held = open(&pair.left, "v0", Mode::Generic);
    let (text, error) = told("v0", &Options::default());
    assert!(matches!(error, XdpError::Busy { .. }), "{text}");
    assert!(text.contains("ip link set v0 xdp off"), "{text}");
    drop(held);
    pair.left.mtu("v0", 1775).unwrap();
    let (text, error) = told("v0", &Options::default());
    assert!(matches!(error, XdpError::Mtu { mtu_max: 1774, .. }), "{text}");
    pair.left.mtu("v0", 1500).unwrap();
    pair.right.mtu("v1", 9000).unwrap();
    let native = Options { mode: Mode::Native, ..Options::default() };
    let (text, _) = told("v0", &native);
    assert!(text.contains("MTU"), "{text}");
    assert_eq!(open(&pair.left, "v0", Mode::Auto).mode(), Some(Mode::Generic));
    pair.left.ip(&["link", "set", "v0", "down"]).unwrap();
    let (text, error) = told("v0", &Options::default());
    assert!(matches!(error, XdpError::Down { .. }), "{text}");
}
