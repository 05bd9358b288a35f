for early in (False, True):
    for option in (socket.SO_TIMESTAMP if hasattr(socket, 'SO_TIMESTAMP') else 29, 35):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if early: one.setsockopt(socket.SOL_SOCKET, option, 1)
        one.bind((sys.argv[1], 0))
        if not early: one.setsockopt(socket.SOL_SOCKET, option, 1)
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        other.sendto(b'hello', one.getsockname())
        data, [(level, kind, octets)], flags, _ = one.recvmsg(100, 100)
        seconds, part = struct.unpack('qq', octets)
        print(data, level, kind, len(octets), flags, abs(seconds - time.time()) < 600, 0 <= part < 10 ** 9)
