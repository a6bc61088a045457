"""Texts without the folders of the machine that they come from: each is replaced by a word, so that a campaign can be published.

This module knows no folder; `host.places` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TypeVar

from wsbench.records.frozen import Frozen

Value = TypeVar("Value", bound=Frozen)


class Places:
    """Folders of a machine, each with the word that replaces it in texts. A longer folder is replaced before one that holds it.

    Only a whole path is replaced: it begins where no path or word is under way, and its last name ends there.
    """

    def __init__(self, words: Mapping[str, str]):
        self._words = {folder: word for folder, word in words.items() if folder != "/"}

    @cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        folders = "|".join(sorted(map(re.escape, self._words), key=len, reverse=True)) or "(?!)"
        # After `-I` of a compiler too.
        begins = r"(?:(?<=\s-[A-Za-z])|(?<![\w.~+-])(?<![\w.~+=-]/))"
        return re.compile(rf"{begins}(?:{folders})(?![\w+-]|\.\w)".encode())

    def in_bytes(self, text: bytes) -> bytes:
        return self._pattern.sub(lambda met: self._words[met[0].decode()].encode(), text)

    def in_text(self, text: str) -> str:
        return self.in_bytes(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    def in_value(self, value: Value) -> Value:
        """The value with all its texts replaced."""
        return type(value).model_validate(self._everywhere(value.model_dump()))

    def _everywhere(self, value):
        if isinstance(value, str):
            return self.in_text(value)
        if isinstance(value, dict):
            return {key: self._everywhere(part) for key, part in value.items()}
        return [self._everywhere(part) for part in value] if isinstance(value, list | tuple) else value
