//! The organisation with a protocol library: programs in processes of their own, a registry and a
//! network I/O module, each of which is killed while the system's own streams use the programs.
//! `XK_LONG=1` for a thousand deaths.

use rustix::net::sockopt;
use serde_json::Value;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xk_core::random::Random;
use xk_net::{Setup, TcpListener};
use xk_testkit::netns::{Net, Running, Space};
use xk_testkit::{await_that, needs_root};

use crate::deaths::{GROWTH_KIB, Host, PAUSE_MS, deaths, kill, memory_kib, settled};
use crate::{STEP_TIME_MAX, XK};

/// Time between two looks for a change.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Environment variables with the path of the domain and the program's port there.
const PROGRAM: [&str; 2] = ["XK_LIBRARY_PATH", "XK_LIBRARY_PORT"];
/// Time of silence before a stream is probed, and the number of probes.
const KEEPALIVE: Duration = Duration::from_secs(1);
const KEEPALIVES_MAX: u32 = 60;
const PORTS: [u16; 3] = [7001, 7002, 7003];

/// Text at which the program ends a stream.
const END: &[u8] = b"end";

/// The program: gives each stream back what it sends.
#[test]
#[ignore = "a program that the tests start"]
fn program() {
    let [Some(path), Some(port)] = PROGRAM.map(std::env::var_os) else {
        return;
    };
    let stack = Setup::library(Path::new(&path), xk_catalog::PROTOCOLS).thread().unwrap();
    let port: u16 = port.to_str().unwrap().parse().unwrap();
    let listener = TcpListener::bind(&stack, ("0.0.0.0", port)).unwrap();
    eprintln!("it listens");
    // Without a registry no stream begins, and those that there are go on.
    while let Ok((stream, _)) = listener.accept() {
        std::thread::spawn(move || {
            let mut octets = [0; 1 << 14];
            while let Ok(count @ 1..) = (&stream).read(&mut octets) {
                let octets = &octets[..count];
                if octets == END || (&stream).write_all(octets).is_err() {
                    break;
                }
            }
        });
    }
    std::thread::park();
}

/// `graphs/org-library.kdl` in a namespace, at paths of its own.
struct Library {
    host: Host,
    folder: tempfile::TempDir,
}

impl Library {
    fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The servers' own, where no other user may write: else a program does not believe that
        // what listens there is theirs.
        let _ = std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_534));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let graph = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../graphs/org-library.kdl");
        let text = fs::read_to_string(graph).unwrap();
        let text = text.replace("/run/xk/library", &folder.path().display().to_string());
        let text = text.replace(" uid=1000", "");
        let file = folder.path().join("library.kdl").display().to_string();
        fs::write(&file, text).unwrap();
        Self { host: Host::start(name, &file), folder }
    }

    /// A program that serves a port.
    fn program(&self, port: u16) -> Running {
        let path = self.folder.path().join("xk-library.sock");
        let path = format!("{}={}", PROGRAM[0], path.display());
        let port = format!("{}={port}", PROGRAM[1]);
        let own = std::env::current_exe().unwrap().display().to_string();
        let line = ["env", &path, &port, &own, "--ignored", "--exact", "library::program"];
        let line = [&line[..], &["--nocapture"]].concat();
        let begun = Instant::now();
        loop {
            let program = self.host.space.spawn(&line).unwrap();
            let listens = || program.output().contains("it listens");
            while !listens() && program.wait(LOOK_EVERY).is_err() {}
            if listens() {
                return program;
            }
            // The registry or the module has ended meanwhile, and is started again.
            assert!(begun.elapsed() < STEP_TIME_MAX, "{}", program.output());
        }
    }

    /// A figure that the registry reports.
    fn registry(&self, figure: &str) -> u64 {
        let dump = self.host.dump();
        let all = dump["protocols"].as_array().unwrap();
        let node = all.iter().find(|node| node["name"] == "registry");
        let figure = node.map(|node| &node["report"]["lines"][figure]);
        figure.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
    }

    fn until_registry(&self, figure: &str, count: u64) {
        let begun = Instant::now();
        while self.registry(figure) != count {
            let said = || format!("{figure} is {}\n{}", self.registry(figure), self.output());
            assert!(begun.elapsed() < STEP_TIME_MAX, "{}, not {count}", said());
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until another process has the domain.
    fn until_started_again(&self, domain: &str, was: u32) {
        await_that!(
            STEP_TIME_MAX,
            self.host.processes().get(domain).is_some_and(|now| *now != was),
            "{domain}: {}",
            self.output()
        );
    }

    fn output(&self) -> String {
        self.host.running.output()
    }
}

/// A stream of the system's to a program.
fn connect(port: u16) -> io::Result<TcpStream> {
    let to: SocketAddr = (Ipv4Addr::new(10, 9, 0, 2), port).into();
    let stream = TcpStream::connect_timeout(&to, STEP_TIME_MAX)?;
    stream.set_read_timeout(Some(STEP_TIME_MAX))?;
    stream.set_write_timeout(Some(STEP_TIME_MAX))?;
    // One that only waits for octets hears of the module's death by this alone.
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(&stream, KEEPALIVES_MAX)?;
    Ok(stream)
}

/// Has so many octets come back over a stream.
fn exchanges(stream: &TcpStream, count: usize) -> io::Result<()> {
    let octets: Vec<u8> = (0..count).map(|at| ((at * 31) ^ (at >> 8)) as u8).collect();
    let mut back = vec![0; count];
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| (&mut &*stream).write_all(&octets));
        (&mut &*stream).read_exact(&mut back)?;
        sent.join().unwrap()
    })?;
    assert!(back == octets, "all octets, in order");
    Ok(())
}

