import socket, threading
server = socket.create_server(('10.0.0.1', 80))
assert server.getsockname() == ('10.0.0.1', 80), server.getsockname()
def serve():
    peer, address = server.accept()
    assert peer.getpeername() == address
    assert peer.getsockname() == ('10.0.0.1', 80)
    data = b''
    while part := peer.recv(1000): data += part
    peer.sendall(data.upper())
    peer.close()
threading.Thread(target=serve).start()
client = socket.create_connection(('10.0.0.1', 80))
assert client.getpeername() == ('10.0.0.1', 80)
assert client.getsockname()[0] == '10.0.0.1'
assert client.family == socket.AF_INET
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
client.sendall(b'hello ' * 1000)
client.shutdown(socket.SHUT_WR)
data = b''
while part := client.recv(1000): data += part
assert data == b'HELLO ' * 1000, len(data)
print('spoken')
