//! Another user of the machine gets nothing of a program under a relay, and no user exhausts it.

mod common;

use common::{relay, run, start, start_as};
use std::process::{Command, Stdio};
use xk_testkit::{needs_program, needs_root};

/// A program that speaks to itself through the stack all the time, and believes only what it has
/// said itself.
const HONEST: &str = r"
import socket, sys, threading, time
until = time.monotonic() + float(sys.argv[1])
server = socket.create_server(('10.0.0.1', 80), backlog=50)
heard, said = [], set()
def serve():
    while True:
        peer, address = server.accept()
        data = peer.recv(100)
        heard.append((address, peer.getpeername(), data))
        peer.sendall(b'honest')
        peer.close()
threading.Thread(target=serve, daemon=True).start()
receiver = socket.socket(type=socket.SOCK_DGRAM)
receiver.bind(('10.0.0.1', 700))
receiver.settimeout(5)
while time.monotonic() < until:
    client = socket.create_connection(('10.0.0.1', 80))
    said.add(client.getsockname())
    client.sendall(b'hello')
    assert client.recv(100) == b'honest'
    client.close()
    sender = socket.socket(type=socket.SOCK_DGRAM)
    sender.sendto(b'datagram', ('10.0.0.1', 700))
    data, address = receiver.recvfrom(100)
    assert data == b'datagram' and address[0] == '10.0.0.1', (data, address)
    sender.close()
for accepted, peer, data in heard:
    assert accepted == peer and peer in said and data == b'hello', (accepted, peer, data)
print('served', len(heard) > 0)
";

#[test]
fn another_user_gets_nothing() {
    needs_root!();
    needs_program!("python3");
    let (_stack, relay) = relay();
    let honest = start(&relay, "python3", &["-c", HONEST, "2"]);
    let stranger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stranger.py");
    let stranger =
        Command::new("python3").args([stranger, "1.5"]).stdout(Stdio::piped()).spawn().unwrap();
    let got = stranger.wait_with_output().unwrap();
    let honest = honest.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&got.stdout),
        "reached 0\nforged 0\nstolen 0\nanswered 0\nlisted 0\n"
    );
    assert_eq!(String::from_utf8_lossy(&honest.stdout), "served True\n");
}

/// A user that the relay lets in, with the path that programs have, and that comes again and again
/// and never asks.
const SILENT: &str = r"
import json, os, resource, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
folder = json.loads(os.environ['XK_EXEC'])['folder']
begun = time.monotonic()
held = []
# A while, and as long as it takes on a busy machine.
while time.monotonic() < begun + (1.5 if len(held) >= 3000 else 60):
    try:
        asker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asker.setblocking(False)
        asker.connect(folder + '/door')
        held.append(asker)
    except BlockingIOError:
        asker.close()
        time.sleep(0.001)
    except OSError:
        break
    if len(held) == 3000: print('many', flush=True)
print('held')
time.sleep(0.5)
";

#[test]
fn askers_that_never_ask_exhaust_nothing() {
    needs_root!();
    needs_program!("python3");
    let (_stack, relay) = relay();
    let flood = start_as(&relay, 65534, "python3", &["-c", SILENT]);
    assert_eq!(run(&relay, "python3", &["-c", HONEST, "1"]), "served True\n");
    let flood = flood.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&flood.stdout), "many\nheld\n");
}

/// A program's own sockets of unix(7) stay its own, whatever others call theirs.
const DISGUISED: &str = r"
import json, os, socket, tempfile
token = json.loads(os.environ['XK_EXEC'])['token']
folder = tempfile.mkdtemp()
os.chdir(folder)
forged = '%s,9,%s,4,10.0.0.1:80,10.0.0.99:22'
directory = os.open('.', os.O_RDONLY)
def disguise(kind, letter):
    other = socket.socket(socket.AF_UNIX, kind)
    other.bind('/proc/self/fd/%d/%s' % (directory, forged % (token, letter)))
    return other
server = socket.socket(socket.AF_UNIX)
server.bind('server')
server.listen()
client = disguise(socket.SOCK_STREAM, 's')
client.connect('server')
peer, address = server.accept()
assert isinstance(address, str) and peer.getpeername() == address, address
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind('receiver')
disguise(socket.SOCK_DGRAM, 'd').sendto(b'forged', 'receiver')
data, address = receiver.recvfrom(100)
assert isinstance(address, str), address
for file in os.listdir('.'): os.unlink(file)
os.rmdir(folder)
print('seen through')
";

#[test]
fn a_disguise_is_seen_through() {
    needs_program!("python3");
    let (_stack, relay) = relay();
    assert_eq!(run(&relay, "python3", &["-c", DISGUISED]), "seen through\n");
}

#[test]
fn nothing_is_left_of_names() {
    needs_program!("python3");
    let (_stack, relay) = relay();
    let ticket: xk_request::Ticket = xk_request::read(relay.ticket().as_bytes()).unwrap();
    let folder = std::path::PathBuf::from(ticket.folder);
    assert_eq!(run(&relay, "python3", &["-c", HONEST, "0.2"]), "served True\n");
    let own = run(&relay, "python3", &["-c", "import os; print(os.environ['XK_EXEC'])"]);
    assert_eq!(own.trim(), relay.ticket());
    drop(relay);
    assert!(!folder.exists(), "{}", folder.display());
}

#[test]
fn what_killed_processes_left_is_removed() {
    let Ok(own) = xk_relay::own_folder() else {
        xk_testkit::needs::skip("this user has no folder for sockets");
        return;
    };
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let age = |path: &std::path::Path| {
        let directory = std::fs::File::open(path).unwrap();
        directory.set_modified(long_ago).unwrap();
    };
    let left = own.join(format!("xk-{:032x}", std::process::id()));
    let other = own.join(format!("xk-of-others-{}", std::process::id()));
    for path in [&left, &other] {
        std::fs::create_dir(path).unwrap();
        std::fs::write(path.join("door"), "").unwrap();
        age(path);
    }
    let alive = xk_relay::Folder::make().unwrap();
    age(alive.path());
    let _new = xk_relay::Folder::make().unwrap();
    assert!(!left.exists() && other.exists() && alive.path().exists());
    std::fs::remove_dir_all(other).unwrap();
}