/// Fates of the streams to a port.
#[derive(Default)]
struct Seen {
    /// Exchanges that are over.
    exchanged: AtomicU64,
    /// Streams that broke, each by an error that tells of a death.
    broken: AtomicU64,
}

impl Seen {
    fn count(&self) -> (u64, u64) {
        (self.exchanged.load(Ordering::Relaxed), self.broken.load(Ordering::Relaxed))
    }

    /// Waits for exchanges.
    fn goes_on(&self, what: &str) {
        let (begun, (before, _)) = (Instant::now(), self.count());
        // One may have been under way.
        while self.count().0 < before + 2 {
            assert!(begun.elapsed() < STEP_TIME_MAX, "{what}: no stream goes on");
            std::thread::sleep(LOOK_EVERY / 4);
        }
    }

    fn breaks(&self, what: &str, act: impl FnOnce()) {
        let (begun, (_, broken)) = (Instant::now(), self.count());
        act();
        while self.count().1 == broken {
            assert!(begun.elapsed() < STEP_TIME_MAX, "{what}: no peer hears of it");
            std::thread::sleep(LOOK_EVERY / 4);
        }
    }

    /// Uses one stream after the other until `is_over`.
    fn streams(&self, port: u16, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let Ok(stream) = connect(port) else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            while !is_over.load(Ordering::Relaxed) {
                if let Err(error) = exchanges(&stream, 20_000) {
                    use ErrorKind::{BrokenPipe, ConnectionReset, HostUnreachable, UnexpectedEof};
                    let told = [ConnectionReset, BrokenPipe, HostUnreachable, UnexpectedEof];
                    assert!(told.contains(&error.kind()), "port {port}, a stream hangs: {error}");
                    self.broken.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                self.exchanged.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Programs under load, of which one dies, or what they stand on.
struct Deaths<'a> {
    library: &'a Library,
    programs: Vec<Running>,
    seen: &'a [Seen; 3],
}

impl Deaths<'_> {
    fn kill_program(&mut self, at: usize) {
        let before = settled(self.library.host.processes().into_values());
        let others = self.seen.iter().enumerate().filter(|(other, _)| *other != at);
        let broken: Vec<u64> = others.clone().map(|(_, seen)| seen.count().1).collect();
        self.seen[at].breaks("a program", || kill(self.programs[at].id()));
        for ((_, seen), broken) in others.zip(broken) {
            seen.goes_on("another program was killed");
            assert_eq!(seen.count().1, broken, "a stream of another program broke");
        }
        self.library.until_registry("programs", 2);
        self.programs[at] = self.library.program(PORTS[at]);
        self.seen[at].goes_on("its program was started again");
        self.library.host.has_again(&before);
    }

    /// Streams outlive the registry. The next one tells the peers once their programs have gone.
    fn kill_registry(&mut self) {
        let server = self.library.host.processes()["server"];
        let broken = self.seen.each_ref().map(|seen| seen.count().1);
        kill(server);
        for seen in self.seen {
            seen.goes_on("the registry was killed");
        }
        self.library.until_started_again("server", server);
        self.library.until_registry("rights-of-before", 3);
        for seen in self.seen {
            seen.goes_on("the registry was started again");
        }
        assert_eq!(self.seen.each_ref().map(|seen| seen.count().1), broken, "a stream broke");
        for (at, port) in PORTS.into_iter().enumerate() {
            self.seen[at].breaks("its registry came back, its program died", || {
                kill(self.programs[at].id());
            });
            self.programs[at] = self.library.program(port);
            self.seen[at].goes_on("its program attached to the next registry");
        }
        self.library.until_registry("rights-of-before", 0);
    }

    /// No connection outlives the module, and all peers hear of it. The registry does: programs
    /// that attach again have others.
    fn kill_module(&mut self) {
        let processes = self.library.host.processes();
        let mut seen = self.seen.iter();
        let first = seen.next().unwrap();
        let before: Vec<(&Seen, u64)> = seen.map(|seen| (seen, seen.count().1)).collect();
        first.breaks("the module", || kill(processes["device"]));
        for (seen, broken) in before {
            await_that!(
                STEP_TIME_MAX,
                seen.count().1 != broken,
                "the module: another peer hears nothing"
            );
        }
        self.library.until_started_again("device", processes["device"]);
        for (at, port) in PORTS.into_iter().enumerate() {
            kill(self.programs[at].id());
            self.programs[at] = self.library.program(port);
            self.seen[at].goes_on("its program attached to the next module");
        }
        self.library.until_registry("programs", 3);
        assert_eq!(self.library.host.processes()["server"], processes["server"], "it has lived");
    }
}

/// Kills programs, the registry and the module by a seed.
fn dies(library: &Library, seed: u64, deaths: usize) {
    let random = Random::new(seed);
    let (is_over, seen) = (AtomicBool::new(false), <[Seen; 3]>::default());
    std::thread::scope(|scope| {
        let run = library.host.running.id();
        let mut deaths_seen = Deaths {
            library,
            programs: PORTS.map(|port| library.program(port)).into(),
            seen: &seen,
        };
        for (port, seen) in PORTS.into_iter().zip(&seen) {
            let (space, is_over): (&Space, _) = (&library.host.space, &is_over);
            scope.spawn(move || space.enter(|| seen.streams(port, is_over)).unwrap());
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            seen.iter().for_each(|seen| seen.goes_on("it begins"));
            let before = settled([run]);
            let mut first_kib = 0;
            for death in 0..deaths {
                std::thread::sleep(Duration::from_millis(u64::from(random.next_u32()) % PAUSE_MS));
                match if death < 3 { death as u32 } else { random.next_u32() % 6 } {
                    0 => deaths_seen.kill_registry(),
                    1 => deaths_seen.kill_module(),
                    _ => deaths_seen.kill_program(random.next_u32() as usize % PORTS.len()),
                }
                library.host.has_again(&before);
                if death == deaths.div_ceil(4) {
                    first_kib = memory_kib(run);
                }
            }
            let grown = memory_kib(run).saturating_sub(first_kib);
            assert!(grown < GROWTH_KIB, "xk run has grown by {grown} KiB");
        }));
        is_over.store(true, Ordering::Relaxed);
        let counts = seen.each_ref().map(Seen::count);
        println!("seed {seed}: {deaths} deaths, exchanges and broken streams: {counts:?}");
        if let Err(panic) = ended {
            println!("{}", library.output());
            std::panic::resume_unwind(panic)
        }
    });
}

