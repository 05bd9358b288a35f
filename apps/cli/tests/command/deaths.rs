//! Processes of a host in domains, and programs attached to it, that are killed again and again
//! while Linux's programs use them. `XK_LONG=1` for a thousand deaths of each kind.

use crate::{STEP_TIME_MAX, XK};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xk_core::random::Random;
use xk_testkit::needs_root;
use xk_testkit::netns::{Net, Running, Space};

/// Time until a datagram is sent again, or changes are looked at again.
pub(crate) const TRY_EVERY: Duration = Duration::from_millis(100);
const ECHO: ([u8; 4], u16) = ([10, 9, 0, 2], 7);
const DISCARD: ([u8; 4], u16) = ([10, 9, 0, 2], 9);
/// Longest pause between two deaths of a domain, in milliseconds.
pub(crate) const PAUSE_MS: u64 = 40;
/// Memory that a process may have at the end beyond that after the first quarter, in KiB: the
/// growth of tables and pools by load.
pub(crate) const GROWTH_KIB: u64 = 4096;

pub(crate) fn deaths(quick: usize) -> usize {
    if std::env::var_os("XK_LONG").is_some() { 1000 } else { quick }
}

pub(crate) fn kill(process: u32) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
}

/// System resources of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Has {
    descriptors: usize,
    /// Mappings of shared memory.
    shared: usize,
    threads: usize,
    /// Threads in which it meets a neighbour that has been started again.
    meeting: usize,
}

/// `None` if the process has ended.
fn has(process: u32) -> Option<Has> {
    let count = |what: &str| Some(fs::read_dir(format!("/proc/{process}/{what}")).ok()?.count());
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let shared = maps.lines().filter(|line| line.contains("/memfd:")).count();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
    let meeting = tasks.filter_map(name).filter(|name| name.trim() == "meet").count();
    Some(Has { descriptors: count("fd")?, shared, threads: count("task")?, meeting })
}

/// Targets of a process' descriptors.
fn descriptors(process: u32) -> Vec<PathBuf> {
    let all = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    all.filter_map(|one| fs::read_link(one.path()).ok()).collect()
}

/// Resources of these processes once nothing is under way in them.
pub(crate) fn settled(processes: impl IntoIterator<Item = u32>) -> BTreeMap<u32, Has> {
    let (begun, processes): (_, Vec<u32>) = (Instant::now(), processes.into_iter().collect());
    let look = || processes.iter().filter_map(|process| Some((*process, has(*process)?))).collect();
    let (mut before, mut equal): (BTreeMap<u32, Has>, _) = (look(), 0);
    while equal < 3 {
        assert!(begun.elapsed() < STEP_TIME_MAX, "{before:?}");
        std::thread::sleep(TRY_EVERY / 20);
        let now = look();
        let is_quiet = now.values().all(|has| has.meeting == 0);
        equal = if now == before && is_quiet { equal + 1 } else { 0 };
        before = now;
    }
    before
}

/// Memory that a process has touched and that is its own, in KiB.
pub(crate) fn memory_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

/// A host that runs in a namespace.
pub(crate) struct Host {
    pub(crate) space: Space,
    control: String,
    pub(crate) running: Running,
    _net: Net,
}

impl Host {
    pub(crate) fn start(name: &str, file: &str) -> Self {
        let net = Net::new(name).unwrap();
        let space = net.space().unwrap();
        let control = std::env::temp_dir().join(format!("{}.sock", space.name()));
        let control = control.display().to_string();
        let line = [XK, "run", "--restarts", "1000000", "--control", &control, file];
        let running = space.spawn(&line).unwrap();
        running.wait_for("Ctrl-C ends it.", STEP_TIME_MAX).unwrap();
        Self { space, control, running, _net: net }
    }

    /// Output of `xk dump`.
    pub(crate) fn dump(&self) -> Value {
        let begun = Instant::now();
        loop {
            let said = self.space.exec(&[XK, "dump", "--json", "--control", &self.control]);
            if let Ok(said) = &said {
                return serde_json::from_str(said).unwrap();
            }
            // One has ended meanwhile, and is started again.
            assert!(begun.elapsed() < STEP_TIME_MAX, "{said:?}\n{}", self.running.output());
            std::thread::sleep(TRY_EVERY);
        }
    }

