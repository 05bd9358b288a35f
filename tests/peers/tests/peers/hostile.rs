//! The command `xk` under attack: frames that no host should send, and the programs that scan and
//! provoke hosts. It must not fall over, its memory must not grow, and it must go on answering
//! pings.
//!
//! No capture is judged here: what is sent is meant to be wrong.
//!
//! `XK_LONG=1` has strangers begin ten million conversations under 131,072 forged addresses; a
//! flood of SYNs and noise have variables of their own.
//!
//! `XK_SYN_FRAMES` and `XK_SYN_RATE` do the same for the flood of SYNs: 1000000 at a rate of
//! 10000000. `XK_NOISE_FRAMES` and `XK_NOISE_RATE` make the noise longer and faster: 10000000
//! frames at a rate of 10000000 a second are as many as the machine can.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire, end};
use xk_testkit::everything;
use xk_testkit::netns::Running;
use xk_testkit::{needs, needs_root};

use crate::granted::memory;
use crate::host::assert_no_loss;
use crate::program::command;

/// Our station's address.
const STATION: &str = "02:00:00:00:00:77";
/// KiB by which the memory in use may grow once the tables have been filled. What is read from the
/// system is exact to a page, but the allocator may keep some.
const GROWTH_KIB_MAX: u64 = 8 * 1024;
/// Number of pings of a hundred that must be answered while noise comes at a rate that a busy
/// machine of two cores bears. All senders share the ring or queue of the wire, so its losses hit
/// all of them.
const ANSWERED_PERCENT_MIN: u64 = 50;

