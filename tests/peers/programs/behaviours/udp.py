"""Datagrams."""

import fcntl
import os

from kit import *

PKTINFO, RECVTTL, RECVTOS, GRO, SEGMENT = 8, 12, 13, 104, 103
ON = struct.pack("i", 1)


def ancillary(one, room=200):
    """The next datagram and its control messages by name."""
    data, control, flags, _ = one.recvmsg(2000, room)
    found = []
    for level, kind, octets in sorted(control):
        if (level, kind) == (IP, PKTINFO):
            index, local, to = struct.unpack("I4s4s", octets)
            found.append(("to", socket.inet_ntoa(local), socket.inet_ntoa(to), does(socket.if_indextoname, index)))
        elif level == SIX and kind == 50:
            found.append(("to", socket.inet_ntop(socket.AF_INET6, octets[:16])))
        else:
            found.append((level, kind, int.from_bytes(octets, "little")))
    return data, found, int(flags & socket.MSG_CTRUNC)


@case("datagram, its sender")
def _():
    one, other = datagrams(), datagrams()
    other.sendto(b"one", one.getsockname())
    return one.recvfrom(10) == (b"one", other.getsockname())


@case("datagram without octets")
def _():
    one, other = datagrams(), datagrams()
    other.sendto(b"", one.getsockname())
    return one.recv(10), polled(one, select.POLLIN, 0)


@case("datagram larger than the buffer")
def _():
    one, other = datagrams(), datagrams()
    other.sendto(b"larger", one.getsockname())
    other.sendto(b"next", one.getsockname())
    return one.recv(3), one.recv(10)


@case("MSG_TRUNC tells the length")
def _():
    one, other = datagrams(), datagrams()
    other.sendto(b"larger", one.getsockname())
    return one.recv_into(bytearray(3), 3, socket.MSG_TRUNC)


@case("the largest datagram and one more")
def _():
    one, other = datagrams(), datagrams()
    return attempt(other.sendto, bytes(65507), one.getsockname()), attempt(other.sendto, bytes(65508), one.getsockname())


@case("connected, 65508 octets")
def _():
    one, other = datagrams(), datagrams("")
    other.connect(one.getsockname())
    return does(other.send, bytes(65508))


@case("send without a peer")
def _():
    return does(datagrams("").send, b"x")


@case("sendto port 0")
def _():
    return does(datagrams().sendto, b"x", (OURS, 0))


@case("connect to port 0")
def _():
    return does(datagrams("").connect, (OURS, 0))


@case("connect to 0.0.0.0, port 0")
def _():
    return does(datagrams("").connect, ("0.0.0.0", 0))


@case("connected hears its peer alone")
def _():
    one, other, third = datagrams(), datagrams(), datagrams()
    one.connect(other.getsockname())
    third.sendto(b"no", one.getsockname())
    other.sendto(b"yes", one.getsockname())
    return one.recv(5), polled(one, select.POLLIN, 0.1)


@case("connected again to another, and to none")
def _():
    import ctypes

    one, other, third = datagrams(), datagrams(), datagrams()
    one.connect(other.getsockname())
    one.connect(third.getsockname())
    named = one.getpeername() == third.getsockname()
    freed = ctypes.CDLL(None).connect(one.fileno(), bytes(16), 16)
    return named, freed, does(one.getpeername)


@case("a new one gets its address by connect")
def _():
    one, other = datagrams(), datagrams("")
    other.connect(one.getsockname())
    return other.getsockname()[0], other.getsockname()[1] > 0


@case("a new one gets its port by sendto")
def _():
    one, other = datagrams(), datagrams("")
    other.sendto(b"x", one.getsockname())
    return other.getsockname()[0], one.recvfrom(1)[1] == (OURS, other.getsockname()[1])


@case("connected, refused: recv, then again")
def _():
    one, other = datagrams(), datagrams()
    one.connect(other.getsockname())
    other.close()
    one.send(b"x")
    return attempt(one.recv, 1), attempt(one.send, b"x")


@case("connected, refused: SO_ERROR")
def _():
    one, other = datagrams(), datagrams()
    one.connect(other.getsockname())
    other.close()
    one.send(b"x")
    polled(one, select.POLLIN)
    return pending(one), pending(one)


@case("not connected, refused: is not told")
def _():
    one, other = datagrams(), datagrams()
    to = other.getsockname()
    other.close()
    one.sendto(b"x", to)
    time.sleep(0.1)
    return attempt(one.sendto, b"x", to), pending(one)


