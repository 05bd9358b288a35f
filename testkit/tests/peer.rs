//! The test surroundings themselves, on a real system.

use std::net::UdpSocket;
use std::process::ExitCode;
use std::time::Duration;

use xk_testkit::netns::{Net, NetError};
use xk_testkit::pty_unsafe::Line;
use xk_testkit::uml::Machine;
use xk_testkit::{needs_program, needs_root, needs_uml, peer};

fn main() -> ExitCode {
    peer::main(&[
        ("spaces_reach_each_other", spaces_reach_each_other),
        ("a_net_leaves_nothing_behind", a_net_leaves_nothing_behind),
        ("stale_names_are_removed", stale_names_are_removed),
        ("programs_run_and_stop", programs_run_and_stop),
        ("a_failing_program_tells_what_it_said", a_failing_program_tells_what_it_said),
        ("offloads_can_be_switched_off", offloads_can_be_switched_off),
        ("a_guest_comes_and_goes", a_guest_comes_and_goes),
        ("a_guest_that_hangs_ends", a_guest_that_hangs_ends),
        ("tshark_reads_appletalk", tshark_reads_appletalk),
    ])
}

fn names() -> String {
    String::from_utf8(
        std::process::Command::new("ip").args(["netns", "list"]).output().unwrap().stdout,
    )
    .unwrap()
}

fn spaces_reach_each_other() {
    needs_root!("ip", "ping");
    let net = Net::new("reach").unwrap();
    let [left, middle, right] = [(); 3].map(|()| net.space().unwrap());
    net.veth(&left, "v0", &middle, "m0").unwrap();
    net.veth(&middle, "m1", &right, "v0").unwrap();
    left.address("v0", "10.91.0.1/24").unwrap();
    middle.address("m0", "10.91.0.2/24").unwrap();
    middle.address("m1", "10.91.1.2/24").unwrap();
    right.address("v0", "10.91.1.1/24").unwrap();
    right.mtu("v0", 1400).unwrap();
    middle.sysctl("net/ipv4/ip_forward", "1").unwrap();
    left.route("default", "10.91.0.2").unwrap();
    right.route("10.91.0.0/24", "10.91.1.2").unwrap();
    let said = left.exec(&["ping", "-c", "1", "-W", "2", "10.91.1.1"]).unwrap();
    assert!(said.contains(" 0% packet loss"), "{said}");

    let from = right.enter(|| UdpSocket::bind("10.91.1.1:7000").unwrap()).unwrap();
    let to = left.enter(|| UdpSocket::bind("10.91.0.1:7001").unwrap()).unwrap();
    from.send_to(b"a socket stays where it was opened", "10.91.0.1:7001").unwrap();
    to.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut octets = [0; 64];
    assert_eq!(to.recv(&mut octets).unwrap(), 34);
}

