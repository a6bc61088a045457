"""What messages contain if an experiment asks for more than letters: a part of a JSON document as services send it.

It is always the same for a size, so that all servers have the same to compress. Random letters and digits shrink only to three
quarters, and one repeated record would shrink to nothing.
"""

from __future__ import annotations

import json
import random
from itertools import count

NAMES = ("ana", "bilal", "chen", "dara", "emeka", "freya", "goran", "hana", "ivo", "jun", "kofi", "lena", "mei", "noor", "omar")
# fmt: off
WORDS = (
    "agree", "again", "almost", "answer", "around", "because", "before", "better", "build", "change", "could", "deploy", "early",
    "enough", "every", "friday", "graph", "healthy", "issue", "keep", "later", "latency", "maybe", "merge", "metrics", "morning",
    "never", "nightly", "office", "please", "queue", "release", "review", "ready", "region", "retry", "right", "rollback",
    "schema", "server", "should", "slow", "socket", "staging", "sure", "thanks", "there", "think", "ticket", "today", "tomorrow",
    "traffic", "update", "upstream", "version", "weekly", "within", "would", "yesterday",
)
# fmt: on


def json_text(size: int) -> bytes:
    """The first `size` bytes of a list of chat messages, as compact JSON; ASCII."""
    draw, parts, length = random.Random(0), [], 0
    for number in count(4_810_233):
        part = ("[" if not parts else ",") + json.dumps(_message(number, draw), separators=(",", ":"))
        parts.append(part)
        length += len(part)
        if length >= size:
            return "".join(parts).encode()[:size]


def _message(number: int, draw: random.Random) -> dict:
    return {
        "id": number,
        "room": f"r-{draw.randrange(900):03}",
        "user": {"name": draw.choice(NAMES), "id": draw.randrange(100_000, 1_000_000)},
        "at": f"2026-11-{draw.randrange(1, 29):02}T{draw.randrange(24):02}:{draw.randrange(60):02}:{draw.randrange(60):02}Z",
        "text": " ".join(draw.choices(WORDS, k=draw.randrange(4, 16))),
        "edited": draw.random() < 0.1,
        "likes": draw.randrange(30),
    }
