//! Programs that ask more of streams than their octets: each runs on a stack and on Linux's
//! loopback, and prints the same.

mod common;

use common::{relay, run};
use std::process::Command;
use xk_testkit::needs_program;

/// Runs a script with the host to use as its argument, on a stack and on Linux.
fn as_on_linux(script: &str) {
    needs_program!("python3");
    let script = format!("{PRELUDE}{script}");
    let (_stack, relay) = relay();
    let ours = run(&relay, "python3", &["-c", &script, "10.0.0.1"]);
    let linux = Command::new("python3").args(["-c", &script, "127.0.0.1"]).output().unwrap();
    assert!(linux.status.success(), "{}", String::from_utf8_lossy(&linux.stderr));
    assert_eq!(ours, String::from_utf8(linux.stdout).unwrap());
    assert!(!ours.is_empty());
}

/// A stream between `one` and `other`, and how a program looks at it.
const PRELUDE: &str = r"
import socket, struct, sys, fcntl, select, time
TCP, INQ, OUTQ, OUTQNSD = socket.IPPROTO_TCP, 0x541b, 0x5411, 0x894b
server = socket.socket()
server.bind((sys.argv[1], 0))
def stream():
    global one, other
    server.listen()
    one = socket.create_connection(server.getsockname())
    other, _ = server.accept()
def asked(of, request): return struct.unpack('i', fcntl.ioctl(of, request, bytes(4)))[0]
def until(holds):
    # Longer than anything takes, even on a busy machine.
    for _ in range(3000):
        if holds(): return True
        time.sleep(0.01)
    return False
def info(of, at, form='I'): return struct.unpack_from(form, of.getsockopt(TCP, socket.TCP_INFO, 248), at)[0]
";

#[test]
fn what_is_unread_is_told_with_what_is_read() {
    as_on_linux(
        r"
stream()
TCP_INQ = 36
print(other.getsockopt(TCP, TCP_INQ))
other.setsockopt(TCP, TCP_INQ, 1)
print(other.getsockopt(TCP, TCP_INQ), one.getsockopt(TCP, TCP_INQ))
try: other.setsockopt(TCP, TCP_INQ, 2)
except OSError as error: print(error.errno)
one.sendall(bytes(1000))
print(until(lambda: asked(other, INQ) == 1000))
def read(octets, room):
    data, controls, flags, _ = other.recvmsg(octets, room)
    print(len(data), [(l, t, struct.unpack('i', d)) for l, t, d in controls], flags & socket.MSG_CTRUNC)
read(300, 100)
read(200, 0)
one.close()
polled = select.poll()
polled.register(other, select.POLLRDHUP)
polled.poll()
read(400, 100)
read(400, 100)
read(400, 100)
other.setsockopt(TCP, TCP_INQ, 0)
read(400, 100)
",
    );
}

#[test]
fn what_a_listener_tells_its_streams_tell() {
    as_on_linux(
        r"
server.setsockopt(TCP, 36, 1)
stream()
print(other.getsockopt(TCP, 36), one.getsockopt(TCP, 36))
early = socket.socket()
early.setsockopt(TCP, 36, 1)
early.connect(server.getsockname())
print(early.getsockopt(TCP, 36))
",
    );
}

#[test]
fn what_the_peer_has_not_acknowledged_is_told() {
    as_on_linux(
        r"
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
stream()
print(asked(one, OUTQ), asked(one, OUTQNSD))
one.sendall(bytes(100))
print(until(lambda: asked(one, OUTQ) == 0))
one.setblocking(False)
sent = 0
try:
    while True: sent += one.send(bytes(10000))
except BlockingIOError: pass
waits = asked(one, OUTQ)
print(sent > 100000, sent - 65536 < waits <= sent, 0 < asked(one, OUTQNSD) <= waits)
def drained():
    if select.select([other], [], [], 0)[0]: other.recv(1000000)
    return asked(one, OUTQ) == 0
print(until(drained), asked(one, OUTQNSD))
try: asked(server, OUTQ)
except OSError as error: print(error.errno)
",
    );
}

