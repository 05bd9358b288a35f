"""Gives a device an AppleTalk address: atif.py DEVICE FIRST LAST NET NODE

Linux probes for it (AARP), takes another node of the networks if it is another's, and says so
only by what the device has then. Prints that."""

import fcntl
import socket
import struct
import sys

AF_APPLETALK = 5
SIOCSIFADDR = 0x8916
SIOCGIFADDR = 0x8915

device = sys.argv[1].encode()
first, last, net, node = map(int, sys.argv[2:6])


def request(net, node, first=0, last=0):
    # struct ifreq with struct sockaddr_at, which ends with struct atalk_netrange (linux/atalk.h).
    return struct.pack("16sHBxHBxBxHHxx", device, AF_APPLETALK, 0, socket.htons(net), node, 2,
                       socket.htons(first), socket.htons(last)).ljust(40, b"\0")


with socket.socket(AF_APPLETALK, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFADDR, request(net, node, first, last))
    said = fcntl.ioctl(any_socket, SIOCGIFADDR, request(0, 0))
    net, node = struct.unpack("!20xHB17x", said)
    print(f"has {net}.{node}")
