# Options that Linux takes are taken and told the same, before bind and behind it, unless their
# absence would be noticed: such an option is refused once the socket is the graph's, and that is
# said once.
import errno, os, socket, sys
TCP, UDP, IP, SIX, SOL = socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET
both = [(IP, option, value) for option, value in ((1, 16), (2, 9), (8, 1), (10, 2), (11, 1), (12, 1), (13, 1), (15, 1), (34, 0), (49, 0))]
both += [(SOL, option, value) for option, value in ((5, 1), (7, 60000), (8, 50000), (15, 1), (29, 1), (35, 1), (40, 1))]
streams = [(TCP, option, value) for option, value in ((1, 1), (4, 33), (7, 3), (8, 9), (8, 1000), (8, -5), (10, 20000), (12, 0), (17, 1), (25, 4096))]
datagrams = [(IP, 33, 4), (UDP, 103, 1200), (UDP, 104, 1)]
six = [(SIX, option, value) for option, value in ((16, 9), (19, 0), (23, 2), (25, 1), (49, 1), (51, 1), (62, 1), (66, 1), (67, 16), (70, 0))]
missed = [(IP, 21, 5), (IP, 20, 1), (TCP, 27, 1), (TCP, 37, 5), (SOL, 61, bytes(8) + b'\1')]
def made(family, kind, host):
    one = socket.socket(family, kind)
    if host: one.bind((host, 0))
    return one
for family, host, rows in ((socket.AF_INET, '10.0.0.1', both), (socket.AF_INET6, '::', six)):
    for kind, more in ((socket.SOCK_STREAM, streams), (socket.SOCK_DGRAM, datagrams)):
        for level, name, value in rows + more:
            linux = made(family, kind, '')
            linux.setsockopt(level, name, value)
            told = linux.getsockopt(level, name)
            linux.bind((host, 0))
            assert linux.getsockopt(level, name) == told, (kind, level, name, 'kept', told, linux.getsockopt(level, name))
            ours = made(family, kind, host)
            ours.setsockopt(level, name, value)
            assert ours.getsockopt(level, name) == told, (kind, level, name, 'set', told, ours.getsockopt(level, name))
sys.stderr.flush()
kept = os.dup(2)
read, write = os.pipe()
os.dup2(write, 2)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for option in missed:
        if option[0] == TCP and kind == socket.SOCK_DGRAM: continue
        try: made(socket.AF_INET, kind, '10.0.0.1').setsockopt(*option)
        except OSError as error: assert error.errno == errno.ENOPROTOOPT, (option, error)
        else: assert False, option
os.dup2(kept, 2)
os.close(write)
# Standard error is another than it was in the beginning: nothing is written into it.
assert os.read(read, 1000) == b''
print('taken')