@case("thread in recvfrom, shut down for reading")
def _():
    one = datagrams()
    one.settimeout(None)
    waits = together(lambda: one.recvfrom(1)[0])
    time.sleep(0.1)
    said = does(one.shutdown, socket.SHUT_RD)
    return said, waits()


@case("thread in recv of a connected one, shut down for reading")
def _():
    one, other = datagrams(), datagrams()
    one.connect(other.getsockname())
    one.settimeout(None)
    waits = together(lambda: one.recv(1))
    time.sleep(0.1)
    said = does(one.shutdown, socket.SHUT_RD)
    return said, waits()


@case("shut down for writing, connected")
def _():
    one, other = datagrams(), datagrams()
    one.connect(other.getsockname())
    return does(one.shutdown, socket.SHUT_WR), does(one.send, b"x", socket.MSG_NOSIGNAL)


@case("for any host, sent to by each address")
def _():
    one, other = datagrams("0.0.0.0"), datagrams()
    port = one.getsockname()[1]
    for host in (OURS, ALSO):
        other.sendto(host.encode(), (host, port))
    return one.recv(20), one.recv(20)


@case("for any host, sent to by 127.0.0.1")
def _():
    one, other = datagrams("0.0.0.0"), datagrams("127.0.0.1")
    other.sendto(b"x", ("127.0.0.1", one.getsockname()[1]))
    data, sender = one.recvfrom(1)
    one.sendto(b"back", sender)
    return data, other.recv(4)


@case("for any host, sends here and to 127.0.0.1 by turns")
def _():
    one, near, far = datagrams("0.0.0.0"), datagrams(), datagrams("127.0.0.1")
    for to in (near, far, near):
        one.sendto(b"x", to.getsockname())
    return near.recv(1), far.recv(1), near.recv(1)


@case("sendto 0.0.0.0 is for this host")
def _():
    one, other = datagrams("0.0.0.0"), datagrams("0.0.0.0")
    other.sendto(b"x", ("0.0.0.0", one.getsockname()[1]))
    return one.recv(1)


@case("a new one sends to 127.0.0.1, then here")
def _():
    one, near, far = datagrams(""), datagrams(), datagrams("127.0.0.1")
    one.sendto(b"far", far.getsockname())
    one.sendto(b"near", near.getsockname())
    return far.recv(4), near.recv(4)


@case("of version 6, new: hops for groups at 1, then to a mapped address and to ::1")
def _():
    near, far = datagrams(), socket.socket(socket.AF_INET6, DGRAM)
    far.bind(("::1", 0))
    far.settimeout(SOON)
    one = socket.socket(socket.AF_INET6, DGRAM)
    one.setsockopt(SIX, socket.IPV6_V6ONLY, 0)
    set_to = does(one.setsockopt, SIX, socket.IPV6_MULTICAST_HOPS, 1)
    one.bind(("::", 0))
    one.sendto(b"near", ("::ffff:" + OURS, near.getsockname()[1]))
    one.sendto(b"far", far.getsockname())
    return set_to, near.recv(5), far.recv(5)


@case("of version 6, the sender of a datagram of version 4")
def _():
    one, other = datagrams("::", socket.AF_INET6, [(SIX, socket.IPV6_V6ONLY, 0)]), datagrams()
    other.sendto(b"x", (OURS, one.getsockname()[1]))
    return one.recvfrom(1)[1][0]


@case("two with SO_REUSEADDR: the newest hears")
def _():
    found = []
    for _ in range(3):
        found.append(socket.socket(type=DGRAM))
        found[-1].setsockopt(SOL, socket.SO_REUSEADDR, 1)
        found[-1].bind((OURS, found[0].getsockname()[1]))
    datagrams().sendto(b"x", found[0].getsockname())
    time.sleep(0.3)
    return [polled(one, select.POLLIN, 0) for one in found]


@case("bind to a port that another has")
def _():
    one = datagrams()
    return does(datagrams("").bind, one.getsockname())


@case("bind for any host to a port that another has here")
def _():
    one = datagrams()
    return does(datagrams("").bind, ("0.0.0.0", one.getsockname()[1]))


@case("broadcast without SO_BROADCAST")
def _():
    return does(datagrams().sendto, b"x", ("255.255.255.255", 9))