fn a_net_leaves_nothing_behind() {
    needs_root!("ip", "sleep");
    let net = Net::new("leaves").unwrap();
    let space = net.space().unwrap();
    let running = space.spawn(&["sleep", "600"]).unwrap();
    let id = running.id();
    // Its parent ends at once.
    let orphan = space.exec(&["sh", "-c", "sleep 600 >&- 2>&- & echo $!"]).unwrap();
    assert!(names().contains(space.name()));
    drop(net);
    assert!(!runs(orphan.trim()));
    assert!(!names().contains(space.name()));
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

/// Whether a process runs, and has not just ended and waits for its parent.
fn runs(id: &str) -> bool {
    let begun = std::time::Instant::now();
    loop {
        let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        if state.is_empty() || state.contains(") Z ") {
            return false;
        }
        // A killed process takes a moment to end.
        if begun.elapsed() > Duration::from_secs(5) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stale_names_are_removed() {
    needs_root!("ip");
    // No process has this number: it is above the largest that Linux gives.
    let pids =
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata("/proc/self/ns/pid").unwrap());
    let stale = format!("xkt-{}-0-{pids}-0", u32::MAX);
    // Its process may live where others number them.
    let others = format!("xkt-{}-0-{}-0", u32::MAX, pids - 1);
    let ip = |act, name: &str| {
        let mut ip = std::process::Command::new("ip");
        assert!(ip.args(["netns", act, name]).status().unwrap().success());
    };
    ip("add", &stale);
    ip("add", &others);
    assert!(names().contains(&stale));
    let _net = Net::new("stale").unwrap();
    assert!(!names().contains(&stale) && names().contains(&others));
    ip("del", &others);
}

fn programs_run_and_stop() {
    needs_root!("ip", "cat", "sh");
    let net = Net::new("programs").unwrap();
    let space = net.space().unwrap();
    let cat = space.spawn(&["cat"]).unwrap();
    cat.write(b"hello\n").unwrap();
    cat.wait_for("hello", Duration::from_secs(5)).unwrap();
    cat.close_input();
    assert!(cat.wait(Duration::from_secs(5)).unwrap().success());
    let sleeps = space.spawn(&["sh", "-c", "echo begun; exec sleep 600"]).unwrap();
    sleeps.wait_for("begun", Duration::from_secs(5)).unwrap();
    assert!(matches!(sleeps.wait(Duration::from_millis(20)), Err(NetError::Late { .. })));
    assert_eq!(sleeps.stop(), "begun\n");
}

fn a_failing_program_tells_what_it_said() {
    needs_root!("ip", "sh");
    let net = Net::new("fails").unwrap();
    let space = net.space().unwrap();
    let error = space.exec(&["sh", "-c", "echo out; echo err >&2; exit 3"]).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("out\nerr") && told.contains("fails: ") && told.contains('3'), "{told}");
    assert!(space.address("none", "10.0.0.1/8").is_err());
}

fn offloads_can_be_switched_off() {
    needs_root!("ip");
    let net = Net::new("offload").unwrap();
    let (left, right) = (net.space().unwrap(), net.space().unwrap());
    net.veth(&left, "v0", &right, "v1").unwrap();
    left.offload_off("v0").unwrap();
    assert!(left.offload_off("none").is_err());
    assert!(left.offload_off("a-name-that-is-too-long").is_err());
}

/// The processes that hold this word in their command lines.
fn processes_with(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline"));
    let lines = entries.filter_map(|entry| line(entry).ok());
    lines.filter(|line| line.split(|octet| *octet == 0).any(|it| it == word.as_bytes())).count()
}

fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("xk-testkit-{}-{name}", std::process::id()))
}

