//! Users of the commands' processes, of their visitors, and of the processes that they trust.

use crate::STEP_TIME_MAX;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xk_testkit::{ALONE, await_that, needs_root};

const NOBODY: u32 = 65_534;

/// A folder of the test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xk-users-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("a file");
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command that is killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str], sudo: Option<(&str, &str)>) -> Self {
        let mut command = xk(arguments);
        command.stdout(Stdio::piped());
        if let Some((user, group)) = sudo {
            command.env("SUDO_UID", user).env("SUDO_GID", group);
        }
        Self(command.spawn().expect("xk can be started"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn xk(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
    command.args(arguments);
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    command
}

/// The system's status of a process or thread.
struct Status(String);

impl Status {
    fn field(&self, name: &str) -> Vec<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name));
        let words = line.and_then(|rest| rest.strip_prefix(':'));
        words.unwrap_or_default().split_whitespace().collect()
    }

    /// Whether it is this user and group alone, and has no right besides and can get none.
    fn is_only(&self, user: &str, group: &str) -> bool {
        let none = |name| self.field(name) == ["0000000000000000"];
        self.field("Uid") == [user; 4]
            && self.field("Gid") == [group; 4]
            && self.field("Groups").is_empty()
            && ["CapInh", "CapPrm", "CapEff", "CapAmb"].into_iter().all(none)
            && self.field("NoNewPrivs") == ["1"]
    }
}

/// The system's status of each thread.
fn threads(pid: u32) -> Vec<Status> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
    tasks.flatten().filter_map(status).map(Status).collect()
}

