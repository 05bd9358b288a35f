//! Unmodified programs on the sockets of a graph (`xk exec`), each against the same programs on
//! Linux's.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xk_peers::testbed::{LINUX, Lan, OURS, PROGRAM_TIME_MAX, Wire};
use xk_testkit::netns::Running;
use xk_testkit::{needs, needs_program, needs_root};

use crate::host::pattern;
use crate::program::command;
use crate::tcp::DAMAGE;

/// Octets of the file that goes to and fro.
const CONTENT: usize = 1_000_003;

/// Remarks of `tshark` that are due to the programs themselves, besides those of a busy machine,
/// where rings and captures overflow.
const HABITS: [(&str, &str); 3] = [
    ("packet legnth", "tshark stops short in an answer of ssh's key exchange"),
    ("Keep-Alive", "a program asks for it"),
    ("gnored Unknown Record", "the capture has lost the record before"),
];

/// A link with Linux on one end; on the other programs under `xk exec`.
struct Bed {
    lan: Lan,
    graph: PathBuf,
    content: Vec<u8>,
}

impl Bed {
    fn new(test: &str, wire: Wire) -> Self {
        let lan = Lan::new(test, wire);
        let graph = lan.testbed.folder().join("exec.kdl");
        let text = format!(
            "host xk {{\n{}\neth wire\narp eth retries=1\n\
             ip arp {{ address \"{OURS}/24\"; route default via=\"{LINUX}\"; }}\nicmp ip\nudp ip\ntcp ip\n}}\n",
            lan.wire_line(),
        );
        fs::write(&graph, text).unwrap();
        lan.capture();
        let content = pattern(CONTENT);
        fs::write(lan.testbed.folder().join("content"), &content).unwrap();
        Self { lan, graph, content }
    }

    fn path(&self, name: &str) -> String {
        self.lan.testbed.folder().join(name).display().to_string()
    }

