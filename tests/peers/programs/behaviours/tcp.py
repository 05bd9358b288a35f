"""Streams: how they begin, what they carry, and how they end."""

import fcntl
import os

from kit import *


@case("connect to a bound socket that does not listen")
def _():
    one = socket.socket()
    one.bind((OURS, 0))
    return does(connected, one)


@case("listen without bind takes a port of any host")
def _():
    one = socket.socket()
    one.listen()
    return one.getsockname()[0], does(connected, one)


@case("listener shut down, then connect")
def _():
    one = listener()
    one.shutdown(socket.SHUT_RDWR)
    return does(connected, one)


@case("listener shut down, listen again, accept")
def _():
    one = listener()
    one.shutdown(socket.SHUT_RDWR)
    one.listen(5)
    client = connected(one)
    return one.accept()[1] == client.getsockname()


@case("listener shut down: its four peers read a reset")
def _():
    one = listener()
    clients = [connected(one) for _ in range(4)]
    time.sleep(0.1)
    one.shutdown(socket.SHUT_RDWR)
    ready = [polled(client, select.POLLIN | select.POLLRDHUP).split()[0] for client in clients]
    read = [attempt(client.recv, 1) for client in clients]
    return ready, read, does(one.accept)


@case("listener shut down for writing goes on")
def _():
    one = listener()
    said = does(one.shutdown, socket.SHUT_WR)
    return said, does(connected, one)


@case("thread in accept, listener shut down")
def _():
    one = listener()
    one.settimeout(None)
    waits = together(one.accept)
    time.sleep(0.1)
    one.shutdown(socket.SHUT_RDWR)
    return waits()


@case("listener closed with a peer not accepted")
def _():
    one = listener()
    client = connected(one)
    one.close()
    return attempt(client.recv, 1)


@case("listener closed, then connect")
def _():
    one = listener()
    to = one.getsockname()
    one.close()
    return does(socket.create_connection, to, SOON)


@case("connect to 127.0.0.1 of a listener for any host")
def _():
    return does(connected, listener("0.0.0.0"), "127.0.0.1")


@case("connect to ::1 of a listener for any host")
def _():
    return does(connected, listener("::", family=socket.AF_INET6), "::1")


@case("connect to a mapped address of a listener for any host")
def _():
    one = listener("::", family=socket.AF_INET6)
    client = connected(one, "::ffff:" + OURS)
    return client.getpeername()[0], one.accept()[1][0]


@case("connect to 0.0.0.0 finds a listener at 127.0.0.1")
def _():
    one = listener("127.0.0.1")
    client = connected(one, "0.0.0.0")
    return client.getpeername()[0], client.getsockname()[0]


@case("connect to :: finds a listener at ::1")
def _():
    one = socket.socket(socket.AF_INET6)
    one.bind(("::1", 0))
    one.listen()
    return connected(one, "::").getpeername()[0]


@case("connect to 0.0.0.0 finds a listener for any host")
def _():
    one = listener("0.0.0.0")
    return connected(one, "0.0.0.0").getpeername()[0]


@case("connect to 0.0.0.0 from a socket bound to this host")
def _():
    one = listener()
    client = socket.socket()
    client.bind((OURS, 0))
    client.settimeout(SOON)
    client.connect(("0.0.0.0", one.getsockname()[1]))
    return client.getpeername() == one.getsockname()


@case("connect to 0.0.0.0 from a socket bound for any host")
def _():
    one = listener("127.0.0.1")
    client = socket.socket()
    client.bind(("0.0.0.0", 0))
    client.settimeout(SOON)
    client.connect(("0.0.0.0", one.getsockname()[1]))
    return client.getpeername()[0]


@case("connect to port 0")
def _():
    return does(socket.create_connection, (OURS, 0), SOON)


@case("connect to a broadcast")
def _():
    return does(socket.create_connection, ("255.255.255.255", 9), SOON)


