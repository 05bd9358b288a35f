# A stream between `one` and `other`, and how a program looks at it.
import socket, struct, sys, fcntl, select, time
TCP, INQ, OUTQ, OUTQNSD = socket.IPPROTO_TCP, 0x541b, 0x5411, 0x894b
server = socket.socket()
server.bind((sys.argv[1], 0))
def stream():
    global one, other
    server.listen()
    one = socket.create_connection(server.getsockname())
    other, _ = server.accept()
def asked(of, request): return struct.unpack('i', fcntl.ioctl(of, request, bytes(4)))[0]
def until(holds):
    # Longer than anything takes, even on a busy machine.
    for _ in range(3000):
        if holds(): return True
        time.sleep(0.01)
    return False
def info(of, at, form='I'): return struct.unpack_from(form, of.getsockopt(TCP, socket.TCP_INFO, 248), at)[0]
