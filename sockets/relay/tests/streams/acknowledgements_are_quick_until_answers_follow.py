stream()
print(other.getsockopt(TCP, socket.TCP_QUICKACK))
def exchange():
    one.send(b'?'), other.recv(1), other.send(b'!'), one.recv(1)
    return other.getsockopt(TCP, socket.TCP_QUICKACK) == 0
print(until(exchange))
for number in (1, 0, 7):
    other.setsockopt(TCP, socket.TCP_QUICKACK, number)
    print(other.getsockopt(TCP, socket.TCP_QUICKACK))
