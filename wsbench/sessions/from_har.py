"""A session file from what a browser did. What the messages mean is guessed (`guessing`); every guess is a comment in the file.

In: a connection of an HTTP Archive. Out: the text of a session file. Nothing is written or sent here.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from wsbench.records import plain
from wsbench.records.errors import UserError
from wsbench.sessions import compiling
from wsbench.sessions.guessing import UNIQUE, Guesses, plain_name
from wsbench.sessions.har import Entry, Seen, parsed, path_text

#: The limit of steps of a session.
MOST_STEPS = 16
#: What tells the packets of Engine.IO and Socket.IO.
FRONT = re.compile(r"\d{1,2}")
#: Packets of Socket.IO that end the connection.
SOCKET_IO_ERRORS = {"disconnected": "41", "refused": "44"}
#: Escapes of TOML that are easier to read than a number.
SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def session_of(entry: Entry) -> str:
    """The text of a session file for a recorded connection. `wsbench session check` accepts it. UserError if no such file can be
    written for it."""
    text = _Writer(Guesses(entry)).text()
    try:
        compiling.compiled_text(text, Path("the session"), compiling.Choice(), connections=2)
    except UserError as error:
        raise UserError(f"what was recorded does not fit a session ({error.lines[0]}); write the session yourself") from error
    return text


class _Writer:
    def __init__(self, of: Guesses):
        self.of = of
        self.notes: list[str] = []
        self.captured: set[str] = set()

    def _name_of(self, one: Seen) -> str:
        """What a message of the server is: the rule's name."""
        value = one.values().get(self.of.kind, "") if self.of.kind is not None else ""
        if not value and one.json is None and (front := FRONT.match(one.text)):
            value = f"packet-{front[0]}"
        name = plain_name(value)
        return name if name[:1].isalpha() else f"m-{name}" if name else "other"

    def _test_of(self, one: Seen) -> str:
        value = one.values().get(self.of.kind) if self.of.kind is not None else None
        if value is not None:
            return f"is = {{ kind = {_quoted(_placeless(value))} }}"
        front = FRONT.match(one.text) if one.json is None else None
        return f"begins = {_quoted(_placeless(front[0] if front else one.text[:12]))}"

    def text(self) -> str:
        while True:
            text = self._text()
            lost = [value for value, (name, _) in self.of.captures.items() if name not in self.captured]
            if not lost:
                return text
            # No rule keeps these values, so they are sent as they were recorded.
            for value in lost:
                del self.of.captures[value]
            self.notes.clear()

    def _text(self) -> str:
        rules, setup, steps = self._rules(), [], []
        seen: set[str] = set()
        for place, one in enumerate(self.of.all):
            if not one.sent:
                continue
            template = self.of.template(place)
            if one.text in self.of.alive.values() or one.text in self.of.periodic or template in seen:
                continue
            seen.add(template)
            replies = self.of.replies(place)
            if place in self.of.subscriptions:
                setup.append((template, None))
            elif replies:
                steps.append((template, self._final_rule(replies[-1])))
            elif place in self.of.typed:
                steps.append((template, "own"))
            elif not steps:
                awaited = self._next_received(place)
                setup.append((template, None if awaited is None else self._setup_rule(awaited, rules)))
            else:
                self.notes.append(f"left out, for nothing answers it: {template[:80]}")
        if self.of.all and not self.of.all[0].sent:
            setup.insert(0, (None, self._setup_rule(self.of.all[0], rules)))
        if len(setup) + len(steps) > MOST_STEPS:
            self.notes.append(f"only the first {MOST_STEPS} of {len(setup) + len(steps)} different steps are here")
        steps = steps[: max(0, MOST_STEPS - len(setup))]
        return self._written(rules, setup, steps)

    def _next_received(self, place: int) -> Seen | None:
        """What the server sends before the browser sends again."""
        after = self.of.all[place + 1] if place + 1 < len(self.of.all) else None
        return None if after is None or after.sent else after

    def _setup_rule(self, one: Seen, rules: dict[str, str]) -> str:
        name = self._name_of(one)
        values = one.values()
        captured = [name for value, (name, path) in self.of.captures.items() if values.get(path) == value]
        keeps = f", capture = {{ {', '.join(f'{name} = {_quoted(name)}' for name in captured)} }}" if captured else ""
        if self.of.id_received(one) is None or name not in rules:
            test = self._test_of(one)
            # What users type may come back in messages of this kind.
            does = "push" if any(test == self._test_of(self.of.all[place]) for place in self._returned()) else "ignore"
            rules[name] = f"{{ {test}, {does} = true{keeps} }}"
            self.captured.update(captured)
        return name

    def _returned(self) -> list[int]:
        """The places of the messages in which the server sends back what was typed."""
        typed = set(self.of.typed.values())
        return [place for place, one in enumerate(self.of.all) if not one.sent and typed & set(one.texts().values())]

    def _final_rule(self, one: Seen) -> str:
        return f"reply-{self._name_of(one)}"

    def _rules(self) -> dict[str, str]:
        """The rules of keep-alives and replies; those of the setup come before them."""
        found: dict[str, str] = {}
        for text, answer in self.of.alive.items():
            one = Seen(False, 0, text, parsed(text))
            found[f"alive-{len(found) + 1}"] = f"{{ {self._test_of(one)}, answer = {_quoted(self._plain(answer))} }}"
        if self.of.subscriptions:
            found["message"] = '{ has = "typed", push = true }'
        parts: dict[str, str] = {}
        for place, one in enumerate(self.of.all):
            replies = self.of.replies(place) if one.sent and place not in self.of.subscriptions else []
            for number, reply in enumerate(replies):
                test = self._test_of(reply) if self.of.kind is not None and self.of.kind in reply.values() else 'has = "id"'
                last = number == len(replies) - 1
                name = self._final_rule(reply) if last else f"part-{self._name_of(reply)}"
                body = f'{{ {test}, reply = "id"{"" if last else ", more = true"} }}'
                if last:
                    found[name] = body
                else:
                    parts.setdefault(name, body)
        for name, body in parts.items():
            # What was the last reply of one request is not a part of another.
            if body.replace(", more = true", "") not in found.values():
                found[name] = body
        return found

    def _plain(self, text: str) -> str:
        return _placeless(text) + ("${hex:1e}" if self.of.separator else "")

    def _written(self, rules: dict[str, str], setup: list, steps: list) -> str:
        url = urlsplit(self.of.entry.url)
        query = f"?{url.query}" if url.query else ""
        if self.of.entry.upgraded:
            self.notes.insert(0, "the browser polled by HTTP first; this session begins with the WebSocket")
        if self.of.made:
            self.notes.append(f"guessed: texts such as {min(self.of.made)} only have to differ, so they are {UNIQUE}")
        lines = [
            f"about  = {_quoted(f'recorded from {url.scheme}://{url.netloc}')}",
            f"source = {_quoted(self.of.entry.url)}",
            "",
            f"path = {_quoted((url.path or '/') + query)}",
        ]
        if offered := self.of.entry.subprotocols:
            lines.append(f"subprotocols = [{', '.join(map(_quoted, offered))}]")
        if self.of.separator:
            lines += ["# Guessed: the byte 0x1e occurs in messages.", "records = { separated = 0x1e }"]
        if self.of.typed:
            lines += ["", "[settings]", "# Guessed: the server sends it back, to all users of a room (--room-size)."]
            lines.append('text = { about = "what a user types, with a postmark", default = "${postmark}" }')
        lines += ["", *self._fields(), "", "[rules]", "# Guessed from equal numbers and kinds. The first rule that fits counts."]
        early = {name: body for name, body in rules.items() if " reply = " not in body and " answer = " not in body}
        if "EIO=" in url.query:
            rules |= {_unused(name, rules): f"{{ begins = '{front}', fail = true }}" for name, front in SOCKET_IO_ERRORS.items()}
        lines += [f"{name} = {body}" for name, body in {**early, **rules}.items()]
        lines.append("# Everything else: the server sends it of its own accord. Make errors a rule with `fail`.")
        lines.append(f"{_unused('pushed', rules)} = {{ push = true }}")
        for kind, found in (("setup", setup), ("steps", steps)):
            for number, (template, awaited) in enumerate(found, 1):
                lines += ["", f"[[{kind}]]", f'name  = "{kind.removesuffix("s")}-{number}"']
                lines += [] if template is None else [f"send  = {_quoted(template)}"]
                lines += [] if awaited is None else [f'await = "{awaited}"']
        for text, every_s in self.of.periodic.items():
            lines += ["", "# Guessed: it was sent again and again.", "[[keepalive]]", f"every_s = {every_s}"]
            lines.append(f"send    = {_quoted(self._plain(text))}")
        if not steps:
            self.notes.append("no message was found that the server answers by number or sends back: write [[steps]] yourself")
        return "\n".join([*map(_comment, self.notes), *lines]) + "\n"

    def _fields(self) -> list[str]:
        lines = ["[fields]"]
        if self.of.id == "digits":
            lines += ["# Guessed: digits behind `42` come back behind `43`.", 'id = { digits = "43" }']
        elif self.of.id is not None:
            sent, received = map(path_text, self.of.id)
            lines += [_comment(f"Guessed: what is sent as `{sent}` comes back."), f"id = {{ json = {_quoted(received)} }}"]
        if self.of.kind is not None:
            lines += [f"kind = {{ json = {_quoted(path_text(self.of.kind))} }}"]
        for path in list(self.of.subscriptions.values())[:1]:
            lines += ["# Guessed: a subscription, which nothing acknowledges, brings what was typed."]
            lines += [f"typed = {{ json = {_quoted(path_text(path))} }}"]
        for name, path in self.of.captures.values():
            lines += ["# Guessed: the browser repeats it.", f"{name} = {{ json = {_quoted(path_text(path))} }}"]
        return lines


def _unused(name: str, names: dict) -> str:
    """The name, with a number if it is taken."""
    free, number = name, 1
    while free in names:
        number += 1
        free = f"{name}-{number}"
    return free


def _placeless(text: str) -> str:
    """Text as it is, without places in it."""
    return text.replace("${", "$${")


def _comment(text: str) -> str:
    """A TOML comment. Text of a message may be in it, and must not end its line."""
    return f"# {plain.line(text)}"


def _quoted(text: str) -> str:
    """A TOML string: literal if that is readable, else with escapes. Characters that are not in Unicode are replaced."""
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in SHORT:
        return SHORT[letter]
    if "\ud800" <= letter <= "\udfff":
        return "\ufffd"
    return letter if letter.isprintable() else f"\\U{ord(letter):08X}"
