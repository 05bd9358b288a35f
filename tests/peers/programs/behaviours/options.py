"""Options: what each is before, what it can be set to, and that it stays when the socket gets its place."""

from kit import *

TIME = struct.pack("ll", 1, 500000)
LINGERS = struct.pack("ii", 1, 5)
# Those of sockets of either kind. With octets if the value is no number; a dash if what it is at before differs by nature.
OF_BOTH = [
    ("SO_KEEPALIVE", SOL, socket.SO_KEEPALIVE, 1, 0),
    ("SO_LINGER", SOL, socket.SO_LINGER, LINGERS, 8),
    ("SO_REUSEADDR", SOL, socket.SO_REUSEADDR, 1, 0),
    ("SO_REUSEPORT", SOL, socket.SO_REUSEPORT, 1, 0),
    ("SO_BROADCAST", SOL, socket.SO_BROADCAST, 1, 0),
    ("SO_RCVBUF", SOL, socket.SO_RCVBUF, 50000, "-"),
    ("SO_SNDBUF", SOL, socket.SO_SNDBUF, 60000, "-"),
    ("SO_RCVLOWAT", SOL, socket.SO_RCVLOWAT, 7, 0),
    ("SO_SNDLOWAT", SOL, socket.SO_SNDLOWAT, 7, 0),
    ("SO_RCVTIMEO", SOL, socket.SO_RCVTIMEO, TIME, 16),
    ("SO_SNDTIMEO", SOL, socket.SO_SNDTIMEO, TIME, 16),
    ("SO_PRIORITY", SOL, socket.SO_PRIORITY, 3, 0),
    ("SO_OOBINLINE", SOL, socket.SO_OOBINLINE, 1, 0),
    ("SO_DONTROUTE", SOL, socket.SO_DONTROUTE, 1, 0),
    ("SO_TIMESTAMP", SOL, 29, 1, 0),
    ("SO_TIMESTAMPNS", SOL, 35, 1, 0),
    ("SO_RXQ_OVFL", SOL, 40, 1, 0),
    ("SO_MAX_PACING_RATE", SOL, 47, 1 << 20, 0),
    ("SO_NO_CHECK", SOL, 11, 1, 0),
    ("SO_MARK", SOL, socket.SO_MARK, 5, 0),
    ("SO_BUSY_POLL", SOL, 46, 1, 0),
    ("SO_DEBUG", SOL, socket.SO_DEBUG, 1, 0),
    ("SO_TYPE, which is not set", SOL, socket.SO_TYPE, 1, 0),
    ("SO_DOMAIN, which is not set", SOL, 39, 1, 0),
    ("SO_PROTOCOL, which is not set", SOL, 38, 1, 0),
    ("SO_ACCEPTCONN, which is not set", SOL, socket.SO_ACCEPTCONN, 1, 0),
    ("unknown of the socket", SOL, 9999, 1, 0),
    ("IP_TOS", IP, socket.IP_TOS, 0x10, 0),
    ("IP_TTL", IP, socket.IP_TTL, 9, 0),
    ("IP_TTL of nothing", IP, socket.IP_TTL, 0, 0),
    ("IP_TTL of too many hops", IP, socket.IP_TTL, 256, 0),
    ("IP_TTL of minus one", IP, socket.IP_TTL, -1, 0),
    ("IP_MTU_DISCOVER", IP, 10, 2, 0),
    ("IP_PKTINFO", IP, 8, 1, 0),
    ("IP_RECVTOS", IP, 13, 1, 0),
    ("IP_RECVTTL", IP, 12, 1, 0),
    ("IP_RECVERR", IP, 11, 1, 0),
    ("IP_RECVOPTS", IP, 6, 1, 0),
    ("IP_FREEBIND", IP, 15, 1, 0),
    ("IP_BIND_ADDRESS_NO_PORT", IP, 24, 1, 0),
    ("IP_MULTICAST_TTL", IP, socket.IP_MULTICAST_TTL, 4, 0),
    ("IP_MULTICAST_LOOP", IP, socket.IP_MULTICAST_LOOP, 0, 0),
    ("IP_MULTICAST_ALL", IP, 49, 0, 0),
    ("unknown of IP", IP, 9999, 1, 0),
]
OF_STREAMS = [
    ("TCP_NODELAY", TCP, socket.TCP_NODELAY, 1, 0),
    ("TCP_MAXSEG", TCP, socket.TCP_MAXSEG, 900, "-"),
    ("TCP_CORK", TCP, socket.TCP_CORK, 1, 0),
    ("TCP_KEEPIDLE", TCP, socket.TCP_KEEPIDLE, 33, 0),
    ("TCP_KEEPINTVL", TCP, socket.TCP_KEEPINTVL, 34, 0),
    ("TCP_KEEPCNT", TCP, socket.TCP_KEEPCNT, 5, 0),
    ("TCP_KEEPIDLE of nothing", TCP, socket.TCP_KEEPIDLE, 0, 0),
    ("TCP_KEEPCNT of too many", TCP, socket.TCP_KEEPCNT, 128, 0),
    ("TCP_USER_TIMEOUT", TCP, socket.TCP_USER_TIMEOUT, 7000, 0),
    ("TCP_USER_TIMEOUT of minus one", TCP, socket.TCP_USER_TIMEOUT, -1, 0),
    ("TCP_SYNCNT", TCP, socket.TCP_SYNCNT, 3, 0),
    ("TCP_SYNCNT of nothing", TCP, socket.TCP_SYNCNT, 0, 0),
    ("TCP_LINGER2", TCP, socket.TCP_LINGER2, 9, 0),
    ("TCP_LINGER2 of minus five", TCP, socket.TCP_LINGER2, -5, 0),
    ("TCP_LINGER2 of more than Linux has", TCP, socket.TCP_LINGER2, 1000, 0),
    ("TCP_WINDOW_CLAMP", TCP, socket.TCP_WINDOW_CLAMP, 20000, "-"),
    ("TCP_QUICKACK", TCP, socket.TCP_QUICKACK, 0, "-"),
    ("TCP_CONGESTION", TCP, 13, b"reno", 16),
    ("TCP_CONGESTION of no such name", TCP, 13, b"none", "-"),
    ("TCP_THIN_LINEAR_TIMEOUTS", TCP, 16, 1, 0),
    ("TCP_THIN_DUPACK", TCP, 17, 1, 0),
    ("unknown of TCP", TCP, 9999, 1, 0),
    ("one octet for TCP_NODELAY", TCP, socket.TCP_NODELAY, b"\1", 0),
]
OF_DATAGRAMS = [
    ("UDP_SEGMENT", UDP, 103, 1200, 0),
    ("UDP_GRO", UDP, 104, 1, 0),
    ("TCP_NODELAY", TCP, socket.TCP_NODELAY, 1, 0),
    ("unknown of UDP", UDP, 9999, 1, 0),
]


