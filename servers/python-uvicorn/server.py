"""An ASGI application under uvicorn. Environment: HOST, PORT, TLS_CERT, TLS_KEY; one process, one thread, THREADS is
ignored. uvicorn compresses messages whenever a client asks for it."""

import asyncio
import os
import platform
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from urllib.parse import parse_qs

import uvicorn


async def app(scope, receive, send) -> None:
    if scope["type"] == "websocket" and scope["path"] in WEBSOCKETS:
        await receive()  # websocket.connect
        await WEBSOCKETS[scope["path"]](receive, send)
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close"})
    elif scope["path"] == "/doc":
        await doc(scope, send)
    else:
        await respond(send, 404)


async def doc(scope, send) -> None:
    size = parse_qs(scope["query_string"]).get(b"size", [b""])[0]
    if size.isdigit():
        await respond(send, 200, b"." * int(size))
    else:
        await respond(send, 400)


async def respond(send, status: int, body: bytes = b"") -> None:
    headers = [(b"content-type", b"text/html"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def messages(receive):
    """What the client sends, until it is gone."""
    while (event := await receive())["type"] == "websocket.receive":
        yield event


async def echo(receive, send) -> None:
    await send({"type": "websocket.accept"})
    async for event in messages(receive):
        await send({**event, "type": "websocket.send"})


async def ping(receive, send) -> None:
    await send({"type": "websocket.accept"})
    async for event in messages(receive):
        if event.get("text") == "Ping":
            await send({"type": "websocket.send", "text": "Pong"})


#: A member is the queue of what it has still to be sent.
members: set[asyncio.Queue[str]] = set()


async def push(receive, send) -> None:
    """Joins before the 101 is sent: whoever has seen it is a member."""
    tokens: asyncio.Queue[str] = asyncio.Queue()
    members.add(tokens)
    try:
        await send({"type": "websocket.accept"})
        writer = asyncio.create_task(write(tokens, send))
        async for event in messages(receive):
            text = event.get("text") or ""
            if text.startswith("broadcast "):
                for member in members:
                    member.put_nowait(text.removeprefix("broadcast "))
        writer.cancel()
    finally:
        members.discard(tokens)


async def write(tokens: asyncio.Queue[str], send) -> None:
    # ASGI's way to say that the client is gone; the reading side hears of it, too.
    with suppress(OSError):
        while True:
            token = await tokens.get()
            await send({"type": "websocket.send", "text": f"{time.time_ns() // 1000} {token}"})


WEBSOCKETS = {"/echo": echo, "/ping": ping, "/push": push}


def main() -> None:
    uvicorn.run(
        app,
        host=os.environ["HOST"],
        port=int(os.environ["PORT"]),
        lifespan="off",
        log_level="warning",
        timeout_keep_alive=3600,
        timeout_graceful_shutdown=2,
        ws_ping_interval=None,
        ssl_certfile=os.environ.get("TLS_CERT"),
        ssl_keyfile=os.environ.get("TLS_KEY"),
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        inside = ", ".join(f"{package} {version(package)}" for package in ("uvloop", "httptools", "websockets"))
        print(f"uvicorn {uvicorn.__version__}, {inside}, python {platform.python_version()}")
    else:
        main()
