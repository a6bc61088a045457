"""A server of a user's own, unlike the contract: `websockets` with its default limit of 1 MiB, one WebSocket path (OWN_PATH), which
echoes or, told `Ping`, answers `Pong`. It may start a child (OWN_CHILD), end at once (OWN_DIES) or after messages (OWN_MOST),
spin for some µs of CPU time per message (OWN_SPIN_US) and answer some seconds late (OWN_LATE_S)."""

import os
import subprocess
import sys
import time
from http import HTTPStatus

from websockets.sync.server import serve

PATH = os.environ.get("OWN_PATH", "/chat")
MOST = int(os.environ.get("OWN_MOST", "0"))
SPIN_NS = 1000 * int(os.environ.get("OWN_SPIN_US", "0"))
LATE_S = float(os.environ.get("OWN_LATE_S", "0"))
seen = 0


def answer(connection):
    global seen
    for message in connection:
        until = time.thread_time_ns() + SPIN_NS
        while time.thread_time_ns() < until:
            pass
        time.sleep(LATE_S)
        connection.send("Pong" if message == "Ping" else message)
        seen += 1
        if MOST and seen > MOST:
            print("no more, I am tired", flush=True)
            os._exit(5)


def admit(connection, request):
    if request.path != PATH:
        return connection.respond(HTTPStatus.NOT_FOUND, "only the chat\n")
    return None


if os.environ.get("OWN_DIES"):
    print("first line\nthe database is away", flush=True)
    sys.exit(7)
if os.environ.get("OWN_CHILD"):
    subprocess.Popen(["sleep", "300"])
print(f"threads {os.environ.get('THREADS')}, cpus {sorted(os.sched_getaffinity(0))}, mine {os.environ.get('MINE')}", flush=True)
with serve(answer, os.environ["HOST"], int(os.environ["PORT"]), process_request=admit) as server:
    server.serve_forever()