fn a_guest_comes_and_goes() {
    needs_root!("ip", "ping");
    needs_uml!();
    const GUEST_TIME_MAX: Duration = Duration::from_secs(30);
    let net = Net::new("guest").unwrap();
    let space = net.space().unwrap();
    let folder = scratch("guest");
    let line = Line::open().unwrap();
    let guest = Machine::new("guest", &folder)
        .tap("t0")
        .serial(line.name())
        .modules(&["net/llc/llc", "net/802/psnap"])
        .script("ip addr add 10.93.0.2/24 dev vec0; ip link set vec0 up")
        .start(&space)
        .unwrap();
    let word = format!("uml_dir={}/", folder.display());
    assert!(processes_with(&word) > 0 && guest.is_running());
    space.address("t0", "10.93.0.1/24").unwrap();
    let said = space.exec(&["ping", "-c", "1", "-W", "20", "10.93.0.2"]).unwrap();
    assert!(said.contains(" 0% packet loss"), "{said}");
    // Its commands' outputs and statuses.
    let (status, said) =
        guest.run("cat /proc/sys/kernel/ostype; (exit 7)", GUEST_TIME_MAX).unwrap();
    assert_eq!((status, said.trim()), (7, "Linux"));
    let said = guest.exec("cut -d' ' -f1 /proc/modules", GUEST_TIME_MAX).unwrap();
    assert!(said.contains("psnap"), "{said} {}", guest.output());
    let late = guest.run("sleep 1; echo done", Duration::from_millis(1));
    assert!(matches!(late, Err(NetError::Late { .. })), "{late:?}");
    assert_eq!(
        guest.exec("echo next", GUEST_TIME_MAX).unwrap().trim(),
        "done\n\numl: 3 status 0.\nnext"
    );
    // Its serial line.
    guest
        .exec("stty raw -echo < /dev/ttyS0; echo through the line > /dev/ttyS0", GUEST_TIME_MAX)
        .unwrap();
    let mut text = [0; 17];
    std::io::Read::read_exact(&mut line.near(), &mut text).unwrap();
    assert_eq!(text, *b"through the line\n");
    drop(guest);
    assert_eq!(processes_with(&word), 0);
    assert!(space.ip(&["link", "show", "t0"]).is_err(), "its device is gone");
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "its script alone: {left:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

fn a_guest_that_hangs_ends() {
    needs_root!("ip");
    needs_uml!();
    let net = Net::new("hangs").unwrap();
    let space = net.space().unwrap();
    let folder = scratch("hangs");
    let machine = || Machine::new("hangs", &folder).lives(Duration::from_secs(4));
    let guest = machine().start(&space).unwrap();
    let late = guest.run("sleep 600", Duration::from_secs(60));
    assert!(late.is_err() && !guest.is_running(), "{late:?}");
    drop(guest);
    // And one that is dropped when it takes no commands.
    let guest = machine().lives(Duration::from_secs(600)).start(&space).unwrap();
    let late = guest.run("sleep 600", Duration::from_millis(1));
    assert!(late.is_err(), "{late:?}");
    drop(guest);
    assert_eq!(processes_with(&format!("uml_dir={}/", folder.display())), 0);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Frames of a router and two nodes of AppleTalk on both links (AARP, DDP, AEP, NBP, RTMP, ZIP), as
/// `tshark` judges them.
fn tshark_reads_appletalk() {
    needs_program!("tshark");
    let graphs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs");
    let mut source = std::fs::read_to_string(graphs.join("apple-router.kdl")).unwrap();
    let files = ["left", "right"].map(|link| {
        std::env::temp_dir().join(format!("xk-apple-{}-{link}.pcapng", std::process::id()))
    });
    for (at, file) in files.iter().enumerate() {
        let (wire, cap) = (format!("eth sim{}", at + 1), format!("cap{}", at + 1));
        let path = file.display();
        let line = format!("pcap sim{} name={cap} file=\"{path}\"\n    eth {cap}", at + 1);
        source = source.replace(&wire, &line);
    }
    let graph = xk_compose::check(&source, "apple-router.kdl", &xk_catalog::standard());
    let graph = graph.unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let config = xk_compose::SimulationConfig::default();
    let mut world = xk_compose::simulate(&graph, config).unwrap_or_else(|e| panic!("{e}"));
    xk_compose::start_world(&graph, &mut world).unwrap_or_else(|e| panic!("{e}"));
    world.run_until(xk_core::Time::from_s(30));
    world.stop();
    for file in files {
        let report = xk_testkit::tshark::check(&file, &[]);
        let protocols = xk_testkit::tshark::reader(&file)
            .args(["-T", "fields", "-e", "frame.protocols"])
            .output()
            .expect("tshark reads");
        let _gone = std::fs::remove_file(&file);
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        assert!(report.is_clean() && report.frames > 50, "{report:?}");
        let protocols = String::from_utf8_lossy(&protocols.stdout).into_owned();
        for protocol in [":aarp", ":ddp:data", ":ddp:nbp", ":ddp:rtmp", ":ddp:zip"] {
            assert!(protocols.contains(protocol), "no {protocol} in {protocols}");
        }
    }
}
