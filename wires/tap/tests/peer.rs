//! The device against the host's own stack, in a namespace of its own.

use std::io::IoSlice;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use xk_core::Participants;
use xk_core::graph::{BuildError, Look, Params, Value};
use xk_tap::{Options, TapDevice, TapError, Transmitted};
use xk_testkit::kernel::{TestKernel, Top};
use xk_testkit::netns::{Net, Space};
use xk_testkit::{needs_root, peer};

fn main() -> ExitCode {
    peer::main(&[
        ("a_device_is_made_and_set_up", a_device_is_made_and_set_up),
        ("routes_are_set_and_go_with_the_device", routes_are_set_and_go_with_the_device),
        ("frames_cross_both_ways", frames_cross_both_ways),
        ("long_frames_are_counted", long_frames_are_counted),
        ("bad_frames_are_refused", bad_frames_are_refused),
        ("a_device_goes_or_stays", a_device_goes_or_stays),
        ("errors_tell_the_case", errors_tell_the_case),
        ("a_descriptor_of_another_namespace_will_do", a_descriptor_of_another_namespace_will_do),
        ("a_socket_of_frames_will_do", a_socket_of_frames_will_do),
        ("a_graph_takes_a_descriptor", a_graph_takes_a_descriptor),
        ("a_descriptor_of_another_kind_is_told", a_descriptor_of_another_kind_is_told),
        ("without_privilege_the_remedy_is_named", without_privilege_the_remedy_is_named),
    ])
}

/// Opens a device inside a space.
fn open(space: &Space, name: &str, options: &Options) -> Result<TapDevice, TapError> {
    space.enter(|| TapDevice::open(name, options)).unwrap()
}

fn with_address() -> Options {
    Options { host_address: Some(([10, 92, 0, 1].into(), 24)), ..Options::create() }
}

