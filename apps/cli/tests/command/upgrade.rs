//! `xk upgrade`: a running graph goes on in another process.

use crate::{STEP_TIME_MAX, XK};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xk_core::random::Random;
use xk_testkit::needs_root;
use xk_testkit::netns::{Net, Running, Space};

/// Time until a datagram is sent again.
const TRY_EVERY: Duration = Duration::from_millis(200);
const TCP_ECHO: ([u8; 4], u16) = ([10, 9, 0, 2], 7);
const UDP_ECHO: ([u8; 4], u16) = ([10, 9, 0, 2], 7);
/// Number of processes that follow each other; `XK_LONG=1` for more.
const UPGRADES: usize = 4;
const UPGRADES_LONG: usize = 100;
/// Octets of a piece that a client sends at a time.
const PIECE: usize = 16 << 10;

/// A host with a TCP and a UDP echo, and what else stands in it.
fn graph(more: &str) -> String {
    format!(
        r#"host neighbour {{
            tap  device=xk0 host_address="10.9.0.1/24"
            eth  tap
            arp  eth
            ip   arp {{ address "10.9.0.2/24"; }}
            icmp ip
            udp  ip
            tcp  ip
            echo udp port=7 name=datagrams
            echo tcp port=7 name=streams
            {more}
        }}"#
    )
}

/// A host that runs in a namespace.
struct Host {
    space: Space,
    control: String,
    running: Running,
    _net: Net,
    _folder: tempfile::TempDir,
}

impl Host {
    fn start(what: &str, text: &str) -> Self {
        Self::on(what, text, |_, _| {})
    }

    /// In a namespace that is made ready for it.
    fn on(what: &str, text: &str, ready: impl FnOnce(&Net, &Space)) -> Self {
        let net = Net::new(what).unwrap();
        let space = net.space().unwrap();
        ready(&net, &space);
        let folder = tempfile::tempdir().unwrap();
        // As root it becomes another user, which is to remove its socket at the end.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let file = folder.path().join("graph.kdl");
        std::fs::write(&file, text).unwrap();
        let control = folder.path().join("control.sock").display().to_string();
        let file = file.display().to_string();
        let running = space.spawn(&[XK, "run", "--control", &control, &file]).unwrap();
        running.wait_for("Ctrl-C ends it.", STEP_TIME_MAX).unwrap();
        Self { space, control, running, _net: net, _folder: folder }
    }

    /// Has another process take its place; the former one ends in order.
    fn upgrade(&mut self) {
        let line = [XK, "upgrade", "--control", &self.control];
        let next = self.space.spawn(&line).unwrap();
        next.wait_for("Ctrl-C ends it.", STEP_TIME_MAX).unwrap();
        let before = std::mem::replace(&mut self.running, next);
        let status = before.wait(STEP_TIME_MAX).unwrap();
        let (before, next) = (before.output(), self.running.output());
        assert!(status.success(), "{before}{next}");
        assert!(before.contains("another process has taken this one's place"), "{before}");
        assert!(next.contains("goes on in place of process") && !next.contains("lost"), "{next}");
    }

    /// A conversation at the control socket.
    fn talk(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(&self.control).unwrap())
    }
}

fn ask(talk: &mut BufReader<UnixStream>, request: &str) -> Value {
    talk.get_mut().write_all(format!("{{\"ask\":\"{request}\"}}\n").as_bytes()).unwrap();
    let mut line = String::new();
    talk.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Sends octets of a seed until `is_over` and reads them back, all the same. Answers how many.
fn stream(stream: &TcpStream, seed: u64, is_over: &AtomicBool) -> u64 {
    stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    stream.set_write_timeout(Some(STEP_TIME_MAX)).unwrap();
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let (random, mut sent) = (Random::new(seed), 0);
            let mut piece = [0; PIECE];
            while !is_over.load(Ordering::Relaxed) {
                random.fill(&mut piece);
                (&*stream).write_all(&piece).unwrap();
                sent += piece.len() as u64;
            }
            stream.shutdown(Shutdown::Write).unwrap();
            sent
        });
        let (random, mut came) = (Random::new(seed), 0);
        let (mut piece, mut expected) = ([0; PIECE], [0; PIECE]);
        loop {
            let mut octets = 0;
            while octets < PIECE {
                match (&*stream).read(&mut piece[octets..]) {
                    Ok(0) => break,
                    Ok(more) => octets += more,
                    Err(error) => panic!("after {came} octets: {error}"),
                }
            }
            random.fill(&mut expected);
            assert!(piece[..octets] == expected[..octets], "other octets behind {came}");
            came += octets as u64;
            if octets < PIECE {
                break;
            }
        }
        assert_eq!(came, sent.join().unwrap(), "all that was sent came back");
        came
    })
}

/// Has a datagram come back, sent again until it does.
fn echoes() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(TRY_EVERY)).unwrap();
    let (begun, mut back) = (Instant::now(), [0; 8]);
    loop {
        socket.send_to(b"hello", SocketAddr::from(UDP_ECHO)).unwrap();
        if let Ok((octets, _)) = socket.recv_from(&mut back) {
            return assert_eq!(back[..octets], *b"hello");
        }
        assert!(begun.elapsed() < STEP_TIME_MAX, "no echo");
    }
}

