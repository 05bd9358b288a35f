//! Unmodified programs on a stack: what they see is what they would see of Linux.

mod common;

use common::{relay, run, start};
use xk_testkit::needs_program;

fn python(script: &str) -> String {
    let (_stack, relay) = relay();
    run(&relay, "python3", &["-c", script])
}

#[test]
fn a_server_and_a_client_speak() {
    needs_program!("python3");
    let said = python(
        r"
import socket, threading
server = socket.create_server(('10.0.0.1', 80))
assert server.getsockname() == ('10.0.0.1', 80), server.getsockname()
def serve():
    peer, address = server.accept()
    assert peer.getpeername() == address
    assert peer.getsockname() == ('10.0.0.1', 80)
    data = b''
    while part := peer.recv(1000): data += part
    peer.sendall(data.upper())
    peer.close()
threading.Thread(target=serve).start()
client = socket.create_connection(('10.0.0.1', 80))
assert client.getpeername() == ('10.0.0.1', 80)
assert client.getsockname()[0] == '10.0.0.1'
assert client.family == socket.AF_INET
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
client.sendall(b'hello ' * 1000)
client.shutdown(socket.SHUT_WR)
data = b''
while part := client.recv(1000): data += part
assert data == b'HELLO ' * 1000, len(data)
print('spoken')
",
    );
    assert_eq!(said, "spoken\n");
}

#[test]
fn errors_are_those_of_linux() {
    needs_program!("python3");
    let said = python(
        r"
import socket, errno
try:
    socket.create_connection(('10.0.0.1', 9))
    assert False
except ConnectionRefusedError: pass
one = socket.create_server(('10.0.0.1', 0))
assert one.getsockname()[1] >= 49152
try:
    socket.create_server(one.getsockname())
    assert False
except OSError as error: assert error.errno == errno.EADDRINUSE, error
address = one.getsockname()
one.close()
socket.create_server(address)
client = socket.socket()
client.settimeout(5)
try:
    client.connect(('10.0.0.1', 9))
    assert False
except ConnectionRefusedError: pass
print('right')
",
    );
    assert_eq!(said, "right\n");
}

#[test]
fn a_connection_in_the_making_is_polled() {
    needs_program!("python3");
    let said = python(
        r"
import socket, select, errno
server = socket.create_server(('10.0.0.1', 80))
for port, wanted in ((80, 0), (9, errno.ECONNREFUSED)):
    client = socket.socket()
    client.setblocking(False)
    polled = select.epoll()
    polled.register(client, select.EPOLLOUT | select.EPOLLET)
    polled.poll(0)
    assert client.connect_ex(('10.0.0.1', port)) == errno.EINPROGRESS
    events = polled.poll(10)
    assert events and events[0][1] & select.EPOLLOUT, events
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == wanted
peer, _ = server.accept()
client = peer
print('polled')
",
    );
    assert_eq!(said, "polled\n");
}

#[test]
fn a_child_has_its_parents_sockets() {
    needs_program!("python3");
    let said = python(
        r"
import socket, os
server = socket.create_server(('0.0.0.0', 80))
for n in range(4):
    if os.fork() == 0:
        peer, _ = server.accept()
        peer.sendall(b'child %d' % n)
        os._exit(0)
heard = set()
for n in range(4):
    client = socket.create_connection(('10.0.0.1', 80))
    heard.add(client.recv(100))
assert len(heard) == 4, heard
print('born')
",
    );
    assert_eq!(said, "born\n");
}

#[test]
fn datagrams_keep_their_boundaries_and_senders() {
    needs_program!("python3");
    let said = python(
        r"
import socket, errno
one = socket.socket(type=socket.SOCK_DGRAM)
one.bind(('10.0.0.1', 700))
other = socket.socket(type=socket.SOCK_DGRAM)
other.connect(('10.0.0.1', 700))
other.send(b'first')
other.sendto(b'', ('10.0.0.1', 700))
other.send(b'x' * 60000)
assert one.recvfrom(100) == (b'first', other.getsockname())
assert one.recvfrom(100) == (b'', other.getsockname())
assert one.recvfrom(65536) == (b'x' * 60000, other.getsockname())
one.sendto(b'back', other.getsockname())
assert other.recv(10) == b'back'
one.close()
other.send(b'anybody?')
try:
    other.recv(10)
    assert False
except ConnectionRefusedError: pass
print('kept')
",
    );
    assert_eq!(said, "kept\n");
}

