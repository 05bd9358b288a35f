//! Two processes at one path, of which one is killed again and again: the other says so, carries
//! on, and loses nothing that it would miss in the end.
//!
//! Each party is this test program, started again. `XK_SHM_ROUNDS` sets how often one is killed; 10
//! is the default.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use xk_core::graph::{Params, Value};
use xk_core::object::{OpenError, Popped};
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper};
use xk_kit::net::notice::Notices;
use xk_run::{Idle, Runner, real_kernel};
use xk_shm::ENTRY;

/// Environment variable with the path of the memory; set by the test that starts the party.
const PATH: &str = "XK_SHM_PARTY";
/// Time between two questions.
const EVERY: Duration = Duration::from_millis(2);
/// More than any step needs, even on a busy machine.
const STEP_TIME_MAX: Duration = Duration::from_secs(60);

/// Asks the other party now and then, answers it, and says when it got its first answer over a
/// link.
struct Party {
    wire: ProtocolRef,
    session: Cell<Option<SessionRef>>,
    answered: Rc<Cell<bool>>,
}

impl Protocol for Party {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let session = self.wire.open(cx, Upper::new(this), Participants::default())?;
        self.session.set(Some(session));
        cx.schedule_protocol(this, EVERY, 0).map(drop)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        if let Some(session) = self.session.take() {
            if let Ok(question) = cx.pool().copy_from(128, &[b'?'; 300]) {
                // While there is no peer it goes nowhere, counted.
                let _ = session.push(cx, question);
            }
            self.session.set(Some(session));
        }
        let _ = cx.schedule_protocol(this, EVERY, 0);
    }

    fn demux(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef, message: Message) -> Popped {
        if message.octets().next() == Some(b'?') {
            if let Ok(answer) = cx.pool().copy_from(128, b"!") {
                let _ = lower.push(cx, answer);
            }
        } else if !self.answered.replace(true) {
            say("answered");
        }
        Ok(())
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "party: {line}").and_then(|()| out.flush());
}

/// Main function of the processes that the tests start; does nothing elsewhere.
#[test]
fn party() {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let cx = Rc::new(real_kernel(1 << 22).unwrap());
    let answered = Rc::new(Cell::new(false));
    let linked = Rc::clone(&answered);
    cx.surround(Rc::new(Notices(Box::new(move |line: &str| {
        linked.set(linked.get() && !line.contains("linked"));
        say(line);
    }))));
    let mut params = Params::default();
    params.set("path", Value::Text(path.to_string_lossy().into_owned()));
    let wire = ENTRY.add(&cx, "shm", &[], &params).unwrap();
    let session = Cell::new(None);
    let party = Party { wire, session, answered };
    cx.add_protocol("party", "party", party);
    let runner = Runner::new(cx, Idle::default()).unwrap();
    runner.start().unwrap();
    runner.run(None, Rc::new(|_| false)).unwrap();
}

/// A party in a process of its own, killed when it is dropped.
struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    fn start(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "party", "--nocapture"])
            .env(PATH, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits until it says a line with `word` in it.
    fn hear(&self, word: &str) {
        let begun = Instant::now();
        loop {
            let line = self.lines.recv_timeout(STEP_TIME_MAX);
            let line = line.unwrap_or_else(|_| panic!("no `{word}` from {}", self.child.id()));
            if line.contains(word) {
                return;
            }
            assert!(begun.elapsed() < STEP_TIME_MAX, "no `{word}`, but `{line}`");
        }
    }

    fn kill(&mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }

    fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).unwrap().count()
    }

    /// Resident memory and mappings.
    fn memory(&self) -> (u64, usize) {
        let of = |file: &str| {
            std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
        };
        let status = of("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let octets = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
        let shared = of("maps").lines().filter(|l| l.contains("xk-shm")).count();
        (octets.unwrap() * 1024, shared)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rounds() -> u64 {
    let asked = std::env::var("XK_SHM_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// A folder of its own for each test, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("xk-shm-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_survivor_carries_on_and_leaks_nothing() {
    let place = Folder::new("survivor");
    let path = place.0.join("lab.sock");
    let survivor = Process::start(&path);
    let mut before = None;
    for round in 0..rounds() {
        let mut victim = Process::start(&path);
        survivor.hear("answered");
        victim.hear("answered");
        // The first rounds fill pools and caches.
        if round == 2 {
            before = Some((survivor.descriptors(), survivor.memory()));
        }
        victim.kill();
        survivor.hear("gone");
    }
    let mut last = Process::start(&path);
    survivor.hear("answered");
    last.hear("answered");
    let (descriptors, (octets, shared)) = before.expect("at least three rounds");
    let (octets_now, shared_now) = survivor.memory();
    let now = survivor.descriptors();
    println!(
        "{} rounds: {descriptors} descriptors before and {now} after, {octets} octets resident before and {octets_now} \
         after, {shared} shared mapping before and {shared_now} after",
        rounds()
    );
    assert_eq!(now, descriptors);
    assert_eq!((shared, shared_now), (1, 1));
    assert!(octets_now < octets + (1 << 20), "{octets} became {octets_now}");
    assert_eq!(place.files(), 2, "one socket and one lock");
    last.kill();
}

#[test]
fn either_side_may_be_killed() {
    let place = Folder::new("either");
    let path = place.0.join("lab.sock");
    let mut parties = [Process::start(&path), Process::start(&path)];
    for party in &parties {
        party.hear("answered");
    }
    for round in 0..rounds() {
        let [first, second] = &mut parties;
        let (victim, survivor) = match round % 2 {
            0 => (first, second),
            _ => (second, first),
        };
        victim.kill();
        survivor.hear("gone");
        *victim = Process::start(&path);
        survivor.hear("answered");
        victim.hear("answered");
    }
    assert_eq!(place.files(), 2, "one socket and one lock");
}
