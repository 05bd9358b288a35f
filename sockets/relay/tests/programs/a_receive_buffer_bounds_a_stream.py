# From the first window on, and whatever lies between the stack and the program: what Linux takes
# for a buffer of 4,096 is 5 KB.
import socket, struct, time
def acknowledged(early):
    server = socket.socket()
    if early: server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.bind(('10.0.0.1', 0))
    server.listen()
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
    if not early: peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(0.3)
    sent = 0
    try:
        while sent < 2000000: sent += client.send(bytes(10000))
    except TimeoutError: pass
    info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 148)
    octets, = struct.unpack_from('Q', info, 120)
    got = 0
    peer.settimeout(30)
    while got < sent: got += len(peer.recv(65536))
    return octets
# Once it is said, the first window is not taken back.
for early, most in (True, 40000), (False, 110000):
    octets = acknowledged(early)
    assert 0 < octets < most, (early, octets)
print('bounded')