#[test]
fn a_stream_that_is_reset_says_so() {
    needs_program!("python3");
    let said = python(
        r"
import os, socket, struct
server = socket.create_server(('10.0.0.1', 80))
for call in (lambda s: s.recv(10), lambda s: os.read(s.fileno(), 10)):
    client = socket.create_connection(('10.0.0.1', 80))
    peer, _ = server.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    peer.close()
    try:
        call(client)
        assert False
    except ConnectionResetError: pass
    assert client.recv(10) == b''
print('said')
",
    );
    assert_eq!(said, "said\n");
}

/// Options that Linux takes are taken and told the same, before bind and behind it, unless their
/// absence would be noticed: such an option is refused once the socket is the graph's, and that is
/// said once.
#[test]
fn an_option_is_taken_unless_it_would_be_missed() {
    needs_program!("python3");
    let said = python(
        r"
import errno, os, socket, sys
TCP, UDP, IP, SIX, SOL = socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET
both = [(IP, option, value) for option, value in ((1, 16), (2, 9), (8, 1), (10, 2), (11, 1), (12, 1), (13, 1), (15, 1), (34, 0), (49, 0))]
both += [(SOL, option, value) for option, value in ((5, 1), (7, 60000), (8, 50000), (15, 1), (29, 1), (35, 1), (40, 1))]
streams = [(TCP, option, value) for option, value in ((1, 1), (4, 33), (7, 3), (8, 9), (8, 1000), (8, -5), (10, 20000), (12, 0), (17, 1), (25, 4096))]
datagrams = [(IP, 33, 4), (UDP, 103, 1200), (UDP, 104, 1)]
six = [(SIX, option, value) for option, value in ((16, 9), (19, 0), (23, 2), (25, 1), (49, 1), (51, 1), (62, 1), (66, 1), (67, 16), (70, 0))]
missed = [(IP, 21, 5), (IP, 20, 1), (TCP, 27, 1), (TCP, 37, 5), (SOL, 61, bytes(8) + b'\1')]
def made(family, kind, host):
    one = socket.socket(family, kind)
    if host: one.bind((host, 0))
    return one
for family, host, rows in ((socket.AF_INET, '10.0.0.1', both), (socket.AF_INET6, '::', six)):
    for kind, more in ((socket.SOCK_STREAM, streams), (socket.SOCK_DGRAM, datagrams)):
        for level, name, value in rows + more:
            linux = made(family, kind, '')
            linux.setsockopt(level, name, value)
            told = linux.getsockopt(level, name)
            linux.bind((host, 0))
            assert linux.getsockopt(level, name) == told, (kind, level, name, 'kept', told, linux.getsockopt(level, name))
            ours = made(family, kind, host)
            ours.setsockopt(level, name, value)
            assert ours.getsockopt(level, name) == told, (kind, level, name, 'set', told, ours.getsockopt(level, name))
sys.stderr.flush()
kept = os.dup(2)
read, write = os.pipe()
os.dup2(write, 2)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for option in missed:
        if option[0] == TCP and kind == socket.SOCK_DGRAM: continue
        try: made(socket.AF_INET, kind, '10.0.0.1').setsockopt(*option)
        except OSError as error: assert error.errno == errno.ENOPROTOOPT, (option, error)
        else: assert False, option
os.dup2(kept, 2)
os.close(write)
# Standard error is another than it was in the beginning: nothing is written into it.
assert os.read(read, 1000) == b''
print('taken')
",
    );
    assert_eq!(said, "taken\n");
}

/// Fields of headers are told and asked for by control messages in both directions, and a
/// socket with two addresses answers from the one that it was asked at.
#[test]
fn control_messages_of_datagrams_are_those_of_linux() {
    needs_program!("python3");
    let said = python(
        r"
import socket, struct
IP, UDP = socket.IPPROTO_IP, socket.IPPROTO_UDP
one = socket.socket(type=socket.SOCK_DGRAM)
for option in (8, 12, 13): one.setsockopt(IP, option, 1)
one.bind(('0.0.0.0', 0))
other = socket.socket(type=socket.SOCK_DGRAM)
other.bind(('10.0.0.1', 0))
other.setsockopt(IP, socket.IP_TTL, 9)
other.sendto(b'x', ('10.0.0.1', one.getsockname()[1]))
other.sendmsg([b'y'], [(IP, socket.IP_TTL, struct.pack('i', 5)), (IP, socket.IP_TOS, struct.pack('i', 0x40))], 0, ('10.0.0.1', one.getsockname()[1]))
for data, hops, tos in ((b'x', 9, 0), (b'y', 5, 0x40)):
    got, control, flags, sender = one.recvmsg(10, 200)
    control = {kind: octets for level, kind, octets in control if level == IP}
    assert (got, flags, sender) == (data, 0, other.getsockname()), (got, flags, sender)
    assert control[8][4:] == socket.inet_aton('10.0.0.1') * 2, control
    assert struct.unpack('i', control[2]) == (hops,) and control[1] == bytes([tos]), control
info = struct.pack('I4s4s', 0, socket.inet_aton('10.0.0.1'), bytes(4))
one.sendmsg([b'back'], [(IP, 8, info)], 0, other.getsockname())
assert other.recvfrom(10) == (b'back', ('10.0.0.1', one.getsockname()[1]))
other.sendmsg([b'aabbc'], [(UDP, 103, struct.pack('H', 2))], 0, ('10.0.0.1', one.getsockname()[1]))
assert [one.recv(10) for _ in range(3)] == [b'aa', b'bb', b'c']
print('told')
",
    );
    assert_eq!(said, "told\n");
}