#[test]
fn no_more_waits_unsent_than_a_program_says() {
    as_on_linux(
        r"
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
def written(lowat, early):
    global one, other
    server.listen()
    one = socket.socket()
    if early: one.setsockopt(TCP, socket.TCP_NOTSENT_LOWAT, lowat)
    one.connect(server.getsockname())
    if not early: one.setsockopt(TCP, socket.TCP_NOTSENT_LOWAT, lowat)
    other, _ = server.accept()
    one.setblocking(False)
    sent, quiet = 0, 0
    # What is sent meanwhile makes room.
    while quiet < 20:
        try:
            sent += one.send(bytes(1000))
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.01)
    return sent
print(written(0, False) > 400000)
for early in (False, True):
    print(written(16384, early) < 200000, one.getsockopt(TCP, socket.TCP_NOTSENT_LOWAT))
    polled = select.poll()
    polled.register(one, select.POLLOUT)
    # A late segment, on a busy machine, makes room once more.
    def full():
        try: one.send(bytes(1000))
        except BlockingIOError: pass
        return not polled.poll(0)
    print(until(full))
    def writable():
        if select.select([other], [], [], 0)[0]: other.recv(1000000)
        return bool(polled.poll(0))
    print(until(writable))
",
    );
}

#[test]
fn acknowledgements_are_quick_until_answers_follow() {
    as_on_linux(
        r"
stream()
print(other.getsockopt(TCP, socket.TCP_QUICKACK))
def exchange():
    one.send(b'?'), other.recv(1), other.send(b'!'), one.recv(1)
    return other.getsockopt(TCP, socket.TCP_QUICKACK) == 0
print(until(exchange))
for number in (1, 0, 7):
    other.setsockopt(TCP, socket.TCP_QUICKACK, number)
    print(other.getsockopt(TCP, socket.TCP_QUICKACK))
",
    );
}

#[test]
fn how_a_stream_stands_is_told_as_by_linux() {
    as_on_linux(
        r"
# A segment that a busy machine keeps too long is sent again: the next stream is looked at then.
for n in range(20):
    stream()
    one.sendall(bytes(1000))
    told = until(lambda: asked(other, INQ) == 1000), until(lambda: info(one, 24) == 0)
    time.sleep(0.3)
    if info(one, 100) == info(other, 100) == 0: break
print(told)
members = {'state': (0, 'B'), 'ca_state': (1, 'B'), 'retransmits': (2, 'B'), 'probes': (3, 'B'),
    'backoff': (4, 'B'), 'options': (5, 'B'), 'unacked': (24, 'I'), 'sacked': (28, 'I'),
    'lost': (32, 'I'), 'retrans': (36, 'I'), 'reordering': (88, 'I'), 'total_retrans': (100, 'I'),
    'bytes_received': (128, 'Q'), 'notsent': (144, 'I'),
    'bytes_sent': (200, 'Q'), 'bytes_retrans': (208, 'Q'), 'dsack_dups': (216, 'I'),
    'reord_seen': (220, 'I'), 'rcv_ooopack': (224, 'I')}
for name, (at, form) in members.items(): print(name, info(one, at, form), info(other, at, form))
for of, at in ((one, 44), (one, 56), (other, 52)): print(200 <= info(of, at) < 60000)
for at in (8, 16, 20, 60, 64, 68, 80, 84, 96, 148, 228, 232): print(at, info(one, at) > 0)
print(info(one, 104, 'Q') > 0, info(one, 112, 'Q') == 2 ** 64 - 1)
other.close()
polled = select.poll()
polled.register(one, select.POLLRDHUP)
polled.poll()
print(info(one, 0, 'B'))
",
    );
}

