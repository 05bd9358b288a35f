//! Hosts whose network I/O modules find the rights of programs by indices in the link header, over
//! each wire of two of our own hosts.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::{STEP_TIME_MAX, XK};
use rustix::process::{Pid, Signal, kill_process};
use xk_net::{Setup, TcpListener, TcpStream};

const OCTETS: usize = 2_000_000;

/// A host that runs; ended with the test.
struct Host(Child);

impl Host {
    /// Ends it in order.
    fn end(mut self) {
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::INT).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _has_ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A host with the device, the transports and the place of programs in domains of their own.
fn host(folder: &Path, number: u8, wire: &str, demux: &str) -> Host {
    let at = |what: &str| folder.join(format!("{what}{number}"));
    let (door, open) = (at("door"), at("open"));
    let text = format!(
        r#"host h{number} {{
            domain device {{ {wire}; netio wire door={door:?} demux={demux}; }}
            domain server {{
                eth netio; arp eth; ip arp {{ address "10.0.0.{number}/24"; }}
                icmp ip; tcp ip; registry netio tcp
            }}
            domain programs open path={open:?} {{ grant tcp; grant registry; }}
        }}"#
    );
    fs::write(at("graph"), text).unwrap();
    let mut command = Command::new(XK);
    command.arg("run").arg("--control").arg(at("control")).arg(at("graph"));
    Host(command.stdout(Stdio::null()).spawn().unwrap())
}

fn setup(folder: &Path, number: u8) -> Setup {
    let (at, begun) = (folder.join(format!("open{number}")), Instant::now());
    let setup = Setup::library(&at, xk_catalog::PROTOCOLS);
    while let Err(error) = setup.here() {
        assert!(begun.elapsed() < STEP_TIME_MAX, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    setup
}

/// Number of frames that a host's module has found by index, and by headers.
fn found(folder: &Path, number: u8) -> (u64, u64) {
    let control = folder.join(format!("control{number}"));
    let said = Command::new(XK).arg("dump").arg("--control").arg(control).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let of = |what: &str| {
        let before = said.split(what).next().unwrap_or_default();
        let count = before.rsplit(' ').next().and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("{what}: {said}"))
    };
    (of(" by index"), of(" by headers"))
}

/// A stream between two programs, that goes there and back.
fn echoes(one: &Setup, other: &Setup) {
    let server = other.clone();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let stack = server.here().unwrap();
        let listener = TcpListener::bind(&stack, "10.0.0.2:7000").unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 15];
        while let octets @ 1.. = stream.read(&mut buffer).unwrap() {
            stream.write_all(&buffer[..octets]).unwrap();
        }
    });
    is_ready.recv().unwrap();
    let stack = one.here().unwrap();
    let mut stream = TcpStream::connect(&stack, "10.0.0.2:7000").unwrap();
    let octets: Vec<u8> = (0..OCTETS).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
    let mut back = vec![0; 1 << 14];
    for part in octets.chunks(1 << 14) {
        stream.write_all(part).unwrap();
        stream.read_exact(&mut back[..part.len()]).unwrap();
        assert_eq!(back[..part.len()], *part);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut back).unwrap(), 0);
    server.join().unwrap();
}

#[test]
fn streams_between_libraries_are_found_by_index() {
    let folder = tempfile::tempdir().unwrap();
    // As root, `xk run` becomes another user, which is to make and remove sockets there.
    // The servers' own, where no other user may write: else a program does not believe that
    // what listens there is theirs.
    let _ = std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_534));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let ports = [&socket, &other].map(|socket| socket.local_addr().unwrap().port());
    drop((socket, other));
    let shm = |_: usize| format!("shm path={:?} name=wire", folder.path().join("link"));
    let host_eth = |at: usize| {
        let (own, peer) = (ports[at], ports[1 - at]);
        format!("host-eth local=\"127.0.0.1:{own}\" peer=\"127.0.0.1:{peer}\" vni=7 name=wire")
    };
    let wires: [(&str, &dyn Fn(usize) -> String); 2] = [("shm", &shm), ("host-eth", &host_eth)];
    for (name, wire) in wires {
        // A peer with indices, and one without.
        for demux in [["index", "index"], ["index", "map"]] {
            let hosts = [1, 2].map(|n| host(folder.path(), n as u8, &wire(n - 1), demux[n - 1]));
            let [one, other] = [1, 2].map(|n| setup(folder.path(), n));
            echoes(&one, &other);
            let (by_index, by_headers) = found(folder.path(), 1);
            println!("{name} {demux:?}: {by_index} by index, {by_headers} by headers");
            match demux[1] {
                "index" => {
                    let (there, _) = found(folder.path(), 2);
                    assert!(by_index > 100 && there > 100, "{name}: {by_index} and {there}");
                    // Those before the offer arrives: windows of them, on a busy machine.
                    assert!(by_headers < by_index / 20, "{name}: {by_headers} by their headers");
                }
                _ => assert!(by_index == 0 && by_headers > 100, "{name}: {by_index}"),
            }
            hosts.into_iter().for_each(Host::end);
        }
    }
}
