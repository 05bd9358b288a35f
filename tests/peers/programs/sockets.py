"""What a program sees of its sockets: runs on Linux's and under `xk exec`, and prints the same.

    sockets.py peer                     the other host: does what it is asked, on Linux's sockets
    sockets.py subject OURS PEER        prints one line for each behaviour
"""

import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

CONTROL = 4000
PATIENCE = 10.0
SOL_TCP = socket.IPPROTO_TCP


def peer():
    """Listens at the control port; each line is a task, answered when it is done."""
    control = socket.create_server(("0.0.0.0", CONTROL))
    echo = socket.create_server(("0.0.0.0", 4007))
    threading.Thread(target=serve, args=(echo, echoing), daemon=True).start()
    silent = socket.create_server(("0.0.0.0", 4009))
    threading.Thread(target=serve, args=(silent, holding), daemon=True).start()
    reset = socket.create_server(("0.0.0.0", 4010))
    threading.Thread(target=serve, args=(reset, resetting), daemon=True).start()
    brief = socket.create_server(("0.0.0.0", 4011))
    threading.Thread(target=serve, args=(brief, greeting), daemon=True).start()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("0.0.0.0", 4007))
    threading.Thread(target=echo_datagrams, args=(datagrams,), daemon=True).start()
    print("ready", flush=True)
    while True:
        one, _ = control.accept()
        for line in one.makefile():
            words = line.split()
            try:
                globals()["task_" + words[0]](*words[1:])
                one.sendall(b"done\n")
            except OSError as error:
                one.sendall(errno.errorcode[error.errno].encode() + b"\n")
        one.close()


def serve(listener, what):
    while True:
        one, _ = listener.accept()
        threading.Thread(target=what, args=(one,), daemon=True).start()


def echoing(one):
    try:
        while part := one.recv(65536):
            one.sendall(part)
        one.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    one.close()


HELD = []


def holding(one):
    HELD.append(one)


def resetting(one):
    """Breaks off as soon as an octet has come, or at once if it is an `r`."""
    one.recv(1)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def greeting(one):
    one.sendall(b"hello")
    one.close()


def echo_datagrams(one):
    while True:
        data, who = one.recvfrom(65536)
        one.sendto(data, who)


def task_connect(host, port, how):
    """Connects to the subject and does as it is told."""
    one = socket.create_connection((host, int(port)), timeout=PATIENCE)
    if how == "echo":
        threading.Thread(target=echoing, args=(one,), daemon=True).start()
    elif how == "reset":
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    elif how == "close":
        one.close()
    else:
        HELD.append(one)


def task_datagrams(host, port, count):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("0.0.0.0", 4020))
    for n in range(int(count)):
        one.sendto(b"%d" % n * (n + 1), (host, int(port)))
    one.close()


def task_release():
    while HELD:
        HELD.pop().close()


