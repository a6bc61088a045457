"""picows on asyncio. Environment: HOST, PORT; one thread, THREADS is ignored."""

import asyncio
import os
import platform
import sys
import time

import picows
from picows import WSFrame, WSListener, WSMsgType, WSTransport, WSUpgradeRequest, ws_create_server

LARGEST_FRAME = 16 * 1024 * 1024
DATA = (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION)

members: set[WSTransport] = set()


class Endpoint(WSListener):
    """The library hands out frames, not messages, and leaves the answer to a Close frame to its user."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
        elif frame.msg_type in DATA:
            self.on_data(transport, frame)

    def on_data(self, transport: WSTransport, frame: WSFrame) -> None:
        raise NotImplementedError


class Echo(Endpoint):
    def on_data(self, transport: WSTransport, frame: WSFrame) -> None:
        transport.send(frame.msg_type, frame.get_payload_as_memoryview(), frame.fin)


class Ping(Endpoint):
    def on_data(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT and frame.get_payload_as_memoryview() == b"Ping":
            transport.send(WSMsgType.TEXT, b"Pong")


class Push(Endpoint):
    def on_ws_connected(self, transport: WSTransport) -> None:
        members.add(transport)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        members.discard(transport)

    def on_data(self, transport: WSTransport, frame: WSFrame) -> None:
        text = frame.get_payload_as_bytes()
        if frame.msg_type == WSMsgType.TEXT and text.startswith(b"broadcast "):
            token = text.removeprefix(b"broadcast ")
            # A copy: a send that finds its connection broken may take it off the list.
            for member in list(members):
                member.send(WSMsgType.TEXT, b"%d %b" % (time.time_ns() // 1000, token))


ENDPOINTS = {b"/echo": Echo, b"/ping": Ping, b"/push": Push}


def listener(request: WSUpgradeRequest) -> WSListener | None:
    """None is answered with 404."""
    endpoint = ENDPOINTS.get(request.path)
    return endpoint() if endpoint else None


async def main() -> None:
    host, port = os.environ["HOST"], int(os.environ["PORT"])
    server = await ws_create_server(listener, host, port, max_frame_size=LARGEST_FRAME)
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(f"picows {picows.__version__}, python {platform.python_version()}")
    else:
        asyncio.run(main())
