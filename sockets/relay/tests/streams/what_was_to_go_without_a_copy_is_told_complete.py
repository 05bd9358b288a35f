SO_ZEROCOPY, MSG_ZEROCOPY, ERRORS = 60, 0x4000000, socket.MSG_ERRQUEUE
stream()
print(one.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY))
def queue():
    data, controls, flags, _ = one.recvmsg(10, 200, ERRORS)
    [(level, kind, octets)] = controls
    return (len(data), level, kind, struct.unpack_from('IBBBB', octets), len(octets), flags), struct.unpack_from('II', octets, 8)
def empty():
    try: queue()
    except BlockingIOError as error: return error.errno
print(empty())
# Without the option the flag means nothing.
one.send(bytes(5000), MSG_ZEROCOPY)
print(len(other.recv(5000, socket.MSG_WAITALL)), empty())
try: one.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 2)
except OSError as error: print(error.errno)
one.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
print(one.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY))
polled, waited = select.poll(), select.epoll()
polled.register(one, 0)
waited.register(one, select.EPOLLIN)
told, next = set(), 0
for n in range(3):
    one.send(bytes(20000), MSG_ZEROCOPY)
    print(len(other.recv(20000, socket.MSG_WAITALL)))
while next < 3:
    [(_, events)] = polled.poll()
    [(_, more)] = waited.poll()
    what, (first, last) = queue()
    told.add((events, more, what, first == next))
    next = last + 1
print(told, empty(), polled.poll(0), waited.poll(0))
# Early, and inherited.
server.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
stream()
print(other.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY), one.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY))
early = socket.socket()
early.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
early.connect(server.getsockname())
print(early.getsockopt(socket.SOL_SOCKET, SO_ZEROCOPY))
