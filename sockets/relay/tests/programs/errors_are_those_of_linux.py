import socket, errno
try:
    socket.create_connection(('10.0.0.1', 9))
    assert False
except ConnectionRefusedError: pass
one = socket.create_server(('10.0.0.1', 0))
assert one.getsockname()[1] >= 49152
try:
    socket.create_server(one.getsockname())
    assert False
except OSError as error: assert error.errno == errno.EADDRINUSE, error
address = one.getsockname()
one.close()
socket.create_server(address)
client = socket.socket()
client.settimeout(5)
try:
    client.connect(('10.0.0.1', 9))
    assert False
except ConnectionRefusedError: pass
print('right')