fn number_of(variable: &str, otherwise: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The command in a graph of one host, on our end of a link.
struct Victim {
    lan: Lan,
    running: Running,
    control: PathBuf,
    xk: String,
    /// Linux's device that attacks come from.
    attackers: &'static str,
}

impl Victim {
    /// `None`, and the test is skipped, if there is no command.
    fn start(test: &str, wire: Wire) -> Option<Self> {
        let layers = "udp ip sessions_max=4096\necho udp port=7\ndiscard udp port=9\n\
                      tcp ip\necho tcp name=stream port=7";
        Self::start_with(test, wire, layers)
    }

    /// As above, with other layers above IP and ICMP.
    fn start_with(test: &str, wire: Wire, layers: &str) -> Option<Self> {
        Self::start_cut(test, wire, layers, [""; 3])
    }

    /// As above, with lines in front of the wire, behind ARP, and behind ICMP.
    fn start_cut(test: &str, wire: Wire, layers: &str, cut: [&str; 3]) -> Option<Self> {
        let xk = command();
        if !xk.is_file() {
            needs::skip("needs the command xk (cargo build -p xk)");
            return None;
        }
        let lan = Lan::new(test, wire);
        let [front, middle, end] = cut;
        let graph = format!(
            "host victim {{\n{front}\n{}\neth wire address=\"{STATION}\"\narp eth\n{middle}\n\
             ip arp {{ address \"{OURS}/8\"; }}\nicmp ip timestamp=#true\n{end}\n{layers}\n}}\n",
            lan.wire_line()
        );
        let xk = xk.to_string_lossy().into_owned();
        let (file, control) = (write(&lan, "victim.kdl", &graph), control_socket(&lan));
        let path = control.to_string_lossy();
        let command = [&xk, "run", "--control", &path, &file];
        let running = lan.ours().spawn(&command).unwrap();
        running.wait_for("try: ping", PROGRAM_TIME_MAX).unwrap();
        let victim = Self { lan, running, control: control.clone(), xk, attackers: DEVICE };
        victim.ping_calmly();
        Some(victim)
    }

    /// Octets of memory in use, in KiB.
    fn resident_kib(&self) -> u64 {
        memory(&self.running)[&self.running.id()]
    }

    /// Without an attack no ping is lost.
    fn ping_calmly(&self) {
        let ping = ["ping", "-c", "5", "-i", "0.1", "-W", "5", OURS];
        assert_no_loss(&self.lan.linux.exec(&ping).unwrap());
    }

    /// Counters of the host.
    fn dump(&self) -> String {
        let path = self.control.to_string_lossy();
        let command = [&self.xk, "dump", "--control", &path];
        self.lan.linux.exec(&command).unwrap()
    }

    /// Ends it in order.
    fn end(self) {
        self.ping_calmly();
        let status = end(&self.running);
        let said = self.running.output();
        assert!(status.success(), "{status}: {said}");
    }
}

fn write(lan: &Lan, name: &str, text: &str) -> String {
    let file = lan.testbed.folder().join(name);
    fs::write(&file, text).unwrap();
    file.to_string_lossy().into_owned()
}

/// A path short enough for a socket, which is removed with the namespace.
fn control_socket(lan: &Lan) -> PathBuf {
    static LAST: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("{}-{number}.sock", lan.ours().name());
    std::env::temp_dir().join(name)
}

/// Sends noise of a kind from Linux's end until all is sent; answers how long that took.
fn send_noise(victim: &Victim, kind: &str, frames: u64, rate: u64, seed: u64) -> Duration {
    let what = format!("sources=\"10.64.0.0/10\" kind={kind} port=7");
    attack(victim, &what, frames, rate, seed)
}

/// As above, for noise with these parameters.
fn attack(victim: &Victim, what: &str, frames: u64, rate: u64, seed: u64) -> Duration {
    let graph = format!(
        "host attacker {{\npacket device={} address=\"02:00:00:00:00:66\"\n\
         noise packet to=\"{OURS}\" ether=\"{STATION}\" {what} rate={rate} count={frames} seed={seed}\n}}\n",
        victim.attackers
    );
    let file = write(&victim.lan, "attacker.kdl", &graph);
    let begun = Instant::now();
    let command = [&victim.xk, "run", "--no-control", &file];
    let attacker = victim.lan.linux.spawn(&command).unwrap();
    let status = attacker.wait(Duration::from_secs(1200)).unwrap();
    let said = attacker.output();
    assert!(status.success(), "{status}: {said}");
    assert!(said.contains(&format!("sent {frames}")), "{said}");
    begun.elapsed()
}

/// Sent and received, from the closing lines of `ping`.
fn pings(said: &str) -> (u64, u64) {
    let line = said.lines().find(|line| line.contains("packets transmitted"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
    (number(0).unwrap_or(0), number(3).unwrap_or(0))
}

pub(crate) fn survives_noise(wire: Wire) {
    needs_root!("ip", "ping");
    let frames = number_of("XK_NOISE_FRAMES", 100_000);
    let rate = number_of("XK_NOISE_RATE", 20_000);
    let Some(victim) = Victim::start("survives_noise", wire) else {
        return;
    };
    let idle = victim.resident_kib();
    // Fills the tables and touches the buffers; from here on nothing may grow.
    send_noise(&victim, "mixed", frames.min(500_000), rate, 1);
    let filled = victim.resident_kib();
    let ping = ["ping", "-i", "0.02", "-w", "3600", "-W", "1", "-q", OURS];
    let pinging = victim.lan.linux.spawn(&ping).unwrap();
    let took = send_noise(&victim, "mixed", frames, rate, 2);
    let interrupt = ["kill", "-INT", &pinging.id().to_string()];
    victim.lan.linux.exec(&interrupt).unwrap();
    pinging.wait(PROGRAM_TIME_MAX).unwrap();
    // What it wrote last may be read later.
    pinging.wait_for("packets transmitted", PROGRAM_TIME_MAX).unwrap();
    let (sent, received) = pings(&pinging.output());
    let after = victim.resident_kib();
    let dump = victim.dump();
    println!(
        "{frames} frames in {:.1} s, pings answered {received} of {sent}, VmRSS {idle} KiB idle, {filled} KiB filled, {after} KiB after",
        took.as_secs_f64()
    );
    if std::env::var_os("XK_NOISE_FRAMES").is_some() {
        println!("{dump}");
    } else {
        let percent = 100 * received / sent.max(1);
        assert!(percent >= ANSWERED_PERCENT_MIN, "{received} of {sent}");
    }
    assert!(received > 0 && dump.contains("dropped from"), "{dump}");
    assert!(after <= filled + GROWTH_KIB_MAX, "{filled} KiB, then {after}");
    victim.end();
}

/// Runs a program of others' for at most `limit`; what it thinks of us is its own affair.
fn provoke(victim: &Victim, command: &[&str], limit: Duration) {
    let running = victim.lan.linux.spawn(command).unwrap();
    let _ended = running.wait(limit);
    drop(running.stop());
}

pub(crate) fn survives_scanners(wire: Wire) {
    needs_root!("ip", "ping", "nmap", "nping", "hping3");
    let Some(victim) = Victim::start("survives_scanners", wire) else {
        return;
    };
    let ping = ["ping", "-i", "0.05", "-w", "3600", "-W", "1", "-q", OURS];
    let pinging = victim.lan.linux.spawn(&ping).unwrap();
    let before = victim.resident_kib();
    let limit = Duration::from_secs(4);
    for scan in [
        &["-sS", "-p-"][..],
        &["-sU", "-p", "1-1000"],
        &["-sO"],
        &["-sX", "-f", "-p", "1-500"],
        &["-sA", "--badsum", "-p", "1-100"],
        &["-O", "--osscan-guess", "-p", "7,9"],
    ] {
        let command = ["nmap", "-n", "-Pn", "-T5", "--max-retries", "0", "--host-timeout", "3s"];
        provoke(&victim, &[&command, scan, &[OURS]].concat(), limit);
    }
    for odd in [
        // All flags, with a source for each.
        &["-F", "-S", "-R", "-P", "-A", "-U", "-X", "-Y", "-p", "++1", "--rand-source"][..],
        // Fragments of sixteen octets; one that is never complete; one in the middle of nowhere.
        &["-2", "-f", "-d", "200", "-p", "7"],
        &["-2", "-x", "-d", "64", "-p", "7"],
        &["-1", "-g", "8184", "-d", "64"],
        &["-2", "-b", "-p", "7", "-d", "32"],
        &["-1", "-C", "5"],
        &["-1", "-C", "13"],
        &["-1", "-G"],
        &["-0", "-H", "254", "-d", "1000"],
    ] {
        let command = ["hping3", "-q", "-n", "-c", "500", "-i", "u500", "-I", DEVICE];
        provoke(&victim, &[&command, odd, &[OURS]].concat(), limit);
    }
    for options in [
        "L 10.9.0.9 10.9.0.8",
        "S 10.9.0.9",
        "R",
        "T",
        "\\x07\\x27\\xff*37",
        "\\x44\\x03\\x00\\x00",
    ] {
        let command =
            ["nping", "--icmp", "-c", "5", "--delay", "10ms", "--ip-options", options, OURS];
        provoke(&victim, &command, limit);
    }
    let interrupt = ["kill", "-INT", &pinging.id().to_string()];
    victim.lan.linux.exec(&interrupt).unwrap();
    pinging.wait(PROGRAM_TIME_MAX).unwrap();
    // What it wrote last may be read later.
    pinging.wait_for("packets transmitted", PROGRAM_TIME_MAX).unwrap();
    let (sent, received) = pings(&pinging.output());
    let after = victim.resident_kib();
    println!("pings answered {received} of {sent}, VmRSS {before} KiB before, {after} KiB after");
    let percent = 100 * received / sent.max(1);
    assert!(percent >= ANSWERED_PERCENT_MIN, "{received} of {sent}");
    let dump = victim.dump();
    for reason in ["overlapping", "bad checksum", "no port", "no protocol", "source route"] {
        if !dump.contains(reason) {
            println!("nothing was dropped as `{reason}`");
        }
    }
    // The tables fill once; what they take is bounded (docs/hostile.md).
    assert!(after <= before + 32 * 1024, "{before} KiB, then {after}");
    victim.end();
}

/// Fates of connections that Linux made one after the other until it was told to stop.
struct Served {
    answered: u64,
    failed: u64,
    longest: Duration,
}

/// Connects, asks and takes the answer, again and again.
fn ask_until(done: &AtomicBool) -> Served {
    let to = format!("{OURS}:7").parse().unwrap();
    let mut served = Served { answered: 0, failed: 0, longest: Duration::ZERO };
    let ask = || -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&to, PROGRAM_TIME_MAX)?;
        stream.set_read_timeout(Some(PROGRAM_TIME_MAX))?;
        stream.write_all(b"anybody there?")?;
        stream.read_exact(&mut [0; 14])
    };
    while !done.load(Ordering::Relaxed) || served.answered == 0 {
        let begun = Instant::now();
        match ask() {
            Ok(()) => served.answered += 1,
            Err(error) => {
                println!("not served: {error}");
                served.failed += 1;
            }
        }
        served.longest = served.longest.max(begun.elapsed());
    }
    served
}

pub(crate) fn survives_a_flood_of_syns(wire: Wire) {
    needs_root!("ip", "ping");
    let Some(victim) = Victim::start("flood_of_syns", wire) else {
        return;
    };
    let frames = number_of("XK_SYN_FRAMES", 50_000);
    let rate = number_of("XK_SYN_RATE", 50_000);
    // Until the tables are full.
    send_noise(&victim, "syns", 10_000, 20_000, 1);
    let before = victim.resident_kib();
    let done = AtomicBool::new(false);
    let linux = victim.lan.linux.clone();
    let (served, took) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| linux.enter(|| ask_until(&done)).unwrap());
        let took = send_noise(&victim, "syns", frames, rate, 2);
        done.store(true, Ordering::Relaxed);
        (asking.join().expect("no panic"), took)
    });
    let after = victim.resident_kib();
    println!(
        "{frames} SYNs in {took:.1?}: {} connections answered, {} not, the slowest in {:.1?}; VmRSS {before} KiB before, {after} KiB after",
        served.answered, served.failed, served.longest
    );
    let dump = victim.dump();
    for line in dump.lines().filter(|line| line.contains("SYN")) {
        println!("{}", line.trim());
    }
    assert_eq!(served.failed, 0, "an honest peer was not served");
    assert!(after <= before + GROWTH_KIB_MAX, "{before} KiB, then {after}");
    victim.end();
}

