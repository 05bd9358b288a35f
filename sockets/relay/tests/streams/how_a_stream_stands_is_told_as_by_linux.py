# A segment that a busy machine keeps too long is sent again: the next stream is looked at then.
for n in range(20):
    stream()
    one.sendall(bytes(1000))
    told = until(lambda: asked(other, INQ) == 1000), until(lambda: info(one, 24) == 0)
    time.sleep(0.3)
    if info(one, 100) == info(other, 100) == 0: break
print(told)
members = {'state': (0, 'B'), 'ca_state': (1, 'B'), 'retransmits': (2, 'B'), 'probes': (3, 'B'),
    'backoff': (4, 'B'), 'options': (5, 'B'), 'unacked': (24, 'I'), 'sacked': (28, 'I'),
    'lost': (32, 'I'), 'retrans': (36, 'I'), 'reordering': (88, 'I'), 'total_retrans': (100, 'I'),
    'bytes_received': (128, 'Q'), 'notsent': (144, 'I'),
    'bytes_sent': (200, 'Q'), 'bytes_retrans': (208, 'Q'), 'dsack_dups': (216, 'I'),
    'reord_seen': (220, 'I'), 'rcv_ooopack': (224, 'I')}
for name, (at, form) in members.items(): print(name, info(one, at, form), info(other, at, form))
for of, at in ((one, 44), (one, 56), (other, 52)): print(200 <= info(of, at) < 60000)
for at in (8, 16, 20, 60, 64, 68, 80, 84, 96, 148, 228, 232): print(at, info(one, at) > 0)
print(info(one, 104, 'Q') > 0, info(one, 112, 'Q') == 2 ** 64 - 1)
other.close()
polled = select.poll()
polled.register(one, select.POLLRDHUP)
polled.poll()
print(info(one, 0, 'B'))