    /// The processes of the domains, by the names of these.
    pub(crate) fn processes(&self) -> BTreeMap<String, u32> {
        let dump = self.dump();
        let domains = dump["domains"].as_array().unwrap();
        let process = |domain: &Value| domain["about"]["pid"].as_u64().unwrap() as u32;
        let name = |domain: &Value| domain["name"].as_str().unwrap().to_owned();
        domains.iter().map(|domain| (name(domain), process(domain))).collect()
    }

    /// Waits until each process has what it had.
    pub(crate) fn has_again(&self, before: &BTreeMap<u32, Has>) {
        let begun = Instant::now();
        for (process, had) in before {
            while let Some(now) = has(*process)
                && now != *had
            {
                let all = || descriptors(*process);
                let late = || format!("process {process} had {had:?}, has {now:?}: {:?}", all());
                assert!(begun.elapsed() < STEP_TIME_MAX, "{}\n{}", late(), self.running.output());
                std::thread::sleep(TRY_EVERY / 10);
            }
        }
    }
}

/// Has a datagram come back, sent again until it does. Answers how often it was sent.
fn echoes(socket: &UdpSocket, number: u64) -> u64 {
    let (begun, mut back) = (Instant::now(), [0; 8]);
    for tries in 1.. {
        // What is refused while a process is started again is an error here.
        let _ = socket.send_to(&number.to_be_bytes(), SocketAddr::from(ECHO));
        while let Ok((8, _)) = socket.recv_from(&mut back) {
            if back == number.to_be_bytes() {
                return tries;
            }
        }
        assert!(begun.elapsed() < STEP_TIME_MAX, "no echo");
    }
    unreachable!()
}

/// Sends to the discard port until `is_over`, over one connection after the other: each goes on or
/// ends by an error that tells of it. Answers how many there were.
fn streams(is_over: &AtomicBool, sent: &AtomicU64) -> u64 {
    let mut connections = 0;
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect_timeout(&DISCARD.into(), STEP_TIME_MAX) else {
            std::thread::sleep(TRY_EVERY / 10);
            continue;
        };
        connections += 1;
        stream.set_write_timeout(Some(STEP_TIME_MAX)).unwrap();
        while !is_over.load(Ordering::Relaxed) {
            match stream.write(&[7; 1400]) {
                Ok(octets) => {
                    sent.fetch_add(octets as u64, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(error) => {
                    use ErrorKind::{BrokenPipe, ConnectionReset, HostUnreachable};
                    let kind = error.kind();
                    let told = [ConnectionReset, BrokenPipe, HostUnreachable].contains(&kind);
                    assert!(told, "a connection hangs: {error}");
                    break;
                }
            }
        }
    }
    connections
}

/// Kills processes of a host by a seed. Those below what has died stay, and have nothing more than
/// before once all is back.
fn dies(name: &str, seed: u64, deaths: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs");
    let host = Host::start(name, &folder.join(name).display().to_string());
    let random = Random::new(seed);
    let (is_over, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (space, is_over, sent) = (&host.space, &is_over, &sent);
        let load = scope.spawn(|| space.enter(|| streams(is_over, sent)).unwrap());
        let socket = space.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap()).unwrap();
        socket.set_read_timeout(Some(TRY_EVERY)).unwrap();
        echoes(&socket, 0);
        let run = host.running.id();
        let (mut processes, mut tries, mut first_kib) = (host.processes(), 0, 0);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for death in 1..=deaths {
                let before = settled(processes.values().copied().chain([run]));
                std::thread::sleep(Duration::from_millis(u64::from(random.next_u32()) % PAUSE_MS));
                let at = random.next_u32() as usize % processes.len();
                let (domain, victim) = processes.iter().nth(at).unwrap();
                kill(*victim);
                let (domain, victim, begun) = (domain.clone(), *victim, Instant::now());
                let now = loop {
                    let now = host.processes();
                    if now.len() == processes.len() && now.get(&domain) != Some(&victim) {
                        break now;
                    }
                    assert!(begun.elapsed() < STEP_TIME_MAX, "{domain} is not started again");
                };
                tries += echoes(&socket, death as u64);
                let octets = sent.load(Ordering::Relaxed);
                while sent.load(Ordering::Relaxed) == octets {
                    assert!(
                        begun.elapsed() < STEP_TIME_MAX,
                        "{domain} was killed: no stream goes on"
                    );
                    std::thread::sleep(TRY_EVERY / 20);
                }
                processes = now;
                host.has_again(&before);
                if death == deaths.div_ceil(4) {
                    first_kib = memory_kib(run);
                }
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        let connections = load.join().unwrap();
        println!("{name}, seed {seed}: {deaths} deaths, {connections} connections, {tries} tries");
        ended.unwrap_or_else(|panic| {
            println!("{}", host.running.output());
            std::panic::resume_unwind(panic)
        });
        let grown = memory_kib(run).saturating_sub(first_kib);
        assert!(grown < GROWTH_KIB, "xk run has grown by {grown} KiB");
    });
}