/// A burst of beginnings finds all the room that the backlog says, however it is divided.
#[test]
fn a_burst_up_to_the_backlog_is_taken_at_once() {
    needs_program!("python3");
    let said = python(
        r"
import select, socket, time
server = socket.socket()
server.bind(('10.0.0.1', 0))
server.listen(100)
poller, clients = select.poll(), []
begun = time.monotonic()
for n in range(100):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(server.getsockname())
    poller.register(client, select.POLLOUT)
    clients.append(client)
while len(poller.poll(100)) < 100: pass
# None was let wait for its first repeat.
again = [client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[100:] for client in clients]
assert again == [bytes(4)] * 100, again
print('taken')
",
    );
    assert_eq!(said, "taken\n");
}

#[test]
fn loopback_is_linux() {
    needs_program!("python3");
    let said = python(
        r"
import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
peer, address = server.accept()
assert address == client.getsockname()
print('linux')
",
    );
    assert_eq!(said, "linux\n");
}

#[test]
fn curl_fetches_from_pythons_server() {
    needs_program!("curl", "python3");
    let (_stack, relay) = relay();
    let folder = std::env::temp_dir().join(format!("xk-curl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let content: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(folder.join("numbers"), &content).unwrap();
    let directory = folder.display().to_string();
    let serve = ["-m", "http.server", "8000", "-b", "10.0.0.1", "-d", &directory];
    let mut server = start(&relay, "python3", &serve);
    let url = "http://10.0.0.1:8000/numbers";
    let retry = ["-sS", "--retry", "100", "--retry-connrefused", "--retry-delay", "1", url];
    let fetched = run(&relay, "curl", &retry);
    server.kill().unwrap();
    server.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(fetched == content, "{} octets", fetched.len());
}

/// As on Linux, one more than the number waits; the others are told nothing, and come in later.
#[test]
fn as_many_wait_as_the_program_says() {
    needs_program!("python3");
    let said = python(
        r"
import select, socket, time
for backlog, wanted in (0, 3), (5, 6), (12, 13):
    server = socket.socket()
    server.bind(('10.0.0.1', 0))
    server.listen(backlog)
    poller, clients = select.poll(), []
    for n in range(wanted + 10):
        client = socket.socket()
        client.setblocking(False)
        assert client.connect_ex(server.getsockname()) == 115
        poller.register(client, select.POLLOUT)
        clients.append(client)
        # One after the other: of several that ask at one time each is answered.
        begun = time.monotonic()
        while len(poller.poll(0)) < min(n + 1, wanted) and time.monotonic() < begun + 30: time.sleep(0.001)
    time.sleep(0.2)
    connected = poller.poll(0)
    assert all(event == select.POLLOUT for _, event in connected), connected
    assert len(connected) == wanted, (backlog, len(connected))
    server.settimeout(30)
    for n in range(wanted + 1): server.accept()
print('waited')
",
    );
    assert_eq!(said, "waited\n");
}

/// From the first window on, and whatever lies between the stack and the program: what Linux takes
/// for a buffer of 4,096 is 5 KB.
#[test]
fn a_receive_buffer_bounds_a_stream() {
    needs_program!("python3");
    let said = python(
        r"
import socket, struct, time
def acknowledged(early):
    server = socket.socket()
    if early: server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.bind(('10.0.0.1', 0))
    server.listen()
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
    if not early: peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(0.3)
    sent = 0
    try:
        while sent < 2000000: sent += client.send(bytes(10000))
    except TimeoutError: pass
    info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 148)
    octets, = struct.unpack_from('Q', info, 120)
    got = 0
    peer.settimeout(30)
    while got < sent: got += len(peer.recv(65536))
    return octets
# Once it is said, the first window is not taken back.
for early, most in (True, 40000), (False, 110000):
    octets = acknowledged(early)
    assert 0 < octets < most, (early, octets)
print('bounded')
",
    );
    assert_eq!(said, "bounded\n");
}