    /// The command that runs a program on the graph.
    fn under<'a>(&'a self, xk: &'a str, program: &[&'a str]) -> Vec<&'a str> {
        let graph = self.graph.to_str().unwrap();
        [&[xk, "exec", "--graph", graph, "--"], program].concat()
    }

    /// Output of a program that runs on the graph.
    fn ours(&self, program: &[&str]) -> String {
        let xk = command().display().to_string();
        self.lan.ours().exec(&self.under(&xk, program)).unwrap()
    }

    fn start_ours(&self, program: &[&str]) -> Running {
        let xk = command().display().to_string();
        self.lan.ours().spawn(&self.under(&xk, program)).unwrap()
    }

    /// Output of a program that runs on Linux.
    fn linux(&self, program: &[&str]) -> String {
        self.lan.linux.exec(program).unwrap()
    }

    fn start_linux(&self, program: &[&str]) -> Running {
        self.lan.linux.spawn(program).unwrap()
    }

    /// An HTTP server of Linux's on port 8000, with what lies in the testbed's folder.
    fn serve_folder(&self) -> Running {
        let folder = self.path("");
        let program = ["python3", "-m", "http.server", "-b", LINUX, "-d", &folder, "8000"];
        let server = self.start_linux(&program);
        self.wait_for_server(LINUX, 8000);
        server
    }

    /// Waits until connections are taken there, asked from Linux.
    fn wait_for_server(&self, host: &str, port: u16) {
        let begun = Instant::now();
        let take = || {
            let address = std::net::SocketAddr::new(host.parse().unwrap(), port);
            std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok()
        };
        while !self.lan.linux.enter(take).unwrap() {
            assert!(begun.elapsed() < PROGRAM_TIME_MAX, "nobody at {host}:{port}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asserts that a program prints the same on the graph and then on Linux, more lines than
    /// these.
    fn assert_same(&self, program: &[&str], lines_min: usize) {
        let ours = self.ours(program);
        let space = self.lan.ours();
        space.address("x0", &format!("{OURS}/24")).unwrap();
        space.route("default", LINUX).unwrap();
        space.sysctl("net/ipv4/neigh/x0/retrans_time_ms", "300").unwrap();
        let linux = space.exec(program).unwrap();
        let differ = ours.lines().zip(linux.lines()).filter(|(one, two)| one != two);
        let differ: Vec<_> = differ.collect();
        assert!(differ.is_empty(), "ours and Linux's: {differ:#?}");
        assert_eq!(ours.lines().count(), linux.lines().count());
        assert!(ours.lines().count() > lines_min, "{ours}");
    }

    /// Asserts that a file has become the content.
    fn assert_content(&self, name: &str) {
        let found = fs::read(self.path(name)).unwrap_or_default();
        assert!(found == self.content, "{name}: {} octets of {}", found.len(), self.content.len());
        fs::remove_file(self.path(name)).unwrap();
    }

    fn judge(self) {
        self.lan.testbed.judge(&[DAMAGE, &HABITS].concat());
    }
}

/// Skips the test unless the command and its library are built.
macro_rules! needs_exec {
    () => {
        needs_root!();
        let command = command();
        let library = "libxk_preload.so";
        let beside = [library.into(), Path::new("deps").join(library)];
        let has_library = beside.iter().any(|name| command.with_file_name(name).is_file());
        if !command.is_file() || !has_library {
            needs::skip("needs xk and its library (cargo build -p xk -p xk-preload)");
            return;
        }
    };
}

// Behind the macro, which they use.
mod behaviours;
mod door;
mod multicast;

pub(crate) use behaviours::behaviours_are_those_of_linux;
pub(crate) use door::frameworks_serve_programs_at_a_door;
pub(crate) use multicast::{avahi_answers, iperf_sends_to_groups};

fn script(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
    folder.join(name).display().to_string()
}

/// Ends a server in order, so that its graph writes its capture.
fn end(running: Running) {
    let _status = xk_peers::testbed::end(&running);
}

/// One program that prints a line for each behaviour of sockets prints the same in both worlds.
pub(crate) fn sockets_are_those_of_linux(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "python3");
    let bed = Bed::new("exec-sockets", wire);
    let (peer, subject) = (script("peer.py"), script("subject.py"));
    // What it has no way to, it says.
    bed.lan.linux.sysctl("net/ipv4/ip_forward", "1").unwrap();
    let peer = bed.start_linux(&["python3", "-B", &peer]);
    peer.wait_for("ready", PROGRAM_TIME_MAX).unwrap();
    let subject = ["python3", "-B", &subject, OURS, LINUX];
    bed.assert_same(&subject, 60);
}

/// Programs may do the same in a signal's handler in both worlds, and no call that succeeds touches
/// `errno`.
pub(crate) fn signals_are_those_of_linux(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "cc");
    let bed = Bed::new("exec-signals", wire);
    let (source, program) = (script("signals.c"), bed.path("signals"));
    let built =
        std::process::Command::new("cc").args(["-O1", "-o", &program, &source]).status().unwrap();
    assert!(built.success(), "{source}");
    bed.assert_same(&[&program, OURS], 60);
}

pub(crate) fn http_clients_fetch(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "curl", "wget", "python3", "tshark");
    let bed = Bed::new("exec-http-clients", wire);
    let _server = bed.serve_folder();
    let (url, to) = (format!("http://{LINUX}:8000/content"), bed.path("fetched"));
    bed.ours(&["curl", "-sS", "-o", &to, &url]);
    bed.assert_content("fetched");
    bed.ours(&["wget", "-q", "-O", &to, &url]);
    bed.assert_content("fetched");
    bed.judge();
}

