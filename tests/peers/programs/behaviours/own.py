"""Sockets that are Linux's own below the same program: of version 6, at loopback addresses, of other families."""

import os

from kit import *

OPTIONS = [
    ("IPV6_UNICAST_HOPS", SIX, socket.IPV6_UNICAST_HOPS, 9),
    ("IPV6_MULTICAST_HOPS", SIX, socket.IPV6_MULTICAST_HOPS, 9),
    ("IPV6_MULTICAST_LOOP", SIX, socket.IPV6_MULTICAST_LOOP, 0),
    ("IPV6_MULTICAST_ALL", SIX, 29, 0),
    ("IPV6_RECVPKTINFO", SIX, socket.IPV6_RECVPKTINFO, 1),
    ("IPV6_RECVHOPLIMIT", SIX, socket.IPV6_RECVHOPLIMIT, 1),
    ("IPV6_RECVTCLASS", SIX, socket.IPV6_RECVTCLASS, 1),
    ("IPV6_TCLASS", SIX, socket.IPV6_TCLASS, 0x10),
    ("IPV6_DONTFRAG", SIX, 62, 1),
    ("IPV6_MTU_DISCOVER", SIX, 23, 2),
    ("IPV6_RECVERR", SIX, 25, 1),
    ("IPV6_AUTOFLOWLABEL", SIX, 70, 0),
    ("IPV6_FREEBIND", SIX, 78, 1),
    ("IPV6_V6ONLY", SIX, socket.IPV6_V6ONLY, 1),
]
JOINS = socket.inet_pton(socket.AF_INET6, "ff01::1") + struct.pack("I", 1)


def six(kind, host="::1"):
    one = socket.socket(socket.AF_INET6, kind)
    if host:
        one.bind((host, 0))
    one.settimeout(SOON)
    return one


def places(kind, level, option, to):
    """Set on a new socket and kept behind bind to ::1 and to ::; set behind that."""
    found = []
    for host in ("::1", "::"):
        one = six(kind, None)
        found += [does(one.setsockopt, level, option, to)]
        one.bind((host, 0))
        found.append(attempt(value, one, level, option))
        found.append(does(six(kind, host).setsockopt, level, option, to))
    return found


each("Linux's stream of version 6:", OPTIONS, lambda *row: places(STREAM, *row))
each("Linux's datagrams of version 6:", OPTIONS, lambda *row: places(DGRAM, *row))


def exchange(one, other):
    other.sendto(b"x", ("::1", one.getsockname()[1]))
    data, control, _, sender = one.recvmsg(10, 200)
    return data, sorted((level, kind, len(octets)) for level, kind, octets in control), sender[0]


@case("::1: a stream there and back")
def _():
    one = six(STREAM)
    one.listen()
    client = connected(one, "::1")
    server, name = one.accept()
    client.send(b"there")
    server.send(b"back")
    return server.recv(9), client.recv(9), name[0], client.getpeername()[0]


@case("::1: connect refused")
def _():
    one = six(STREAM)
    return does(connected, one, "::1")


@case("::1: datagram with IPV6_RECVPKTINFO")
def _():
    one = six(DGRAM)
    one.setsockopt(SIX, socket.IPV6_RECVPKTINFO, 1)
    return exchange(one, six(DGRAM))


@case("::1: datagram with IPV6_RECVHOPLIMIT and IPV6_RECVTCLASS")
def _():
    one = six(DGRAM)
    one.setsockopt(SIX, socket.IPV6_RECVHOPLIMIT, 1)
    one.setsockopt(SIX, socket.IPV6_RECVTCLASS, 1)
    return exchange(one, six(DGRAM))


@case("::1: datagrams of a new socket")
def _():
    return exchange(six(DGRAM), six(DGRAM, None))


@case("::1: datagrams of a socket for any host")
def _():
    return exchange(six(DGRAM), six(DGRAM, "::"))


@case("::1: heard by a socket for any host, and answered")
def _():
    one, other = six(DGRAM, "::"), six(DGRAM)
    other.sendto(b"x", ("::1", one.getsockname()[1]))
    data, sender = one.recvfrom(1)
    one.sendto(b"back", sender)
    return data, sender[0], other.recv(5)


@case("::1: connected datagrams of a socket for any host")
def _():
    one, other = six(DGRAM, "::"), six(DGRAM)
    one.connect(other.getsockname())
    one.send(b"x")
    return other.recv(1), one.getsockname()[0], one.getpeername()[0]


@case("::1: connected datagrams refused")
def _():
    one, other = six(DGRAM), six(DGRAM)
    one.connect(other.getsockname())
    other.close()
    one.send(b"x")
    return attempt(one.recv, 1)


