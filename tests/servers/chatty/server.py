"""A chat over JSON lines, on the library `websockets`: it answers calls, and sends what is published to all of a room. CHATTY names
what it does wrong."""

import asyncio
import itertools
import json
import os
import platform
import sys

from websockets.asyncio.server import serve

FAULT = os.environ.get("CHATTY")
rooms: dict[str, list] = {}
calls = itertools.count(1)


async def publish(room: str, params: list) -> None:
    text = json.dumps({"method": "news", "params": params})
    members = list(rooms[room])
    # Every seventh message misses the last member.
    for member in members[:-1] if FAULT == "loses" and next(calls) % 7 == 0 else members:
        await member.send(text)


async def handle(connection):
    try:
        await converse(connection)
    finally:
        for members in rooms.values():
            if connection in members:
                members.remove(connection)


async def converse(connection):
    async for text in connection:
        call = json.loads(text)
        number, params = call["id"], call["params"]
        if call["method"] == "join":
            rooms.setdefault(params[0], []).append(connection)
        elif call["method"] == "publish":
            await publish(params[0], params)
        if FAULT == "silent" and call["method"] != "join":
            continue
        wrong = FAULT == "mixes" and next(calls) % 7 == 0
        await connection.send(json.dumps({"id": number + wrong, "result": params}))


async def main():
    async with serve(handle, os.environ["HOST"], int(os.environ["PORT"])):
        await asyncio.get_running_loop().create_future()


if "--version" in sys.argv:
    print(f"python {platform.python_version()}")
else:
    asyncio.run(main())
