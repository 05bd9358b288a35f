import socket, errno
one = socket.socket(type=socket.SOCK_DGRAM)
one.bind(('10.0.0.1', 700))
other = socket.socket(type=socket.SOCK_DGRAM)
other.connect(('10.0.0.1', 700))
other.send(b'first')
other.sendto(b'', ('10.0.0.1', 700))
other.send(b'x' * 60000)
assert one.recvfrom(100) == (b'first', other.getsockname())
assert one.recvfrom(100) == (b'', other.getsockname())
assert one.recvfrom(65536) == (b'x' * 60000, other.getsockname())
one.sendto(b'back', other.getsockname())
assert other.recv(10) == b'back'
one.close()
other.send(b'anybody?')
try:
    other.recv(10)
    assert False
except ConnectionRefusedError: pass
print('kept')
