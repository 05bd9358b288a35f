server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
stream()
print(asked(one, OUTQ), asked(one, OUTQNSD))
one.sendall(bytes(100))
print(until(lambda: asked(one, OUTQ) == 0))
one.setblocking(False)
sent = 0
try:
    while True: sent += one.send(bytes(10000))
except BlockingIOError: pass
waits = asked(one, OUTQ)
print(sent > 100000, sent - 65536 < waits <= sent, 0 < asked(one, OUTQNSD) <= waits)
def drained():
    if select.select([other], [], [], 0)[0]: other.recv(1000000)
    return asked(one, OUTQ) == 0
print(until(drained), asked(one, OUTQNSD))
try: asked(server, OUTQ)
except OSError as error: print(error.errno)
