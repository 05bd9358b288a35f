# As on Linux, one more than the number waits; the others are told nothing, and come in later.
import select, socket, time
for backlog, wanted in (0, 3), (5, 6), (12, 13):
    server = socket.socket()
    server.bind(('10.0.0.1', 0))
    server.listen(backlog)
    poller, clients = select.poll(), []
    for n in range(wanted + 10):
        client = socket.socket()
        client.setblocking(False)
        assert client.connect_ex(server.getsockname()) == 115
        poller.register(client, select.POLLOUT)
        clients.append(client)
        # One after the other: of several that ask at one time each is answered.
        begun = time.monotonic()
        while len(poller.poll(0)) < min(n + 1, wanted) and time.monotonic() < begun + 30: time.sleep(0.001)
    time.sleep(0.2)
    connected = poller.poll(0)
    assert all(event == select.POLLOUT for _, event in connected), connected
    assert len(connected) == wanted, (backlog, len(connected))
    server.settimeout(30)
    for n in range(wanted + 1): server.accept()
print('waited')
