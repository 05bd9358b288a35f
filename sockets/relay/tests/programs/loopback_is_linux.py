import socket
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
peer, address = server.accept()
assert address == client.getsockname()
print('linux')
