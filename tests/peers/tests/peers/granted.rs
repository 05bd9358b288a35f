//! Programs of other users at the places of a host where they attach or fetch channels: what leaves
//! the host is what they were granted, honest ones are served, and nothing grows.
//!
//! `XK_LONG=1` lets each kind of hostile program go on for a minute.

mod hoards;
pub(crate) mod programs;
mod shares;

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xk_peers::testbed::{DEVICE, LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire, end};
use xk_testkit::netns::{Running, Space};
use xk_testkit::{needs, needs_root};

use crate::program::command;

pub(crate) use shares::others_are_served_as_before;

/// Our station's address.
pub(crate) const STATION: &str = "02:00:00:00:00:77";
/// The users of honest and hostile programs, and one that is granted nothing.
const HONEST: u32 = 61_002;
const HOSTILE: u32 = 61_001;
const STRANGER: u32 = 61_003;
/// The port that the honest program has, and the first of the hostile one's.
pub(crate) const HONEST_PORT: u16 = 6000;
pub(crate) const HOSTILE_PORT: u16 = 5000;
/// The type number that the hostile program has on IP.
pub(crate) const HOSTILE_NUMBER: u32 = 253;
/// KiB by which a process may grow once it has seen what is hostile.
const GROWTH_KIB_MAX: u64 = 2048;
/// Number of answers that the honest program gets at least, for a hundred questions.
const ANSWERED_PERCENT_MIN: u64 = 90;
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(5);
/// Time to wait for an answer.
const LATE: Duration = Duration::from_millis(500);

fn is_long() -> bool {
    std::env::var_os("XK_LONG").is_some()
}

/// Time for which each hostile program goes on, at first and once memory is known, in seconds.
fn seconds() -> (u64, u64) {
    if is_long() { (2, 60) } else { (1, 1) }
}

/// The place where a host and programs of all users meet.
struct Place {
    lan: Lan,
    folder: PathBuf,
    itself: String,
}

