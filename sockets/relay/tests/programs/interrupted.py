import ctypes, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
handled = 0
def handle(*_):
    global handled
    handled += 1
signal.signal(signal.SIGALRM, handle)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
address = b'\x02\0\x1f\x90\x0a\0\0\x01' + bytes(8)
for turn in range(1000):
    bound = socket.socket()
    assert libc.bind(bound.fileno(), address, 16) == 0, (turn, ctypes.get_errno())
    bound.close()
assert handled > 10
signal.setitimer(signal.ITIMER_REAL, 0)
print('bound')
