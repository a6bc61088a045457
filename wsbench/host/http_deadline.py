"""A deadline for a whole HTTP response. A socket timeout does not suffice: it starts again with every byte."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def within(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Ends all use of the connection after `seconds` with TimeoutError. Always closes the connection at the end."""
    late = threading.Event()

    def end() -> None:
        late.set()
        if connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if late.is_set():
            raise TimeoutError(f"no whole answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise TimeoutError(f"no whole answer within {seconds:g} s")