def at(one, level, option, octets):
    return attempt(value, one, level, option, 0 if octets == "-" else octets)


def option_of(kind, level, option, to, octets):
    """Before; set before the place is taken, there and kept; set behind."""
    one = socket.socket(type=kind)
    before = "-" if octets in ("-", 16) else at(one, level, option, octets)
    found = [before, does(one.setsockopt, level, option, to)]
    # What Linux has a buffer or the like at by itself is its own matter.
    if found[1] != "ok" and octets == "-":
        return found[1]
    found.append(at(one, level, option, octets))
    one.bind((OURS, 0))
    found.append(at(one, level, option, octets))
    other = socket.socket(type=kind)
    other.bind((OURS, 0))
    found += [does(other.setsockopt, level, option, to), at(other, level, option, octets)]
    return found


def of_connected(level, option, to, octets):
    _, client, _ = pair()
    return does(client.setsockopt, level, option, to), at(client, level, option, octets)


each("stream option", OF_BOTH + OF_STREAMS, lambda *row: option_of(STREAM, *row))
each("datagram option", OF_BOTH + OF_DATAGRAMS, lambda *row: option_of(DGRAM, *row))
CONNECTED = [row for row in OF_BOTH[:8] + OF_BOTH[27:29] + OF_STREAMS[:6] + OF_STREAMS[8:11:2] + OF_STREAMS[12:13] if row[4] != "-"]
each("option of a connected stream", CONNECTED, of_connected)