/// The next frame of this EtherType; patient, for busy machines.
fn next(tap: &mut TapDevice, ethertype: u16) -> Vec<u8> {
    let begun = Instant::now();
    let mut frame = vec![0; tap.frame_octets_max()];
    while begun.elapsed() < Duration::from_secs(20) {
        match tap.receive(&mut frame).unwrap() {
            Some(octets) if frame[12..14] == ethertype.to_be_bytes() => {
                frame.truncate(octets);
                return frame;
            }
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("no frame of type {ethertype:#06x}");
}

fn routes_are_set_and_go_with_the_device() {
    needs_root!("ip");
    let net = Net::new("tap routes").unwrap();
    let space = net.space().unwrap();
    let via = [10, 92, 0, 2].into();
    let host_routes = vec![([10, 93, 0, 0].into(), 16, via), ([0; 4].into(), 0, via)];
    let options = Options { host_routes, ..with_address() };
    let tap = open(&space, "xk0", &options).unwrap();
    let shown = || space.exec(&["ip", "route"]).unwrap();
    for route in ["10.93.0.0/16 via 10.92.0.2 dev xk0", "default via 10.92.0.2 dev xk0"] {
        assert!(shown().contains(route), "{}", shown());
    }
    drop(tap);
    assert!(!shown().contains("xk0"), "{}", shown());
    let far = Options {
        host_routes: vec![([10, 93, 0, 0].into(), 16, [10, 94, 0, 1].into())],
        ..with_address()
    };
    let error = open(&space, "xk0", &far).unwrap_err().to_string();
    assert!(error.contains("route 10.93.0.0/16 via 10.94.0.1"), "{error}");
}

fn a_device_is_made_and_set_up() {
    needs_root!("ip");
    let net = Net::new("tap set up").unwrap();
    let space = net.space().unwrap();
    let options = Options { mtu: Some(1400), ..with_address() };
    let tap = open(&space, "xk0", &options).unwrap();
    assert_eq!((tap.name(), tap.mtu(), tap.frame_octets_max()), ("xk0", 1400, 1418));
    let (host, own) = (tap.host_hardware_address(), tap.hardware_address());
    assert!(host != own && own[0] & 3 == 2, "{host:?} {own:?}");
    let shown = space.exec(&["ip", "addr", "show", "dev", "xk0"]).unwrap();
    for part in
        ["mtu 1400", "inet 10.92.0.1/24", "UP", &host.map(|octet| format!("{octet:02x}")).join(":")]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let unnamed = open(&space, "", &Options::create()).unwrap();
    assert!(unnamed.name().starts_with("tap"), "{}", unnamed.name());
}

fn frames_cross_both_ways() {
    needs_root!("ip");
    let net = Net::new("tap frames").unwrap();
    let space = net.space().unwrap();
    let mut tap = open(&space, "xk0", &with_address()).unwrap();
    let (own, host) = (tap.hardware_address(), tap.host_hardware_address());
    space.neighbour("xk0", "10.92.0.2", own).unwrap();
    let socket = space.enter(|| UdpSocket::bind("10.92.0.1:7000").unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.send_to(b"down the wire", "10.92.0.2:7001").unwrap();
    let frame = next(&mut tap, 0x0800);
    assert_eq!((&frame[..6], &frame[6..12]), (own.as_slice(), host.as_slice()));
    assert_eq!(&frame[42..], b"down the wire");

    // The answer: addresses and ports exchanged, which leaves every checksum as it was.
    let swap = |at: usize, octets: usize| {
        [&frame[at + octets..at + 2 * octets], &frame[at..at + octets]].concat()
    };
    let parts = [&swap(0, 6)[..], &frame[12..26], &swap(26, 4), &swap(34, 2), &frame[38..]];
    let sent = tap.transmit(&parts.map(IoSlice::new)).unwrap();
    assert_eq!(sent, Transmitted::Sent);
    let mut octets = [0; 64];
    let (count, from) = socket.recv_from(&mut octets).unwrap();
    assert_eq!(
        (&octets[..count], from.to_string().as_str()),
        (b"down the wire".as_slice(), "10.92.0.2:7001")
    );
}

fn long_frames_are_counted() {
    needs_root!("ip");
    let net = Net::new("tap long").unwrap();
    let space = net.space().unwrap();
    let mut tap = open(&space, "xk0", &with_address()).unwrap();
    space.neighbour("xk0", "10.92.0.2", tap.hardware_address()).unwrap();
    let socket = space.enter(|| UdpSocket::bind("10.92.0.1:7000").unwrap()).unwrap();
    while tap.receive(&mut [0; 2048]).unwrap().is_some() {}
    socket.send_to(&[1; 100], "10.92.0.2:9").unwrap();
    socket.send_to(&[2; 10], "10.92.0.2:9").unwrap();
    let mut small = [0; 52];
    assert_eq!(tap.receive(&mut small).unwrap(), Some(52));
    assert_eq!((small[51], tap.oversized()), (2, 1));
    assert_eq!(tap.receive(&mut small).unwrap(), None);
}

fn bad_frames_are_refused() {
    needs_root!("ip");
    let net = Net::new("tap bad").unwrap();
    let space = net.space().unwrap();
    let mut tap = open(&space, "xk0", &Options { up: false, ..with_address() }).unwrap();
    space.ip(&["link", "set", "xk0", "down"]).unwrap();
    let frame = [0; 60];
    assert!(tap.transmit(&[IoSlice::new(&frame)]).is_err(), "the device is down");
    space.up("xk0").unwrap();
    let long = vec![0; tap.frame_octets_max() + 1];
    for bad in [&frame[..13], &long] {
        let error = tap.transmit(&[IoSlice::new(bad)]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(tap.transmit(&[IoSlice::new(&frame)]).unwrap(), Transmitted::Sent);
}

fn a_device_goes_or_stays() {
    needs_root!("ip");
    let net = Net::new("tap persist").unwrap();
    let space = net.space().unwrap();
    let persistent = Options { persist: true, ..Options::create() };
    drop(open(&space, "goes", &Options::create()).unwrap());
    drop(open(&space, "stays", &persistent).unwrap());
    let shown = space.exec(&["ip", "link"]).unwrap();
    assert!(!shown.contains("goes") && shown.contains("stays"), "{shown}");
    let _again = open(&space, "stays", &Options::default()).unwrap();
}

fn errors_tell_the_case() {
    needs_root!("ip");
    let net = Net::new("tap errors").unwrap();
    let space = net.space().unwrap();
    let _held = open(&space, "xk0", &Options::create()).unwrap();
    let refused = |name: &str, options: &Options| open(&space, name, options).unwrap_err();
    assert!(matches!(refused("xk0", &Options::create()), TapError::Busy { .. }));
    assert!(matches!(refused("lo", &Options::create()), TapError::NotTap { .. }));
    assert!(
        matches!(refused("xk1", &Options::default()), TapError::NoDevice { existing, .. } if existing == ["lo", "xk0"])
    );
    let mtu = Options { mtu: Some(67), ..Options::create() };
    assert!(matches!(refused("xk1", &mtu), TapError::Setting { .. }));
    let prefix = Options { host_address: Some(([10, 0, 0, 1].into(), 33)), ..Options::create() };
    assert!(matches!(refused("xk1", &prefix), TapError::Setting { .. }));
}

fn without_privilege_the_remedy_is_named() {
    needs_root!("ip");
    let net = Net::new("tap privilege").unwrap();
    let space = net.space().unwrap();
    space.ip(&["tuntap", "add", "dev", "xk0", "mode", "tap", "user", "0"]).unwrap();
    space.mtu("xk0", 1300).unwrap();
    space.up("xk0").unwrap();
    let (made, opened, changed) = space
        .enter(|| {
            // This thread alone gives its privilege up, as a program without any would find things.
            let none = rustix::thread::CapabilitySets {
                effective: rustix::thread::CapabilitySet::empty(),
                permitted: rustix::thread::CapabilitySet::empty(),
                inheritable: rustix::thread::CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, none).unwrap();
            let made = TapDevice::open("xk1", &Options::create()).map(drop);
            let as_is = Options { mtu: Some(1300), ..Options::create() };
            let opened = TapDevice::open("xk0", &as_is).map(drop);
            let changed = TapDevice::open("xk0", &with_address()).map(drop);
            (made, opened, changed)
        })
        .unwrap();
    let told = made.unwrap_err().to_string();
    assert!(told.contains("sudo ip tuntap add dev xk1 mode tap user $USER"), "{told}");
    opened.unwrap();
    let told = changed.unwrap_err().to_string();
    assert!(told.contains("sudo ip addr add 10.92.0.1/24 dev xk0"), "{told}");
}

/// Leaves a descriptor open for programs that are started, as the one that starts us would.
fn leave_open(fd: &OwnedFd) -> i32 {
    fcntl_setfd(fd, FdFlags::empty()).unwrap();
    fd.as_raw_fd()
}

/// The interface is not to be seen from here, and nothing here needs a privilege.
fn a_descriptor_of_another_namespace_will_do() {
    needs_root!("ip");
    let net = Net::new("tap inherited").unwrap();
    let space = net.space().unwrap();
    for (offload, mtu) in [(false, None), (true, Some(1400))] {
        let theirs = open(&space, "xk0", &Options { offload, ..with_address() }).unwrap();
        let options = Options { offload: true, mtu, ..Options::default() };
        let mut tap = TapDevice::inherited(leave_open(theirs.fd()), &options).unwrap();
        let (mtu, own) = (mtu.unwrap_or(1500), tap.hardware_address());
        assert_eq!((tap.name(), tap.mtu(), own), ("xk0", mtu, theirs.hardware_address()));
        assert_eq!(tap.takes_open_checksums(), offload);
        for fd in [theirs.fd(), tap.fd()] {
            assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
        }
        // The device is there as long as one of the two is open, and so is the descriptor.
        drop(theirs);
        space.neighbour("xk0", "10.92.0.2", own).unwrap();
        let socket = space.enter(|| UdpSocket::bind("10.92.0.1:7000").unwrap()).unwrap();
        socket.send_to(b"down the wire", "10.92.0.2:7001").unwrap();
        assert_eq!(&next(&mut tap, 0x0800)[42..], b"down the wire");
        assert_eq!(tap.transmit(&[IoSlice::new(&[0; 60])]).unwrap(), Transmitted::Sent);
    }
}

fn a_socket_of_frames_will_do() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let ours = OwnedFd::from(ours);
    let mut tap = TapDevice::inherited(leave_open(&ours), &Options::create()).unwrap();
    let again = TapDevice::inherited(ours.as_raw_fd(), &Options::create()).unwrap();
    assert_eq!((tap.mtu(), tap.takes_open_checksums()), (1500, false));
    assert_eq!(tap.hardware_address(), again.hardware_address());
    let mut frame = [0; 1518];
    assert_eq!(tap.receive(&mut frame).unwrap(), None, "it does not wait");
    theirs.send(&[7; 2000]).unwrap();
    theirs.send(&[8; 60]).unwrap();
    assert_eq!((tap.receive(&mut frame).unwrap(), frame[59], tap.oversized()), (Some(60), 8, 1));
    let parts = [[1; 14].as_slice(), &[2; 46]];
    assert_eq!(tap.transmit(&parts.map(IoSlice::new)).unwrap(), Transmitted::Sent);
    assert_eq!(theirs.recv(&mut frame).unwrap(), 60);
    assert_eq!(frame[13..15], [1, 2]);
    drop(theirs);
    assert!(tap.transmit(&[IoSlice::new(&[0; 60])]).is_err(), "the other end is gone");
}

fn a_graph_takes_a_descriptor() {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let ours = OwnedFd::from(ours);
    let cx = TestKernel::new(1);
    let add = |fd: i32| {
        let params = Params::from([("fd", Value::Integer(fd.into()))]);
        let looked = xk_tap::ENTRY.probe.unwrap()(&params, Look::Machine);
        let added = xk_tap::ENTRY.add(&cx, &format!("tap {fd}"), &[], &params);
        assert_eq!(looked.is_ok(), added.is_ok(), "{looked:?}");
        added
    };
    match add(1_000_000) {
        Err(BuildError::Environment { param: Some("fd"), what, help }) => {
            assert_eq!(what, "descriptor 1000000 is not open");
            assert!(help.starts_with("have the program that starts this one open"), "{help}");
        }
        other => panic!("{:?}", other.map(drop)),
    }
    let tap = add(leave_open(&ours)).unwrap();
    let top = Top::add(&cx, "top");
    let session = top.open(&cx, &tap, Participants::default()).unwrap();
    session.push(&cx, cx.message(&[1; 60])).unwrap();
    let mut frame = [0; 1514];
    assert_eq!(theirs.recv(&mut frame).unwrap(), 60);
    theirs.send(&[2; 61]).unwrap();
    assert_eq!(tap.wire().unwrap().poll(&cx, &tap, 8), 1);
    assert_eq!(top.received(), 1);
}

fn a_descriptor_of_another_kind_is_told() {
    let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let told = |number| TapDevice::inherited(number, &Options::create()).unwrap_err().to_string();
    let text = told(leave_open(&file));
    assert!(text.contains("nor such a socket, but /dev/null; have the program that"), "{text}");
    assert!(fcntl_getfd(&file).unwrap().is_empty(), "it is left as it was");
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(told(stream.as_raw_fd()).contains("but socket:["));
    // The most that Linux has (`NR_OPEN`) is far below.
    let text = told(i32::MAX);
    assert!(text.contains("descriptor 2147483647 is not open; have the"), "{text}");
}
