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

    def shared(self, *options, host=None, port=4605):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.settimeout(PROGRAM_TIME_MAX)
        for option in options:
            one.setsockopt(socket.SOL_SOCKET, option, 1)
        one.bind((host or self.ours, port))
        return one

    def test_datagrams_shared_port(self):
        with self.shared(socket.SO_REUSEADDR) as first:
            first.connect((self.other, 4007))
            with self.shared(socket.SO_REUSEADDR) as second:
                self.ask("datagrams", self.ours, 4605, 1)
                first.send(b"first")
                return (second.recvfrom(10), first.recvfrom(10))

    def test_datagrams_shared_address(self):
        all = [self.shared(socket.SO_REUSEADDR, port=4606) for _ in range(3)]
        found = []
        for _ in range(3):
            self.ask("datagrams", self.ours, 4606, 1)
            ready, _, _ = select.select(all, [], [], PROGRAM_TIME_MAX)
            found.append([all.index(one) for one in ready])
            all.pop().close()
        return found

    def test_datagrams_shared_and_a_broadcast(self):
        everybody = self.ours.rsplit(".", 1)[0] + ".255"
        all = [self.shared(socket.SO_REUSEADDR, host="0.0.0.0", port=4610) for _ in range(3)]
        self.ask("datagrams", everybody, 4610, 2)
        return [(one.recv(10), one.recv(10)) for one in all]

    def test_datagrams_shared_peers(self):
        with self.shared(socket.SO_REUSEPORT, port=4607) as one, self.shared(socket.SO_REUSEPORT, port=4607) as two:
            heard = {}
            for peer in range(40):
                with self.datagrams() as sender:
                    for _ in range(2):
                        sender.sendto(b"x", (self.ours, 4607))
                        ready, _, _ = select.select([one, two], [], [], PROGRAM_TIME_MAX)
                        ready[0].recv(1)
                        heard.setdefault(peer, set()).add(ready[0] is one)
            return (max(map(len, heard.values())), len(set.union(*heard.values())))

    def test_datagrams_shared_otherwise(self):
        found = []
        for options in ((socket.SO_REUSEADDR, socket.SO_REUSEPORT), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), ()):
            for others in ((socket.SO_REUSEADDR, socket.SO_REUSEPORT), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), ()):
                for host in ("0.0.0.0", self.ours):
                    with self.shared(*options, port=4608):
                        other = attempt(lambda: self.shared(*others, host=host, port=4608).close())
                        found.append(other and what(other))
        return found

    def test_datagrams_shared_later(self):
        with self.shared(port=4609) as one:
            found = [one.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)]
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                one.setsockopt(socket.SOL_SOCKET, option, 1)
                found.append(one.getsockopt(socket.SOL_SOCKET, option))
                other = attempt(lambda: self.shared(option, port=4609).close())
                found.append(other and what(other))
            return found

    def test_datagrams_to_no_host(self):
        with self.datagrams(None) as any_host, self.datagrams(None) as own, self.datagrams(None) as fresh:
            any_host.bind(("0.0.0.0", 0))
            own.bind((self.ours, 0))
            to = ("0.0.0.0", any_host.getsockname()[1])
            found = []
            for one in (own, any_host, fresh):
                one.sendto(b"x", to)
                found.append((any_host.recvfrom(9)[1][0] == self.ours))
            fresh.connect(to)
            found.append((fresh.getpeername()[0], fresh.getsockname()[0]))
            return found

    def test_datagrams_of_version_6_serve_loopback(self):
        def six(host):
            one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            one.settimeout(PROGRAM_TIME_MAX)
            one.bind((host, 0))
            return one

        with six("::") as one, six("::1") as near, self.datagrams() as graph, self.datagrams(None) as four:
            port = one.getsockname()[1]
            four.bind(("127.0.0.1", 0))
            near.sendto(b"near", ("::1", port))
            graph.sendto(b"graph", (self.ours, port))
            four.sendto(b"four", ("127.0.0.1", port))
            heard = {}
            for _ in range(3):
                data, source = one.recvfrom(9)
                heard[data] = source[0]
                one.sendto(data.upper(), source)
            answers = [who.recvfrom(9) for who in (near, graph, four)]
            answers = [(data, source[0], source[1] == port) for data, source in answers]
            one.sendto(b"self", ("::", port))
            itself = one.recvfrom(9)
            return (one.getsockname()[0], sorted(heard.items()), answers, itself[0], itself[1][0])

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