#[test]
fn programs_with_a_library_their_registry_and_their_module_may_die_at_any_time() {
    needs_root!("ip");
    dies(&Library::start("library deaths"), 4714, deaths(5));
}

/// The module is started again below a registry that lives: of the rights of before nothing is
/// left, their peers are told, and programs that attach have connections by the next one.
#[test]
fn a_module_comes_back_below_a_registry_that_lives() {
    needs_root!("ip");
    let library = Library::start("library module");
    let (before, space) = (library.host.processes(), &library.host.space);
    let connects = |port| space.enter(move || connect(port).unwrap()).unwrap();
    for death in 0..3 {
        let first = library.program(PORTS[0]);
        let stream = connects(PORTS[0]);
        exchanges(&stream, 100_000).unwrap();
        let (module, begun) = (library.host.processes()["device"], Instant::now());
        kill(module);
        library.until_started_again("device", module);
        let ended = exchanges(&stream, 100).unwrap_err();
        println!("death {death}: after {:?} the peer hears of it: {ended}", begun.elapsed());
        assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "{}", library.output());
        let next = library.program(PORTS[1]);
        exchanges(&connects(PORTS[1]), 100_000).unwrap();
        println!("death {death}: after {:?} another is served", begun.elapsed());
        // That of before has gone with its channel; its process lives.
        library.until_registry("programs", 1);
        drop((first, next));
        library.until_registry("programs", 0);
    }
    assert_eq!(library.host.processes()["server"], before["server"], "the registry lives");
}

