"""Behaviours of datagrams, and of what stays Linux's."""

import os
import select
import socket
import struct
import time

from common import *


class Datagrams:
    def test_datagram_any_host_serves_loopback(self):
        with self.datagrams(None) as one, self.datagrams(None) as near:
            one.bind(("0.0.0.0", 0))
            port = one.getsockname()[1]
            near.sendto(b"near", ("127.0.0.1", port))
            data, source = one.recvfrom(9)
            one.sendto(b"back", source)
            with self.datagrams() as graph:
                graph.sendto(b"graph", (self.ours, port))
                seen = one.recvfrom(9)[0]
                one.sendto(b"there", graph.getsockname())
                back = near.recvfrom(9) == (b"back", ("127.0.0.1", port))
                return (data, source[0], back, graph.recvfrom(9) == (b"there", (self.ours, port)), seen)

    def test_datagram_sent_outside_and_then_not(self):
        with self.datagrams(None) as one, self.datagrams(None) as near, self.datagrams() as graph:
            near.bind(("127.0.0.1", 0))
            found = []
            for other in (near, graph, near, graph):
                one.sendto(b"x", other.getsockname())
                data, source = other.recvfrom(9)
                other.sendto(b"y", source)
                found.append((data, source[0] in ("127.0.0.1", self.ours), one.recvfrom(9)[0]))
            ports = {one.getsockname()[1] == source[1]}
            return (found, ports)

    def test_datagram_too_long(self):
        with self.datagrams(connected=4007) as one:
            ways = (
                lambda data: one.send(data),
                lambda data: one.sendmsg([data[:9], data[9:]]),
                lambda data: os.write(one.fileno(), data),
                lambda data: os.writev(one.fileno(), [data[:9], data[9:]]),
                lambda data: one.sendto(data, (self.other, 4007)),
            )
            return [what(attempt(way, bytes(octets))) for octets in (65_508, 65_536, 200_000) for way in ways]

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
