"""One worker with a queue, whose service time is set: an echo server of which theory knows the response times.

The worker's time is virtual: a reply leaves when the worker would be done with it, so the CPU time of Python counts only where it
is longer than the wait. LAW: `fixed` or `exponential` service times of mean SERVICE_US, drawn from SEED; `cliff`: none up to LIMIT
messages a second, then 50 ms each; `stuck`: fixed, but after a queue of LIMIT messages each takes four times as long, for ever.
"""

import asyncio
import os
import platform
import random
import selectors
import sys

from websockets.asyncio.server import serve

LAW = os.environ.get("LAW", "fixed")
SERVICE_S = float(os.environ.get("SERVICE_US", "500")) / 1e6
LIMIT = float(os.environ.get("LIMIT", "1000"))
chance = random.Random(int(os.environ.get("SEED", "1")))


class Worker:
    def __init__(self, loop):
        self.loop, self.free, self.waiting, self.stuck = loop, 0.0, 0, False
        self.allowance, self.counted = 0.1 * LIMIT, loop.time()

    def service_s(self, now):
        if LAW == "exponential":
            return chance.expovariate(1 / SERVICE_S)
        if LAW == "cliff":
            self.allowance = min(0.1 * LIMIT, self.allowance + LIMIT * (now - self.counted))
            self.counted = now
            self.allowance = max(-1.0, self.allowance - 1)
            return 0.05 if self.allowance < 0 else 0.0
        self.stuck = self.stuck or (LAW == "stuck" and self.waiting > LIMIT)
        return 4 * SERVICE_S if self.stuck else SERVICE_S

    async def work(self):
        """Returns when the worker is done with one more message."""
        now = self.loop.time()
        # No two replies leave at the same moment, so they keep their order.
        self.free = max(now, self.free + 1e-7) + self.service_s(now)
        self.waiting += 1
        done = self.loop.create_future()
        self.loop.call_at(self.free, done.set_result, None)
        await done
        self.waiting -= 1


async def main():
    worker = Worker(asyncio.get_running_loop())
    replies = set()

    async def answer(connection, message):
        await worker.work()
        await connection.send(message)

    async def handle(connection):
        async for message in connection:
            task = asyncio.create_task(answer(connection, message))
            replies.add(task)
            task.add_done_callback(replies.discard)

    async with serve(handle, os.environ["HOST"], int(os.environ["PORT"]), max_size=32 << 20, compression=None):
        await worker.loop.create_future()


if "--version" in sys.argv:
    print(f"python {platform.python_version()}")
else:
    # select() takes a timeout in µs; epoll, as asyncio uses it, one in ms.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(main())