pub(crate) fn a_http_server_serves(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "curl", "wget", "python3", "tshark");
    let bed = Bed::new("exec-http-server", wire);
    let folder = bed.path("");
    let server = bed.start_ours(&["python3", "-m", "http.server", "-d", &folder, "8000"]);
    bed.wait_for_server(OURS, 8000);
    let (url, to) = (format!("http://{OURS}:8000/content"), bed.path("fetched"));
    bed.linux(&["curl", "-sS", "-o", &to, &url]);
    bed.assert_content("fetched");
    bed.linux(&["wget", "-q", "-O", &to, &url]);
    bed.assert_content("fetched");
    end(server);
    bed.judge();
}

/// Octets of all streams together that the sender of an iperf3 says to have passed. Its receiver
/// may end before it has read all of them.
pub(crate) fn passed(said: &str) -> u64 {
    let (_, end) = said.split_once("\"end\":\t{").unwrap_or_default();
    let total = ["\"sum\":", "\"sum_sent\":"].into_iter().find_map(|sum| end.split(sum).nth(1));
    let octets = total.and_then(|sum| sum.split("\"bytes\":").nth(1)).unwrap_or_default();
    let digits: String = octets.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

pub(crate) fn iperf3_measures(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "iperf3", "tshark");
    let bed = Bed::new("exec-iperf3", wire);
    let kinds: [&[&str]; 4] = [
        &["-n", "3M"],
        &["-n", "3M", "-R", "-P", "2"],
        &["-u", "-b", "20M", "-n", "500K"],
        &["-u", "-b", "20M", "-n", "500K", "-R"],
    ];
    let client = |host, kind: &[&'static str]| [&["iperf3", "-J", "-c", host], kind].concat();
    // A server each: one that serves on refuses, or resets, a client that comes between two tests.
    let server = ["iperf3", "-s", "-1", "--forceflush"];
    for kind in kinds {
        let linux = bed.start_linux(&server);
        linux.wait_for("listening", PROGRAM_TIME_MAX).unwrap();
        let said = bed.ours(&client(LINUX, kind));
        assert!(passed(&said) >= 500_000, "{kind:?}: {said}");
    }
    for kind in kinds {
        let ours = bed.start_ours(&server);
        ours.wait_for("listening", PROGRAM_TIME_MAX).unwrap();
        let said = bed.linux(&client(OURS, kind));
        assert!(passed(&said) >= 500_000, "{kind:?}: {said}");
        end(ours);
    }
    bed.judge();
}

const REDIS: [&str; 10] = [
    "redis-server",
    "--port",
    "6379",
    "--protected-mode",
    "no",
    "--save",
    "",
    "--appendonly",
    "no",
    "--bind",
];

pub(crate) fn redis_answers(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "redis-server", "redis-cli", "redis-benchmark", "tshark");
    let bed = Bed::new("exec-redis", wire);
    let kept = "x".repeat(100_000);
    let server = |host| [&REDIS[..], &[host]].concat();
    let ask = |host, line: &[&'static str]| [&["redis-cli", "-h", host], line].concat();
    let measure = |host| {
        ["redis-benchmark", "-h", host, "-q", "-n", "500", "-c", "10", "-t", "set,lrange_100"]
    };
    let linux = bed.start_linux(&server(LINUX));
    linux.wait_for("Ready to accept", PROGRAM_TIME_MAX).unwrap();
    bed.ours(&["redis-cli", "-h", LINUX, "set", "kept", &kept]);
    assert_eq!(bed.ours(&ask(LINUX, &["get", "kept"])).trim(), kept);
    assert!(bed.ours(&measure(LINUX)).contains("requests per second"));
    let ours = bed.start_ours(&server(OURS));
    ours.wait_for("Ready to accept", PROGRAM_TIME_MAX).unwrap();
    bed.linux(&["redis-cli", "-h", OURS, "set", "kept", &kept]);
    assert_eq!(bed.linux(&ask(OURS, &["get", "kept"])).trim(), kept);
    assert!(bed.linux(&measure(OURS)).contains("requests per second"));
    end(ours);
    bed.judge();
}

/// Three workers for a file on port 80, and for what Linux has on port 81, with more lines of
/// configuration.
fn configure_nginx(bed: &Bed, more: &str) -> String {
    let folder = bed.path("");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
        .concat();
    let configuration = format!(
        "worker_processes 3; user nobody nogroup; pid {folder}/pid; {more}\n\
         http {{ access_log off; sendfile on; tcp_nopush on; {temporary}\n\
         server {{ listen 80; root {folder}; }}\n\
         server {{ listen {OURS}:81; location / {{ proxy_pass http://{LINUX}:8000; proxy_buffering off; }} }} }}\n"
    );
    let file = bed.path("nginx.conf");
    fs::write(&file, configuration).unwrap();
    file
}

/// As Debian has it: a daemon, which serves two hundred connections at once.
pub(crate) fn nginx_serves_a_crowd_as_a_daemon(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "nginx", "curl", "tshark");
    const CROWD: usize = 200;
    let bed = Bed::new("exec-nginx-daemon", wire);
    let log = bed.path("error.log");
    let more = format!("error_log {log} notice; events {{ worker_connections 512; }}");
    let file = configure_nginx(&bed, &more);
    let page = pattern(10_007);
    fs::write(bed.path("page"), &page).unwrap();
    let server = bed.start_ours(&["nginx", "-c", &file]);
    server.wait_for("still runs", PROGRAM_TIME_MAX).unwrap();
    let (urls, to) = (format!("http://{OURS}/page?[1-{CROWD}]"), bed.path("fetched#1"));
    let many = CROWD.to_string();
    let all_at_once = ["-Z", "--parallel-max", &many, "--parallel-immediate"];
    let curl = [&["curl", "-sS", "--fail"], &all_at_once[..], &["-o", &to, &urls]].concat();
    bed.linux(&curl);
    for n in 1..=CROWD {
        let fetched = fs::read(bed.path(&format!("fetched{n}"))).unwrap();
        assert!(fetched == page, "the page fetched as {n} differs");
    }
    end(server);
    let said = fs::read_to_string(log).unwrap();
    let is_bad =
        |line: &&str| ["[alert]", "[error]", "[crit]", "[emerg]"].iter().any(|w| line.contains(w));
    assert_eq!(said.lines().find(is_bad), None);
    bed.judge();
}

