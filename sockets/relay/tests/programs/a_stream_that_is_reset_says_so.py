import os, socket, struct
server = socket.create_server(('10.0.0.1', 80))
for call in (lambda s: s.recv(10), lambda s: os.read(s.fileno(), 10)):
    client = socket.create_connection(('10.0.0.1', 80))
    peer, _ = server.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    peer.close()
    try:
        call(client)
        assert False
    except ConnectionResetError: pass
    assert client.recv(10) == b''
print('said')