#[test]
fn connections_outlive_the_process_that_has_them() {
    needs_root!("ip");
    let seed = 20_260;
    let is_long = std::env::var_os("XK_LONG").is_some();
    let mut host = Host::start("upgrades", &graph("discard tcp port=9"));
    let (space, is_over) = (host.space.clone(), AtomicBool::new(false));
    let connect =
        || TcpStream::connect_timeout(&SocketAddr::from(TCP_ECHO), STEP_TIME_MAX).unwrap();
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..3)
            .map(|number| {
                let (space, is_over) = (&space, &is_over);
                scope.spawn(move || {
                    space.enter(|| stream(&connect(), seed + number, is_over)).unwrap()
                })
            })
            .collect();
        // One that is silent all the time, and others that begin whenever they like.
        let silent = space.enter(connect).unwrap();
        let brief = scope.spawn(|| {
            let begin_and_end = || {
                let mut count = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let mut stream = connect();
                    stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
                    stream.write_all(b"brief").unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut back = String::new();
                    stream.read_to_string(&mut back).unwrap();
                    assert_eq!(back, "brief");
                    count += 1;
                }
                count
            };
            space.enter(begin_and_end).unwrap()
        });
        for _ in 0..if is_long { UPGRADES_LONG } else { UPGRADES } {
            host.upgrade();
            space.enter(echoes).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        let octets: Vec<u64> = busy.into_iter().map(|one| one.join().unwrap()).collect();
        println!("seed {seed}: octets {octets:?}, brief {}", brief.join().unwrap());
        assert!(octets.iter().all(|octets| *octets > 0));
        let mut silent = silent;
        silent.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
        silent.write_all(b"still").unwrap();
        let mut back = [0; 5];
        silent.read_exact(&mut back).unwrap();
        assert_eq!(back, *b"still");
    });
    let pid = Pid::from_raw(i32::try_from(host.running.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(host.running.wait(STEP_TIME_MAX).unwrap().success(), "{}", host.running.output());
    assert!(!PathBuf::from(&host.control).exists(), "nothing is left behind");
}

/// On an interface of the system each process has a socket of its own.
#[test]
fn a_graph_on_an_interface_goes_on() {
    needs_root!("ip");
    let text =
        graph("").replace("tap  device=xk0 host_address=\"10.9.0.1/24\"", "packet device=xk0");
    let text = text.replace("eth  tap", "eth packet");
    let mut host = Host::on("upgrade packet", &text, |net, space| {
        net.veth(space, "xk0", space, "xk1").unwrap();
        space.address("xk1", "10.9.0.1/24").unwrap();
    });
    host.space.enter(echoes).unwrap();
    let stream = host.space.enter(|| TcpStream::connect(SocketAddr::from(TCP_ECHO)).unwrap());
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    for _ in 0..UPGRADES {
        host.upgrade();
        stream.write_all(b"still").unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, *b"still");
        host.space.enter(echoes).unwrap();
    }
}

#[test]
fn a_process_that_cannot_be_followed_or_is_not_goes_on() {
    needs_root!("ip");
    // A probe counts what it is answered.
    let probe = r#"probe udp name=counts to="port7@10.9.0.1" count=2 interval="1h""#;
    let host = Host::start("upgrade refused", &graph(probe));
    let refused = host.space.exec(&[XK, "upgrade", "--control", &host.control]).unwrap_err();
    let told = refused.to_string();
    assert!(told.contains("the state of `counts` about its peers cannot be handed over"), "{told}");
    assert!(told.contains("help: it runs on unchanged"), "{told}");
    host.space.enter(echoes).unwrap();
    drop(host);
    // One in domains, and one on an interface of the system.
    let cut =
        graph("").replace("echo udp", "domain top { echo udp").replace("datagrams", "datagrams; }");
    let host = Host::start("upgrade in domains", &cut);
    let refused = host.space.exec(&[XK, "upgrade", "--control", &host.control]).unwrap_err();
    let told = refused.to_string();
    let cause = "host `neighbour` has domains, which cannot be handed over: first domain has";
    let lost = ["the device of `tap`", "the connections of `tcp`"];
    let says = lost.iter().all(|what| told.contains(what)) && !told.contains("`echo");
    assert!(told.contains(cause) && says, "{told}");
    assert!(told.contains("help: it runs on unchanged"), "{told}");
    host.space.enter(echoes).unwrap();
    drop(host);
    // The other process dies with the states, or asks out of turn.
    let host = Host::start("upgrade broken off", &graph(""));
    let stream = host.space.enter(|| TcpStream::connect(SocketAddr::from(TCP_ECHO)).unwrap());
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(STEP_TIME_MAX)).unwrap();
    stream.write_all(b"one").unwrap();
    let mut back = [0; 3];
    stream.read_exact(&mut back).unwrap();
    assert!(ask(&mut host.talk(), "taken")["error"].is_string());
    let mut talk = host.talk();
    let given = ask(&mut talk, "hand-over");
    assert_eq!(given["ok"]["sessions"].as_array().unwrap().len(), 1, "{given}");
    stream.write_all(b"two").unwrap();
    drop(talk);
    host.running.wait_for("has not done so", STEP_TIME_MAX).unwrap();
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, *b"two", "it goes on by itself");
    assert!(ask(&mut host.talk(), "taken")["error"].is_string(), "too late");
    host.space.enter(echoes).unwrap();
}
