"""Sends frames as they are: frames.py DEVICE HEX..."""

import socket
import sys

with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
    wire.bind((sys.argv[1], 0))
    for frame in sys.argv[2:]:
        wire.send(bytes.fromhex(frame))
