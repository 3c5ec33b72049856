"""Reads the gaps between chunks in bulk, and reduces them: per request, and per cell to exact percentiles.

A million requests of 200 chunks hold 200 million gaps. As Python numbers they would cost more than everything else
together, so their text goes through Arrow's integer parser in one piece per block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import csv

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}

# Below this, preparing Arrow's parser takes longer than the plain way.
SMALL_BYTES = 32 << 10

_TO_LINES = bytes.maketrans(b",", b"\n")
_careful = msgspec.json.Decoder(list[int])
_READ = csv.ReadOptions(column_names=["gap"], use_threads=False, block_size=1 << 26)
_PARSE = csv.ParseOptions(quote_char=False, escape_char=False, ignore_empty_lines=True)
_CONVERT = csv.ConvertOptions(column_types={"gap": pa.int64()}, null_values=[], strings_can_be_null=False)


class GapsUnreadable(ValueError):
    """A line's gaps are not a list of whole numbers. row: which of the given ones."""

    def __init__(self, row: int, detail: str) -> None:
        super().__init__(detail)
        self.row = row


@dataclass(frozen=True)
class Gaps:
    """values: every gap, ns, in order; counts: how many of them belong to each request."""

    values: np.ndarray
    counts: np.ndarray


def read_gaps(raws: Sequence[Any]) -> Gaps:
    """Read lists of whole nanoseconds from their JSON text (known to be valid JSON).

    Raises GapsUnreadable for the first that is not a list of integers within 64 bits.
    """
    texts = [bytes(raw) for raw in raws]
    if sum(map(len, texts)) < SMALL_BYTES:
        return _read_carefully(texts)
    joined = b"\n".join(texts)
    counts = np.fromiter(
        (text.count(b",") + 1 if len(text) > 2 else 0 for text in texts), np.int64, len(texts)
    )
    is_flat = all(text[:1] == b"[" for text in texts) and joined.count(b"[") == len(texts)
    if is_flat and b'"' not in joined:
        try:
            values = _parse(joined.translate(_TO_LINES, b"[] \t\r"))
        except pa.ArrowInvalid:
            values = None
        if values is not None and len(values) == int(counts.sum()):
            return Gaps(values, counts)
    return _read_carefully(texts)


def _parse(text: bytes) -> np.ndarray:
    if not text.strip():
        return np.empty(0, np.int64)
    table = csv.read_csv(pa.BufferReader(text), _READ, _PARSE, _CONVERT)
    return table.column(0).to_numpy()


def _read_carefully(texts: list[bytes]) -> Gaps:
    lists = []
    for row, text in enumerate(texts):
        try:
            lists.append(np.array(_careful.decode(text), dtype=np.int64))
        except (msgspec.MsgspecError, OverflowError) as error:
            raise GapsUnreadable(row, str(error)) from error
    counts = np.array([len(gaps) for gaps in lists], np.int64)
    return Gaps(np.concatenate(lists) if lists else np.empty(0, np.int64), counts)


def per_request(gaps: Gaps) -> dict[str, pa.Array]:
    """The columns of contracts.fields.GAP_FIELDS, one value a request.

    Minimum and maximum leave out the first gap, the wait for the first token; null with fewer than two chunks.
    """
    counts, values = gaps.counts, gaps.values
    rows = len(counts)
    total, negative = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    low, high = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    filled = counts > 0
    if len(values):
        starts = (np.cumsum(counts) - counts)[filled]
        total[filled] = np.add.reduceat(values, starts)
        if values.min() < 0:
            negative[filled] = np.add.reduceat((values < 0).astype(np.int64), starts)
        between = values.copy()
        between[starts] = np.iinfo(np.int64).max
        low[filled] = np.minimum.reduceat(between, starts)
        between[starts] = np.iinfo(np.int64).min
        high[filled] = np.maximum.reduceat(between, starts)
    few = counts < 2
    return {
        "gap_count": pa.array(counts),
        "gap_sum_ns": pa.array(total),
        "gap_min_ns": pa.array(low, mask=few),
        "gap_max_ns": pa.array(high, mask=few),
        "gap_negative_count": pa.array(negative),
    }


def of_users(gaps: Gaps, is_users: Sequence[bool]) -> pa.Array:
    """The gaps of the requests that belong to a user, whole; null for the others (contracts.fields.USER_GAPS)."""
    if not any(is_users):
        return pa.nulls(len(is_users), pa.list_(pa.int64()))
    ends = np.cumsum(gaps.counts)
    return pa.array(
        [
            gaps.values[end - count : end] if is_wanted else None
            for end, count, is_wanted in zip(ends, gaps.counts, is_users, strict=True)
        ],
        pa.list_(pa.int64()),
    )


def between_chunks(gaps: Gaps, wanted: np.ndarray) -> np.ndarray:
    """The gaps of the wanted requests (a mask), without each one's first."""
    counts, values = gaps.counts, gaps.values
    keep = np.repeat(wanted, counts)
    starts = (np.cumsum(counts) - counts)[counts > 0]
    keep[starts] = False
    return values[keep]


def percentiles(values: np.ndarray) -> dict[str, float | None]:
    """Exact percentiles in ns, linear between neighbours as DuckDB's quantile_cont; reorders `values`.

    None where there are no values.
    """
    if not len(values):
        return dict.fromkeys(PERCENTILES)
    positions = {name: q * (len(values) - 1) for name, q in PERCENTILES.items()}
    needed = sorted(
        {int(p) for p in positions.values()} | {min(int(p) + 1, len(values) - 1) for p in positions.values()}
    )
    values.partition(needed)
    found: dict[str, float | None] = {}
    for name, position in positions.items():
        below = int(position)
        low, high = float(values[below]), float(values[min(below + 1, len(values) - 1)])
        found[name] = low + (position - below) * (high - low)
    return found
