"""What an error was, in words: the engine's example; of connections that the server closed or refused, what it said to them."""

from __future__ import annotations

from http.client import responses

from wsbench.metrics.trial_data import TrialData
from wsbench.records.engine_files import Error, Refusal, ServerClose


def words(trial: TrialData, kind: str) -> str:
    """Of errors of this kind. Empty if the engine recorded none."""
    example = next((event.example for event in trial.events if isinstance(event, Error) and event.kind == kind), "")
    if kind == "close_frame" and trial.end.closes:
        return _all([(close.count, _closed(close)) for close in trial.end.closes])
    if kind == "handshake_status" and trial.end.refusals:
        return _all([(refusal.count, _refused(refusal, example)) for refusal in trial.end.refusals])
    return example


def _all(counted: list[tuple[int, str]]) -> str:
    """The most frequent first; with the counts of the others."""
    first, *others = sorted(counted, key=lambda pair: -pair[0])
    return "; ".join([first[1], *(f"also {count:,} × {text}" for count, text in others)])


def _closed(close: ServerClose) -> str:
    code = "no code" if close.code is None else f"code {close.code}"
    return f"{code}: {close.reason}" if close.reason else code


def _refused(refusal: Refusal, example: str) -> str:
    """With the server's own phrase, if the example is of this status."""
    start = f"status {refusal.status} "
    phrase = example.removeprefix(start) if example.startswith(start) else ""
    status = start + (phrase or responses.get(refusal.status, ""))
    headers = {"Location": refusal.location, "Retry-After": refusal.retry_after}
    # The beginning of a page is markup.
    body = [] if refusal.body.startswith("<") else [refusal.body]
    said = [*body, *(f"{name}: {value}" for name, value in headers.items() if value)]
    return ": ".join(filter(None, [status.strip(), ", ".join(filter(None, said))]))
