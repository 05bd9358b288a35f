# Fields of headers are told and asked for by control messages in both directions, and a
# socket with two addresses answers from the one that it was asked at.
import socket, struct
IP, UDP = socket.IPPROTO_IP, socket.IPPROTO_UDP
one = socket.socket(type=socket.SOCK_DGRAM)
for option in (8, 12, 13): one.setsockopt(IP, option, 1)
one.bind(('0.0.0.0', 0))
other = socket.socket(type=socket.SOCK_DGRAM)
other.bind(('10.0.0.1', 0))
other.setsockopt(IP, socket.IP_TTL, 9)
other.sendto(b'x', ('10.0.0.1', one.getsockname()[1]))
other.sendmsg([b'y'], [(IP, socket.IP_TTL, struct.pack('i', 5)), (IP, socket.IP_TOS, struct.pack('i', 0x40))], 0, ('10.0.0.1', one.getsockname()[1]))
for data, hops, tos in ((b'x', 9, 0), (b'y', 5, 0x40)):
    got, control, flags, sender = one.recvmsg(10, 200)
    control = {kind: octets for level, kind, octets in control if level == IP}
    assert (got, flags, sender) == (data, 0, other.getsockname()), (got, flags, sender)
    assert control[8][4:] == socket.inet_aton('10.0.0.1') * 2, control
    assert struct.unpack('i', control[2]) == (hops,) and control[1] == bytes([tos]), control
info = struct.pack('I4s4s', 0, socket.inet_aton('10.0.0.1'), bytes(4))
one.sendmsg([b'back'], [(IP, 8, info)], 0, other.getsockname())
assert other.recvfrom(10) == (b'back', ('10.0.0.1', one.getsockname()[1]))
other.sendmsg([b'aabbc'], [(UDP, 103, struct.pack('H', 2))], 0, ('10.0.0.1', one.getsockname()[1]))
assert [one.recv(10) for _ in range(3)] == [b'aa', b'bb', b'c']
print('told')