INHERITED = [
    ("TCP_NODELAY", TCP, socket.TCP_NODELAY, 1, 0),
    ("SO_KEEPALIVE", SOL, socket.SO_KEEPALIVE, 1, 0),
    ("TCP_KEEPIDLE", TCP, socket.TCP_KEEPIDLE, 33, 0),
    ("TCP_KEEPINTVL", TCP, socket.TCP_KEEPINTVL, 34, 0),
    ("TCP_KEEPCNT", TCP, socket.TCP_KEEPCNT, 5, 0),
    ("TCP_USER_TIMEOUT", TCP, socket.TCP_USER_TIMEOUT, 7000, 0),
    ("SO_LINGER", SOL, socket.SO_LINGER, RESET, 8),
    ("SO_RCVTIMEO", SOL, socket.SO_RCVTIMEO, TIME, 16),
    ("SO_SNDTIMEO", SOL, socket.SO_SNDTIMEO, TIME, 16),
    ("SO_RCVBUF", SOL, socket.SO_RCVBUF, 50000, 0),
    ("SO_SNDBUF", SOL, socket.SO_SNDBUF, 60000, 0),
    ("SO_RCVLOWAT", SOL, socket.SO_RCVLOWAT, 7, 0),
    ("SO_PRIORITY", SOL, socket.SO_PRIORITY, 3, 0),
    ("SO_OOBINLINE", SOL, socket.SO_OOBINLINE, 1, 0),
    ("SO_REUSEADDR", SOL, socket.SO_REUSEADDR, 1, 0),
    ("TCP_CONGESTION", TCP, 13, b"reno", 16),
    ("TCP_LINGER2", TCP, socket.TCP_LINGER2, 9, 0),
    ("TCP_SYNCNT", TCP, socket.TCP_SYNCNT, 3, 0),
    ("IP_TTL", IP, socket.IP_TTL, 9, 0),
    ("IP_TOS", IP, socket.IP_TOS, 0x10, 0),
]
WAYS = ("127.0.0.1", "::1", OURS)


def raw_accept(one):
    """Accepts without a touch of Python's own time limits."""
    number, _ = one._accept()
    return socket.socket(fileno=number)


def inherited(early, level, option, to, octets):
    """What an option of the listener is at on the accepted stream of each way."""
    one = listener("::", family=socket.AF_INET6, options=[(level, option, to)] if early else ())
    one.settimeout(None)
    if not early:
        one.setsockopt(level, option, to)
    found = []
    for host in WAYS:
        client = connected(one, host)
        found.append(at(raw_accept(one), level, option, octets))
        client.close()
    return found


each("accepted stream has what was set before bind:", INHERITED, lambda *row: inherited(True, *row))
each("accepted stream has what was set on the listener:", INHERITED, lambda *row: inherited(False, *row))


@case("accepted stream breaks off by the listener's SO_LINGER on every way")
def _():
    found = []
    for host in WAYS:
        one = listener("::", family=socket.AF_INET6, options=[(SOL, socket.SO_LINGER, RESET)])
        client = connected(one, host)
        one.accept()[0].close()
        found.append(attempt(client.recv, 1))
    return found


@case("accepted stream waits no longer than the listener's SO_RCVTIMEO on every way")
def _():
    found = []
    for host in WAYS:
        one = listener("::", family=socket.AF_INET6, options=[(SOL, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50000))])
        one.settimeout(None)
        client = connected(one, host)
        found.append(attempt(raw_accept(one).recv, 1))
    return found


@case("TCP_INFO is as long as the system has it")
def _():
    _, client, server = pair()
    plain = socket.socket()
    plain.bind(("127.0.0.1", 0))
    length = len(plain.getsockopt(TCP, socket.TCP_INFO, 512))
    return [len(one.getsockopt(TCP, socket.TCP_INFO, 512)) == length for one in (client, server)]


@case("TCP_INFO tells the states")
def _():
    one, client, server = pair()
    state = lambda one: one.getsockopt(TCP, socket.TCP_INFO, 1)[0]
    found = [state(socket.socket()), state(one), state(client)]
    client.shutdown(socket.SHUT_WR)
    polled(server, select.POLLRDHUP)
    time.sleep(0.5)
    return found + [state(client), state(server)]


@case("SO_BINDTODEVICE of a device that there is not")
def _():
    found = []
    for kind in (STREAM, DGRAM):
        one = socket.socket(type=kind)
        found.append(does(one.setsockopt, SOL, socket.SO_BINDTODEVICE, b"none0\0"))
        one.bind((OURS, 0))
        found.append(does(one.setsockopt, SOL, socket.SO_BINDTODEVICE, b"none0\0"))
        found.append(does(one.setsockopt, SOL, socket.SO_BINDTODEVICE, b"\0"))
    return found


@case("an option without a value")
def _():
    one = socket.socket()
    one.bind((OURS, 0))
    return [does(one.setsockopt, level, option, None, 0) for level, option in ((TCP, 1), (IP, 1), (SOL, 9))]
