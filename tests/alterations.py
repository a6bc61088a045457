"""Real files and answers with a few values or bytes altered at random, for tests of what reads them."""

import contextlib
import copy
import json
import math
import os
import time

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from wsbench.records.errors import TrialFailed, UserError

settings.register_profile(
    "few",
    max_examples=int(os.environ.get("WSBENCH_EXAMPLES", "40")),
    derandomize="WSBENCH_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("few")


def row(what: str):
    return pytest.mark.fault("F", what, "a number, nothing, or an error with words, in time")


ODD = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**53,
        2**63 - 1,
        2**63,
        -(2**63),
        2**64,
        10**30,
        10**400,
        1e-300,
        1e18,
        1e300,
    ),
    *(
        float("nan"),
        float("inf"),
        -0.0,
        0.5,
        "",
        "x",
        "0",
        "\u202e\x1b[2J",
        "../../x",
        "é" * 300,
        [],
        {},
        [[]],
        [0] * 3,
        {"": 0},
    ),
]


def leaves(value, path=()):
    """Every place in a JSON value."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield from leaves(part, (*path, key))


@st.composite
def altered(draw, value):
    """A JSON value with one to three places of it replaced, taken away, doubled or moved."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        places = [path for path in leaves(value) if path]
        if not places:
            return draw(st.sampled_from(ODD))
        path = draw(st.sampled_from(places))
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        old = holder[path[-1]]
        match draw(st.sampled_from(["odd", "odd", "odd", "number", "gone", "twice", "other"])):
            case "number" if isinstance(old, int | float) and not isinstance(old, bool):
                factor = draw(st.sampled_from([-1, 0, 2, 1000, 10**9, 1e-9]))
                holder[path[-1]] = type(old)(old * factor) if abs(old) < 1e18 else old
            case "gone":
                del holder[path[-1]]
            case "twice" if isinstance(holder, list):
                holder.insert(path[-1], copy.deepcopy(old))
            case "other":
                other = value
                for key in draw(st.sampled_from(places)):
                    other = other[key]
                holder[path[-1]] = copy.deepcopy(other)
            case _:
                holder[path[-1]] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return value


@st.composite
def spoilt(draw, content: bytes):
    """Bytes of which some are others, gone, doubled or cut off."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from([0, 1, 2, 7, 100, len(content)]))
        piece = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from([b"9" * 20, b"9" * 5000, b"\n", b"\0", b"-", b".", b"e9", b'"', b"[" * 3000, b"\xff\xff\xff\xff"]),
                st.just(bytes(content[at : at + length]) * 2),
            )
        )
        content[at : at + draw(st.sampled_from([0, 1, 8, length]))] = piece
    return bytes(content)


@st.composite
def altered_lines(draw, text: str):
    """JSON lines of which one is altered, or a few bytes are."""
    if draw(st.booleans()):
        return draw(spoilt(text.encode()))
    lines = text.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    lines[at] = json.dumps(draw(altered(json.loads(lines[at]))))
    return ("\n".join(lines) + "\n").encode()


@contextlib.contextmanager
def with_words():
    """An error of ours is one line; anything else is a defect. Nothing takes long."""
    began = time.monotonic()
    try:
        yield
    except (UserError, TrialFailed) as error:
        said = str(error)
    else:
        said = "nothing"
    assert said.strip()
    assert time.monotonic() - began < 30


def as_toml(value) -> str:
    """Inline, which can say all that JSON can."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {as_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value).replace("\\ud", "\\ufff").replace("\\u007f", "x")
    return '"none"' if value is None else json.dumps(value)


@st.composite
def odd_toml(draw, keys: dict):
    value = draw(altered(keys))
    if not isinstance(value, dict):
        return as_toml(value).encode()
    return "".join(f"{json.dumps(key)} = {as_toml(part)}\n" for key, part in value.items()).encode()