class Subject:
    def __init__(self, ours, other):
        self.ours, self.other = ours, other
        self.control = socket.create_connection((other, CONTROL), timeout=PATIENCE)
        self.answers = self.control.makefile()

    def ask(self, *words):
        self.control.sendall(" ".join(map(str, words)).encode() + b"\n")
        return self.answers.readline().strip()

    def stream(self, port):
        return socket.create_connection((self.other, port), timeout=PATIENCE)

    def listen(self, port):
        one = socket.create_server((self.ours, port))
        one.settimeout(PATIENCE)
        return one

    def accepted(self, port, how):
        with self.listen(port) as listener:
            said = []
            asking = threading.Thread(target=lambda: said.append(self.ask("connect", self.ours, port, how)))
            asking.start()
            one, _ = listener.accept()
            asking.join()
        one.settimeout(PATIENCE)
        return one

    def datagrams(self, port=0, connected=None):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.settimeout(PATIENCE)
        if port is not None:
            one.bind((self.ours, port))
        if connected:
            one.connect((self.other, connected))
        return one

    def run(self):
        for name in sorted(dir(self)):
            if not name.startswith("test_"):
                continue
            begun = time.monotonic()
            try:
                result = getattr(self, name)()
            except OSError as error:
                result = what(error)
            except Exception as error:
                result = repr(error)
            name = name[5:].replace("_", " ")
            print(name + ":", result, flush=True)
            print(f"{time.monotonic() - begun:.3f} s {name}", file=sys.stderr, flush=True)

    # Streams.

    def test_stream_connect_refused(self):
        return what(attempt(self.stream, 4))

    def test_stream_connect_refused_without_blocking(self):
        one = socket.socket()
        one.setblocking(False)
        first = one.connect_ex((self.other, 4))
        ready = polled(one, select.POLLOUT)
        return (code(first), ready, code(error_of(one)), code(error_of(one)))

    def test_stream_connect_again(self):
        one = socket.socket()
        one.setblocking(False)
        first = code(one.connect_ex((self.other, 4007)))
        polled(one, select.POLLOUT)
        again = [code(one.connect_ex((self.other, 4007))) for _ in range(3)]
        return (first, code(error_of(one)), again)

    def test_stream_connect_after_a_refusal(self):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex((self.other, 4))
        polled(one, select.POLLOUT)
        refused = code(error_of(one))
        # The first of these may still speak of the refusal.
        one.connect_ex((self.other, 4007))
        one.connect_ex((self.other, 4007))
        polled(one, select.POLLOUT)
        connected = code(error_of(one))
        one.settimeout(PATIENCE)
        one.sendall(b"again")
        return (refused, connected, exactly(one, 5))

    def test_stream_connect_unreachable(self):
        begun = time.monotonic()
        # The stack knows but one kind of unreachable.
        failed = what(attempt(socket.create_connection, ("10.77.0.1", 80), PATIENCE))
        return (failed in ("ENETUNREACH", "EHOSTUNREACH"), time.monotonic() - begun < 3)

    def test_stream_connect_unanswered(self):
        # Nobody has this address on the link.
        begun = time.monotonic()
        host = self.other.rsplit(".", 1)[0] + ".99"
        failed = what(attempt(socket.create_connection, (host, 80), PATIENCE))
        return (failed, time.monotonic() - begun < 8)

    def test_stream_names(self):
        one = self.stream(4007)
        own = one.getsockname()
        return (own[0] == self.ours, own[1] > 1024, one.getpeername(), one.family.name, one.type.name, one.proto)

    def test_stream_bound_connect(self):
        one = socket.socket()
        one.settimeout(PATIENCE)
        one.bind((self.ours, 4555))
        one.connect((self.other, 4007))
        one.sendall(b"bound")
        return (one.getsockname(), exactly(one, 5))

    def test_stream_accept_names(self):
        one = self.accepted(4501, "echo")
        return (one.getsockname(), one.getpeername()[0])

    def test_stream_address_in_use(self):
        with self.listen(4502):
            return what(attempt(self.listen, 4502))

    def test_stream_address_free_again(self):
        with self.listen(4503):
            pass
        with self.listen(4503) as one:
            return one.getsockname()

    def test_stream_foreign_address(self):
        return what(attempt(socket.socket().bind, ("192.0.2.77", 80)))

    def test_stream_not_connected(self):
        found = []
        for port in (None, 4504):
            one = socket.socket()
            if port:
                one.bind((self.ours, port))
            found += [code(call(one)) for call in (recv_code, peer_code, send_code, shutdown_code)]
            one.close()
        return found

    def test_stream_already_connected(self):
        one = socket.socket()
        one.connect((self.other, 4007))
        return code(one.connect_ex((self.other, 4007)))

    def test_stream_echo_of_all_sizes(self):
        one = self.stream(4007)
        sizes = [1, 1448, 1449, 70000, 1 << 20]
        for size in sizes:
            data = bytes(n * 7 & 255 for n in range(size))
            sending = threading.Thread(target=one.sendall, args=(data,))
            sending.start()
            assert exactly(one, size) == data
            sending.join()
        one.shutdown(socket.SHUT_WR)
        return (sizes, one.recv(1))

    def test_stream_half_close(self):
        one = self.stream(4007)
        one.sendall(b"half")
        one.shutdown(socket.SHUT_WR)
        late = code(send_code(one))
        return (exactly(one, 4), one.recv(1), late)

    def test_stream_end(self):
        one = self.stream(4011)
        data = exactly(one, 5)
        return (data, one.recv(10), one.recv(10), polled(one, select.POLLIN | select.POLLRDHUP))

    def test_stream_reset_seen_by_a_reader(self):
        one = self.stream(4010)
        one.sendall(b"x")
        return (what(attempt(one.recv, 10)), code(error_of(one)), one.recv(10), code(send_code(one)))

    def test_stream_reset_seen_by_os_read(self):
        one = self.stream(4010)
        one.sendall(b"x")
        one.settimeout(None)
        return (what(attempt(os.read, one.fileno(), 10)), os.read(one.fileno(), 10))

    def test_stream_reset_seen_by_a_writer(self):
        one = self.stream(4010)
        one.sendall(b"x")
        polled(one, select.POLLIN)
        time.sleep(0.1)
        return (code(send_code(one)), code(send_code(one)))

    def test_stream_reset_seen_by_poll(self):
        one = self.stream(4010)
        one.sendall(b"x")
        ready = polled(one, select.POLLIN)
        return (bool(ready & select.POLLIN), bool(ready & select.POLLHUP), code(error_of(one)), one.recv(4))

    def test_stream_reset_of_an_accepted_one(self):
        one = self.accepted(4505, "reset")
        polled(one, select.POLLIN)
        return what(attempt(one.recv, 10))

    def test_stream_closed_peer_and_writes(self):
        one = self.accepted(4506, "close")
        assert one.recv(1) == b""
        errors = []
        for _ in range(3):
            errors.append(code(send_code(one)))
            time.sleep(0.1)
        return errors

    def test_stream_linger_breaks_off(self):
        one = self.accepted(4507, "hold")
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
        return self.ask("release")

    def test_stream_options(self):
        one = self.stream(4007)
        return tried_options(one) + [socket_option(one, socket.SO_TYPE), socket_option(one, socket.SO_PROTOCOL)]

    def test_stream_options_before_the_connection(self):
        one = socket.socket()
        before = tried_options(one)
        one.settimeout(PATIENCE)
        one.connect((self.other, 4007))
        after = [one.getsockopt(level, option) for level, option, _ in OPTIONS]
        one.sendall(b"set")
        return (before, after, exactly(one, 3))

    def test_stream_options_are_inherited(self):
        with self.listen(4508) as listener:
            listener.setsockopt(SOL_TCP, socket.TCP_NODELAY, 1)
            listener.setsockopt(SOL_TCP, socket.TCP_KEEPIDLE, 77)
            asking = threading.Thread(target=self.ask, args=("connect", self.ours, 4508, "echo"))
            asking.start()
            one, _ = listener.accept()
            asking.join()
        return [bool(one.getsockopt(SOL_TCP, socket.TCP_NODELAY)), one.getsockopt(SOL_TCP, socket.TCP_KEEPIDLE)]

    def test_stream_options_out_of_bounds(self):
        one = self.stream(4007)
        return [
            what(attempt(one.setsockopt, SOL_TCP, socket.TCP_KEEPIDLE, 0)),
            what(attempt(one.setsockopt, SOL_TCP, socket.TCP_KEEPCNT, 1000)),
            what(attempt(one.setsockopt, SOL_TCP, socket.TCP_CONGESTION, b"none-such")),
            what(attempt(one.setsockopt, SOL_TCP, 9999, 1)),
            what(attempt(one.getsockopt, SOL_TCP, 9999)),
        ]

    def test_stream_tcp_info(self):
        one = self.stream(4007)
        one.sendall(b"info")
        exactly(one, 4)
        octets = one.getsockopt(SOL_TCP, socket.TCP_INFO, 144)
        state, mss, rtt, acked, received = octets[0], *struct.unpack_from("I", octets, 16), *struct.unpack_from(
            "I", octets, 68
        ), *struct.unpack_from("QQ", octets, 120)
        # Linux counts the SYN, too.
        return (state, mss, 0 < rtt < 1_000_000, acked in (4, 5), received)

    def test_stream_congestion(self):
        one = self.stream(4007)
        one.setsockopt(SOL_TCP, socket.TCP_CONGESTION, b"reno")
        return one.getsockopt(SOL_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")

    def test_stream_flags(self):
        one = self.stream(4007)
        one.sendall(b"abcdef")
        polled(one, select.POLLIN)
        peeked = one.recv(3, socket.MSG_PEEK)
        whole = one.recv(6, socket.MSG_WAITALL)
        one.setblocking(True)
        nothing = what(attempt(one.recv, 1, socket.MSG_DONTWAIT))
        one.sendall(b"12345678")
        count = waiting(one, 8)
        return (peeked, whole, nothing, count, one.recv(8))

    def test_stream_vectors(self):
        one = self.stream(4007)
        one.sendmsg([b"ab", b"cde", b"f"])
        parts = [bytearray(2), bytearray(4)]
        got, _, flags, name = one.recvmsg_into(parts, 0, socket.MSG_WAITALL)
        os.writev(one.fileno(), [b"xy", b"z"])
        return (got, [bytes(part) for part in parts], flags, name, exactly(one, 3))

    def test_stream_timeouts(self):
        one = self.stream(4009)
        one.settimeout(None)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
        read = what(attempt(one.recv, 1))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 50_000))
        wrote = what(attempt(endless, one))
        return (read, wrote, self.ask("release"))

    def test_stream_is_full_and_empties(self):
        one = self.accepted(4509, "echo")
        one.setblocking(False)
        sent = 0
        try:
            while sent < 1 << 26:
                sent += one.send(bytes(65536))
        except BlockingIOError:
            pass
        full = polled(one, select.POLLOUT, 0.0) & select.POLLOUT
        got = 0
        while got < sent:
            assert polled(one, select.POLLIN)
            got += len(one.recv(65536))
        return (sent > 65536, full == 0 or got == sent, bool(polled(one, select.POLLOUT)))

    def test_stream_edge_triggered(self):
        one = self.stream(4007)
        events = select.epoll()
        inner = select.epoll()
        inner.register(one, select.EPOLLIN | select.EPOLLET)
        events.register(inner.fileno(), select.EPOLLIN)
        found = [len(events.poll(0))]
        for data in (b"one", b"two"):
            one.sendall(data)
            found.append(len(events.poll(PATIENCE)))
            found.append(inner.poll(0)[0][1] & select.EPOLLIN)
            found.append(len(inner.poll(0)))
        return (found, exactly(one, 6))

    def test_stream_registered_before_it_connects(self):
        one = socket.socket()
        one.setblocking(False)
        events = select.epoll()
        events.register(one, select.EPOLLOUT | select.EPOLLIN | select.EPOLLET)
        events.poll(0)
        first = code(one.connect_ex((self.other, 4007)))
        ready = events.poll(PATIENCE)[0][1] & select.EPOLLOUT
        one.send(b"early")
        again = 0
        for _ in range(100):
            again = sum(event & select.EPOLLIN for _, event in events.poll(0.1))
            if again:
                break
        return (first, ready, again, one.recv(5))

    def test_stream_select(self):
        one = self.stream(4007)
        first = [len(part) for part in select.select([one], [one], [], 0)]
        one.sendall(b"s")
        second = [len(part) for part in select.select([one], [], [], PATIENCE)]
        return (first, second)

    def test_stream_duplicates_and_children(self):
        one = self.stream(4007)
        other = socket.fromfd(one.fileno(), one.family, one.type)
        child = os.fork()
        if child == 0:
            other.sendall(b"from the child")
            os._exit(0)
        os.waitpid(child, 0)
        one.close()
        return (exactly(other, 14), other.getpeername())

    def test_stream_survives_an_exec(self):
        one = self.stream(4007)
        os.set_inheritable(one.fileno(), True)
        script = (
            "import socket; s = socket.socket(fileno=%d); s.sendall(b'executed');"
            "print(s.family.name, s.type.name, s.proto, s.getpeername())" % one.fileno()
        )
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writing, 1)
            os.execv(sys.executable, [sys.executable, "-c", script])
        os.close(writing)
        os.waitpid(child, 0)
        said = os.read(reading, 1000).decode().strip()
        return (said, exactly(one, 8))

    def test_stream_listener_shared_with_children(self):
        with self.listen(4510) as listener:
            children = []
            for n in range(3):
                child = os.fork()
                if child == 0:
                    one, _ = listener.accept()
                    one.sendall(b"%d" % n)
                    os._exit(0)
                children.append(child)
            answers = [self.ask("connect", self.ours, 4510, "close") for _ in range(3)]
            for child in children:
                os.waitpid(child, 0)
        return answers

    def test_stream_accept_without_blocking(self):
        with self.listen(4511) as listener:
            listener.setblocking(False)
            nobody = what(attempt(listener.accept))
            accepting = socket_option(listener, socket.SO_ACCEPTCONN)
            self.ask("connect", self.ours, 4511, "hold")
            ready = polled(listener, select.POLLIN)
            one, _ = listener.accept()
            return (nobody, accepting, ready, one.getpeername()[0], self.ask("release"))

    def test_stream_sendfile(self):
        one = self.stream(4007)
        with open(__file__, "rb") as file:
            wanted = file.read()
            file.seek(0)
            sending = threading.Thread(target=one.sendfile, args=(file,))
            sending.start()
            same = exactly(one, len(wanted)) == wanted
            sending.join()
        return same

    def test_stream_close_on_exec(self):
        one = self.stream(4007)
        return (fcntl.fcntl(one, fcntl.F_GETFD), bool(fcntl.fcntl(one, fcntl.F_GETFL) & os.O_NONBLOCK))

    def test_stream_signal_of_a_broken_one(self):
        one = self.stream(4007)
        one.shutdown(socket.SHUT_WR)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            one.settimeout(None)
            one.send(b"x")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        return (os.WIFSIGNALED(status), code(send_code(one)))

    # Datagrams.

    def test_datagrams_echo_of_all_sizes(self):
        one = self.datagrams()
        sizes = []
        for size in (0, 1, 1472, 1473, 9000, 65507):
            one.sendto(bytes(size), (self.other, 4007))
            data, who = one.recvfrom(65536)
            sizes.append((len(data), who))
        return sizes

    def test_datagrams_keep_their_boundaries(self):
        one = self.datagrams(4601)
        self.ask("datagrams", self.ours, 4601, 10)
        return [one.recvfrom(100) for _ in range(10)]

    def test_datagrams_connected(self):
        one = self.datagrams(connected=4007)
        own = one.getsockname()
        one.send(b"one")
        first = one.recv(10)
        os.write(one.fileno(), b"two")
        polled(one, select.POLLIN)
        second = os.read(one.fileno(), 10)
        return (own[0], own[1] > 1024, one.getpeername(), first, second, one.type.name, one.proto)

    def test_datagrams_unbound_and_connected(self):
        one = self.datagrams(port=None, connected=4007)
        one.send(b"unbound")
        return (one.getsockname()[0], one.recvfrom(10))

    def test_datagrams_unbound(self):
        one = self.datagrams(port=None)
        nobody = code(peer_code(one))
        one.sendto(b"unbound", (self.other, 4007))
        own = one.getsockname()
        return (nobody, own[0], own[1] > 1024, one.recvfrom(10))

    def test_datagrams_connected_hear_no_other(self):
        one = self.datagrams(4602, connected=4007)
        self.ask("datagrams", self.ours, 4602, 3)
        one.send(b"mine")
        return (one.recvfrom(10), polled(one, select.POLLIN, 0.1))

    def test_datagrams_connected_and_sent_elsewhere(self):
        one = self.datagrams(connected=4009)
        return one.sendto(b"elsewhere", (self.other, 4007))

    def test_datagrams_connected_anew(self):
        one = self.datagrams(connected=4009)
        one.connect((self.other, 4007))
        one.send(b"anew")
        return (one.recv(10), one.getpeername())

    def test_datagrams_refused(self):
        one = self.datagrams(connected=4999)
        one.send(b"anybody?")
        ready = polled(one, select.POLLIN)
        read = what(attempt(one.recv, 10))
        one.send(b"anybody?")
        polled(one, select.POLLIN)
        return (bool(ready & select.POLLERR), read, code(error_of(one)), code(error_of(one)))

    def test_datagrams_refused_and_sent_again(self):
        one = self.datagrams(connected=4999)
        one.send(b"anybody?")
        polled(one, select.POLLIN)
        return (what(attempt(one.send, b"x")),)

    def test_datagrams_refused_unconnected(self):
        one = self.datagrams()
        one.sendto(b"anybody?", (self.other, 4999))
        time.sleep(0.05)
        return (one.sendto(b"here", (self.other, 4007)), one.recvfrom(10))

    def test_datagrams_too_large(self):
        one = self.datagrams()
        return what(attempt(one.sendto, bytes(65508), (self.other, 4007)))

    def test_datagrams_to_nobody(self):
        one = self.datagrams()
        connected = self.datagrams(connected=4007)
        return (
            what(attempt(one.send, b"x")),
            what(attempt(one.sendto, b"x", ("255.255.255.255", 4007))),
            what(attempt(one.sendto, b"x", (self.other, 0))),
            what(attempt(connected.connect, ("255.255.255.255", 4007))),
        )

    def test_datagrams_address_in_use(self):
        with self.datagrams(4603):
            return what(attempt(self.datagrams, 4603))

    def test_datagrams_address_free_again(self):
        with self.datagrams(4604):
            pass
        with self.datagrams(4604) as one:
            return one.getsockname()

    def test_datagrams_shared_port(self):
        def shared():
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.settimeout(PATIENCE)
            one.bind((self.ours, 4605))
            return one

        first = shared()
        first.connect((self.other, 4007))
        second = shared()
        self.ask("datagrams", self.ours, 4605, 1)
        first.send(b"first")
        return (second.recvfrom(10), first.recvfrom(10))

    def test_datagrams_flags(self):
        one = self.datagrams(connected=4007)
        one.send(b"a long one")
        polled(one, select.POLLIN)
        peeked = one.recv(4, socket.MSG_PEEK)
        count = waiting(one, 1)
        length = one.recv_into(bytearray(4), 4, socket.MSG_TRUNC)
        one.settimeout(None)
        nothing = what(attempt(one.recv, 1, socket.MSG_DONTWAIT))
        return (peeked, count, length, nothing)

    def test_datagrams_messages(self):
        one = self.datagrams()
        one.sendmsg([b"ab", b"cd"], [], 0, (self.other, 4007))
        part = bytearray(3)
        got, _, flags, who = one.recvmsg_into([part])
        return (got, bytes(part), bool(flags & socket.MSG_TRUNC), who)

    def test_datagrams_timeouts(self):
        one = self.datagrams()
        one.settimeout(None)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
        return what(attempt(one.recv, 1))

    def test_datagrams_burst(self):
        one = self.datagrams(connected=4007)
        heard = 0
        for round in range(20):
            for n in range(10):
                one.send(b"%d" % n * 100)
            for n in range(10):
                heard += one.recv(2000) == b"%d" % n * 100
        return heard

    def test_datagrams_children(self):
        one = self.datagrams(connected=4007)
        child = os.fork()
        if child == 0:
            one.send(b"child")
            os._exit(0)
        os.waitpid(child, 0)
        return one.recv(10)

    def test_datagrams_options(self):
        one = self.datagrams()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        return (
            socket_option(one, socket.SO_BROADCAST),
            what(attempt(one.getsockopt, SOL_TCP, socket.TCP_NODELAY)),
            socket_option(one, socket.SO_PROTOCOL),
        )

    # Linux's own.

    def test_loopback(self):
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind(("127.0.0.1", 0))
        one.sendto(b"self", one.getsockname())
        return (server.accept()[1] == client.getsockname(), one.recv(10))

    def test_any_address_and_loopback(self):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind(("127.0.0.1", 0))
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.bind(("0.0.0.0", 0))
        other.sendto(b"round", one.getsockname())
        third = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        third.connect(one.getsockname())
        return (one.recvfrom(10)[0], third.getsockname()[0])

    def test_pairs(self):
        one, other = socket.socketpair()
        one.close()
        return (other.recv(1), code(send_code(other)))