/// A server for each protocol, as in `graphs/org-per-protocol.kdl`: none of the processes grows,
/// and an honest host is served, whatever arrives.
pub(crate) fn each_server_endures_strangers(wire: Wire) {
    needs_root!("ip", "ping");
    let layers = "domain udp { udp ip sessions_max=4096; }\n\
                  domain tcp { tcp ip sessions_max=4096; }\n\
                  domain echod { echo udp port=7; }\n\
                  domain streamd { echo tcp name=stream port=7; }";
    let cut = ["domain eth {", "}\ndomain ip {", "}"];
    let Some(victim) = Victim::start_cut("each_server_endures", wire, layers, cut) else {
        return;
    };
    let kinds = ["syns", "fragments", "arp", "icmp", "udp"];
    let frames = number_of("XK_NOISE_FRAMES", 20_000);
    let rate = number_of("XK_NOISE_RATE", 20_000);
    // Until the tables are full.
    for kind in kinds {
        send_noise(&victim, kind, 20_000, rate, 1);
    }
    let before = memory(&victim.running);
    let done = AtomicBool::new(false);
    let linux = victim.lan.linux.clone();
    let (served, took) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| linux.enter(|| ask_until(&done)).unwrap());
        let took: Duration =
            kinds.iter().map(|kind| send_noise(&victim, kind, frames, rate, 2)).sum();
        done.store(true, Ordering::Relaxed);
        (asking.join().expect("no panic"), took)
    });
    let after = memory(&victim.running);
    println!(
        "{frames} frames of each of {kinds:?} in {took:.1?}: {} connections answered, {} not, the slowest in {:.1?}; KiB before {before:?}, after {after:?}",
        served.answered, served.failed, served.longest
    );
    assert_eq!(served.failed, 0, "an honest peer was not served");
    for (process, before) in before {
        let after = after.get(&process).copied().unwrap_or(u64::MAX);
        assert!(after <= before + GROWTH_KIB_MAX, "{process}: {before} KiB, then {after}");
    }
    victim.end();
}