@case("::1: stream of a socket bound for any host")
def _():
    one = six(STREAM)
    one.listen()
    client = six(STREAM, "::")
    client.connect(one.getsockname())
    return client.getsockname()[0], client.getpeername()[0]


@case("version 6: a host that there is no way to")
def _():
    return does(six(STREAM, None).connect, ("2001:db8::1", 9)), does(six(DGRAM, None).sendto, b"x", ("2001:db8::1", 9))


@case("version 6: a host that there is no way to, from a socket for any host")
def _():
    return does(six(STREAM, "::").connect, ("2001:db8::1", 9)), does(six(DGRAM, "::").sendto, b"x", ("2001:db8::1", 9))


@case("version 6: bind to an address that this host has not")
def _():
    return does(six(STREAM, "2001:db8::1").close)


@case("version 6 alone: a mapped address")
def _():
    one = six(STREAM, None)
    one.setsockopt(SIX, socket.IPV6_V6ONLY, 1)
    return does(one.connect, ("::ffff:" + OURS, 9))


@case("version 6 alone: any host, and version 4 beside it")
def _():
    one = six(STREAM, None)
    one.setsockopt(SIX, socket.IPV6_V6ONLY, 1)
    one.bind(("::", 0))
    one.listen()
    other = socket.socket()
    return does(other.bind, ("0.0.0.0", one.getsockname()[1])), does(other.listen)


@case("version 6: an address of version 4, and the other way")
def _():
    packed = lambda family: struct.pack("H", family) + bytes(26)
    import ctypes

    library, found = ctypes.CDLL(None, use_errno=True), []
    for family, other in ((socket.AF_INET, socket.AF_INET6), (socket.AF_INET6, socket.AF_INET)):
        one = socket.socket(family)
        failed = library.bind(one.fileno(), packed(other), 28)
        found.append(failed and errno.errorcode[ctypes.get_errno()])
    return found


@case("version 6: a group is joined and left")
def _():
    one = six(DGRAM, None)
    return does(one.setsockopt, SIX, socket.IPV6_JOIN_GROUP, JOINS), does(one.setsockopt, SIX, socket.IPV6_LEAVE_GROUP, JOINS)


@case("version 6: names of a new socket and of one for any host")
def _():
    return six(STREAM, None).getsockname()[0], six(DGRAM, "::").getsockname()[0]


@case("127.0.0.1: options that only Linux has")
def _():
    one = socket.socket()
    one.bind(("127.0.0.1", 0))
    return [does(one.setsockopt, level, option, 1) for level, option in ((TCP, 27), (IP, 21), (SOL, 61), (IP, 8), (TCP, 36))]


@case("127.0.0.1: datagrams with IP_PKTINFO, IP_RECVTTL, IP_RECVTOS")
def _():
    one, other = datagrams("127.0.0.1", options=[(IP, name, 1) for name in (8, 12, 13)]), datagrams("127.0.0.1")
    other.sendto(b"x", one.getsockname())
    return sorted((level, kind, len(octets)) for level, kind, octets in one.recvmsg(10, 200)[1])


@case("unix(7): a pair, and a name")
def _():
    one, other = socket.socketpair()
    one.send(b"x")
    return other.recv(1), one.getsockname()


@case("unix(7): descriptors travel")
def _():
    one, other = socket.socketpair()
    socket.send_fds(one, [b"x"], [one.fileno()])
    data, files, _, _ = socket.recv_fds(other, 1, 1)
    os.close(files[0])
    return data, len(files)


@case("netlink tells of the loopback")
def _():
    return socket.if_nametoindex("lo") > 0


def names(host, flags, family=0):
    try:
        return sorted({(found[0].name, found[4][0]) for found in socket.getaddrinfo(host, 80, family, STREAM, 0, flags)})
    except socket.gaierror as error:
        return error.errno


each(
    "getaddrinfo:",
    [
        ("a number", OURS, 0),
        ("a number, AI_NUMERICHOST", OURS, socket.AI_NUMERICHOST),
        ("a number, AI_ADDRCONFIG", OURS, socket.AI_ADDRCONFIG),
        ("a number of version 4 for AF_INET, AI_ADDRCONFIG", OURS, socket.AI_ADDRCONFIG, socket.AF_INET),
        ("a number for AF_INET6, mapped", OURS, socket.AI_V4MAPPED, socket.AF_INET6),
        ("no host, AI_PASSIVE", None, socket.AI_PASSIVE),
        ("a name, AI_NUMERICHOST", "localhost", socket.AI_NUMERICHOST),
    ],
    names,
)