@case("listen and accept")
def _():
    one = datagrams()
    one.setblocking(False)
    return does(one.listen), does(one.accept)


@case("poll of a new one and of a bound one")
def _():
    return polled(datagrams(""), seconds=0), polled(datagrams(), seconds=0)


@case("FIONREAD is of the first datagram")
def _():
    one, other = datagrams(), datagrams()
    other.sendto(b"12345", one.getsockname())
    other.sendto(b"678", one.getsockname())
    polled(one, select.POLLIN)
    time.sleep(0.1)
    return struct.unpack("i", fcntl.ioctl(one, 0x541B, bytes(4)))[0]


@case("a burst of a hundred is kept")
def _():
    one, other = datagrams(), datagrams()
    for _ in range(100):
        other.sendto(b"x" * 100, one.getsockname())
    return sum(len(one.recv(200)) for _ in range(100))


@case("os.write and os.read of a connected one")
def _():
    one, other = datagrams(), datagrams()
    one.connect(other.getsockname())
    os.write(one.fileno(), b"written")
    other.settimeout(None)
    return os.read(other.fileno(), 20)


@case("sendmsg of several slices")
def _():
    one, other = datagrams(), datagrams()
    other.sendmsg([b"a", b"bc"], [], 0, one.getsockname())
    return one.recvmsg_into([bytearray(2), bytearray(2)])[0]


@case("IP_PKTINFO names the address, for any host")
def _():
    one, other = datagrams("0.0.0.0", options=[(IP, PKTINFO, 1)]), datagrams()
    found = []
    for host in (OURS, ALSO):
        other.sendto(b"x", (host, one.getsockname()[1]))
        found.append(ancillary(one))
    return found


@case("IP_PKTINFO behind bind")
def _():
    one, other = datagrams(), datagrams()
    said = does(one.setsockopt, IP, PKTINFO, 1)
    other.sendto(b"x", one.getsockname())
    return said, ancillary(one)


@case("IP_PKTINFO of a connected one")
def _():
    one, other = datagrams(options=[(IP, PKTINFO, 1)]), datagrams()
    one.connect(other.getsockname())
    other.sendto(b"x", one.getsockname())
    return ancillary(one)


@case("IP_PKTINFO of what came by 127.0.0.1")
def _():
    one, other = datagrams("0.0.0.0", options=[(IP, PKTINFO, 1)]), datagrams("127.0.0.1")
    other.sendto(b"x", ("127.0.0.1", one.getsockname()[1]))
    return ancillary(one)


@case("IP_PKTINFO turned off again")
def _():
    one, other = datagrams(options=[(IP, PKTINFO, 1)]), datagrams()
    one.setsockopt(IP, PKTINFO, 0)
    other.sendto(b"x", one.getsockname())
    return ancillary(one)


@case("IP_PKTINFO without room for it")
def _():
    one, other = datagrams(options=[(IP, PKTINFO, 1)]), datagrams()
    other.sendto(b"x", one.getsockname())
    other.sendto(b"y", one.getsockname())
    return ancillary(one, 0), one.recv(1)


@case("IP_PKTINFO sets the source of a reply")
def _():
    one, other = datagrams("0.0.0.0"), datagrams()
    found = []
    for host in (ALSO, OURS):
        info = struct.pack("I4s4s", 0, socket.inet_aton(host), bytes(4))
        one.sendmsg([b"x"], [(IP, PKTINFO, info)], 0, other.getsockname())
        found.append(other.recvfrom(1)[1][0])
    return found, one.getsockname()[0]


@case("IP_PKTINFO with a source that is no address of this host")
def _():
    info = struct.pack("I4s4s", 0, socket.inet_aton("203.0.113.7"), bytes(4))
    return attempt(datagrams("0.0.0.0").sendmsg, [b"x"], [(IP, PKTINFO, info)], 0, datagrams().getsockname())


@case("IPV6_RECVPKTINFO names the mapped address")
def _():
    one = datagrams("::", socket.AF_INET6, [(SIX, socket.IPV6_V6ONLY, 0), (SIX, socket.IPV6_RECVPKTINFO, 1)])
    datagrams().sendto(b"x", (OURS, one.getsockname()[1]))
    return ancillary(one)


def field(receives, sets):
    """What control messages say of the header of datagrams that a socket with these options sends."""
    one, other = datagrams(options=[(IP, receives, 1)]), datagrams(options=sets)
    other.sendto(b"x", one.getsockname())
    return ancillary(one)


