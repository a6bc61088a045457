"""A real, small TCP server of the contract's `ping` for the harness's own tests; it can be told to crash, or to leave a child."""

import os
import platform
import socketserver
import subprocess
import sys
import threading

answered = 0
lock = threading.Lock()
crash_after = int(os.environ.get("CRASH_AFTER", "0"))


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
    request_queue_size = 1024


if "--version" in sys.argv:
    print(f"python {platform.python_version()}")
else:
    if os.environ.get("FORK"):
        subprocess.Popen(["sleep", "300"], start_new_session=True)
    Server((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()
