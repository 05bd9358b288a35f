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

#[test]
fn an_option_is_kept_or_refused_whenever_it_is_set() {
    needs_program!("python3");
    let said = python(
        r"
import socket, errno, struct
TCP, UDP, IP, SOL = socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_IP, socket.SOL_SOCKET
IP_MTU_DISCOVER, IP_RECVERR, IP_PKTINFO, UDP_SEGMENT, TCP_FASTOPEN_CONNECT = 10, 11, 8, 103, 30
SO_TIMESTAMPNS, SO_ZEROCOPY = 35, 60
kept = [(IP, socket.IP_TOS, 16), (IP, IP_MTU_DISCOVER, 2), (IP, IP_MTU_DISCOVER, 0), (SOL, socket.SO_REUSEPORT, 1),
        (SOL, socket.SO_RCVBUF, 50000), (SOL, socket.SO_SNDBUF, 60000)]
kept_of_tcp = [(TCP, socket.TCP_NODELAY, 1), (TCP, TCP_FASTOPEN_CONNECT, 1), (TCP, socket.TCP_NOTSENT_LOWAT, 4096), (TCP, socket.TCP_KEEPIDLE, 33)]
refused = [(IP, socket.IP_TTL, 9), (IP, IP_RECVERR, 1), (IP, IP_PKTINFO, 1), (IP, socket.IP_MULTICAST_TTL, 3),
           (UDP, UDP_SEGMENT, 1000), (TCP, socket.TCP_SYNCNT, 3),
           (SOL, socket.SO_BINDTODEVICE, b'lo'), (SOL, socket.SO_DONTROUTE, 1)]
refused_of = {socket.SOCK_STREAM: [(SOL, SO_TIMESTAMPNS, 1)], socket.SOCK_DGRAM: [(SOL, SO_ZEROCOPY, 1)]}
def code(one, *option):
    try: one.setsockopt(*option)
    except OSError as error: return error.errno
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for level, name, value in kept + (kept_of_tcp if kind == socket.SOCK_STREAM else []):
        one = socket.socket(type=kind)
        one.setsockopt(level, name, value)
        before = one.getsockopt(level, name)
        one.bind(('10.0.0.1', 0))
        assert one.getsockopt(level, name) == before, (kind, level, name, before, one.getsockopt(level, name))
    for option in refused + refused_of[kind]:
        one = socket.socket(type=kind)
        assert code(one, *option) == errno.ENOPROTOOPT, (kind, option)
        assert code(one, IP, IP_PKTINFO, 0) is None
        one.bind(('10.0.0.1', 0))
        assert code(one, *option) == errno.ENOPROTOOPT, (kind, option)
# What is Linux's is Linux's affair.
six = socket.socket(socket.AF_INET6)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
six.setsockopt(TCP, socket.TCP_SYNCNT, 3)
one = socket.socket()
one.bind(('127.0.0.1', 0))
one.setsockopt(TCP, socket.TCP_SYNCNT, 3)
one.setsockopt(SOL, SO_TIMESTAMPNS, 1)
print('kept or refused')
",
    );
    assert_eq!(said, "kept or refused\n");
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
