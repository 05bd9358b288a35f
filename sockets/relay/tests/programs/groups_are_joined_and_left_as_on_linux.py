import socket, struct, errno
group, own = '239.1.2.3', '10.0.0.1'
def receiver(host):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, 5000))
    made.settimeout(0.2)
    return made
def heard(made):
    try: return made.recvfrom(100)[0]
    except TimeoutError: return None
mreq = socket.inet_aton(group) + socket.inet_aton(own)
mreqn = socket.inet_aton(group) + socket.inet_aton('0.0.0.0') + struct.pack('i', 1)
def storage(host):
    return struct.pack('=HH4s120x', socket.AF_INET, 0, socket.inet_aton(host))
any_req = struct.pack('I4x', 1) + storage(group)
source_req = any_req + storage(own)
other_req = any_req + storage('10.0.0.9')
JOIN_GROUP, LEAVE_GROUP, JOIN_SOURCE, LEAVE_SOURCE = 42, 45, 46, 47
one = receiver(group)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.bind((own, 0))
send = lambda octets: sender.sendto(octets, (group, 5000))
send(b'none')
assert heard(one) is None
for join, leave, request in (
    (socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP, mreq),
    (socket.IP_ADD_MEMBERSHIP, socket.IP_DROP_MEMBERSHIP, mreqn),
    (JOIN_GROUP, LEAVE_GROUP, any_req),
    (JOIN_SOURCE, LEAVE_SOURCE, source_req),
    (39, 40, mreq + socket.inet_aton(own)),
):
    one.setsockopt(socket.IPPROTO_IP, join, request)
    try:
        one.setsockopt(socket.IPPROTO_IP, join, request)
        assert False
    except OSError as error:
        assert error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL), error
    send(b'in')
    assert heard(one) == b'in', join
    one.setsockopt(socket.IPPROTO_IP, leave, request)
    send(b'out')
    assert heard(one) is None, leave
one.setsockopt(socket.IPPROTO_IP, JOIN_SOURCE, other_req)
send(b'unwanted')
assert heard(one) is None
two = receiver('')
two.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, mreq)
two.setsockopt(socket.IPPROTO_IP, 12, 1)
def hops():
    send(b'hops')
    _, control, _, _ = two.recvmsg(100, 100)
    return [struct.unpack('i', data)[0] for _, kind, data in control if kind == socket.IP_TTL]
assert hops() == [1]
sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 77)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, struct.pack('B', 7))
assert hops() == [7]
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 9)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
assert hops() == [9]
assert sender.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 9
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, struct.pack('B', 0))
send(b'out')
assert heard(two) is None
try:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('10.0.0.9'))
    assert False
except OSError as error: assert error.errno == errno.EADDRNOTAVAIL, error
print('joined')