/// Waits until all threads are this user's alone.
fn becomes(what: &str, pid: u32, user: &str, group: &str) {
    let began = Instant::now();
    loop {
        let threads = threads(pid);
        if !threads.is_empty() && threads.iter().all(|thread| thread.is_only(user, group)) {
            return;
        }
        let all: Vec<String> = threads.into_iter().map(|thread| thread.0).collect();
        assert!(began.elapsed() < STEP_TIME_MAX, "{what} is:\n{}", all.join("\n"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Numbers of a process's children whose name begins so.
fn children(pid: u32, name: &str) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    let all = list.split_whitespace().filter_map(|word| word.parse().ok());
    let is_named = |pid: &u32| {
        let found = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        found.starts_with(name)
    };
    all.filter(is_named).collect()
}

#[test]
fn what_runs_a_graph_does_not_stay_root() {
    needs_root!();
    let folder = Folder::new("run");
    let graph = folder.file("alone.kdl", ALONE);
    let socket = folder.path("switch.sock");
    let run = ["run", &graph, "--no-control"];
    let switch = ["switch", &socket];
    for (arguments, sudo, user, group) in [
        (&run[..], None, "65534", "65534"),
        (&run, Some(("4321", "1234")), "4321", "1234"),
        (&run, Some(("0", "0")), "65534", "65534"),
        (&[&run[..], &["--user", "777"]].concat(), None, "777", "777"),
        (&[&run[..], &["--user", "root"]].concat(), None, "0", "0"),
        (&switch, None, "65534", "65534"),
    ] {
        let running = Running::start(arguments, sudo);
        becomes(&arguments.join(" "), running.0.id(), user, group);
    }
    // With threads that look in.
    let control = folder.path("xk.sock");
    let running = Running::start(&["run", &graph, "--control", &control], None);
    becomes("run with a control socket", running.0.id(), "65534", "65534");
}

#[test]
fn a_stack_for_programs_does_not_stay_root_and_programs_do() {
    needs_root!();
    let folder = Folder::new("exec");
    let graph = folder.file("alone.kdl", ALONE);
    let running = Running::start(&["exec", "--graph", &graph, "--", "sleep", "60"], None);
    let pid = running.0.id();
    let began = Instant::now();
    let (stack, program) = loop {
        if let ([stack], [program]) = (&children(pid, "xk")[..], &children(pid, "sleep")[..]) {
            break (*stack, *program);
        }
        assert!(began.elapsed() < STEP_TIME_MAX);
        std::thread::sleep(Duration::from_millis(20));
    };
    becomes("the stack", stack, "65534", "65534");
    assert!(threads(stack).len() >= 3, "it has threads");
    let [program] = &threads(program)[..] else { panic!("one thread") };
    assert_eq!(program.field("Uid"), ["0"; 4]);
    assert_eq!(program.field("NoNewPrivs"), ["0"]);
}

#[test]
fn files_are_open_before_rights_are_given_up() {
    needs_root!();
    let folder = Folder::new("pcap");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).unwrap();
    let path = folder.path("all.pcapng");
    let text = format!(
        "host alone {{\n    loopback\n    pcap loopback file={path:?}\n    \
         ip pcap {{ address \"10.0.0.1/24\"; }}\n    icmp ip\n    \
         probe icmp to=\"10.0.0.2\" count=3 interval=\"5ms\" timeout=\"1s\"\n}}\n"
    );
    let graph = folder.file("pcap.kdl", &text);
    // No host answers, but what is asked crosses the edge.
    let output = xk(&["run", &graph, "--no-control"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY));
    assert!(found.len() > 300, "{} octets: {told}", found.len());
}

#[test]
fn the_control_socket_lies_where_others_can_put_nothing() {
    needs_root!();
    let folder = Folder::new("place");
    let graph = folder.file("alone.kdl", ALONE);
    let mut running = Running::start(&["run", &graph], None);
    let pid = running.0.id();
    let mut said = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("control socket") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it says where it is");
    }
    let path = line.split("control socket ").nth(1).and_then(|rest| rest.split(')').next());
    let path = PathBuf::from(path.unwrap());
    assert!(!path.starts_with("/tmp"), "{}", path.display());
    for above in path.ancestors().skip(1) {
        let found = fs::metadata(above).unwrap();
        assert!([0, NOBODY].contains(&found.uid()), "{}", above.display());
        assert_eq!(found.mode() & 0o022, 0, "{}", above.display());
    }
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let dump = xk(&["dump", "--pid", &pid.to_string()]).output().unwrap();
    let told = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(told.contains("host alone"), "{told}");
    // What is not named is told of, alone or among others; what is to be replaced has to be named.
    let bare = |command: &str| {
        let output = xk(&[command]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let listed = format!("--pid {pid} (host alone of ");
    let (_, said) = bare("dump");
    let is_named = said.contains("host alone of ") && said.contains(&format!("process {pid}, at "));
    assert!(is_named || said.contains(&listed), "{said}");
    let (code, said) = bare("upgrade");
    assert!(code == Some(2) && said.contains(&listed), "{said}");
    let status = Command::new("kill").args(["-INT", &pid.to_string()]).status();
    assert!(status.unwrap().success() && running.0.wait().unwrap().success());
    assert!(!path.exists(), "{} is left", path.display());
}

/// Prints the answer of a server made here, which may say anything.
fn asked(folder: &Folder, answer: impl Fn(&mut dyn Write) + Send + 'static) -> (bool, String) {
    let path = folder.path("server.sock");
    let server = UnixListener::bind(&path).unwrap();
    let serving = std::thread::spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        let mut asked = [0; 100];
        let _ = client.read(&mut asked);
        answer(&mut client);
    });
    let output = xk(&["dump", "--control", &path]).output().unwrap();
    serving.join().unwrap();
    fs::remove_file(&path).unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn an_answer_steers_no_terminal() {
    let folder = Folder::new("steer");
    let evil = "\u{1b}]0;evil\u{7}\u{1b}[2J\u{9b}2J\r\u{202e}";
    let host = Value::from(evil).to_string();
    let answers = [
        format!(
            r#"{{"ok":{{"about":{{"host":{host},"file":{host},"pid":1}},"now_ns":1,"protocols":[{{"name":{host},"kind":{host}}}]}}}}"#
        ),
        format!(r#"{{"error":{host}}}"#),
    ];
    for answer in answers {
        let (_, told) = asked(&folder, move |client| {
            let _ = writeln!(client, "{answer}");
        });
        assert!(told.contains("evil") && told.contains(r"\u{1b}"), "{told}");
        let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!told.contains(steers), "{told:?}");
    }
}

#[test]
fn an_answer_without_end_has_an_end() {
    let folder = Folder::new("endless");
    let (succeeded, told) = asked(&folder, |client| {
        let piece = vec![b' '; 1 << 20];
        while client.write_all(&piece).is_ok() {}
    });
    assert!(!succeeded && told.contains("octets"), "{told}");
}

/// Listens where a control socket could be, as its user.
const LISTENS: &str = "
import os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print('listens', flush=True)
server.accept()[0].recv(100)
print('asked')
";

#[test]
fn another_users_process_is_not_asked() {
    needs_root!("python3");
    let folder = Folder::new("stranger");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path("server.sock");
    let mut command = Command::new("python3");
    command.args(["-c", LISTENS, &path]).uid(NOBODY).gid(NOBODY);
    let mut stranger = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(stranger.0.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "listens\n");
    assert!(Path::new(&path).exists());
    let output = xk(&["dump", "--control", &path]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("user 65534"), "{told}");
}

#[test]
fn a_user_without_a_folder_hears_how_to_name_one() {
    needs_root!("setpriv");
    let user = ["--reuid=61004", "--regid=61004", "--clear-groups", env!("CARGO_BIN_EXE_xk")];
    let mut command = Command::new("setpriv");
    command.args(user).args(["run", "--for", "10ms", &graph("shm-a.kdl")]);
    let folder = Folder::new("without");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    command.current_dir(&folder.0).env_remove("XDG_RUNTIME_DIR");
    let output = command.output().expect("setpriv can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("/run/user/61004") && told.contains("--control PATH"), "{told}");
}

/// A graph of the repository.
fn graph(name: &str) -> String {
    format!("{}/../../graphs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// As docs/README.md has it, by root without sudo: in a folder where `nobody` may write.
#[test]
fn hosts_that_share_memory_meet_if_root_starts_them() {
    needs_root!();
    let folder = Folder::new("shm");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o1777)).unwrap();
    let run = |name| {
        let mut command = xk(&["run", &graph(name), "--no-control"]);
        command.current_dir(&folder.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let answering = Running(run("shm-a.kdl").spawn().expect("xk can be started"));
    let output = run("shm-b.kdl").output().expect("xk can be started");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && told.contains("received 1000"), "{told}");
    becomes("the host that answers", answering.0.id(), "65534", "65534");
    // It listens again a little after the other has gone.
    await_that!(
        STEP_TIME_MAX,
        Path::new(&folder.path("xk-shm-lab.sock")).exists(),
        "it listens again"
    );
    for name in ["xk-shm-lab.sock", "xk-shm-lab.sock.lock"] {
        let found = fs::metadata(folder.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((found.uid(), found.gid()), (NOBODY, NOBODY), "{name}");
        assert_eq!(found.mode() & 0o022, 0, "{name}: others may write");
    }
    // Where that user may not, it is said what to do.
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    drop(answering);
    let _ = fs::remove_file(folder.path("xk-shm-lab.sock.lock"));
    let refused = run("shm-a.kdl").args(["--for", "1s"]).output().expect("xk can be started");
    let told = String::from_utf8_lossy(&refused.stdout);
    assert!(told.contains("choose a folder of that user's"), "{told}");
}

/// Comes as another user to the place where programs attach, and says what comes of it.
const COMES: &str = "
import os, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect(sys.argv[1])
hello = server.recv(100)
print('refused' if hello[6:8] == b'\\x03\\x00' else 'let in')
";

/// Files of a process that no other user may see.
const OWN: [&str; 6] = ["maps", "mem", "environ", "auxv", "syscall", "fd/0"];

#[test]
fn another_user_takes_hold_of_nothing_of_a_host_in_domains() {
    const STRANGER: u32 = 61_003;
    needs_root!("python3", "setpriv");
    let in_shm = || {
        let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.contains("xk")).collect::<Vec<_>>()
    };
    let (folder, before) = (Folder::new("domains"), in_shm());
    std::os::unix::fs::chown(&folder.0, Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let door = folder.path("door.sock");
    let text = format!(
        "host lab {{\n    loopback\n    domain net {{\n        \
         ip loopback {{ address \"10.0.0.1/24\"; }}\n        icmp ip\n        udp ip\n    }}\n    \
         domain apps {{ echo udp port=7; }}\n    \
         domain users open path={door:?} {{ grant udp port=\"5000..5999\" uid=61002; }}\n}}\n"
    );
    let file = folder.file("lab.kdl", &text);
    let mut running = Running::start(&["run", &file], None);
    let mut said = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("control socket") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it says where it is");
    }
    let control = line.split("control socket ").nth(1).and_then(|rest| rest.split(')').next());
    let control = control.expect("a path");
    let main = running.0.id();
    let domains = children(main, "xk: lab/");
    let domains = [domains, children(main, "xk: first domai")].concat();
    assert_eq!(domains.len(), 3, "the first domain and two others");
    let as_user = |user: u32, what: &[&str]| {
        let mut command = Command::new("setpriv");
        let ids = [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()];
        // A program of the system: root's own are out of the others' reach.
        command.env("PATH", "/usr/bin:/bin").args(ids).args(what);
        command.output().expect("setpriv can be started")
    };
    // Processes of domains are `nobody`'s; another process of that user may end them, no more.
    for user in [STRANGER, NOBODY] {
        for process in domains.iter().chain([&main]) {
            for name in OWN {
                let path = format!("/proc/{process}/{name}");
                let read = as_user(user, &["head", "-c1", &path]);
                assert!(!read.status.success(), "user {user} reads {path}");
            }
            let signal = as_user(user, &["kill", "-0", &process.to_string()]);
            let may = user == NOBODY && *process != main;
            assert_eq!(signal.status.success(), may, "user {user} signals {process}");
        }
        let looked = as_user(user, &["test", "-e", control]);
        assert_eq!(looked.status.success(), user == NOBODY, "user {user} finds {control}");
    }
    let come = as_user(STRANGER, &["python3", "-c", COMES, &door]);
    assert_eq!(String::from_utf8_lossy(&come.stdout), "refused\n", "{come:?}");
    let removed = as_user(STRANGER, &["rm", "-f", control]);
    assert!(!removed.status.success());
    // Memory has no name, and no socket one that any user could take first.
    assert_eq!(in_shm(), before);
    let sockets = fs::read_to_string("/proc/net/unix").unwrap();
    let mut abstracts = sockets.lines().filter_map(|line| line.split_whitespace().nth(7));
    assert!(!abstracts.any(|name| name.starts_with('@') && name.contains("xk")), "{sockets}");
}
