"""The base class of every type on disk, and how values are read and written.

Values are immutable and reject unknown keys. A broken file gives a one-line error. This module knows no file name.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from wsbench.records.errors import Faults, UserError
from wsbench.records.files import read_file, read_text
from wsbench.records.sums import write_unlisted

#: Limit for every stored number: 64-bit counters cannot overflow, and sums stay finite.
LARGEST = 2**63 - 1


def _bounded(schema):
    """The schema with ±LARGEST as limits of every number that has no limits of its own."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_bounded, schema))
    if not isinstance(schema, dict):
        return schema
    found = {key: _bounded(part) for key, part in schema.items()}
    if found.get("type") in ("int", "float"):
        found = ({} if "lt" in found else {"le": LARGEST}) | ({} if "gt" in found else {"ge": -LARGEST}) | found
    return found


def _as_declared(schema):
    if isinstance(schema, list):
        return [_as_declared(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    limits = {"maximum": LARGEST, "minimum": -LARGEST}
    return {key: _as_declared(part) for key, part in schema.items() if key not in limits or part != limits[key]}


class Frozen(BaseModel):
    """Base of every type on disk: immutable, unknown keys are errors, numbers are finite and within ±LARGEST."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        return _bounded(handler(source))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema, handler):
        """The declared schema, without the limits that apply to every number."""
        return _as_declared(handler(schema))


def read_json(kind: type[Frozen], file: Path):
    """Reads a frozen value from a JSON file. One-line UserError if the file is broken."""
    return parse_json(kind, read_file(file), file)


def parse_json(kind: type[Frozen], content: bytes, file: Path):
    """Same as `read_json`, for the content of the file."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise UserError(f"{file}: {one_line(error)}") from error


def read_json_if_any(kind: type[Frozen], file: Path):
    """Same as `read_json`; None if the file does not exist."""
    return read_json(kind, file) if os.path.lexists(file) else None


def parse_json_list(kind: type[Frozen], content: bytes, file: Path) -> list:
    """Same as `parse_json`, for a list."""
    try:
        return TypeAdapter(list[kind]).validate_json(content)
    except ValidationError as error:
        raise UserError(f"{file}: {one_line(error)}") from error


def toml_of(text: str, file: Path | str) -> dict:
    """Parses TOML text. If it is invalid, raises a one-line UserError that names the file."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # for example a number of 5,000 digits or 1,000 nested brackets
        raise UserError(f"{file}: {error}") from error


def read_toml(kind: type[Frozen], file: Path):
    """Reads a frozen value from a user's TOML file. UserError if it is unreadable; `Faults`, one line each, if it is invalid."""
    return toml_value(kind, read_text(file, links=True), file)


def toml_value(kind: type[Frozen], text: str, file: Path):
    """Same as `read_toml`, for the text of a file."""
    value, wrong = faults_of(kind, toml_of(text, file))
    if wrong:
        raise Faults([f"{file}: {line}" for line in wrong])
    return value


def faults_of(kind: type[Frozen], raw: dict) -> tuple[Frozen | None, list[str]]:
    """The value and no faults, or None and every fault as one line without the file's name."""
    try:
        return kind.model_validate(raw), []
    except ValidationError as error:
        return None, every_line(error)


def write_json(file: Path, value: Frozen | list) -> None:
    """Writes a value atomically as JSON. AssertionError if the folder has a checksum of the file."""
    write_unlisted(file, json_of(value))


def json_of(value: Frozen | list) -> bytes:
    """A value as the content of a JSON file. A list has one item per line, each without what has its default."""
    if isinstance(value, list):
        lines = (json.dumps(item.model_dump(exclude_defaults=True), ensure_ascii=False, separators=(",", ":")) for item in value)
        text = "[\n" + ",\n".join(lines) + "\n]\n"
    else:
        text = json.dumps(value.model_dump(), indent=1, ensure_ascii=False) + "\n"
    return text.encode()


def one_line(error: Exception) -> str:
    """An error as one plain line. For a validation error: the key, the problem and the value found."""
    if not isinstance(error, ValidationError):
        return str(error)
    return every_line(error)[0]


def every_line(error: ValidationError) -> list[str]:
    """Every fault of a validation error as one plain line, without repetition."""
    return list(dict.fromkeys(map(_fault, error.errors())))


def _fault(found: dict) -> str:
    # The tag of a union's member stands in parentheses (`servers.catalogue`): it is no key of the file.
    key = ".".join(part for part in map(str, found["loc"]) if not part.startswith("(")) or "the file"
    if found["type"] == "extra_forbidden":
        return f"unknown key '{key}'"
    if found["type"] == "missing":
        return f"missing key '{key}'"
    if found["type"] == "value_error":
        return f"'{key}': {found['ctx']['error']}"
    value = found.get("input")
    shown = f", found {value!r}" if isinstance(value, str | int | float | bool | type(None)) else ""
    return f"'{key}': {found['msg'][:1].lower()}{found['msg'][1:]}{shown}"


def read_lines(file: Path, parse) -> Iterator:
    """Yields parsed lines. An incomplete last line (after a crash) is skipped; any other broken line is a UserError."""
    if not os.path.lexists(file):
        return
    lines = read_file(file).splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            return
        try:
            yield parse(line)
        except ValidationError as error:
            raise UserError(f"{file}:{number}: {one_line(error)}") from error


def read_every_line(file: Path, every: TypeAdapter, parse) -> list:
    """Same as `read_lines`, but faster: `every`, the adapter of a list, parses all lines at once. Rereads only a broken file."""
    if not os.path.lexists(file):
        return []
    whole = read_file(file).rpartition(b"\n")[0]
    try:
        found = every.validate_json(b"[%b]" % whole.replace(b"\n", b","))
    except ValidationError:
        found = None
    one_a_line = found is not None and len(found) == whole.count(b"\n") + bool(whole)
    return found if one_a_line else list(read_lines(file, parse))


class Tail:
    """Reads the complete lines that were appended to a growing file since the last call."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0

    def new_lines(self) -> list[str]:
        return self.new_bytes().decode().splitlines()

    def new_bytes(self) -> bytes:
        """The same lines as bytes, each with its line end."""
        if not self._file.exists():
            return b""
        with self._file.open("rb") as opened:
            opened.seek(self._offset)
            whole, newline, _ = opened.read().rpartition(b"\n")
        self._offset += len(whole + newline)
        return whole + newline
