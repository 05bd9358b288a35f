"""What the behaviours have in common: how one is named and run, and the sockets that they begin with."""

import errno
import select
import signal
import socket
import struct
import sys
import threading
import time

SOL, TCP, UDP, IP, SIX = socket.SOL_SOCKET, socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_IP, socket.IPPROTO_IPV6
STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
RESET = struct.pack("ii", 1, 0)
# Seconds that a behaviour may take, and that one waits for what comes at once.
PROGRAM_TIME_MAX, SOON = 10, 2.0
# This host's own address, another of it, and one on its network that no host has.
OURS, ALSO, NOBODY = sys.argv[1:4]
CASES = []


def case(name):
    """Notes a behaviour: the function answers what it shows."""

    def note(call):
        CASES.append((name, call))
        return call

    return note


def each(name, table, call):
    """Notes a behaviour for each row, whose first word ends its name."""
    for row in table:
        CASES.append((f"{name} {row[0]}", lambda row=row: call(*row[1:])))


def code(error):
    if isinstance(error, TimeoutError) and error.errno is None:
        return "too late"
    return errno.errorcode.get(error.errno, error.errno)


def attempt(call, *arguments):
    """What a call answers, or the name of its error."""
    try:
        return call(*arguments)
    except OSError as error:
        return code(error)


def does(call, *arguments):
    """Whether a call succeeds, or the name of its error."""
    try:
        call(*arguments)
        return "ok"
    except OSError as error:
        return code(error)


def run():
    def late(*_):
        raise RuntimeError("hangs")

    signal.signal(signal.SIGALRM, late)
    for number, (name, call) in enumerate(CASES, 1):
        begun = time.monotonic()
        signal.alarm(PROGRAM_TIME_MAX)
        try:
            result = attempt(call)
        except Exception as error:
            result = repr(error)
        signal.alarm(0)
        print(f"{number} {name}: {result}", flush=True)
        print(f"{time.monotonic() - begun:.3f} s {number} {name}", file=sys.stderr, flush=True)


def listener(host=None, backlog=5, family=socket.AF_INET, options=()):
    one = socket.socket(family)
    if family == socket.AF_INET6:
        one.setsockopt(SIX, socket.IPV6_V6ONLY, 0)
    for option in options:
        one.setsockopt(*option)
    one.bind((OURS if host is None else host, 0))
    one.listen(backlog)
    one.settimeout(SOON)
    return one


def connected(to, host=None):
    one = socket.socket(socket.AF_INET6 if host and ":" in host else socket.AF_INET)
    one.settimeout(SOON)
    one.connect((host or OURS, to.getsockname()[1]))
    return one


def pair(host=None, **more):
    """A listener, the stream of a client, and the accepted one."""
    one = listener(host, **more)
    client = connected(one, None if host in ("0.0.0.0", "::") else host)
    server, _ = one.accept()
    server.settimeout(SOON)
    return one, client, server


def datagrams(host=None, family=socket.AF_INET, options=()):
    """A socket for datagrams at a free port, or a new one without any if the host is empty."""
    one = socket.socket(family, DGRAM)
    for option in options:
        one.setsockopt(*option)
    if host != "":
        one.bind((OURS if host is None else host, 0))
    one.settimeout(SOON)
    return one


def polled(one, events=select.POLLIN | select.POLLOUT | select.POLLRDHUP, seconds=SOON):
    poll = select.poll()
    poll.register(one, events)
    ready = poll.poll(seconds * 1000)
    words = [word for word in ("IN", "OUT", "ERR", "HUP", "RDHUP") if ready and ready[0][1] & getattr(select, "POLL" + word)]
    return " ".join(words)


def pending(one):
    """The error that waits (`SO_ERROR`)."""
    number = one.getsockopt(SOL, socket.SO_ERROR)
    return errno.errorcode.get(number, number)


def value(one, level, option, octets=0):
    """What an option is at; numbers as numbers."""
    found = one.getsockopt(level, option, octets or 64)
    return struct.unpack("i", found)[0] if not octets and len(found) == 4 else found


def together(call):
    """Starts a thread; answers what waits for its result."""
    said = []
    thread = threading.Thread(target=lambda: said.append(attempt(call)), daemon=True)
    thread.start()

    def result(seconds=SOON):
        thread.join(seconds)
        return said[0] if said else "still waits"

    return result