/// A device that is started again has another hardware address. A registry that is started behind
/// it keeps that of the programs: what it asks and answers takes none of their peers elsewhere.
#[test]
fn a_stream_outlives_a_registry_that_comes_back_behind_another_device() {
    needs_root!("ip");
    let library = Library::start("library station");
    let (before, space) = (library.host.processes(), &library.host.space);
    kill(before["device"]);
    library.until_started_again("device", before["device"]);
    let _program = library.program(PORTS[0]);
    let stream = space.enter(|| connect(PORTS[0]).unwrap()).unwrap();
    exchanges(&stream, 100_000).unwrap();
    kill(before["server"]);
    library.until_started_again("server", before["server"]);
    library.until_registry("rights-of-before", 1);
    // What it answers has it ask for the peer's station.
    let refused = space.enter(|| connect(PORTS[1]).map(drop)).unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    exchanges(&stream, 100_000).unwrap();
}

#[test]
fn a_stream_that_its_program_ends_waits_at_the_registry() {
    needs_root!("ip");
    let library = Library::start("library");
    let _program = library.program(PORTS[0]);
    let acts = || {
        let stream = connect(PORTS[0]).unwrap();
        exchanges(&stream, 1_000_000).unwrap();
        (&stream).write_all(END).unwrap();
        assert_eq!((&stream).read(&mut [0; 8]).unwrap(), 0);
    };
    library.host.space.enter(acts).unwrap();
    library.until_registry("taken-back", 1);
    assert_eq!(library.registry("reset"), 0);
}

#[test]
fn a_second_run_says_what_listens_at_its_paths() {
    needs_root!("ip");
    let library = Library::start("library twice");
    let net = Net::new("library second").unwrap();
    let path = |name: &str| library.folder.path().join(name).display().to_string();
    // The same doors; then a place to attach that another's door has.
    let (file, other) = (path("library.kdl"), path("other.kdl"));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&other, text.replace("xk-library-door.sock", "another-door.sock")).unwrap();
    let processes = library.host.processes();
    for (file, domain, at) in
        [(file, "device", "xk-library-door.sock"), (other, "server", "xk-library.sock")]
    {
        let space = net.space().unwrap();
        let line = [XK, "run", "--control", &path("second-control"), &file];
        let second = space.spawn(&line).unwrap();
        assert!(!second.wait(STEP_TIME_MAX).unwrap().success());
        let (said, at) = (second.output(), path(at));
        let cause = format!("process {} listens at {at:?}; end it first", processes[domain]);
        assert!(said.contains(&cause), "not {cause}: {said}");
    }
}

/// A graph's layers of RPC stand on the library of `xk run`, and are called from outside.
#[test]
fn rpc_stands_on_a_library() {
    needs_root!("ip");
    let library = Library::start("library rpc");
    let of = |file: &str| format!("{}/../../graphs/{file}", env!("CARGO_MANIFEST_DIR"));
    let path = library.folder.path().join("xk-library.sock").display().to_string();
    let (graph, calls) = (of("rpc-library.kdl"), of("procedures.x"));
    let space = &library.host.space;
    let line = [XK, "run", "--no-control", &graph, "--library", &path];
    let program = space.spawn(&line).unwrap();
    program.wait_for("Ctrl-C ends it.", STEP_TIME_MAX).unwrap_or_else(|e| panic!("{e}"));
    // How many datagrams have come to the registry's UDP, before each call.
    let mut at_the_registry = Vec::new();
    for text in ["hello", "again", "more"] {
        let dump = library.host.dump();
        let udp = dump["protocols"].as_array().unwrap().iter().find(|node| node["name"] == "udp");
        at_the_registry.extend(udp.and_then(|node| node["demultiplexed"].as_u64()));
        let asked = format!("{{\"text\": \"{text}\"}}");
        let to = "port5049@10.9.0.2";
        let call = [XK, "call", "--over", "sun", "echo", &asked, "--x", &calls, "--to", to];
        let answer = space.exec(&call).unwrap();
        assert!(answer.contains(&asked), "{answer}; {}", program.output());
    }
    // They go by the program's own.
    assert_eq!(at_the_registry, [0; 3], "{}", program.output());
    // Where no registry is there is no library.
    let nowhere = library.folder.path().join("nowhere").display().to_string();
    let refused = space.exec(&[XK, "run", &graph, "--library", &nowhere]).unwrap_err();
    assert!(refused.to_string().contains("cannot attach at"), "{refused}");
    drop(program);
}
