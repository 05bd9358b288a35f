"""Behaviours of streams."""

import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

from common import *


class Streams:
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
        one.settimeout(PROGRAM_TIME_MAX)
        one.sendall(b"again")
        return (refused, connected, exactly(one, 5))

    def test_stream_connect_unreachable(self):
        begun = time.monotonic()
        # The stack knows but one kind of unreachable.
        failed = what(attempt(socket.create_connection, ("10.77.0.1", 80), PROGRAM_TIME_MAX))
        return (failed in ("ENETUNREACH", "EHOSTUNREACH"), time.monotonic() - begun < 3)

    def test_stream_connect_unanswered(self):
        # Nobody has this address on the link.
        begun = time.monotonic()
        host = self.other.rsplit(".", 1)[0] + ".99"
        failed = what(attempt(socket.create_connection, (host, 80), PROGRAM_TIME_MAX))
        return (failed, time.monotonic() - begun < 8)

    def test_stream_names(self):
        one = self.stream(4007)
        own = one.getsockname()
        return (own[0] == self.ours, own[1] > 1024, one.getpeername(), one.family.name, one.type.name, one.proto)

    def test_stream_bound_connect(self):
        one = socket.socket()
        one.settimeout(PROGRAM_TIME_MAX)
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

    def test_stream_shared_peers(self):
        def shared():
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind((self.ours, 4504))
            one.listen()
            return one

        with shared() as one, shared() as two:
            heard = set()
            for _ in range(40):
                with socket.create_connection((self.ours, 4504), PROGRAM_TIME_MAX):
                    ready, _, _ = select.select([one, two], [], [], PROGRAM_TIME_MAX)
                    ready[0].accept()[0].close()
                    heard.add(ready[0] is one)
            one.close()
            with socket.create_connection((self.ours, 4504), PROGRAM_TIME_MAX):
                two.settimeout(PROGRAM_TIME_MAX)
                left = two.accept()[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
            return (len(heard), left, what(attempt(self.listen, 4504)))

    def test_stream_foreign_address(self):
        return what(attempt(socket.socket().bind, ("192.0.2.77", 80)))

    def test_stream_bound_alone(self):
        with socket.socket() as one:
            one.bind((self.ours, 0))
            before = what(attempt(socket.create_connection, one.getsockname(), PROGRAM_TIME_MAX))
            one.listen()
            client = socket.create_connection(one.getsockname(), PROGRAM_TIME_MAX)
            return (before, one.accept()[1] == client.getsockname())

    def test_stream_listens_without_bind(self):
        with socket.socket() as one:
            one.listen()
            host, port = one.getsockname()
            client = socket.create_connection((self.ours, port), PROGRAM_TIME_MAX)
            return (host, port != 0, one.accept()[1] == client.getsockname())

    def test_stream_any_host_serves_loopback(self):
        found = []
        for family, any_host, hosts in (
            (socket.AF_INET, "0.0.0.0", ("127.0.0.1", self.ours)),
            (socket.AF_INET6, "::", ("127.0.0.1", "::1", self.ours)),
        ):
            with socket.socket(family) as one:
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                one.bind((any_host, 0))
                one.listen()
                one.settimeout(PROGRAM_TIME_MAX)
                for host in hosts:
                    client = socket.create_connection((host, one.getsockname()[1]), PROGRAM_TIME_MAX)
                    server, name = one.accept()
                    server.settimeout(PROGRAM_TIME_MAX)
                    client.sendall(b"ask")
                    asked = exactly(server, 3)
                    server.sendall(b"answer")
                    own = client.getsockname()[1] == name[1] and server.family == family
                    found.append((asked, exactly(client, 6), own, name[0] == server.getpeername()[0]))
        return found

    def test_stream_listener_shut_down(self):
        with self.listen(4591) as one:
            threads = []
            accepting = threading.Thread(target=lambda: threads.append(what(attempt(one.accept))))
            accepting.start()
            time.sleep(0.2)
            one.shutdown(socket.SHUT_RDWR)
            accepting.join()
            refused = what(attempt(socket.create_connection, (self.ours, 4591), PROGRAM_TIME_MAX))
            one.listen()
            client = socket.create_connection((self.ours, 4591), PROGRAM_TIME_MAX)
            return (threads, refused, one.accept()[1] == client.getsockname())

    def test_stream_shares_a_port(self):
        found = []
        for shares in (0, 1):
            first, second = socket.socket(), socket.socket()
            for one in (first, second):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shares)
            first.bind((self.ours, 0))
            bound = what(attempt(second.bind, first.getsockname()))
            first.listen()
            third = socket.socket()
            third.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shares)
            found.append((bound, what(attempt(third.bind, first.getsockname()))))
            if shares:
                found.append(what(attempt(second.listen)))
                first.close()
                found.append(what(attempt(second.listen)))
            for one in (first, second, third):
                one.close()
        return found

    def test_stream_listener_connects(self):
        with self.listen(4592) as one:
            return what(attempt(one.connect, (self.other, 4007)))

    def test_stream_listener_state(self):
        with self.listen(4593) as one:
            listens = one.getsockopt(SOL_TCP, socket.TCP_INFO, 1)
            return (listens, one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

    def test_stream_listener_closed_before_accept(self):
        found = set()
        for _ in range(10):
            one = self.listen(0)
            client = socket.create_connection(one.getsockname(), PROGRAM_TIME_MAX)
            one.close()
            found.add(what(attempt(client.recv, 1)))
        return found

    def test_stream_many_are_bound(self):
        kept = [socket.socket() for _ in range(1200)]
        for one in kept:
            one.bind((self.ours, 0))
        ports = {one.getsockname()[1] for one in kept}
        for one in kept:
            one.close()
        return len(ports)

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

    def test_stream_linger_is_no_end_to_the_peer(self):
        one = self.accepted(4516, "read")
        one.sendall(b"partial")
        time.sleep(0.2)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
        return self.ask("read")

    def test_stream_close_is_an_end_to_the_peer(self):
        one = self.accepted(4517, "read")
        one.sendall(b"whole")
        one.close()
        return self.ask("read")

    def test_stream_cork_lets_go(self):
        one = self.accepted(4518, "echo")
        one.setsockopt(SOL_TCP, socket.TCP_CORK, 1)
        one.sendall(b"corked")
        return exactly(one, 6)

    def test_stream_full_queue_resets_nobody(self):
        with socket.socket() as listener:
            listener.bind((self.ours, 4519))
            listener.listen(2)
            listener.settimeout(PROGRAM_TIME_MAX)
            crowd = self.ask("crowd", self.ours, 4519, 12)
            time.sleep(0.5)
            data = []
            for _ in range(12):
                one, _ = listener.accept()
                one.settimeout(PROGRAM_TIME_MAX)
                data.append(one.recv(1))
                one.close()
            return (crowd, data, self.ask("crowded"))

    def test_stream_small_writes_behind_full_segments(self):
        one = self.stream(4007)
        begun = time.monotonic()
        for _ in range(50):
            one.sendall(bytes(1500))
            exactly(one, 1500)
        # With a wait for a delayed acknowledgement it would be two seconds.
        return time.monotonic() - begun < 1.5

    def test_stream_option_of_one_octet(self):
        one = self.stream(4007)
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, bytes([16]))
        return one.getsockopt(socket.IPPROTO_IP, socket.IP_TOS)

    def test_stream_options_carried_into_the_connection(self):
        one = socket.socket()
        one.setsockopt(SOL_TCP, socket.TCP_CONGESTION, b"reno")
        one.settimeout(PROGRAM_TIME_MAX)
        one.connect((self.other, 4007))
        return one.getsockopt(SOL_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")

    def test_stream_options(self):
        one = self.stream(4007)
        return tried_options(one) + [socket_option(one, socket.SO_TYPE), socket_option(one, socket.SO_PROTOCOL)]

    def test_stream_options_before_the_connection(self):
        one = socket.socket()
        before = tried_options(one)
        one.settimeout(PROGRAM_TIME_MAX)
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

    def test_stream_segment_max_is_announced(self):
        one, other = socket.socket(), socket.socket()
        for each in (one, other):
            each.settimeout(PROGRAM_TIME_MAX)
            each.setsockopt(SOL_TCP, socket.TCP_MAXSEG, 400)
        other.setsockopt(SOL_TCP, socket.TCP_MAXSEG, 0)
        return [
            (each.connect((self.other, 4012)), exactly(each, 5), each.getsockopt(SOL_TCP, socket.TCP_MAXSEG))
            for each in (one, other)
        ]

    def test_stream_segment_max_is_announced_by_a_listener(self):
        said = []
        for before in (True, False):
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if before:
                listener.setsockopt(SOL_TCP, socket.TCP_MAXSEG, 400)
            listener.bind((self.ours, 4512))
            if not before:
                listener.setsockopt(SOL_TCP, socket.TCP_MAXSEG, 300)
            listener.listen()
            listener.settimeout(PROGRAM_TIME_MAX)
            asking = threading.Thread(target=lambda: said.append(self.ask("connect", self.ours, 4512, "segment")))
            asking.start()
            one, _ = listener.accept()
            asking.join()
            said.append(one.getsockopt(SOL_TCP, socket.TCP_MAXSEG))
            one.close()
            listener.close()
        return said

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
            found.append(len(events.poll(PROGRAM_TIME_MAX)))
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
        ready = events.poll(PROGRAM_TIME_MAX)[0][1] & select.EPOLLOUT
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
        second = [len(part) for part in select.select([one], [], [], PROGRAM_TIME_MAX)]
        return (first, second)

    def test_stream_duplicates_and_children(self):
        one = self.stream(4007)
        other = socket.fromfd(one.fileno(), one.family, one.type)
        other.settimeout(PROGRAM_TIME_MAX)
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

    def test_stream_closed_listener_refuses(self):
        with self.listen(4512):
            pass
        return self.ask("connect", self.ours, 4512, "close")

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