each(
    "IP_RECVTTL:",
    [("the usual", ()), ("IP_TTL 9", [(IP, socket.IP_TTL, 9)]), ("IP_TTL taken back", [(IP, socket.IP_TTL, 9), (IP, socket.IP_TTL, -1)])],
    lambda sets: field(RECVTTL, sets),
)
each(
    "IP_RECVTOS:",
    [("the usual", ()), ("IP_TOS 0x10", [(IP, socket.IP_TOS, 0x10)]), ("IP_TOS 0xb8", [(IP, socket.IP_TOS, 0xB8)])],
    lambda sets: field(RECVTOS, sets),
)


@case("IP_TTL and IP_TOS behind bind")
def _():
    one, other = datagrams(options=[(IP, RECVTTL, 1), (IP, RECVTOS, 1)]), datagrams()
    other.setsockopt(IP, socket.IP_TTL, 7)
    other.setsockopt(IP, socket.IP_TOS, 0x20)
    other.sendto(b"x", one.getsockname())
    return ancillary(one)


@case("IP_TTL and IP_TOS with one message")
def _():
    one, other = datagrams(options=[(IP, RECVTTL, 1), (IP, RECVTOS, 1)]), datagrams()
    control = [(IP, socket.IP_TTL, struct.pack("i", 5)), (IP, socket.IP_TOS, struct.pack("i", 0x40))]
    other.sendmsg([b"x"], control, 0, one.getsockname())
    other.sendto(b"y", one.getsockname())
    return ancillary(one), ancillary(one)


@case("all control messages together")
def _():
    one, other = datagrams("0.0.0.0", options=[(IP, name, 1) for name in (PKTINFO, RECVTTL, RECVTOS)]), datagrams()
    other.sendto(b"x", (OURS, one.getsockname()[1]))
    return ancillary(one)


@case("control messages that are peeked at")
def _():
    one, other = datagrams(options=[(IP, RECVTTL, 1)]), datagrams()
    other.sendto(b"x", one.getsockname())
    looked = one.recvmsg(10, 100, socket.MSG_PEEK)[1]
    return looked == one.recvmsg(10, 100)[1], len(looked)


@case("UDP_SEGMENT of one message")
def _():
    one, other = datagrams(), datagrams()
    sent = attempt(other.sendmsg, [b"aabbc"], [(UDP, SEGMENT, struct.pack("H", 2))], 0, one.getsockname())
    return sent, [one.recv(10) for _ in range(3)]


@case("UDP_SEGMENT of the socket")
def _():
    one, other = datagrams(), datagrams(options=[(UDP, SEGMENT, 2)])
    sent = attempt(other.sendto, b"aabbc", one.getsockname())
    return sent, [one.recv(10) for _ in range(3)]


@case("UDP_GRO takes single datagrams as they are")
def _():
    one, other = datagrams(options=[(UDP, GRO, 1)]), datagrams()
    other.sendto(b"alone", one.getsockname())
    return one.recv(10)


@case("SO_TIMESTAMP gives a time")
def _():
    one, other = datagrams(options=[(SOL, 29, 1)]), datagrams()
    other.sendto(b"x", one.getsockname())
    (found,) = one.recvmsg(10, 100)[1]
    return found[0], found[1], abs(struct.unpack("ll", found[2])[0] - time.time()) < 60


@case("a control message that Linux does not know")
def _():
    return attempt(datagrams().sendmsg, [b"x"], [(IP, 77, ON)], 0, datagrams().getsockname())


@case("MSG_ERRQUEUE is empty")
def _():
    one = datagrams(options=[(IP, 11, 1)])
    one.setblocking(False)
    return does(one.recvmsg, 10, 100, socket.MSG_ERRQUEUE)


@case("MSG_PEEK, MSG_DONTWAIT")
def _():
    one, other = datagrams(), datagrams()
    one.settimeout(None)
    none = does(one.recv, 1, socket.MSG_DONTWAIT)
    other.sendto(b"look", one.getsockname())
    return none, one.recv(4, socket.MSG_PEEK), one.recv(4)


@case("urgent data of datagrams")
def _():
    return does(datagrams().sendto, b"x", socket.MSG_OOB, datagrams().getsockname())


@case("a group is joined before bind to another host's port, or told")
def _():
    one = datagrams("")
    member = socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")
    return does(one.setsockopt, IP, socket.IP_ADD_MEMBERSHIP, member)