@case("connect to a group")
def _():
    return does(socket.create_connection, ("224.0.0.1", 9), SOON)


@case("connect of a listener")
def _():
    one, other = listener(), listener()
    return does(one.connect, other.getsockname())


@case("connect of a connected stream")
def _():
    one, client, _ = pair()
    return does(client.connect, one.getsockname())


@case("connect with an address that is too short")
def _():
    import ctypes

    one = socket.socket()
    library = ctypes.CDLL(None, use_errno=True)
    failed = library.connect(one.fileno(), struct.pack("HH", socket.AF_INET, 1), 4)
    return failed, errno.errorcode[ctypes.get_errno()]


@case("connect to itself")
def _():
    one = socket.socket()
    one.bind((OURS, 0))
    one.connect(one.getsockname())
    one.send(b"x")
    return one.recv(1)


@case("bind twice")
def _():
    one = socket.socket()
    one.bind((OURS, 0))
    return does(one.bind, (OURS, 0))


@case("bind to a port that another has")
def _():
    one, other = listener(), socket.socket()
    return does(other.bind, one.getsockname())


@case("bind of a listener's port with SO_REUSEADDR")
def _():
    one, other = listener(), socket.socket()
    other.setsockopt(SOL, socket.SO_REUSEADDR, 1)
    return does(other.bind, one.getsockname())


@case("two bound with SO_REUSEADDR, of which one listens")
def _():
    found = [socket.socket(), socket.socket()]
    for one in found:
        one.setsockopt(SOL, socket.SO_REUSEADDR, 1)
        one.bind((OURS, found[0].getsockname()[1]))
    found[0].listen()
    return does(found[1].listen)


@case("two that listen with SO_REUSEPORT")
def _():
    one = listener(options=[(SOL, socket.SO_REUSEPORT, 1)])
    other = socket.socket()
    other.setsockopt(SOL, socket.SO_REUSEPORT, 1)
    other.bind(one.getsockname())
    return does(other.listen)


@case("bind to a port of any host that another has at this one")
def _():
    one, other = listener(), socket.socket()
    return does(other.bind, ("0.0.0.0", one.getsockname()[1]))


@case("bind to an address that this host has not")
def _():
    return does(socket.socket().bind, ("203.0.113.7", 0))


@case("bind to the second address of this host")
def _():
    one = listener(ALSO)
    return connected(one, ALSO).getpeername()[0]


@case("source of a connect to the second address")
def _():
    one = listener(ALSO)
    client = connected(one, ALSO)
    return one.accept()[1] == client.getsockname()


@case("names of both ends")
def _():
    one, client, server = pair()
    return client.getpeername() == server.getsockname() == one.getsockname(), client.getsockname() == server.getpeername()


@case("getpeername and getsockname before anything")
def _():
    one = socket.socket()
    return does(one.getpeername), one.getsockname()


@case("getpeername of a listener")
def _():
    return does(listener().getpeername)


@case("accept of what does not listen")
def _():
    one = socket.socket()
    one.bind((OURS, 0))
    return does(one.accept)


@case("accept of a connected stream")
def _():
    return does(pair()[1].accept)


@case("accept without blocking when none waits")
def _():
    one = listener()
    one.setblocking(False)
    return does(one.accept), polled(one, select.POLLIN, 0)


@case("listen of a connected stream")
def _():
    return does(pair()[1].listen)


@case("send, receive and shutdown without a connection")
def _():
    one = socket.socket()
    one.bind((OURS, 0))
    return does(one.send, b"x"), does(one.recv, 1), does(one.shutdown, socket.SHUT_RDWR)


@case("poll of a new stream")
def _():
    return polled(socket.socket(), seconds=0)


@case("poll of a connected stream, with and without octets")
def _():
    _, client, server = pair()
    before = polled(server, seconds=0)
    client.send(b"x")
    polled(server, select.POLLIN)
    return before, polled(server, seconds=0)


