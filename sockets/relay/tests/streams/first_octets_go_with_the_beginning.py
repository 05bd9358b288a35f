FASTOPEN_CONNECT = 30
server.setsockopt(TCP, socket.TCP_FASTOPEN, 5)
server.listen()
address = server.getsockname()
def look(client, asked):
    peer, name = server.accept()
    print(peer.recv(100) == asked, name == client.getsockname(), client.getpeername() == address)
    peer.sendall(b'answer')
    print(client.recv(100))
    client.close()
    print(peer.recv(100))
# The first one has no cookie to show.
for n in range(3):
    client = socket.socket()
    print(client.sendto(b'asked', socket.MSG_FASTOPEN, address))
    try: client.sendto(b'again', socket.MSG_FASTOPEN, address)
    except OSError as error: print(error.errno)
    look(client, b'asked')
for n in range(3):
    client = socket.socket()
    client.setsockopt(TCP, FASTOPEN_CONNECT, 1)
    print(client.getsockopt(TCP, FASTOPEN_CONNECT))
    client.connect(address)
    print(client.send(b'asked'))
    look(client, b'asked')
gone = socket.socket()
gone.bind((sys.argv[1], 0))
for flags in (0, socket.MSG_FASTOPEN):
    client = socket.socket()
    try: print(client.sendto(b'asked', flags, gone.getsockname()))
    except OSError as error: print(error.errno)
stream()
try: print(one.sendto(b'more', socket.MSG_FASTOPEN, address))
except OSError as error: print(error.errno)
