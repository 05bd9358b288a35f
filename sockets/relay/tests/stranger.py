"""Another user of the machine against a program under `xk exec`. Run as root: `stranger.py SECONDS`.

It becomes the user 65534, and then, for as long, tries whatever the names of sockets allow (/proc/net/unix, unix(7)):
connects to them and sends to them, from names that a stack could have given; takes names before they are used; looks
for directories of sockets. What it gets it prints, one line for each kind; a safe stack gives nothing at all.
"""
import os, re, select, socket, sys, time

os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
got = dict(reached=0, forged=0, stolen=0, answered=0, listed=0)
taken = {}
until = time.monotonic() + float(sys.argv[1])


def theirs():
    """Names of the stack's and its programs' sockets."""
    for line in open('/proc/net/unix').read().splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) == 8 and re.search(r'@xk|/xk|/proc/self/fd/', words[7]):
            yield words[7]


def address(name):
    return '\0' + name[1:] if name.startswith('@') else name


def take(name):
    """Names that are likely to be given next, with what a listener and a stand-in would have."""
    found = re.match(r'@xk/([0-9a-f]+)', name)
    for number in range(2, 40) if found else ():
        for form in ('s/4/0.0.0.0:80/-', 's/4/10.0.0.1:80/-', 'd/4/10.0.0.1:700/-'):
            next_name = '\0xk/%s/%d/%s' % (found[1], number, form)
            if next_name in taken:
                continue
            kind = socket.SOCK_STREAM if form[0] == 's' else socket.SOCK_DGRAM
            trap = socket.socket(socket.AF_UNIX, kind)
            try:
                trap.bind(next_name)
                if kind == socket.SOCK_STREAM:
                    trap.listen(50)
                taken[next_name] = trap
            except OSError:
                trap.close()


def reach(name, kind, serial):
    """Connects to a socket and says something, as a peer that the program would believe."""
    with socket.socket(socket.AF_UNIX, kind) as stranger:
        stranger.settimeout(0.05)
        token = re.search(r'[0-9a-f]{16}', name)
        forged = token and '\0xk/%s/9%d/%s/4/10.0.0.1:80/10.0.0.99:22' % (token[0], serial, 's' if kind == 1 else 'd')
        try:
            if forged:
                stranger.bind(forged)
            stranger.connect(address(name))
        except OSError:
            return
        got['reached'] += 1
        try:
            stranger.send(b'from a stranger\n')
            got['forged'] += 1
            if stranger.recv(1000):
                got['answered'] += 1
        except OSError:
            pass


serial = 0
while time.monotonic() < until:
    names = list(theirs())
    for name in names:
        take(name)
    for name in names:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
            serial += 1
            reach(name, kind, serial)
    ready = select.select([trap for name, trap in taken.items() if '/s/' in name], [], [], 0)[0] if taken else []
    for trap in ready:
        trap.accept()[0].close()
        got['stolen'] += 1
    for folder in ('/tmp', '/run', '/run/xk'):
        try:
            inside = os.listdir(folder)
        except OSError:
            continue
        for entry in inside:
            if re.fullmatch('xk-[0-9a-f]{32}', entry):
                path = os.path.join(folder, entry)
                try:
                    # What is this user's own is nothing gained.
                    got['listed'] += len(os.listdir(path)) if os.stat(path).st_uid != os.getuid() else 0
                except OSError:
                    pass
for kind, count in got.items():
    print(kind, count)
