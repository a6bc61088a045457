"""What an error was, in words: the engine's example; of connections that the server closed or refused, what it said to them."""

from __future__ import annotations

from http.client import responses

from wsbench.metrics.trial_data import TrialData
from wsbench.records.engine_files import Error, Refusal, ServerClose


def words(trial: TrialData, kind: str) -> str:
    """Of errors of this kind. Empty if the engine recorded none."""
    example = next((event.example for event in trial.events if isinstance(event, Error) and event.kind == kind), "")
    if kind == "close_frame" and trial.end.closes:
        return _all([(one.count, _closed(one)) for one in trial.end.closes])
    if kind == "handshake_status" and trial.end.refusals:
        return _all([(one.count, _refused(one, example)) for one in trial.end.refusals])
    return example


def _all(found: list[tuple[int, str]]) -> str:
    """The most frequent first; with the counts of the others."""
    first, *others = sorted(found, key=lambda one: -one[0])
    return "; ".join([first[1], *(f"also {count:,} × {text}" for count, text in others)])


def _closed(one: ServerClose) -> str:
    code = "no code" if one.code is None else f"code {one.code}"
    return f"{code}: {one.reason}" if one.reason else code


def _refused(one: Refusal, example: str) -> str:
    """With the server's own phrase, if the example is of this status."""
    start = f"status {one.status} "
    phrase = example.removeprefix(start) if example.startswith(start) else ""
    status = start + (phrase or responses.get(one.status, ""))
    headers = {"Location": one.location, "Retry-After": one.retry_after}
    # The beginning of a page is markup.
    body = [] if one.body.startswith("<") else [one.body]
    said = [*body, *(f"{name}: {value}" for name, value in headers.items() if value)]
    return ": ".join(filter(None, [status.strip(), ", ".join(filter(None, said))]))