impl Place {
    /// `None`, and the test is skipped, if programs of other users could not begin.
    fn new(test: &str, wire: Wire) -> Option<Self> {
        let itself = std::env::current_exe().unwrap_or_default().to_string_lossy().into_owned();
        let may = ["setpriv", &user(STRANGER), &group(STRANGER), "--clear-groups"];
        let lan = Lan::new(test, wire);
        if lan.linux.exec(&[&may[..], &[&itself, "--list"]].concat()).is_err() {
            needs::skip("needs a target folder that other users may enter");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("xk-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // The servers' own, where no other user may write: else a program does not believe that
        // what listens there is theirs.
        let _ = std::os::unix::fs::chown(&folder, Some(65_534), Some(65_534));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Self { lan, folder, itself })
    }

    /// Starts a host on the wire, with these domains above ARP and a place where programs attach
    /// with these grants; `None`, and the test is skipped, without the command.
    fn victim(&self, domains: &str, grants: &str) -> Option<Running> {
        let xk = command();
        if !xk.is_file() {
            needs::skip("needs the command xk (cargo build -p xk)");
            return None;
        }
        let (door, wire) = (self.path("door"), self.lan.wire_line());
        let graph = format!(
            "host victim {{\n{wire}\neth wire address=\"{STATION}\"\narp eth\n{domains}\n\
             domain users open path={door:?} {{\n{grants}\n}}\n}}\n"
        );
        let (file, control) = (self.path("victim.kdl"), self.path("control"));
        fs::write(&file, graph).unwrap();
        let command = [&xk.to_string_lossy(), "run", "--control", &control, &file];
        let host = self.lan.ours().spawn(&command).unwrap();
        host.wait_for("try: ping", PROGRAM_TIME_MAX).unwrap();
        Some(host)
    }

    /// Captures on Linux's side from now on; gives the address of its station.
    fn capture(&self) -> String {
        self.lan.capture();
        let address = ["cat", &format!("/sys/class/net/{DEVICE}/address")];
        self.lan.linux.exec(&address).unwrap().trim().to_owned()
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// Starts a program of this file as a user.
    fn program(&self, uid: u32, what: &str, seconds: u64) -> Running {
        let (folder, seconds) = (self.folder.to_string_lossy(), seconds.to_string());
        let may = ["setpriv", &user(uid), &group(uid), "--clear-groups"];
        let does = [&self.itself, programs::ARGUMENT, what, &folder, &seconds];
        self.lan.linux.spawn(&[&may[..], &does].concat()).unwrap()
    }

    /// Lets each hostile program do its worst, one after the other.
    fn suffers(&self, all: &[&str], seconds: u64) {
        for what in all {
            let program = self.program(HOSTILE, what, seconds);
            let status = program.wait(PROGRAM_TIME_MAX + Duration::from_secs(seconds)).unwrap();
            assert!(status.success(), "{what}: {status}: {}", program.output());
            println!("{what}: {}", program.output().lines().last().unwrap_or_default());
        }
    }

    /// Waits until the honest program answers.
    fn is_served(&self) {
        let ask = || {
            let socket = UdpSocket::bind((LINUX, 0)).unwrap();
            socket.set_read_timeout(Some(LATE)).unwrap();
            let asks = 2 * PROGRAM_TIME_MAX.as_millis() / LATE.as_millis();
            let answered = |_| {
                let _ = socket.send_to(b"there?", (OURS, HONEST_PORT));
                socket.recv(&mut [0; 8]).is_ok()
            };
            assert!((0..asks).any(answered), "the honest program does not answer");
        };
        self.lan.linux.enter(ask).unwrap();
    }

    /// Lets hostile programs work beside the honest one; no process of `host` grows.
    fn endures(&self, host: &Running, all: &[&str]) {
        let (first, then) = seconds();
        self.suffers(all, first);
        let before = memory(host);
        let (linux, is_over) = (self.lan.linux.clone(), AtomicBool::new(false));
        let (asked, answered) = std::thread::scope(|scope| {
            let asking = scope.spawn(|| asks(&linux, &is_over));
            self.suffers(all, then);
            is_over.store(true, Ordering::Relaxed);
            asking.join().expect("no panic")
        });
        let after = memory(host);
        println!("{answered} of {asked} answered; KiB before {before:?}, after {after:?}");
        assert!(100 * answered >= ANSWERED_PERCENT_MIN * asked, "{answered} of {asked}");
        for (process, before) in before {
            let after = after.get(&process).copied();
            let after = after.unwrap_or_else(|| panic!("{process} has ended"));
            assert!(after <= before + GROWTH_KIB_MAX, "{process}: {before} KiB, then {after}");
        }
    }

    /// No frame is on the wire that no program may send: of another station, host, port or
    /// protocol, or a fragment. Of those that the hostile programs may send there are some.
    fn judge(&self, linux: &str, protocols: &str) {
        let of_linux = format!("eth.src == {linux}");
        let ports = format!(
            "udp.srcport == 7 || udp.srcport == {HONEST_PORT} || (udp.srcport >= {HOSTILE_PORT} && udp.srcport < {HONEST_PORT})"
        );
        let of_host = format!(
            "eth.src == {STATION} && ((arp && arp.src.proto_ipv4 == {OURS} && arp.src.hw_mac == {STATION}) \
             || (ip.src == {OURS} && ip.flags.mf == 0 && ip.frag_offset == 0 && (icmp || {ports}{protocols})))"
        );
        let count = |filter: &str| self.lan.testbed.count("linux.pcap", filter);
        let forged = count(&format!("!({of_linux}) && !({of_host})"));
        let granted = format!("udp.srcport >= {HOSTILE_PORT} && udp.srcport < {HONEST_PORT}");
        let granted = count(&format!("eth.src == {STATION} && {granted}"));
        println!("{forged} forged frames, {granted} as granted");
        assert_eq!(forged, 0, "forged frames, of {granted} as granted");
        assert!(granted > 0, "the hostile programs sent nothing at all");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Asks the honest program until it is told to stop: how many questions, and how many answers.
fn asks(linux: &Space, is_over: &AtomicBool) -> (u64, u64) {
    let ask = || {
        let socket = UdpSocket::bind((LINUX, 0)).unwrap();
        socket.set_read_timeout(Some(LATE)).unwrap();
        let (mut asked, mut answered) = (0_u64, 0_u64);
        while !is_over.load(Ordering::Relaxed) {
            asked += 1;
            let sent = socket.send_to(&asked.to_le_bytes(), (OURS, HONEST_PORT));
            let mut back = [0; 8];
            // Answers to questions before may be late.
            while sent.is_ok() && socket.recv(&mut back).is_ok() {
                if u64::from_le_bytes(back) == asked {
                    answered += 1;
                    break;
                }
            }
            std::thread::sleep(PAUSE);
        }
        (asked, answered)
    };
    linux.enter(ask).unwrap()
}

fn user(uid: u32) -> String {
    format!("--reuid={uid}")
}

fn group(uid: u32) -> String {
    format!("--regid={uid}")
}

/// The memory of a program and of its children, in KiB.
pub(crate) fn memory(of: &Running) -> BTreeMap<u32, u64> {
    let id = of.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    let all = children.split_whitespace().filter_map(|word| word.parse().ok()).chain([id]);
    let resident = |process| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        Some((process, line.split_whitespace().nth(1)?.parse().ok()?))
    };
    all.filter_map(resident).collect()
}

/// Programs that attach at the domain's socket send what they may.
pub(crate) fn programs_that_attach_send_what_they_may(wire: Wire) {
    needs_root!("ip", "tcpdump", "tshark", "setpriv");
    let Some(place) = Place::new("granted-attach", wire) else {
        return;
    };
    let domains = format!(
        "domain net {{\nip arp {{ address \"{OURS}/24\"; }}\nicmp ip\nudp ip sessions_max=512\n}}\n\
         domain apps {{ echo udp port=7; }}"
    );
    let grants = format!(
        "grant udp port=\"{HONEST_PORT}..6999\" uid={HONEST}\n\
         grant udp port=\"{HOSTILE_PORT}..5999\" uid={HOSTILE}\n\
         grant ip number=\"{HOSTILE_NUMBER}..254\" uid={HOSTILE}"
    );
    let Some(host) = place.victim(&domains, &grants) else {
        return;
    };
    let linux = place.capture();
    let honest = place.program(HONEST, "answers", 3600);
    place.is_served();
    let stranger = place.program(STRANGER, "is-sent-away", 1);
    let status = stranger.wait(PROGRAM_TIME_MAX).unwrap();
    assert!(status.success(), "{}", stranger.output());
    place.endures(&host, &["opens", "asks", "wild-frames", "wild-rings", "half-made"]);
    place.is_served();
    drop(honest.stop());
    assert!(end(&host).success(), "{}", host.output());
    place.lan.testbed.judge(&[]);
    place.judge(&linux, &format!(" || ip.proto == {HOSTILE_NUMBER}"));
}

/// Programs with channels of a network I/O module that has the device send what they may.
pub(crate) fn programs_with_channels_send_what_they_may(wire: Wire) {
    needs_root!("ip", "tcpdump", "tshark", "setpriv");
    let Some(place) = Place::new("granted-channels", wire) else {
        return;
    };
    let folder = place.folder.to_string_lossy();
    let command = [&place.itself, programs::ARGUMENT, "module", &folder, "3600"];
    let module = place.lan.ours().spawn(&command).unwrap();
    module.wait_for("ready", PROGRAM_TIME_MAX).unwrap();
    let linux = place.capture();
    let honest = place.program(HONEST, "answers-frames", 3600);
    place.is_served();
    let all = ["forges", "rewrites", "wild-channels", "never-receives", "shows-no-ticket"];
    place.endures(&module, &all);
    place.is_served();
    drop(honest.stop());
    let said = module.stop();
    println!("{}", said.lines().last().unwrap_or_default());
    // Only its end makes the capture whole; what programs put behind their headers is theirs.
    place
        .lan
        .testbed
        .judge(&[("hecksum", "sums are the programs' own"), ("alformed", "so is what follows")]);
    place.judge(&linux, "");
}