@case("poll behind the peer's shutdown")
def _():
    _, client, server = pair()
    client.shutdown(socket.SHUT_WR)
    polled(server, select.POLLIN)
    return polled(server), server.recv(1)


@case("poll when both have shut down")
def _():
    _, client, server = pair()
    client.shutdown(socket.SHUT_WR)
    polled(server, select.POLLIN)
    server.shutdown(socket.SHUT_WR)
    polled(client, select.POLLIN)
    time.sleep(0.3)
    return polled(server)


@case("connect refused: error, SO_ERROR twice")
def _():
    one = listener()
    to = one.getsockname()
    one.close()
    client = socket.socket()
    client.setblocking(False)
    first = does(client.connect, to)
    polled(client, select.POLLOUT)
    return first, pending(client), pending(client)


@case("connect without blocking: send meanwhile")
def _():
    one = socket.socket()
    one.setblocking(False)
    begun = does(one.connect, (NOBODY, 9))
    return begun, does(one.send, b"x"), polled(one, seconds=0), pending(one)


@case("connect without blocking: receive meanwhile")
def _():
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((NOBODY, 9))
    return does(one.recv, 1), does(one.getpeername)


@case("connect without blocking: again meanwhile")
def _():
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((NOBODY, 9))
    return does(one.connect, (NOBODY, 9))


@case("send waits for a connect that no host answers")
def _():
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((NOBODY, 9))
    one.setblocking(True)
    waits = together(lambda: one.send(b"x"))
    return waits(0.3)


@case("connect with a limit of time that no host answers")
def _():
    one = socket.socket()
    one.setsockopt(SOL, socket.SO_SNDTIMEO, struct.pack("ll", 0, 200000))
    return does(one.connect, (NOBODY, 9))


@case("connect gives up behind TCP_SYNCNT")
def _():
    one = socket.socket()
    one.setsockopt(TCP, socket.TCP_SYNCNT, 1)
    begun = time.monotonic()
    said = does(one.connect, (NOBODY, 9))
    return said, 2 < time.monotonic() - begun < 9


@case("MSG_PEEK takes nothing away")
def _():
    _, client, server = pair()
    client.send(b"look")
    return server.recv(4, socket.MSG_PEEK), server.recv(4)


@case("MSG_WAITALL waits for all")
def _():
    _, client, server = pair()
    server.settimeout(None)
    client.send(b"one")
    waits = together(lambda: server.recv(6, socket.MSG_WAITALL))
    time.sleep(0.1)
    client.send(b"two")
    return waits()


@case("MSG_DONTWAIT does not wait")
def _():
    _, client, server = pair()
    server.settimeout(None)
    return does(server.recv, 1, socket.MSG_DONTWAIT)


@case("SO_RCVLOWAT is waited for by poll")
def _():
    _, client, server = pair()
    server.setsockopt(SOL, socket.SO_RCVLOWAT, 4)
    client.send(b"ab")
    first = polled(server, select.POLLIN, 0.2)
    client.send(b"cd")
    return first, polled(server, select.POLLIN)


@case("FIONREAD says how many octets wait")
def _():
    _, client, server = pair()
    client.send(b"12345")
    polled(server, select.POLLIN)
    return struct.unpack("i", fcntl.ioctl(server, 0x541B, bytes(4)))[0]


@case("TCP_CORK holds back for a while")
def _():
    _, client, server = pair()
    client.setsockopt(TCP, socket.TCP_CORK, 1)
    client.send(b"x" * 512)
    early = polled(server, select.POLLIN, 0.05)
    return early, len(server.recv(1000))


@case("MSG_MORE holds back for a while")
def _():
    _, client, server = pair()
    server.settimeout(None)
    client.send(b"a", socket.MSG_MORE)
    client.send(b"b")
    return server.recv(2, socket.MSG_WAITALL)


@case("writing behind an own shutdown")
def _():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    _, client, _ = pair()
    client.shutdown(socket.SHUT_WR)
    return does(client.send, b"x"), does(os.write, client.fileno(), b"x")


