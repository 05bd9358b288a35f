"""What a program sees of its sockets: runs on Linux's and under `xk exec`, and prints the same, a line for each behaviour.

    subject.py OURS PEER        the addresses of this host and of the one that `peer.py` runs on
"""

import socket
import sys
import threading
import time

from common import *
from datagrams import Datagrams
from streams import Streams


class Subject(Streams, Datagrams):
    def __init__(self, ours, other):
        self.ours, self.other = ours, other
        self.control = socket.create_connection((other, CONTROL), timeout=PROGRAM_TIME_MAX)
        self.answers = self.control.makefile()

    def ask(self, *words):
        self.control.sendall(" ".join(map(str, words)).encode() + b"\n")
        return self.answers.readline().strip()

    def stream(self, port):
        return socket.create_connection((self.other, port), timeout=PROGRAM_TIME_MAX)

    def listen(self, port):
        one = socket.create_server((self.ours, port))
        one.settimeout(PROGRAM_TIME_MAX)
        return one

    def accepted(self, port, how):
        with self.listen(port) as listener:
            said = []
            asking = threading.Thread(target=lambda: said.append(self.ask("connect", self.ours, port, how)))
            asking.start()
            one, _ = listener.accept()
            asking.join()
        one.settimeout(PROGRAM_TIME_MAX)
        return one

    def datagrams(self, port=0, connected=None):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.settimeout(PROGRAM_TIME_MAX)
        if port is not None:
            one.bind((self.ours, port))
        if connected:
            one.connect((self.other, connected))
        return one

    def run(self):
        for name in sorted(dir(self)):
            if not name.startswith("test_"):
                continue
            begun = time.monotonic()
            try:
                result = getattr(self, name)()
            except OSError as error:
                result = what(error)
            except Exception as error:
                result = repr(error)
            name = name[5:].replace("_", " ")
            print(name + ":", result, flush=True)
            print(f"{time.monotonic() - begun:.3f} s {name}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    Subject(sys.argv[1], sys.argv[2]).run()
