"""The other host of `subject.py`, on Linux's sockets: does what it is asked."""

import errno
import socket
import struct
import threading
import time

from common import CONTROL, PROGRAM_TIME_MAX


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
    segment = socket.create_server(("0.0.0.0", 4012))
    threading.Thread(target=serve, args=(segment, telling_its_segment), daemon=True).start()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("0.0.0.0", 4007))
    threading.Thread(target=echo_datagrams, args=(datagrams,), daemon=True).start()
    print("ready", flush=True)
    while True:
        one, _ = control.accept()
        for line in one.makefile():
            words = line.split()
            try:
                said = globals()["task_" + words[0]](*words[1:]) or "done"
                one.sendall(said.encode() + b"\n")
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


def telling_its_segment(one):
    one.sendall(b"%5d" % one.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
    one.close()


def echo_datagrams(one):
    while True:
        data, who = one.recvfrom(65536)
        one.sendto(data, who)


def task_connect(host, port, how):
    """Connects to the subject and does as it is told."""
    one = socket.create_connection((host, int(port)), timeout=PROGRAM_TIME_MAX)
    if how == "echo":
        threading.Thread(target=echoing, args=(one,), daemon=True).start()
    elif how == "reset":
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    elif how == "close":
        one.close()
    elif how == "segment":
        with one:
            return str(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
    else:
        HELD.append(one)


def task_read():
    """What the last stream held gives to the end: its octets, and how it ends."""
    one = HELD.pop()
    data, how = b"", "end"
    try:
        while part := one.recv(100):
            data += part
    except OSError as error:
        how = errno.errorcode[error.errno]
    one.close()
    return f"{data.decode()} {how}"


CROWD = []


def task_crowd(host, port, count):
    """So many connect at once, and each sends an octet once it stands."""

    def one_of_them():
        try:
            with socket.create_connection((host, int(port)), timeout=2 * PROGRAM_TIME_MAX) as one:
                one.sendall(b"x")
                assert one.recv(1) == b""
            CROWD.append("served")
        except OSError as error:
            CROWD.append(errno.errorcode.get(error.errno, "too late"))

    CROWD.clear()
    for _ in range(int(count)):
        threading.Thread(target=one_of_them, daemon=True).start()


def task_crowded():
    for _ in range(200):
        if len(CROWD) == 12:
            break
        time.sleep(0.05)
    return " ".join(sorted(CROWD))


def task_datagrams(host, port, count):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    one.bind(("0.0.0.0", 4020))
    for n in range(int(count)):
        one.sendto(b"%d" % n * (n + 1), (host, int(port)))
    one.close()


def task_release():
    while HELD:
        HELD.pop().close()


if __name__ == "__main__":
    peer()