/// Three workers, forked by a master, which are another user's, one that asks a server in turn.
pub(crate) fn nginx_serves_with_workers(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "nginx", "curl", "python3", "tshark");
    let bed = Bed::new("exec-nginx", wire);
    let _behind = bed.serve_folder();
    let file = configure_nginx(
        &bed,
        "daemon off; error_log stderr notice; events { worker_connections 64; }",
    );
    let server = bed.start_ours(&["nginx", "-c", &file]);
    server.wait_for("start worker process", PROGRAM_TIME_MAX).unwrap();
    for port in [80, 81] {
        let urls = format!("http://{OURS}:{port}/content?[1-6]");
        let to = bed.path("fetched#1");
        bed.linux(&["curl", "-sS", "--fail", "-Z", "-o", &to, &urls]);
        for n in 1..=6 {
            bed.assert_content(&format!("fetched{n}"));
        }
    }
    let said = server.output();
    assert!(!said.contains("[alert]") && !said.contains("[error]"), "{said}");
    end(server);
    bed.judge();
}

pub(crate) fn openssl_speaks_tls(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "openssl", "curl", "python3", "tshark");
    let bed = Bed::new("exec-openssl", wire);
    let (key, certificate) = (bed.path("key.pem"), bed.path("certificate.pem"));
    let request = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=xk",
        "-keyout",
        &key,
        "-out",
        &certificate,
    ];
    bed.linux(&request);
    // It serves files of the folder that it is in.
    let serve = format!(
        "cd {} && exec openssl s_server -WWW -accept 4433 -key key.pem -cert certificate.pem",
        bed.path("")
    );
    let linux = bed.start_linux(&["sh", "-c", &serve]);
    linux.wait_for("ACCEPT", PROGRAM_TIME_MAX).unwrap();
    let fetch = format!(
        "printf 'GET /content HTTP/1.0\\r\\n\\r\\n' | openssl s_client -connect {LINUX}:4433 -quiet -ign_eof \
         -verify_return_error -CAfile {certificate} | sed '1,/^\\r$/d' > {}",
        bed.path("fetched")
    );
    bed.ours(&["sh", "-c", &fetch]);
    bed.assert_content("fetched");
    let ours = bed.start_ours(&["sh", "-c", &serve]);
    ours.wait_for("ACCEPT", PROGRAM_TIME_MAX).unwrap();
    let (url, to) = (format!("https://{OURS}:4433/content"), bed.path("fetched"));
    bed.linux(&["curl", "-sS", "-k", "-o", &to, &url]);
    bed.assert_content("fetched");
    end(ours);
    bed.judge();
}

