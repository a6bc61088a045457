"""An echo by the library `websockets`, over TLS and compressed where it is asked. WRAPPED names what it does not do after all."""

import asyncio
import os
import platform
import ssl
import sys

from websockets.asyncio.server import serve
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory

FAULT = os.environ.get("WRAPPED")


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def main():
    tls = None
    if "TLS_CERT" in os.environ and FAULT != "tls":
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(os.environ["TLS_CERT"], os.environ["TLS_KEY"])
    extensions = None
    if "DEFLATE" in os.environ and FAULT != "deflate":
        level = 0 if FAULT == "compression" else 6
        extensions = [ServerPerMessageDeflateFactory(compress_settings={"level": level})]
    host, port = os.environ["HOST"], int(os.environ["PORT"])
    wrapping = {"ssl": tls, "compression": None, "extensions": extensions}
    async with serve(echo, host, port, ping_interval=None, max_size=None, **wrapping) as server:
        await server.serve_forever()


if sys.argv[1:] == ["--version"]:
    print(f"websockets 3., python {platform.python_version()}")
else:
    asyncio.run(main())
