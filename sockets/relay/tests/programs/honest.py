import socket, sys, threading, time
until = time.monotonic() + float(sys.argv[1])
server = socket.create_server(('10.0.0.1', 80), backlog=50)
heard, said = [], set()
def serve():
    while True:
        peer, address = server.accept()
        data = peer.recv(100)
        heard.append((address, peer.getpeername(), data))
        peer.sendall(b'honest')
        peer.close()
threading.Thread(target=serve, daemon=True).start()
receiver = socket.socket(type=socket.SOCK_DGRAM)
receiver.bind(('10.0.0.1', 700))
receiver.settimeout(5)
while time.monotonic() < until:
    client = socket.create_connection(('10.0.0.1', 80))
    said.add(client.getsockname())
    client.sendall(b'hello')
    assert client.recv(100) == b'honest'
    client.close()
    sender = socket.socket(type=socket.SOCK_DGRAM)
    sender.sendto(b'datagram', ('10.0.0.1', 700))
    data, address = receiver.recvfrom(100)
    assert data == b'datagram' and address[0] == '10.0.0.1', (data, address)
    sender.close()
for accepted, peer, data in heard:
    assert accepted == peer and peer in said and data == b'hello', (accepted, peer, data)
print('served', len(heard) > 0)
