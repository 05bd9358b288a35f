"""Asks by multicast DNS (RFC 6762) who has a name, and prints the address of the answer, which comes
to the group, too."""
import socket
import struct
import sys

GROUP, PORT = "224.0.0.251", 5353
OWN, NAME = sys.argv[1:]

asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
asker.bind(("", PORT))
asker.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + socket.inet_aton(OWN))
asker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(OWN))
asker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
asker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
asker.settimeout(0.5)
labels = b"".join(bytes([len(label)]) + label.encode() for label in NAME.split("."))
question = struct.pack("!6H", 0, 0, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)
for _ in range(40):
    asker.sendto(question, (GROUP, PORT))
    try:
        answer, _ = asker.recvfrom(9000)
    except TimeoutError:
        continue
    # A response, whose first record is the address.
    at = answer.find(labels + b"\0" + struct.pack("!H", 1))
    if answer[2] & 0x80 and at >= 0:
        print(socket.inet_ntoa(answer[at + len(labels) + 11 :][:4]))
        sys.exit()
sys.exit("no answer")