/// A call of procedure 0 (RFC 5531, section 9), which does nothing.
fn null_call(xid: u32) -> Vec<u8> {
    let words = [xid, 0, 2, 536_870_913, 1, 0, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Sends a datagram until its answer comes; whether one does.
fn asks_by_datagram(port: u16, request: &[u8], is_answer: impl Fn(&[u8]) -> bool) -> bool {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(format!("{OURS}:{port}")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    // The ring in front of us belongs to all senders.
    (0..10).any(|_| {
        let mut answer = [0; 1500];
        socket.send(request).is_ok()
            && socket.recv(&mut answer).is_ok_and(|len| is_answer(&answer[..len]))
    })
}

/// Pings, and asks by datagram, call and connection as a host that was never heard before.
fn asks_all(victim: &Victim) {
    // What the flood has left in the ring in front of us is worked off first, and a ping with it.
    let ping = ["ping", "-c", "20", "-i", "0.1", "-W", "5", "-q", OURS];
    let (sent, received) = pings(&victim.lan.linux.exec(&ping).unwrap());
    assert!(received * 10 >= sent * 9, "{received} of {sent} pings");
    let asked = victim.lan.linux.enter(|| {
        let echoed = asks_by_datagram(7, b"there?", |answer| answer == b"there?");
        assert!(echoed, "no datagram came back");
        let called = |answer: &[u8]| answer.starts_with(&[0, 0, 0, 9, 0, 0, 0, 1]);
        let replied = asks_by_datagram(2049, &null_call(9), called);
        assert!(replied, "no reply to a call");
        let served = ask_until(&AtomicBool::new(true));
        assert_eq!(served.failed, 0, "a connection was not served");
    });
    asked.unwrap();
}

/// Linux's end becomes a hub with a place for attackers, which hear what goes to the victim, and
/// one for a host of ours, which hears what is for it.
fn add_places(victim: &mut Victim) {
    let (net, linux) = (&victim.lan.testbed.net, &victim.lan.linux);
    let ip = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        linux.ip(&words).unwrap();
    };
    ip("link add hub type bridge");
    linux.up("hub").unwrap();
    for (at_hub, device) in [("a0", ATTACKERS), ("c0", ASKERS)] {
        net.veth(linux, at_hub, linux, device).unwrap();
        ip(&format!("link set {at_hub} master hub"));
    }
    ip(&format!("link set {DEVICE} master hub"));
    // It learns where those that ask are, and nothing else: all others hear what is for the victim
    // and for forged stations, and no forged station draws off what is for others.
    for device in [DEVICE, "a0"] {
        ip(&format!("link set {device} type bridge_slave learning off"));
    }
    ip("link set c0 type bridge_slave flood off");
    ip(&format!("addr flush dev {DEVICE}"));
    linux.address("hub", &format!("{LINUX}/24")).unwrap();
    victim.attackers = ATTACKERS;
}

/// The places of [`add_places`].
const ATTACKERS: &str = "a1";
const ASKERS: &str = "c1";

/// A host that asks all servers of the victim's, with these times and counts.
fn ask_everything(victim: &Victim, times: &str) -> Running {
    // A tracer writes a line for each message: more than is kept of what a program writes.
    let layers = everything::LAYERS.replace("tracer fault ring=10", "fault fault name=tracer");
    let graph = format!(
        "host askers {{\npacket device={ASKERS} address=\"02:00:00:00:00:55\"\neth packet\narp eth\n\
         ip arp {{ address \"10.9.0.5/8\"; }}\nicmp ip\n{layers}\n{}\n}}\n",
        everything::askers(OURS, "", times)
    );
    let file = write(&victim.lan, "askers.kdl", &graph);
    let command = [&victim.xk, "run", "--no-control", &file];
    victim.lan.linux.spawn(&command).unwrap()
}

/// Counts of questions and answers of each asker, from the last lines of the command.
fn asked_and_answered(asking: &Running) -> Vec<(&'static str, u64, u64)> {
    // What it wrote last may be read later.
    let last = everything::asker_names().last().unwrap_or_default();
    asking.wait_for(&format!("{last}: "), PROGRAM_TIME_MAX).unwrap();
    let said = asking.output();
    let of = |name| {
        let find = |line| str::strip_prefix(line, name)?.strip_prefix(": ");
        let line = said.lines().find_map(find);
        let numbers = |word: &str| {
            let pairs = line.unwrap_or_default().split(", ");
            let mut found = pairs.filter_map(|pair| pair.strip_prefix(word)?.trim().parse().ok());
            found.next()
        };
        let asked = numbers("sent ").or(numbers("calls ")).unwrap_or(0);
        let answered = numbers("received ").or(numbers("replies ")).unwrap_or(0);
        (name, asked, answered)
    };
    everything::asker_names().map(of).collect()
}

/// Frames of an attack, per second.
const RATE: u64 = 10_000;
/// Memory that all tables of the host with every layer may take, once full; and growth allowed when
/// the same comes again and again, which is due to the allocator.
const TABLES_KIB: u64 = 256 << 10;
const GROWTH_KIB: u64 = 16 << 10;

/// Forged hosts begin more conversations of each kind than any table has idle sessions, and
/// complete handshakes that they make no use of. Everybody else is served, before, while and after.
pub(crate) fn serves_in_spite_of_strangers(wire: Wire) {
    needs_root!("ip", "ping");
    let test = "serves_in_spite_of_strangers";
    let layers = [everything::LAYERS, everything::SERVERS].concat();
    let Some(mut victim) = Victim::start_with(test, wire, &layers) else {
        return;
    };
    add_places(&mut victim);
    let is_long = std::env::var_os("XK_LONG").is_some();
    // What fills the tables up to their bounds, then what must find them as they are.
    let rounds: &[u64] = if is_long { &[900_000, 900_000] } else { &[6000] };
    asks_all(&victim);
    println!("VmRSS {} KiB before", victim.resident_kib());
    // One that stays, and is heard from now and then.
    let address = format!("{OURS}:7").parse().unwrap();
    let old = victim.lan.linux.enter(|| TcpStream::connect_timeout(&address, PROGRAM_TIME_MAX));
    let mut old = old.unwrap().unwrap();
    old.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
    let mut talk = |line: &str| {
        let mut answer = vec![0; line.len()];
        old.write_all(line.as_bytes()).unwrap();
        old.read_exact(&mut answer).unwrap();
        assert_eq!(answer, line.as_bytes(), "the old connection");
    };
    talk("before all of them, and long enough to have been of use");
    let kinds = [
        "kind=connects port=7 answers=#true",
        "kind=sessions port=7",
        "kind=calls port=2049",
        "kind=pings",
        "kind=replays",
        "kind=mixed port=2049",
    ];
    let mut bound = victim.resident_kib() + TABLES_KIB;
    let attacks = rounds.iter().flat_map(|frames| kinds.map(|what| (*frames, what)));
    for (seed, (frames, what)) in (1..).zip(attacks) {
        let what = format!("sources=\"10.64.0.0/15\" {what}");
        let asking = ask_everything(&victim, "count=0 interval=\"20ms\"");
        asking.wait_for("Ctrl-C ends it", PROGRAM_TIME_MAX).unwrap();
        let took = attack(&victim, &what, frames, RATE, seed);
        end(&asking);
        println!("{what}: {frames} frames in {took:.1?}, seed {seed}");
        for (name, asked, answered) in asked_and_answered(&asking) {
            println!("  meanwhile {name}: {answered} of {asked}");
            let percent = 100 * answered / asked.max(1);
            assert!(percent >= ANSWERED_PERCENT_MIN, "{name}");
        }
        asks_all(&victim);
        let asking = ask_everything(&victim, "count=20 interval=\"20ms\"");
        asking.wait(PROGRAM_TIME_MAX).unwrap();
        for (name, asked, answered) in asked_and_answered(&asking) {
            let is_served = asked == 20 && answered >= 18;
            assert!(is_served, "{name}: {answered} of {asked}");
        }
        talk("still there?");
        let resident = victim.resident_kib();
        println!("VmRSS {resident} KiB");
        assert!(resident <= bound, "{resident} KiB of memory, more than {bound}");
        if seed == kinds.len() as u64 {
            bound = resident + GROWTH_KIB;
        }
    }
    victim.end();
}
