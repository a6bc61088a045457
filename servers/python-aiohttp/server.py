"""aiohttp's own server on asyncio. Environment: HOST, PORT; one process, one thread, THREADS is ignored."""

import asyncio
import os
import platform
import sys
import time
from contextlib import suppress

import aiohttp
from aiohttp import WSMsgType, web

LARGEST_MESSAGE = 16 * 1024 * 1024

#: A member is the queue of what it has still to be sent.
members: set[asyncio.Queue[str]] = set()


async def doc(request: web.Request) -> web.Response:
    size = request.query.get("size", "")
    if not size.isdigit():
        raise web.HTTPBadRequest
    return web.Response(body=b"." * int(size), content_type="text/html")


async def echo(request: web.Request) -> web.WebSocketResponse:
    # One byte more: aiohttp refuses a message of exactly its limit.
    websocket = web.WebSocketResponse(max_msg_size=LARGEST_MESSAGE + 1)
    await websocket.prepare(request)
    async for message in websocket:
        if message.type is WSMsgType.TEXT:
            await websocket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await websocket.send_bytes(message.data)
    return websocket


async def ping(request: web.Request) -> web.WebSocketResponse:
    websocket = web.WebSocketResponse()
    await websocket.prepare(request)
    async for message in websocket:
        if message.type is WSMsgType.TEXT and message.data == "Ping":
            await websocket.send_str("Pong")
    return websocket


async def push(request: web.Request) -> web.WebSocketResponse:
    """Joins before the 101 is sent: whoever has seen it is a member."""
    tokens: asyncio.Queue[str] = asyncio.Queue()
    members.add(tokens)
    try:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        writer = asyncio.create_task(write(tokens, websocket))
        async for message in websocket:
            if message.type is WSMsgType.TEXT and message.data.startswith("broadcast "):
                for member in members:
                    member.put_nowait(message.data.removeprefix("broadcast "))
        writer.cancel()
    finally:
        members.discard(tokens)
    return websocket


async def write(tokens: asyncio.Queue[str], websocket: web.WebSocketResponse) -> None:
    # The client is gone; the reading side hears of it, too.
    with suppress(ConnectionError):
        while True:
            token = await tokens.get()
            await websocket.send_str(f"{time.time_ns() // 1000} {token}")


def main() -> None:
    app = web.Application()
    app.add_routes([web.get(path, handler) for path, handler in ENDPOINTS.items()])
    web.run_app(
        app,
        host=os.environ["HOST"],
        port=int(os.environ["PORT"]),
        access_log=None,
        keepalive_timeout=3600,
        shutdown_timeout=2,
        print=None,
    )


ENDPOINTS = {"/doc": doc, "/echo": echo, "/ping": ping, "/push": push}

if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"aiohttp {aiohttp.__version__}, python {platform.python_version()}")
    else:
        main()
