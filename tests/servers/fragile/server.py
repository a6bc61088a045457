"""A real, small TCP server of the contract's `ping` for the harness's own tests; it can be told to crash, to leave a child, to take
in connections slowly, or to end when it has too many."""

import os
import platform
import socketserver
import subprocess
import sys
import threading
import time

answered = 0
lock = threading.Lock()
crash_after = int(os.environ.get("CRASH_AFTER", "0"))
accept_every = float(os.environ.get("ACCEPT_EVERY", "0"))
most = int(os.environ.get("MOST", "1000000"))
taken = 0
QUICKLY = 200  # the contract is tried with fewer


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        global answered
        while self.rfile.read(4) == b"Ping":
            self.wfile.write(b"Pong")
            with lock:
                answered += 1
                if crash_after and answered > crash_after:
                    print("fatal: <script>alert('heap')</script> is exhausted", flush=True)
                    os._exit(3)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 32 if accept_every else 1024

    def get_request(self):
        global taken
        taken += 1
        if taken > QUICKLY:
            time.sleep(accept_every)
        if taken > most:
            print("no room for another connection", flush=True)
            os._exit(3)
        return super().get_request()


if "--version" in sys.argv:
    print(f"python {platform.python_version()}")
else:
    if os.environ.get("FORK"):
        subprocess.Popen(["sleep", "300"], start_new_session=True)
    Server((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