#[test]
fn what_was_to_go_without_a_copy_is_told_complete() {
    as_on_linux(
        r"
SO_ZEROCOPY, MSG_ZEROCOPY, ERRORS = 60, 0x4000000, socket.MSG_ERRQUEUE
stream()
print(one.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY))
def queue():
    data, controls, flags, _ = one.recvmsg(10, 200, ERRORS)
    [(level, kind, octets)] = controls
    return (len(data), level, kind, struct.unpack_from('IBBBB', octets), len(octets), flags), struct.unpack_from('II', octets, 8)
def empty():
    try: queue()
    except BlockingIOError as error: return error.errno
print(empty())
# Without the option the flag means nothing.
one.send(bytes(5000), MSG_ZEROCOPY)
print(len(other.recv(5000, socket.MSG_WAITALL)), empty())
try: one.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 2)
except OSError as error: print(error.errno)
one.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
print(one.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY))
polled, waited = select.poll(), select.epoll()
polled.register(one, 0)
waited.register(one, select.EPOLLIN)
told, next = set(), 0
for n in range(3):
    one.send(bytes(20000), MSG_ZEROCOPY)
    print(len(other.recv(20000, socket.MSG_WAITALL)))
while next < 3:
    [(_, events)] = polled.poll()
    [(_, more)] = waited.poll()
    what, (first, last) = queue()
    told.add((events, more, what, first == next))
    next = last + 1
print(told, empty(), polled.poll(0), waited.poll(0))
# Early, and inherited.
server.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
stream()
print(other.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY), one.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY))
early = socket.socket()
early.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
early.connect(server.getsockname())
print(early.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY))
",
    );
}

#[test]
fn datagrams_have_times_in_either_form() {
    as_on_linux(
        r"
for early in (False, True):
    for option in (socket.SO_TIMESTAMP if hasattr(socket, 'SO_TIMESTAMP') else 29, 35):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if early: one.setsockopt(socket.SOL_SOCKET, option, 1)
        one.bind((sys.argv[1], 0))
        if not early: one.setsockopt(socket.SOL_SOCKET, option, 1)
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.sendto(b'hello', one.getsockname())
        data, [(level, kind, octets)], flags, _ = one.recvmsg(100, 100)
        seconds, part = struct.unpack('qq', octets)
        print(data, level, kind, len(octets), flags, abs(seconds - time.time()) < 600, 0 <= part < 10 ** 9)
",
    );
}

#[test]
fn first_octets_go_with_the_beginning() {
    as_on_linux(
        r"
FASTOPEN_CONNECT = 30
server.setsockopt(TCP, socket.TCP_FASTOPEN, 5)
server.listen()
address = server.getsockname()
def look(client, asked):
    peer, name = server.accept()
    print(peer.recv(100) == asked, name == client.getsockname(), client.getpeername() == address)
    peer.sendall(b'answer')
    print(client.recv(100))
    client.close()
    print(peer.recv(100))
# The first one has no cookie to show.
for n in range(3):
    client = socket.socket()
    print(client.sendto(b'asked', socket.MSG_FASTOPEN, address))
    try: client.sendto(b'again', socket.MSG_FASTOPEN, address)
    except OSError as error: print(error.errno)
    look(client, b'asked')
for n in range(3):
    client = socket.socket()
    client.setsockopt(TCP, FASTOPEN_CONNECT, 1)
    print(client.getsockopt(TCP, FASTOPEN_CONNECT))
    client.connect(address)
    print(client.send(b'asked'))
    look(client, b'asked')
gone = socket.socket()
gone.bind((sys.argv[1], 0))
for flags in (0, socket.MSG_FASTOPEN):
    client = socket.socket()
    try: print(client.sendto(b'asked', flags, gone.getsockname()))
    except OSError as error: print(error.errno)
stream()
try: print(one.sendto(b'more', socket.MSG_FASTOPEN, address))
except OSError as error: print(error.errno)
",
    );
}
