"""Groups: what a socket hears of them, and what it may ask for."""

from kit import *

GROUP, MULTICAST_TTL, MULTICAST_IF, ADD, DROP, BLOCK, MSFILTER = "239.1.2.3", 33, 32, 35, 36, 38, 41
INCLUDE, EXCLUDE = 1, 0


def request(group=GROUP, *sources):
    return b"".join(socket.inet_aton(host) for host in (group, OURS, *sources))


def listed(mode, sources, count=None, group=GROUP):
    """A list of sources: `struct ip_msfilter`."""
    numbers = struct.pack("2I", mode, len(sources) if count is None else count)
    return request(group) + numbers + b"".join(socket.inet_aton(host) for host in sources)


def hosts(count):
    return [f"10.0.{n >> 8}.{n & 255}" for n in range(1, count + 1)]


def member(*before):
    """A socket that has joined the group, unless other requests stand before."""
    one = socket.socket(socket.AF_INET, DGRAM)
    one.setsockopt(SOL, socket.SO_REUSEADDR, 1)
    one.bind((GROUP, 5000))
    one.settimeout(0.3)
    for option, octets in before or [(ADD, request())]:
        one.setsockopt(IP, option, octets)
    return one


def sender():
    one = datagrams()
    one.setsockopt(IP, MULTICAST_IF, socket.inet_aton(OURS))
    return one


def filtered(octets, joined=True, then=()):
    one = member() if joined else socket.socket(socket.AF_INET, DGRAM)
    if not joined:
        one.bind((GROUP, 5000))
    set_up = does(one.setsockopt, IP, MSFILTER, octets)
    return set_up, [does(one.setsockopt, IP, *more) for more in then]


each(
    "IP_MSFILTER:",
    [
        ("sources of no member", listed(INCLUDE, hosts(1)), False),
        ("all but a source, of no member", listed(EXCLUDE, hosts(1)), False),
        ("no source, of no member", listed(INCLUDE, []), False),
        ("a source, then joined again", listed(INCLUDE, hosts(1)), True, [(ADD, request())]),
        ("a source, then another blocked", listed(INCLUDE, hosts(1)), True, [(BLOCK, request(GROUP, "10.0.0.9"))]),
        ("all but a source, then that blocked", listed(EXCLUDE, hosts(1)), True, [(BLOCK, request(GROUP, *hosts(1)))]),
        ("no source, then left", listed(INCLUDE, []), True, [(DROP, request())]),
        ("a source twice", listed(INCLUDE, hosts(1) * 2)),
        ("ten sources", listed(INCLUDE, hosts(10))),
        ("sixty-five sources", listed(INCLUDE, hosts(65))),
        ("a mode that there is not", listed(2, hosts(1))),
        ("fewer sources than it says", listed(INCLUDE, hosts(1), 2)),
        ("cut in the middle", listed(INCLUDE, [])[:12]),
        ("no group", listed(INCLUDE, hosts(1), group=OURS)),
    ],
    filtered,
)


@case("IP_MSFILTER: what is heard")
def _():
    one, other = member(), sender()
    heard = []
    for octets in (listed(INCLUDE, hosts(1)), listed(INCLUDE, [OURS]), listed(EXCLUDE, [OURS]), listed(EXCLUDE, [])):
        one.setsockopt(IP, MSFILTER, octets)
        other.sendto(b"here", (GROUP, 5000))
        heard.append(attempt(one.recv, 10))
    return heard


@case("IP_MULTICAST_TTL of 0: members on this host alone")
def _():
    one, other = member(), sender()
    one.setsockopt(IP, 12, 1)
    other.setsockopt(IP, MULTICAST_TTL, 0)
    other.sendto(b"here", (GROUP, 5000))
    octets, control, _, _ = one.recvmsg(10, 100)
    return octets, [int.from_bytes(data, "little") for _, _, data in control], value(other, IP, MULTICAST_TTL)


@case("IP_MULTICAST_TTL: values out of bounds")
def _():
    one = sender()
    return [does(one.setsockopt, IP, MULTICAST_TTL, hops) for hops in (-2, -1, 255, 256)]


@case("groups: the error of one too many")
def _():
    one = socket.socket(socket.AF_INET, DGRAM)
    one.bind((OURS, 0))
    joins = (does(one.setsockopt, IP, ADD, request(f"239.2.{n >> 8}.{n & 255}")) for n in range(100))
    return next(error for error in joins if error != "ok")
