server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
def written(lowat, early):
    global one, other
    server.listen()
    one = socket.socket()
    if early: one.setsockopt(TCP, socket.TCP_NOTSENT_LOWAT, lowat)
    one.connect(server.getsockname())
    if not early: one.setsockopt(TCP, socket.TCP_NOTSENT_LOWAT, lowat)
    other, _ = server.accept()
    one.setblocking(False)
    sent, quiet = 0, 0
    # What is sent meanwhile makes room.
    while quiet < 20:
        try:
            sent += one.send(bytes(1000))
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.01)
    return sent
print(written(0, False) > 400000)
for early in (False, True):
    print(written(16384, early) < 200000, one.getsockopt(TCP, socket.TCP_NOTSENT_LOWAT))
    polled = select.poll()
    polled.register(one, select.POLLOUT)
    # A late segment, on a busy machine, makes room once more.
    def full():
        try: one.send(bytes(1000))
        except BlockingIOError: pass
        return not polled.poll(0)
    print(until(full))
    def writable():
        if select.select([other], [], [], 0)[0]: other.recv(1000000)
        return bool(polled.poll(0))
    print(until(writable))
