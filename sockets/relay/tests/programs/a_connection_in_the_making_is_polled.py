import socket, select, errno
server = socket.create_server(('10.0.0.1', 80))
for port, wanted in ((80, 0), (9, errno.ECONNREFUSED)):
    client = socket.socket()
    client.setblocking(False)
    polled = select.epoll()
    polled.register(client, select.EPOLLOUT | select.EPOLLET)
    polled.poll(0)
    assert client.connect_ex(('10.0.0.1', port)) == errno.EINPROGRESS
    events = polled.poll(10)
    assert events and events[0][1] & select.EPOLLOUT, events
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == wanted
peer, _ = server.accept()
client = peer
print('polled')
