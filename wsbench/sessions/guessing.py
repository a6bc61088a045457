"""What a recording means: which message answers which, what the server's own messages are, and what is kept alive. All of it is
guessed from equal values.

In: a connection of an HTTP Archive. Out: `Guesses`. Nothing is written or sent here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise

from wsbench.sessions.har import Entry, Path, Seen, messages_of, parsed

#: A value this long that the server sends first and the browser repeats was captured, not chosen.
SHORTEST_CAPTURE = 8
#: With the fields of a number, a kind and a typed text these are as many paths as a session may have.
MOST_CAPTURES = 5
#: Digits behind a short front, as in Socket.IO's `43<id>[`.
FRONTED = re.compile(r"(4[23])(\d+)(?=\[)")
#: The longest time between two keep-alives, in seconds.
RAREST_S = 90.0
#: Names of values that tell what a message is.
KINDS = ("type", "event", "op", "action", "kind", "method", "t")
ENDS = {(name,) for name in KINDS}
ID = "${sequence}"
#: A name that the server gives, such as the one of a connection.
GIVEN = re.compile(r"[\w.:-]{8,}")
UNIQUE = "${user}-${sequence}"
TYPED = "${text}"


class Guesses:
    """What a recording means, guessed in an order in which each guess may use those before it.

    `id`, `kind`, `alive`, `periodic`, `captures`, `made`, `typed` and `subscriptions` are explained where they are guessed.
    """

    def __init__(self, entry: Entry):
        self.entry = entry
        self.all = messages_of(entry)
        self.separator = "\x1e" if any("\x1e" in one.text for one in self.all) else None
        if self.separator:
            self.all = [
                Seen(one.sent, one.at_s, part, parsed(part)) for one in self.all for part in one.text.split(self.separator) if part
            ]
        self.id = self._guess_id()
        self.kind = self._guess_kind()
        self.alive = self._guess_answers()
        self.periodic = self._guess_periodic()
        self.captures = self._guess_captures()
        self.made = self._guess_made()
        self.typed: dict[int, str] = {}
        self.typed = self._guess_typed()
        self.subscriptions = self._guess_subscriptions()

    # ---- what answers what ---------------------------------------------------------------------------------------------

    def _guess_id(self) -> tuple[Path, Path] | str | None:
        """The paths of a request's number in what is sent and in its reply; `"digits"` for numbers behind a front; None."""
        if any(FRONTED.match(one.text) for one in self.all if one.sent):
            return "digits"
        votes: Counter[tuple[Path, Path]] = Counter()
        for place, one in enumerate(self.all):
            if not one.sent:
                continue
            later = [other.values() for other in self.all[place + 1 :] if not other.sent]
            for path, value in one.values().items():
                answers = {there for values in later for there, found in values.items() if found == value}
                votes.update((path, there) for there in answers)
        distinct = {pair: votes[pair] for pair in votes if self._is_distinct(pair[0]) and self._looks_like_id(pair)}
        if not distinct:
            return None
        return max(distinct, key=lambda pair: (distinct[pair], -len(pair[0]) - len(pair[1])))

    def _is_distinct(self, path: Path) -> bool:
        """Whether no two different messages sent have the same value there."""
        values = [(one.values()[path], one.text) for one in self.all if one.sent and path in one.values()]
        return len({value for value, _ in values}) == len({text for _, text in values}) and bool(values)

    def _looks_like_id(self, pair: tuple[Path, Path]) -> bool:
        """The number of a request stands under a name that says so, or is a number at a place in a list."""
        ends = pair[0][-1:], pair[1][-1:]
        if any(end and isinstance(end[0], int) for end in ends):
            return all(one.values().get(pair[0], "0").isdecimal() for one in self.all if one.sent)
        return all(end and re.search(r"id$|ref$|seq|^nr$|number", end[0], re.I) for end in ends)

    def id_sent(self, one: Seen) -> str | None:
        if self.id == "digits":
            found = FRONTED.match(one.text)
            return found[2] if found else None
        return one.values().get(self.id[0]) if isinstance(self.id, tuple) else None

    def id_received(self, one: Seen) -> str | None:
        if self.id == "digits":
            found = FRONTED.match(one.text)
            return found[2] if found and found[1] == "43" else None
        return one.values().get(self.id[1]) if isinstance(self.id, tuple) else None

    def replies(self, place: int) -> list[Seen]:
        number = self.id_sent(self.all[place])
        return [one for one in self.all[place + 1 :] if not one.sent and number is not None and self.id_received(one) == number]

    def _guess_kind(self) -> Path | None:
        """The path of the value that tells what a message of the server is, such as `type`."""
        values: dict[Path, set[str]] = {}
        for one in self.all:
            if not one.sent:
                for path, value in one.values().items():
                    values.setdefault(path, set()).add(value)
        received = sum(not one.sent for one in self.all)
        wanted = [path for path in values if path and path[-1] in KINDS]
        wanted = [path for path in wanted if len(values[path]) <= max(8, received // 2)]
        return min(wanted, key=len, default=None)

    # ---- keep-alives and captures --------------------------------------------------------------------------------------

    def _guess_answers(self) -> dict[str, str]:
        """Messages of the server that are always answered alike: text → answer."""
        pairs: Counter[tuple[str, str]] = Counter()
        for before, after in pairwise(self.all):
            if not before.sent and after.sent and self.id_sent(after) is None and len(after.text) <= 64:
                pairs[before.text, after.text] += 1
        usual = {("2", "3")}
        # A short recording has no ping of Engine.IO.
        always = {"2": "3"} if "EIO=" in self.entry.url else {}
        return always | {
            before: after
            for (before, after), count in pairs.items()
            if count > 1 or (before, after) in usual or ("ping" in before.lower() and "pong" in after.lower())
        }

    def _guess_periodic(self) -> dict[str, float]:
        """Messages that are sent again and again without being an answer: text → the median of the time between two."""
        times: dict[str, list[float]] = {}
        for one in self.all:
            if one.sent and one.text not in self.alive.values() and self.id_sent(one) is None:
                times.setdefault(one.text, []).append(one.at_s)
        found = {}
        for text, at in times.items():
            gaps = sorted(after - before for before, after in pairwise(at))
            if len(gaps) >= 2 and 1 <= gaps[len(gaps) // 2] <= RAREST_S:
                found[text] = round(gaps[len(gaps) // 2], 1)
        return found

    def _guess_captures(self) -> dict[str, tuple[str, Path]]:
        """Values that the server sent first and the browser repeated: value → name, path."""
        found: dict[str, tuple[str, Path]] = {}
        for place, one in enumerate(self.all):
            if one.sent:
                continue
            for path, value in one.values().items():
                before = any(value in other.text for other in self.all[:place] if other.sent)
                after = any(value in other.text for other in self.all[place:] if other.sent)
                if len(found) < MOST_CAPTURES and len(value) >= SHORTEST_CAPTURE and after and not before and value not in found:
                    name = plain_name(str(path[-1]))
                    found[value] = (f"{name if name[:1].isalpha() else 'value'}-{len(found) + 1}", path)
        return found

    def _guess_made(self) -> set[str]:
        """Texts that the browser made from a name that the server gave it, such as `<name>-0`."""
        given: set[str] = set()
        found = set()
        for one in self.all:
            texts = one.texts().values()
            if one.sent:
                found |= {text for text in texts if GIVEN.fullmatch(text) and any(text.startswith(name) for name in given - {text})}
            else:
                given |= {text for text in texts if GIVEN.fullmatch(text)}
        return found

    def _guess_typed(self) -> dict[int, str]:
        """What a user typed, by the place of its message: the server sends it back, but not as the answer of a request."""
        heard: dict[str, list[int]] = {}
        for place, one in enumerate(self.all):
            for text in () if one.sent else one.texts().values():
                heard.setdefault(text, []).append(place)
        found: dict[int, dict[Path, str]] = {}
        for place, one in enumerate(self.all):
            if not one.sent or one.text in self.alive.values() or one.text in self.periodic:
                continue
            texts = {
                path: text
                for path, text in one.texts().items()
                if path[-1:] not in ENDS and text not in self.captures and self._comes_back(place, heard.get(text, []))
            }
            if texts:
                found[place] = texts
        # The name of a room comes back too, but it does not change.
        values: dict[Path, set[str]] = {}
        for texts in found.values():
            for path, text in texts.items():
                values.setdefault(path, set()).add(text)
        typed = {place: texts[max(texts, key=lambda path: (len(values[path]), len(texts[path])))] for place, texts in found.items()}
        # A login comes back as well, but it is sent once.
        alike = Counter(self.template(place, text) for place, text in typed.items())
        only = max(typed, default=None) if self.id is None else None
        return {
            place: text
            for place, text in typed.items()
            if alike[self.template(place, text)] > 1 or self.replies(place) or (place == only and len(alike) == len(typed))
        }

    def _comes_back(self, place: int, heard: list[int]) -> bool:
        """Whether the server sends it, heard at these places, behind this one and not as its reply."""
        number = self.id_sent(self.all[place])
        return any(there > place and (number is None or self.id_received(self.all[there]) != number) for there in heard)

    def _guess_subscriptions(self) -> dict[int, Path]:
        """Requests whose replies are what was typed, again and again: by place, the path of the text in such a reply."""
        typed = set(self.typed.values())
        found = {}
        for place, one in enumerate(self.all):
            if not one.sent or place in self.typed:
                continue
            back = [(path, text) for reply in self.replies(place) for path, text in reply.values().items() if text in typed]
            if back and {text for _, text in back} == typed:
                found[place] = back[0][0]
        return found

    # ---- templates -----------------------------------------------------------------------------------------------------

    def template(self, place: int, typed: str | None = None) -> str:
        """What is sent, with places for its number, for captured values and for what was typed."""
        one = self.all[place]
        text = one.text.replace("${", "$${")
        number = self.id_sent(one)
        if self.id == "digits" and number is not None:
            text = FRONTED.sub(rf"\g<1>{ID}", text, count=1)
        elif number is not None:
            text = _replaced(one, self.id[0], text)
        for made in self.made:
            text = text.replace(json.dumps(made), f'"{UNIQUE}"')
        for value, (name, _) in self.captures.items():
            text = text.replace(value, f"${{captured:{name}}}")
        typed = typed or self.typed.get(place)
        if typed is not None:
            text = _typed_replaced(text, typed.replace("${", "$${"))
        return text + ("${hex:1e}" if self.separator else "")


def _replaced(one: Seen, path: Path, text: str) -> str:
    """The text with the sequence in place of the value at the path: a string stays one."""
    value = one.values()[path]
    quoted = isinstance(_at(one.json, path), str)
    key = f'"{path[-1]}"\\s*:\\s*' if isinstance(path[-1], str) else ""
    old = re.escape(json.dumps(value) if quoted else value)
    new = f'"{ID}"' if quoted else ID
    return re.sub(f"({key}){old}", lambda found: found[1] + new, text, count=1)


def _typed_replaced(text: str, typed: str) -> str:
    """The text with a place for what was typed; the last one, because names come before it."""
    if text == typed:
        return TYPED
    before, found, behind = text.rpartition(json.dumps(typed, ensure_ascii=False))
    return f'{before}"{TYPED}"{behind}' if found else text


def plain_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _at(value, path: Path):
    for part in path:
        value = value[part]
    return value
