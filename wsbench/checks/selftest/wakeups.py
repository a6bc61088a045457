"""Wake-up delay of a sleeping thread on this machine after bytes arrive: the self-test compares the engine with it.

Run as `python -I -S wakeups.py SENDER_CPU READER_CPU`; prints a JSON list of nanoseconds. A message arrives over loopback
every 5 ms, as under the constant delays. The reader only sleeps in recvmsg. A delay runs from the kernel's receive stamp
(socket(7), SO_TIMESTAMPNS) to the return of the call; on a virtual machine most of it is due to the hypervisor.
"""

import json
import os
import socket
import struct
import sys
import time

MESSAGES = 200
PAUSE_S = 0.005
SO_TIMESTAMPNS = 35  # socket option and type of its control message; Python has no name for it
STAMP = struct.Struct("@ll")


def send(address: tuple[str, int], cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(MESSAGES):
            time.sleep(PAUSE_S)
            sender.sendto(b".", address)


def receive(reader: socket.socket, cpu: int) -> list[int]:
    os.sched_setaffinity(0, {cpu})
    reader.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    reader.settimeout(1.0)
    late = []
    for _ in range(MESSAGES):
        _, said, _, _ = reader.recvmsg(1, socket.CMSG_SPACE(STAMP.size))
        now = time.time_ns()
        late += [
            now - seconds * 1_000_000_000 - ns
            for level, kind, data in said
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS)
            for seconds, ns in [STAMP.unpack(data)]
        ]
    return late


def main() -> None:
    sender_cpu, reader_cpu = (int(word) for word in sys.argv[1:])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reader:
        reader.bind(("127.0.0.1", 0))
        child = os.fork()
        if child == 0:
            send(reader.getsockname(), sender_cpu)
            os._exit(0)
        try:
            late = receive(reader, reader_cpu)
        finally:
            os.waitpid(child, 0)
    print(json.dumps(late))


if __name__ == "__main__":
    main()
