import socket, os
server = socket.create_server(('0.0.0.0', 80))
for n in range(4):
    if os.fork() == 0:
        peer, _ = server.accept()
        peer.sendall(b'child %d' % n)
        os._exit(0)
heard = set()
for n in range(4):
    client = socket.create_connection(('10.0.0.1', 80))
    heard.add(client.recv(100))
assert len(heard) == 4, heard
print('born')