pub(crate) fn ssh_runs_commands(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "ssh", "ssh-keygen", "sshd", "tshark");
    let bed = Bed::new("exec-ssh", wire);
    let (host_key, user_key) = (bed.path("host_key"), bed.path("user_key"));
    for key in [&host_key, &user_key] {
        bed.linux(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key]);
    }
    let keys = format!("AuthorizedKeysFile={user_key}.pub");
    fs::create_dir_all("/run/sshd").unwrap();
    let server = |host: &str| {
        let address = format!("ListenAddress={host}");
        [
            "/usr/sbin/sshd",
            "-D",
            "-e",
            "-f",
            "/dev/null",
            "-h",
            &host_key,
            "-o",
            "Port=22",
            "-o",
            "PidFile=none",
            "-o",
            "StrictModes=no",
            "-o",
            "PermitRootLogin=yes",
            "-o",
            "UsePAM=no",
            "-o",
            &keys,
            "-o",
            &address,
        ]
        .map(str::to_owned)
    };
    let client = |host: &str, line: &str| {
        let host = format!("root@{host}");
        // The key exchange is one that tshark knows.
        let options = "-o KexAlgorithms=curve25519-sha256 -o StrictHostKeyChecking=no \
                       -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes";
        format!("ssh -F /dev/null -i {user_key} {options} {host} {line}")
    };
    let content = bed.path("content");
    for host in [LINUX, OURS] {
        let line = server(host);
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let running = match host {
            LINUX => bed.start_linux(&line),
            _ => bed.start_ours(&line),
        };
        running.wait_for("Server listening", PROGRAM_TIME_MAX).unwrap();
        // There and back again.
        let line = format!("{} < {content} > {}", client(host, "cat"), bed.path("fetched"));
        match host {
            LINUX => bed.ours(&["sh", "-c", &line]),
            _ => bed.linux(&["sh", "-c", &line]),
        };
        bed.assert_content("fetched");
        end(running);
    }
    bed.judge();
}

pub(crate) fn socat_passes_datagrams(wire: Wire) {
    needs_exec!();
    needs_program!("ip", "socat", "tshark");
    let bed = Bed::new("exec-socat", wire);
    // It ends with the answer.
    let ask = |host| format!("echo datagram | socat -t30 - UDP4:{host}:5007,readbytes=9");
    let serve = ["socat", "-d", "-d", "UDP4-RECVFROM:5007,fork", "SYSTEM:tr a-z A-Z"];
    let linux = bed.start_linux(&serve);
    linux.wait_for("receiving", PROGRAM_TIME_MAX).unwrap();
    assert_eq!(bed.ours(&["sh", "-c", &ask(LINUX)]), "DATAGRAM\n");
    let ours = bed.start_ours(&serve);
    ours.wait_for("receiving", PROGRAM_TIME_MAX).unwrap();
    assert_eq!(bed.linux(&["sh", "-c", &ask(OURS)]), "DATAGRAM\n");
    end(ours);
    bed.judge();
}
