//! Unmodified programs on protocols of frameworks in a host of another process, at its door
//! (`xk exec --at`).

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;

use xk_peers::testbed::{LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::netns::Space;
use xk_testkit::{await_that, needs, needs_program, needs_root};

use super::end;
use crate::host::pattern;
use crate::program::command;
use crate::tcp::DAMAGE;

/// Octets of the file that is fetched.
const CONTENT: usize = 1_000_003;
/// Octets of datagrams, the last of which goes in fragments.
const SIZES: [usize; 3] = [1, 1000, 4000];
/// The user whose the programs at the door are.
const USER: &str = "61004";

/// Remarks of `tshark` that are no fault.
const HABITS: [(&str, &str); 1] =
    [("completely full", "what is behind a door is read as its loop comes to it")];

/// Hosts up to UDP of each framework; IP and the interface are BSD's in both.
fn hosts() -> [(&'static str, String); 2] {
    let bsd = |more: &str| {
        format!("subsystem bsd {{ ether wire; ip ether {{ address \"{OURS}/24\"; }}{more} }}\n")
    };
    [("bsd", bsd("; udp ip")), ("streams", bsd("") + "subsystem streams { udp ip; }\n")]
}

/// A namespace without an interface but `lo`, whose programs reach the host at its door alone.
struct Outside {
    space: Space,
    xk: String,
    path: String,
}

impl Outside {
    fn under<'a>(&'a self, program: &[&'a str]) -> Vec<&'a str> {
        let xk = [&self.xk, "exec", "--at", &self.path, "--udp", "datagrams", "--user", USER, "--"];
        [&xk, program].concat()
    }
}

/// Streams are of the x-kernel's TCP on IP of BSD, datagrams of the framework's UDP; curl and socat
/// know of none.
pub(crate) fn frameworks_serve_programs_at_a_door(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "curl", "socat", "python3", "tshark");
    for (name, lines) in hosts() {
        let lan = Lan::new(&format!("door-{name}"), wire);
        let folder = lan.testbed.folder().to_owned();
        let file = |name: &str| folder.join(name).display().to_string();
        let path = format!("/run/xk/door-{name}-{}/host.sock", std::process::id());
        let text = format!(
            "host xk {{\n{}\n{lines}tcp ip\ntracer udp name=datagrams\n\
             domain programs open path=\"{path}\" {{ grant tcp uid={USER}; grant datagrams uid={USER}; }}\n}}\n",
            lan.wire_line(),
        );
        fs::write(file("host.kdl"), text).unwrap();
        lan.capture();
        let xk = command().display().to_string();
        let host = lan.ours().spawn(&[&xk, "run", "--no-control", &file("host.kdl")]).unwrap();
        await_that!(
            PROGRAM_TIME_MAX,
            Path::new(&path).exists(),
            "{name}: no door: {}",
            host.output()
        );
        let outside = Outside { space: lan.testbed.linux(), xk, path };
        fetches(name, &lan, &outside, &file);
        asks(name, &lan, &outside, &file);
        serves(name, &lan, &outside);
        end(host);
        // What root has made for it; its socket has gone.
        fs::remove_dir(Path::new(&outside.path).parent().unwrap()).unwrap();
        lan.testbed.judge(&[DAMAGE, &HABITS].concat());
    }
}

/// A client of streams.
fn fetches(name: &str, lan: &Lan, outside: &Outside, file: &dyn Fn(&str) -> String) {
    fs::write(file("content"), pattern(CONTENT)).unwrap();
    let serve = ["python3", "-u", "-m", "http.server", "-b", LINUX, "-d", &file(""), "8000"];
    let server = lan.linux.spawn(&serve).unwrap();
    let url = format!("http://{LINUX}:8000/content");
    let got = file("got");
    server.wait_for("Serving HTTP", PROGRAM_TIME_MAX).unwrap();
    outside.space.exec(&outside.under(&["curl", "-sS", "-o", &got, &url])).unwrap();
    let found = fs::read(&got).unwrap_or_default();
    assert!(found == pattern(CONTENT), "{name}: {} octets of {CONTENT}", found.len());
    end(server);
}

/// A client of datagrams.
fn asks(name: &str, lan: &Lan, outside: &Outside, file: &dyn Fn(&str) -> String) {
    let serve = ["socat", "-d", "-d", "-b", "65536", "UDP4-LISTEN:7003,fork", "PIPE"];
    let server = lan.linux.spawn(&serve).unwrap();
    server.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
    for octets in SIZES {
        fs::write(file("sent"), pattern(octets)).unwrap();
        let ask = format!(
            "socat -b65536 -t30 - UDP4:{LINUX}:7003,readbytes={octets} <{} >{}",
            file("sent"),
            file("back")
        );
        outside.space.exec(&outside.under(&["sh", "-c", &ask])).unwrap();
        let back = fs::read(file("back")).unwrap_or_default();
        assert!(back == pattern(octets), "{name}: {} octets of {octets}", back.len());
    }
    end(server);
}

/// Servers of both.
fn serves(name: &str, lan: &Lan, outside: &Outside) {
    let start = |listen: &str| {
        let program = ["socat", "-d", "-d", "-b", "65536", listen, "PIPE"];
        let server = outside.space.spawn(&outside.under(&program)).unwrap();
        server.wait_for("listening on", PROGRAM_TIME_MAX).unwrap();
        server
    };
    let servers = [start("TCP4-LISTEN:7001,fork"), start("UDP4-LISTEN:7002")];
    let ask = || {
        let mut stream = TcpStream::connect((OURS, 7001)).unwrap();
        stream.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(PROGRAM_TIME_MAX)).unwrap();
        socket.connect((OURS, 7002)).unwrap();
        for octets in SIZES {
            let sent = pattern(octets);
            stream.write_all(&sent).unwrap();
            let mut back = vec![0; octets];
            stream.read_exact(&mut back).unwrap();
            assert!(back == sent, "{name}: a stream of {octets} octets");
            socket.send(&sent).unwrap();
            let mut back = [0; 8192];
            let got = socket.recv(&mut back);
            assert!(
                got.as_ref().is_ok_and(|got| back[..*got] == sent),
                "{name}: a datagram of {octets} octets: {got:?}"
            );
        }
    };
    lan.linux.enter(ask).unwrap();
    servers.into_iter().for_each(end);
}
