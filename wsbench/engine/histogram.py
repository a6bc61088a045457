"""Latency histograms: reads `latency.hlog` (HdrHistogram V2 interval log), merges it by tag, and computes statistics.

Quantiles are computed only here: rank ⌈q·n⌉, highest equivalent value of its bucket. HdrHistogram libraries compute quantiles
differently, so one file gives different percentiles in different languages. They also iterate bucket by bucket in Python. wsbench
therefore has its own code. This module knows buckets and ranks, not trials or metrics. Values are nanoseconds.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from wsbench.records.errors import UserError
from wsbench.records.files import read_file

# Format of the payload: https://github.com/HdrHistogram/HdrHistogram, AbstractHistogram.java, V2 encoding.
COOKIE_V2 = 0x1C849303
COOKIE_V2_COMPRESSED = 0x1C849304
COOKIE_MASK = 0xFFFFFF0F  # masks out a word size that V2 does not use
WORD_BITS = 0x10  # "varying", as the libraries write it
HEADER = struct.Struct(">Iiiiqqd")  # cookie, length, index offset, digits, lowest, highest, ratio
LINE = re.compile(r"(?:Tag=([^,\s]+),)?([\d.]{1,24}),([\d.]{1,24}),([\d.]{1,24}),(\S+)")
START_TIME = re.compile(rb"#\[StartTime: (\d{1,12}\.\d{1,9}) ")
BROKEN = (ValueError, struct.error, zlib.error)
MOST_VALUES = 2**53
LONGEST_VARINT = 8  # bytes; a ninth would mean a count above 2^55

#: A bucket's count takes at most eight bytes, so this allows half a million buckets. wsbench logs have 76,000.
LONGEST_PAYLOAD = 4 << 20
#: Limit of unpacked to packed size of a log. Counts unpack to a few times their size; up to SMALL_LOG bytes are always allowed.
RATIO, SMALL_LOG = 30, 64 << 20

CURVE_POINTS = 100
TOGETHER = 4 << 20  # bytes of counts that are decoded in one batch; a larger batch only takes more memory


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts by bucket: `counts[i]` values are between `lower_bounds[i]` and `upper_bounds[i]`, both included.

    There are `buckets` buckets; those beyond the end of `counts` are empty.
    """

    lowest: int
    highest: int
    digits: int
    counts: np.ndarray

    @property
    def buckets(self) -> int:
        return _buckets(self.lowest, self.highest, self.digits)

    @cached_property
    def count(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def lower_bounds(self) -> np.ndarray:
        return self._bounds[0]

    @cached_property
    def upper_bounds(self) -> np.ndarray:
        return self._bounds[0] + self._bounds[1] - 1

    @cached_property
    def min(self) -> int | None:
        """Lowest value of the first non-empty bucket. None if the histogram is empty."""
        return int(self.lower_bounds[self._used[0]]) if self.count else None

    @cached_property
    def max(self) -> int | None:
        """Highest value of the last non-empty bucket. None if the histogram is empty."""
        return self._upper_bound(self._used[-1]) if self.count else None

    @cached_property
    def mean(self) -> float | None:
        """Mean of the buckets' midpoints, as in HdrHistogram. None if the histogram is empty."""
        return self._moment(1)

    @cached_property
    def mean_square(self) -> float | None:
        """Mean of the squares of the buckets' midpoints. None if the histogram is empty."""
        return self._moment(2)

    def _moment(self, power: int) -> float | None:
        if not self.count:
            return None
        midpoints = (self._bounds[0][self._used] + (self._bounds[1][self._used] >> 1)).astype(np.float64)
        return float((midpoints**power * self.counts[self._used]).sum() / self.count)

    @cached_property
    def saturated(self) -> bool:
        """Whether the last bucket of the range is in use: its values may have been larger and were clipped."""
        return bool(self.count) and self.max >= self.highest

    def quantile(self, q: float | str | Fraction) -> int | None:
        """Value at rank ⌈q·n⌉ (rank 1 for q = 0), as its bucket's highest equivalent value. None if the histogram is empty.

        `q` is read in decimal: 0.07 is exactly 7/100. With binary rounding, q·n = 7 could give rank 8.
        """
        if not self.count:
            return None
        return self._upper_bound(self._used[np.searchsorted(self._cumulative, self.rank(q))])

    def quantiles(self, qs: Sequence[Fraction]) -> list[int]:
        """Same as `quantile`, for several quantiles. Empty list if the histogram is empty."""
        if not self.count:
            return []
        ranks = [max(1, -(-q.numerator * self.count // q.denominator)) for q in qs]
        buckets = self._used[np.searchsorted(self._cumulative, ranks)]
        return (self._bounds[0][buckets] + self._bounds[1][buckets] - 1).tolist()

    def rank(self, q: float | str | Fraction) -> int:
        """⌈q·n⌉, at least 1."""
        exact = _exact(q if isinstance(q, Fraction) else str(q))
        return max(1, -(-exact.numerator * self.count // exact.denominator))

    def curve(self, points: int = CURVE_POINTS) -> list[tuple[float, int]]:
        """At most `points` pairs (quantile, value) for a percentile chart, denser towards 1, as HdrHistogram prints them.

        `points` determines the number of points for each halving of the distance to 1. The curve ends where only one value is
        left, with the largest value at quantile 1.
        """
        if not self.count:
            return []
        halvings = max(1, math.ceil(math.log2(self.count)))
        per_halving = max(1, (points - 1) // halvings)
        steps = _steps(per_halving, min(points - 1, halvings * per_halving))
        return [*zip(map(float, steps), self.quantiles(steps), strict=True), (1.0, self.max)]

    def __add__(self, other: Histogram) -> Histogram:
        """The sum of two histograms. Lowest value and digits must agree; the ranges may differ."""
        if (self.lowest, self.digits) != (other.lowest, other.digits):
            raise ValueError("histograms of different resolution")
        longer, shorter = sorted((self.counts, other.counts), key=len, reverse=True)
        counts = longer.copy()
        counts[: len(shorter)] += shorter
        return _histogram(self.lowest, max(self.highest, other.highest), self.digits, counts)

    def _upper_bound(self, bucket: int) -> int:
        lower, size = self._bounds
        return int(lower[bucket] + size[bucket] - 1)

    @property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        return _bounds(self.lowest, self.digits, len(self.counts))

    @cached_property
    def _used(self) -> np.ndarray:
        return np.flatnonzero(self.counts)

    @cached_property
    def _cumulative(self) -> np.ndarray:
        return np.cumsum(self.counts[self._used])


@dataclass(frozen=True)
class Interval:
    """One line of the log: the values of a tag, recorded for `length_s` from `start_s` on (times of the log)."""

    tag: str
    start_s: float
    length_s: float
    histogram: Histogram


def read_log(file: Path) -> Iterator[Interval]:
    """Yields the intervals of a log in order. An hour of them would not fit into memory at once.

    An incomplete last line (after a crash) is skipped; any other broken line is a UserError.
    """
    for number, line in enumerate(_whole_lines(file), 1):
        try:
            if (interval := parse_line(line.decode("ascii"))) is not None:
                yield interval
        except BROKEN as error:
            raise UserError(f"{file}:{number}: not a line of an HdrHistogram log: {error}") from error


def began_unix_s(file: Path) -> float | None:
    """When the log began, in seconds since the epoch: its intervals count from there. None if its heading does not say."""
    with file.open("rb") as log:
        for line in log:
            if (found := START_TIME.match(line)) is not None:
                return float(found[1])
            if not line.startswith(b"#"):
                return None
    return None


def read_merged(file: Path, without: tuple[str, ...] = ()) -> dict[str, Histogram]:
    """Same as `merge(read_log(file))`, but skips tags with these prefixes. Decodes intervals in batches, in half the time."""
    bodies: dict[tuple[str, int, int, int], list[bytes]] = {}
    merged: dict[str, Histogram] = {}
    waiting = total = 0
    lines = _whole_lines(file)
    most = max(SMALL_LOG, RATIO * sum(map(len, lines)))

    def decode_those() -> None:
        for (tag, *shape), of_shape in bodies.items():
            found = _histogram(*shape, _counts(of_shape, *shape))
            merged[tag] = merged[tag] + found if tag in merged else found
        bodies.clear()

    try:
        for line in lines:
            if (parts := _parts(line.decode("ascii"))) is not None and not parts[0].startswith(without):
                shape, body = _unpacked(parts[3])
                bodies.setdefault((parts[0], *shape), []).append(body)
                waiting, total = waiting + len(body), total + len(body)
                if total > most:
                    raise UserError(f"{file}: more than {most >> 20:,} MiB of counts, too much for a log of this size")
                if waiting > TOGETHER:
                    decode_those()
                    waiting = 0
        decode_those()
    except BROKEN as error:
        for _ in read_log(file):  # raises an error that names the line, if a single line is broken
            pass
        raise UserError(f"{file}: {error}") from error
    return merged


def parse_line(line: str) -> Interval | None:
    """Parses one line of a log. None for comments, the heading and empty lines. ValueError for anything else."""
    parts = _parts(line)
    return None if parts is None else Interval(*parts[:3], decode(parts[3]))


def merge(intervals: Iterable[Interval]) -> dict[str, Histogram]:
    """One histogram per tag."""
    merged: dict[str, Histogram] = {}
    for interval in intervals:
        known = merged.get(interval.tag)
        merged[interval.tag] = interval.histogram if known is None else known + interval.histogram
    return merged


def of_values(values: Sequence[int]) -> Histogram:
    """A histogram of these values, which are at most 10^13."""
    empty = Histogram(1, 10**13, 3, np.zeros(0, dtype=np.int64))
    lowest, _ = _bounds(empty.lowest, empty.digits, empty.buckets)
    places = np.searchsorted(lowest, np.asarray(values, dtype=np.int64), side="right")
    return _histogram(empty.lowest, empty.highest, empty.digits, np.bincount(places - 1, minlength=1))


def decode(payload: str | bytes) -> Histogram:
    """Decodes a histogram from its base64 V2 payload, compressed or not. ValueError if it is invalid."""
    shape, body = _unpacked(payload)
    return _histogram(*shape, _counts([body], *shape))


def _unpacked(payload: str | bytes) -> tuple[tuple[int, int, int], bytes]:
    """(lowest, highest, digits) of a payload, and its encoded counts."""
    raw = binascii.a2b_base64(payload, strict_mode=True)
    (cookie,) = struct.unpack_from(">I", raw)
    if cookie & COOKIE_MASK == COOKIE_V2_COMPRESSED:
        (length,) = struct.unpack_from(">I", raw, 4)
        unpack = zlib.decompressobj()
        raw = unpack.decompress(raw[8 : 8 + length], LONGEST_PAYLOAD)
        if not unpack.eof:
            raise ValueError(f"truncated, or larger than {LONGEST_PAYLOAD >> 20} MiB")
    cookie, length, offset, digits, lowest, highest, ratio = HEADER.unpack_from(raw)
    if cookie & COOKIE_MASK != COOKIE_V2:
        raise ValueError(f"not a V2 histogram: its cookie is {cookie:#x}")
    if offset != 0 or ratio != 1.0:
        raise ValueError(f"shifted or scaled histograms are not supported (offset {offset}, ratio {ratio})")
    if not (0 <= digits <= 5 and lowest >= 1 and 2 * lowest <= highest):
        raise ValueError(f"impossible range: {lowest} to {highest} at {digits} digits")
    if len(raw) - HEADER.size < length:
        raise ValueError(f"{length} bytes of counts announced, {len(raw) - HEADER.size} present")
    return (lowest, highest, digits), raw[HEADER.size : HEADER.size + length]


def encode(found: Histogram) -> str:
    """The compressed base64 V2 payload of a histogram, as `decode` and the libraries read it."""
    used = np.flatnonzero(found.counts)
    empty = np.diff(used, prepend=-1) - 1
    zigzag = np.column_stack((2 * empty - 1, 2 * found.counts[used])).ravel()
    body = _varints(zigzag[zigzag > 0])
    raw = HEADER.pack(COOKIE_V2 | WORD_BITS, len(body), 0, found.digits, found.lowest, found.highest, 1.0) + body
    packed = zlib.compress(raw)
    return base64.b64encode(struct.pack(">II", COOKIE_V2_COMPRESSED | WORD_BITS, len(packed)) + packed).decode("ascii")


def _varints(numbers: np.ndarray) -> bytes:
    """LEB128 of positive numbers: seven bits per byte, lowest first; the highest bit is set in all bytes but the last."""
    lengths = np.searchsorted(1 << 7 * np.arange(1, LONGEST_VARINT + 1, dtype=np.int64), numbers, side="right") + 1
    starts = np.cumsum(lengths) - lengths
    body = np.zeros(int(lengths.sum()), dtype=np.uint8)
    for place in range(int(lengths.max(initial=0))):
        has = lengths > place
        more = np.where(lengths[has] > place + 1, 0x80, 0)
        body[starts[has] + place] = (numbers[has] >> (7 * place)) & 0x7F | more
    return body.tobytes()


def _whole_lines(file: Path) -> list[bytes]:
    lines = read_file(file).splitlines(keepends=True)
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def _parts(line: str) -> tuple[str, float, float, str] | None:
    """Tag, start, length and payload of a line. None as in `parse_line`."""
    text = line.strip()
    if not text or text.startswith(("#", '"')):
        return None
    found = LINE.fullmatch(text)
    if not found:
        raise ValueError(f"found {text[:60]!r}")
    tag, start, length, _, payload = found.groups()
    return tag or "", float(start), float(length), payload


def _counts(bodies: list[bytes], lowest: int, highest: int, digits: int) -> np.ndarray:
    """Sums of counts by bucket, from ZigZag LEB128 numbers. A negative number is a run of that many empty buckets.

    The array ends after the last non-empty bucket, rounded up to a block, because most of the range is never used.
    """
    buckets, block = _buckets(lowest, highest, digits), 1 << _half_bits(digits)
    bodies = [body for body in bodies if body]
    if not bodies:
        return np.zeros(block, dtype=np.int64)
    if any(body[-1] >= 0x80 for body in bodies):
        raise ValueError("the last number is truncated")
    body = np.frombuffer(b"".join(bodies), dtype=np.uint8)
    ends = np.flatnonzero(body < 0x80)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > LONGEST_VARINT:
        raise ValueError("a count above 2^55, more than a run can record")
    place = np.arange(len(body)) - np.repeat(starts, lengths)
    zigzag = np.add.reduceat((body & 0x7F).astype(np.int64) << (7 * place), starts)
    numbers = (zigzag >> 1) ^ -(zigzag & 1)
    steps = np.where(numbers < 0, -numbers, 1)
    if steps.max() > buckets:
        raise ValueError(f"a run of {steps.max()} empty buckets, but the range has {buckets}")
    index = np.cumsum(steps) - steps
    if len(bodies) > 1:  # each body starts at the first bucket again
        begins = np.searchsorted(ends, np.cumsum([0, *map(len, bodies[:-1])]))
        index -= np.repeat(index[begins], np.diff(begins, append=len(numbers)))
    reached = int((index + steps).max())
    if reached > buckets:
        raise ValueError(f"counts for {reached} buckets, but the range has {buckets}")
    counted = numbers > 0
    counts = np.zeros(min(buckets, -(-reached // block) * block), dtype=np.int64)
    np.add.at(counts, index[counted], numbers[counted])
    if counts.sum(dtype=np.float64) > MOST_VALUES:
        raise ValueError("more values than a run can record")
    return counts


def _histogram(lowest: int, highest: int, digits: int, counts: np.ndarray) -> Histogram:
    counts.flags.writeable = False
    return Histogram(lowest, highest, digits, counts)


@cache
def _steps(per_halving: int, last: int) -> tuple[Fraction, ...]:
    """Quantiles, `per_halving` for each halving of the distance to 1."""
    return tuple(1 - Fraction(2.0 ** (-step / per_halving)) for step in range(last))


@cache
def _exact(q: str | Fraction) -> Fraction:
    exact = Fraction(q)
    assert 0 <= exact <= 1, f"a quantile must be between 0 and 1, found {q}"
    return exact


@cache
def _bounds(lowest: int, digits: int, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Lowest value and size of every bucket (AbstractHistogram.valueFromIndex), cached for all histograms of a shape."""
    half_bits = _half_bits(digits)
    half, unit = 1 << half_bits, lowest.bit_length() - 1
    index = np.arange(buckets, dtype=np.int64)
    exponent = np.maximum((index >> half_bits) - 1, 0)
    within = np.where(index < half, index, (index & (half - 1)) + half)
    return within << (exponent + unit), np.int64(1) << (exponent + unit)


def _half_bits(digits: int) -> int:
    """log2 of half the number of sub-buckets, which is the smallest power of two ≥ 2·10^digits."""
    return max(math.ceil(math.log2(2 * 10**digits)), 1) - 1


def _buckets(lowest: int, highest: int, digits: int) -> int:
    """Number of buckets from 0 to `highest` (AbstractHistogram.determineArrayLengthNeeded)."""
    half_bits, unit = _half_bits(digits), lowest.bit_length() - 1
    reach, buckets = 1 << (half_bits + 1 + unit), 1
    while reach <= highest:
        reach <<= 1
        buckets += 1
    return (buckets + 1) << half_bits