#[test]
fn a_server_and_its_applications_may_die_at_any_time() {
    needs_root!("ip");
    dies("org-server.kdl", 4711, deaths(5));
}

#[test]
fn each_protocol_may_die_at_any_time() {
    needs_root!("ip");
    dies("org-per-protocol.kdl", 4712, deaths(8));
}

/// Environment variable with the path of the domain; set by the test that starts the program.
const DOOR: &str = "XK_DEATHS_DOOR";
/// The ports of the programs.
const PORTS: std::ops::Range<u16> = 5000..5040;

/// The program that is killed: listens, sends and takes until its end.
#[test]
#[ignore = "a program that the tests start"]
fn program() {
    let Some(door) = std::env::var_os(DOOR) else {
        return;
    };
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let stack = xk_net::Setup::attached(door, xk_catalog::PROTOCOLS).here().unwrap();
    let sockets: Vec<_> = PORTS
        .map(|port| {
            let socket = xk_net::UdpSocket::bind(&stack, ("10.0.0.1", port)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            socket
        })
        .collect();
    let _listener = xk_net::TcpListener::bind(&stack, ("10.0.0.1", PORTS.start)).unwrap();
    let mut streams = Vec::new();
    loop {
        for socket in &sockets {
            let _ = socket.send_to(&[7; 700], "10.0.0.1:7");
            let _ = socket.recv_from(&mut [0; 1000]);
        }
        if let Ok(stream) = xk_net::TcpStream::connect(&stack, "10.0.0.1:9") {
            let _ = (&stream).write(&[7; 5000]);
            streams.push(stream);
        }
    }
}

#[test]
fn nothing_is_left_of_programs_that_die_attached() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    // The servers' own, where no other user may write: else a program does not believe that
    // what listens there is theirs.
    let _ = std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_534));
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let (door, file) = (folder.path().join("door.sock"), folder.path().join("lab.kdl"));
    let text = format!(
        r#"host lab {{
            loopback
            domain net {{
                ip loopback {{ address "10.0.0.1/24"; }}
                icmp ip
                udp ip sessions_max=256
                tcp ip sessions_max=256 time_wait="10min"
            }}
            domain apps {{ echo udp port=7; discard tcp port=9; }}
            domain users open path={door:?} {{
                grant udp port="5000..5999"
                grant tcp
            }}
        }}"#
    );
    fs::write(&file, text).unwrap();
    let host = Host::start("attached deaths", &file.display().to_string());
    let before = settled(host.processes().into_values().chain([host.running.id()]));
    let random = Random::new(4713);
    let deaths = deaths(6);
    let (mut first, attach) =
        (Vec::new(), || xk_net::Setup::attached(&door, xk_catalog::PROTOCOLS).here());
    let memory = || before.keys().map(|process| memory_kib(*process)).collect::<Vec<u64>>();
    for death in 1..=deaths {
        let mut program = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "deaths::program", "--ignored", "--test-threads=1"])
            .env(DOOR, &door)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(u64::from(random.next_u32()) % (6 * PAUSE_MS)));
        kill(program.id());
        program.wait().unwrap();
        host.has_again(&before);
        // Its ports are free, and others are served.
        let stack = attach().unwrap();
        let port = PORTS.start + death as u16 % PORTS.len() as u16;
        let socket = xk_net::UdpSocket::bind(&stack, ("10.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        let _ = socket.send_to(b"here", "10.0.0.1:7").unwrap();
        // What was sent to the one that has died may come first.
        let mut back = [0; 1000];
        while socket.recv_from(&mut back).unwrap().0 != 4 {}
        // A stream that it has ended waits there for late segments, and for nothing of it.
        let stream = xk_net::TcpStream::connect(&stack, "10.0.0.1:9").unwrap();
        (&stream).write_all(&[7; 5000]).unwrap();
        drop((stream, socket, stack));
        host.has_again(&before);
        if death == deaths.div_ceil(4) {
            first = memory();
        }
    }
    println!("{deaths} deaths: {first:?} KiB after a quarter, {:?} at the end", memory());
    for (before, after) in first.iter().zip(memory()) {
        assert!(after < before + GROWTH_KIB, "a process has grown from {before} to {after} KiB");
    }
}