@case("reading behind an own shutdown")
def _():
    _, client, server = pair()
    client.shutdown(socket.SHUT_RD)
    return client.recv(1), polled(client)


@case("thread in recv, shut down for reading")
def _():
    _, client, _ = pair()
    client.settimeout(None)
    waits = together(lambda: client.recv(1))
    time.sleep(0.1)
    client.shutdown(socket.SHUT_RD)
    return waits()


@case("a broken stream raises SIGPIPE once told not to be quiet")
def _():
    came = []
    signal.signal(signal.SIGPIPE, lambda *_: came.append("SIGPIPE"))
    _, client, _ = pair()
    client.shutdown(socket.SHUT_WR)
    quiet = does(client.send, b"x", socket.MSG_NOSIGNAL)
    loud = does(client.send, b"x")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return quiet, loud, came


@case("peer closed: three sends and a read")
def _():
    _, client, server = pair()
    client.close()
    # An octet that comes before the close would be unread by it, and the close a reset.
    polled(server, select.POLLIN)
    found = []
    for _ in range(3):
        found.append(attempt(server.send, b"y"))
        time.sleep(0.3)
    return found, attempt(server.recv, 1)


@case("peer resets: recv, SO_ERROR, recv")
def _():
    _, client, server = pair()
    client.setsockopt(SOL, socket.SO_LINGER, RESET)
    client.close()
    polled(server, select.POLLIN)
    return attempt(server.recv, 1), pending(server), attempt(server.recv, 1)


@case("peer resets: SO_ERROR, recv")
def _():
    _, client, server = pair()
    client.setsockopt(SOL, socket.SO_LINGER, RESET)
    client.close()
    polled(server, select.POLLIN)
    return pending(server), attempt(server.recv, 1)


@case("peer resets: poll")
def _():
    _, client, server = pair()
    client.setsockopt(SOL, socket.SO_LINGER, RESET)
    client.close()
    polled(server, select.POLLIN)
    return polled(server)


@case("peer resets: sends")
def _():
    _, client, server = pair()
    client.setsockopt(SOL, socket.SO_LINGER, RESET)
    client.close()
    polled(server, select.POLLIN)
    time.sleep(0.3)
    return does(server.send, b"x"), does(server.send, b"x")


@case("closed with octets unread resets the peer")
def _():
    _, client, server = pair()
    server.send(b"unread")
    polled(client, select.POLLIN)
    client.close()
    time.sleep(0.1)
    return attempt(server.recv, 1)


def broken_off_behind(way):
    _, client, server = pair()
    client.shutdown(way)
    end = server.recv(1)
    client.setsockopt(SOL, socket.SO_LINGER, RESET)
    client.close()
    time.sleep(0.5)
    return end, pending(server)


@case("shut down both ways, then close with SO_LINGER of no time: end, then reset")
def _():
    return broken_off_behind(socket.SHUT_RDWR)


@case("shut down for writing, then close with SO_LINGER of no time: end, then reset")
def _():
    return broken_off_behind(socket.SHUT_WR)


@case("shutdown behind the end of both")
def _():
    _, client, server = pair()
    client.shutdown(socket.SHUT_WR)
    server.recv(1)
    server.shutdown(socket.SHUT_WR)
    client.recv(1)
    time.sleep(0.5)
    return does(server.shutdown, socket.SHUT_WR)


@case("shutdown of nonsense")
def _():
    return does(pair()[1].shutdown, 7)


@case("shutdown of a stream that connects")
def _():
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex((NOBODY, 9))
    return does(one.shutdown, socket.SHUT_RDWR)


@case("a burst of connects up to the backlog is taken at once")
def _():
    one = listener(backlog=100)
    clients = []
    for _ in range(100):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(one.getsockname())
        clients.append(client)
    poll = select.poll()
    for client in clients:
        poll.register(client, select.POLLOUT)
    while len(poll.poll(0)) < 100:
        time.sleep(0.01)
    # Whose beginning was lost had to repeat it.
    repeats = [struct.unpack("I", client.getsockopt(TCP, socket.TCP_INFO, 104)[100:])[0] for client in clients]
    return repeats.count(0)


