"""Runs a command with no network but this machine's own: python scripts/offline.py COMMAND…

It is started in a network namespace of its own (Linux, by util-linux's unshare), where loopback is all there is: what
a command, or a program that it starts, asks of any other machine fails.
"""

import fcntl
import os
import socket
import struct
import sys

UP, SET_FLAGS = 0x1, 0x8914  # IFF_UP and SIOCSIFFLAGS of Linux


def main() -> None:
    if sys.argv[1] != "--inside":
        who = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]  # with the right to set up its network
        os.execvp("unshare", ["unshare", *who, "--net", sys.executable, __file__, "--inside", *sys.argv[1:]])
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", UP))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
