"""What an experiment answers for a reader who chooses a server."""

from __future__ import annotations

from typing import Literal, get_args

from wsbench.records.frozen import Frozen
from wsbench.records.rundir import CellValue

#: Loads in the words of a reader who chooses a server, in the order in which they are shown.
Need = Literal[
    "A million idle connections",
    "Many idle connections",
    "Messages with short response times",
    "As many messages as possible",
    "Requests in a protocol",
    "One message to all",
    "Rooms",
    "Connections that come and go",
    "Large messages",
    "Compressed messages",
]
NEEDS: tuple[str, ...] = get_args(Need)


class Choice(Frozen):
    """A column of the page "Which server for my load?"."""

    need: Need
    #: What is compared under this load.
    shows: str
    metric: str
    #: The cell; every swept key has a value.
    at: dict[str, CellValue] = {}