@case("those that a full listener does not take wait")
def _():
    one = listener(backlog=3)
    clients = []
    for _ in range(4):
        clients.append(connected(one))
    late = socket.socket()
    late.setblocking(False)
    late.connect_ex(one.getsockname())
    waits = polled(late, select.POLLOUT, 0.3)
    one.accept()
    return waits, polled(late, select.POLLOUT, 4)


@case("dup of a stream outlives the first")
def _():
    _, client, server = pair()
    other = client.dup()
    client.close()
    other.send(b"dup")
    return server.recv(3)


@case("a child has the stream")
def _():
    _, client, server = pair()
    child = os.fork()
    if not child:
        client.send(b"child")
        os._exit(0)
    os.waitpid(child, 0)
    client.close()
    return server.recv(5), server.recv(5)


@case("sendfile, readv and writev")
def _():
    _, client, server = pair()
    with open(__file__, "rb") as file:
        start = file.read(10)
        sent = os.sendfile(client.fileno(), file.fileno(), 0, 10)
    os.writev(client.fileno(), [b"ab", b"cd"])
    time.sleep(0.1)
    first, second = bytearray(10), bytearray(4)
    return sent, os.readv(server.fileno(), [first, second]), first == start, bytes(second)


@case("nagle off: small writes arrive")
def _():
    _, client, server = pair()
    client.setsockopt(TCP, socket.TCP_NODELAY, 1)
    server.settimeout(None)
    for octet in b"abc":
        client.send(bytes([octet]))
    return server.recv(3, socket.MSG_WAITALL)


@case("a reader that does not read stops a writer")
def _():
    one = listener(options=[(SOL, socket.SO_RCVBUF, 8192)])
    client = connected(one)
    server, _ = one.accept()
    client.setblocking(False)
    client.setsockopt(SOL, socket.SO_SNDBUF, 8192)
    while polled(client, select.POLLOUT, 0.2):
        attempt(client.send, bytes(4096))
    return does(client.send, b"x" * 100000) in ("ok", "EAGAIN"), polled(client, select.POLLOUT, 0)


@case("epoll, edge-triggered, registered before the connect")
def _():
    one, client = listener(), socket.socket()
    client.setblocking(False)
    epoll = select.epoll()
    epoll.register(client, select.EPOLLOUT | select.EPOLLET)
    epoll.poll(0)
    client.connect_ex(one.getsockname())
    return [events for _, events in epoll.poll(SOON)]


@case("epoll of a listener, one event for one peer")
def _():
    one = listener()
    epoll = select.epoll()
    epoll.register(one, select.EPOLLIN | select.EPOLLET)
    connected(one)
    first = len(epoll.poll(SOON))
    return first, len(epoll.poll(0.1))


@case("SIOCOUTQ of what was sent long ago")
def _():
    _, client, _ = pair()
    return struct.unpack("i", fcntl.ioctl(client, 0x5411, bytes(4)))[0]


@case("an ioctl that no socket has")
def _():
    return does(fcntl.ioctl, pair()[1], 0x7777, bytes(64))


@case("O_NONBLOCK of the listener is not the accepted stream's")
def _():
    one = listener()
    one.setblocking(False)
    connected(one)
    polled(one, select.POLLIN)
    number, _ = one._accept()
    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_NONBLOCK


@case("recvfrom and sendto of a stream")
def _():
    _, client, server = pair()
    client.sendto(b"to", ("1.2.3.4", 5))
    return server.recvfrom(2)


@case("sendmsg with IP_TTL on a stream")
def _():
    _, client, server = pair()
    sent = attempt(client.sendmsg, [b"x"], [(IP, socket.IP_TTL, struct.pack("i", 5))])
    return sent, server.recv(1)