OPTIONS = [
    (SOL_TCP, socket.TCP_NODELAY, 1),
    (SOL_TCP, socket.TCP_KEEPIDLE, 33),
    (SOL_TCP, socket.TCP_KEEPINTVL, 34),
    (SOL_TCP, socket.TCP_KEEPCNT, 5),
    (SOL_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    (SOL_TCP, socket.TCP_CORK, 0),
    (socket.IPPROTO_IP, socket.IP_TOS, 16),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    (socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536),
    (socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536),
]


def tried_options(one):
    """What each option is before and behind its setting; buffers differ before."""
    found = []
    for level, option, value in OPTIONS:
        buffer = option in (socket.SO_RCVBUF, socket.SO_SNDBUF) and level == socket.SOL_SOCKET
        before = "-" if buffer else one.getsockopt(level, option)
        one.setsockopt(level, option, value)
        found.append((before, one.getsockopt(level, option)))
    return found


def attempt(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return error


def what(result):
    if isinstance(result, TimeoutError) and result.errno is None:
        return "too late"
    if isinstance(result, OSError):
        return code(result.errno)
    return repr(result)


def code(number):
    return errno.errorcode.get(number, number)


def error_of(one):
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def socket_option(one, option):
    return one.getsockopt(socket.SOL_SOCKET, option)


def failure(call):
    try:
        call()
        return 0
    except OSError as error:
        return error.errno


def recv_code(one):
    return failure(lambda: one.recv(1))


def peer_code(one):
    return failure(one.getpeername)


def shutdown_code(one):
    return failure(lambda: one.shutdown(socket.SHUT_RDWR))


def send_code(one):
    return failure(lambda: one.send(b"x"))


def polled(one, events, patience=PATIENCE):
    poll = select.poll()
    poll.register(one, events)
    ready = poll.poll(patience * 1000)
    return ready[0][1] if ready else 0


def exactly(one, count):
    data = b""
    while len(data) < count:
        part = one.recv(count - len(data))
        if not part:
            break
        data += part
    return data


def waiting(one, least):
    """FIONREAD, once there are so many."""
    for _ in range(200):
        count = struct.unpack("i", fcntl.ioctl(one, 0x541B, bytes(4)))[0]
        if count >= least:
            return count
        time.sleep(0.01)
    return 0


def endless(one):
    while True:
        one.send(bytes(65536))


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        peer()
    Subject(sys.argv[2], sys.argv[3]).run()
