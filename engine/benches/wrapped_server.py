"""An echo server that speaks TLS or permessage-deflate, for the two settings that the reference server cannot serve.

`wrapped_server.py tls|deflate`, with HOST and PORT in the environment. It is slower than any client of the
bench. The comparison is of the clients' CPU time for each message, with the same server.
"""

import asyncio
import contextlib
import os
import ssl
import sys

import trustme
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


async def echo(connection) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for message in connection:
            await connection.send(message)


async def main(wrapping: str) -> None:
    context = None
    if wrapping == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert(os.environ["HOST"]).configure_cert(context)
    options = {"ssl": context, "compression": "deflate" if wrapping == "deflate" else None, "ping_interval": None}
    async with serve(echo, os.environ["HOST"], int(os.environ["PORT"]), **options):
        await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
