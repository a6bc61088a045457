"""websockets on asyncio. Environment: HOST, PORT, TLS_CERT, TLS_KEY; one thread, THREADS is ignored. Messages are compressed
whenever a client asks for it."""

import asyncio
import os
import platform
import ssl
import sys
import time
from contextlib import suppress

import websockets
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed

LARGEST_MESSAGE = 16 * 1024 * 1024

members: set[ServerConnection] = set()


async def echo(websocket: ServerConnection) -> None:
    async for message in websocket:
        await websocket.send(message)


async def ping(websocket: ServerConnection) -> None:
    async for message in websocket:
        if message == "Ping":
            await websocket.send("Pong")


async def push(websocket: ServerConnection) -> None:
    members.add(websocket)
    try:
        async for message in websocket:
            if isinstance(message, str) and message.startswith("broadcast "):
                push_to_all(message.removeprefix("broadcast "))
    finally:
        members.discard(websocket)


def push_to_all(token: str) -> None:
    for member in members:
        # The library's own broadcast never waits; it is called for one at a time because each has its own timestamp.
        broadcast([member], f"{time.time_ns() // 1000} {token}")


ENDPOINTS = {"/echo": echo, "/ping": ping, "/push": push}


async def handle(websocket: ServerConnection) -> None:
    endpoint = ENDPOINTS.get(websocket.request.path)
    if endpoint is None:
        await websocket.close(1008)
        return
    # Iteration raises when a client just goes away; that is nothing to report.
    with suppress(ConnectionClosed):
        await endpoint(websocket)


async def main() -> None:
    host, port = os.environ["HOST"], int(os.environ["PORT"])
    tls = None
    if certificate := os.environ.get("TLS_CERT"):
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, os.environ["TLS_KEY"])
    async with serve(handle, host, port, ping_interval=None, max_size=LARGEST_MESSAGE, ssl=tls) as server:
        await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"websockets {websockets.__version__}, python {platform.python_version()}")
    else:
        asyncio.run(main())
