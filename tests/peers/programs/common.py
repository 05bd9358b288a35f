"""What the programs about sockets have in common."""

import errno
import fcntl
import select
import socket
import struct
import time

CONTROL = 4000
PROGRAM_TIME_MAX = 10.0
SOL_TCP = socket.IPPROTO_TCP
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


def polled(one, events, patience=PROGRAM_TIME_MAX):
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
