# A burst of beginnings finds all the room that the backlog says, however it is divided.
import select, socket, time
server = socket.socket()
server.bind(('10.0.0.1', 0))
server.listen(100)
poller, clients = select.poll(), []
begun = time.monotonic()
for n in range(100):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(server.getsockname())
    poller.register(client, select.POLLOUT)
    clients.append(client)
while len(poller.poll(100)) < 100: pass
# None was let wait for its first repeat.
again = [client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[100:] for client in clients]
assert again == [bytes(4)] * 100, again
print('taken')
