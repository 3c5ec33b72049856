"""Reads one raw file line by line: what is right becomes rows, what is not becomes quarantine with a reason.

The fast way decodes a block of lines at once; a block in which anything is wrong is read again line by line, so both
ways say the same. Nothing is dropped: rows + quarantined = lines, always.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute

from contracts.records import KINDS, SCHEMA_VERSION
from flows.warehouse import gaps
from flows.warehouse.shapes import ONE_LINE, Shape, shape

BLOCK_BYTES = 8 << 20
# Up to so many records stay rows until they are written: an array for every column of a file of one line would cost
# more than reading it.
FEW = 64
Piece: TypeAlias = "list[tuple[Any, ...]] | pa.RecordBatch"
_encode = msgspec.json.encode
_any = msgspec.json.Decoder()


@dataclass(frozen=True)
class Place:
    """Where a file lies: its path under raw, and what its records must say of themselves."""

    file: str
    campaign: str
    run_id: str
    kind: str
    cell_id: str | None


@dataclass
class Quarantined:
    """One refused line: where it is, the reason (a closed set, see docs/warehouse.md) and what exactly was wrong."""

    line: int
    reason: str
    detail: str


@dataclass
class FileReading:
    """What one file held. between: the gaps between chunks of its timed, ok requests, ns, in pieces."""

    rows: int = 0
    lines: int = 0
    bytes: int = 0
    sha256: str = ""
    quarantined: list[Quarantined] = field(default_factory=list)
    between: list[np.ndarray] = field(default_factory=list)


class _LineRefused(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def read_file(
    path: Path,
    place: Place,
    seen: set[str],
    reading: FileReading,
    start: int = 0,
    end: int | None = None,
    line: int = 1,
) -> Iterator[Piece]:
    """Read a file, or the bytes start..end of it that begin with line `line`, into pieces (see as_table).

    seen: the request ids of the run so far; added to. `reading` is filled as the pieces are taken; its hash is of
    the bytes that were read.
    """
    digest = hashlib.sha256()
    for block, is_torn in _blocks(path, start, end):
        digest.update(block)
        reading.bytes += len(block)
        lines = block.count(b"\n") + is_torn
        reading.lines += lines
        piece = None if is_torn else _read_block(block, lines, place, seen, reading, line)
        if piece is None:
            piece = _read_lines(block, is_torn, place, seen, reading, line)
        line += lines
        if piece:
            reading.rows += len(piece)
            yield piece
    reading.sha256 = digest.hexdigest()


def _blocks(path: Path, start: int, end: int | None) -> Iterator[tuple[bytes, bool]]:
    """Blocks of whole lines; at the end of the file what no newline closes comes alone, marked torn."""
    rest = b""
    with path.open("rb", buffering=0) as stream:
        stream.seek(start)
        left = -1 if end is None else end - start
        while left:
            block = stream.read(BLOCK_BYTES if left < 0 else min(BLOCK_BYTES, left))
            if not block:
                break
            if left > 0:
                left -= len(block)
            cut = block.rfind(b"\n") + 1
            if cut == 0:
                rest += block
                continue
            whole = rest + block[:cut] if rest else block[:cut]
            rest = block[cut:]
            yield whole, False
    if rest:
        yield rest, True


def _read_block(
    block: bytes, lines: int, place: Place, seen: set[str], reading: FileReading, line: int
) -> Piece | None:
    """The fast way; None where any line needs the careful one."""
    kind = shape(place.kind)
    if place.kind in ONE_LINE and (lines > 1 or reading.rows):
        return None
    try:
        records = kind.decoder.decode_lines(block)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if len(records) != lines:
        return None
    campaign, run_id, cell_id, name = place.campaign, place.run_id, place.cell_id, place.kind
    for record in records:
        if (
            record.campaign != campaign
            or record.run_id != run_id
            or record.record != name
            or record.schema_version != SCHEMA_VERSION
        ):
            return None
    if cell_id is not None and any(record.cell_id != cell_id for record in records):
        return None
    ids: set[str] = set()
    if name == "request":
        ids = {record.request_id for record in records}
        if len(ids) != len(records) or not seen.isdisjoint(ids):
            return None
    try:
        piece = _piece(records, kind, place, np.arange(line, line + lines), reading)
    except (gaps.GapsUnreadable, OverflowError, pa.ArrowException):
        return None
    seen |= ids
    return piece


def _read_lines(
    block: bytes, is_torn: bool, place: Place, seen: set[str], reading: FileReading, line: int
) -> Piece | None:
    """The careful way: every line by itself."""
    kind = shape(place.kind)
    records: list[Any] = []
    numbers: list[int] = []
    texts = block.split(b"\n")
    if not is_torn:
        texts.pop()
    for number, text in enumerate(texts, start=line):
        try:
            if is_torn and number == line + len(texts) - 1:
                raise _LineRefused("cut_line", "the last line does not end in a newline")
            record = _read_line(text, kind, place, seen)
            if place.kind in ONE_LINE and (records or reading.rows):
                raise _LineRefused("duplicate_record", f"a {place.kind} file holds one record")
        except _LineRefused as refused:
            reading.quarantined.append(Quarantined(number, refused.reason, refused.detail))
            continue
        if place.kind == "request":
            seen.add(record.request_id)
        records.append(record)
        numbers.append(number)
    return _piece(records, kind, place, np.array(numbers, np.int64), reading) if records else None


def _read_line(text: bytes, kind: Shape, place: Place, seen: set[str]) -> Any:
    if not text.strip(b" \t\r"):
        raise _LineRefused("blank_line", "the line is empty")
    if b"\x00" in text:
        raise _LineRefused("nul_bytes", f"{text.count(0)} NUL bytes from byte {text.index(0)} of the line")
    try:
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _LineRefused("not_utf8", f"byte {error.start} of the line: {error.reason}") from error
    _check_header(text, place)
    try:
        record = kind.decoder.decode(text)
    except msgspec.ValidationError as error:
        raise _LineRefused(_reason(str(error)), str(error)) from error
    except msgspec.DecodeError as error:
        raise _LineRefused("not_json", str(error)) from error
    if place.cell_id is not None and record.cell_id != place.cell_id:
        raise _LineRefused("foreign_cell", f"the record says cell {record.cell_id!r}")
    if place.kind == "request":
        if record.request_id in seen:
            raise _LineRefused(
                "duplicate_request_id", f"request {record.request_id!r} stands in this run already"
            )
        try:
            gaps.read_gaps([record.chunk_gap_ns])
        except gaps.GapsUnreadable as error:
            raise _LineRefused("wrong_type", f"{error} in chunk_gap_ns") from error
    try:
        _values(record, kind)
    except OverflowError as error:
        raise _LineRefused("out_of_range", str(error)) from error
    return record


def _check_header(text: bytes, place: Place) -> None:
    """What a line says of itself, before its kind's own fields: JSON, record, version, campaign, run."""
    try:
        content = _any.decode(text)
    except msgspec.ValidationError as error:
        raise _LineRefused("wrong_type", str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise _LineRefused("not_json", str(error)) from error
    if not isinstance(content, dict):
        raise _LineRefused("not_json", f"a {type(content).__name__}, not an object")
    record = content.get("record")
    if not isinstance(record, str) or record not in KINDS:
        raise _LineRefused("unknown_record", f"record is {record!r}")
    version = content.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise _LineRefused(
            "unknown_schema_version", f"schema_version is {version!r}, this reads {SCHEMA_VERSION}"
        )
    if record != place.kind:
        raise _LineRefused("misplaced_record", f"a {record} record in a file of {place.kind} records")
    for name, reason in (("campaign", "foreign_campaign"), ("run_id", "foreign_run")):
        if name in content and content[name] != getattr(place, name):
            raise _LineRefused(reason, f"the record says {name} {content[name]!r}")


def _reason(message: str) -> str:
    if "unknown field" in message:
        return "unknown_field"
    if "missing required field" in message:
        return "missing_field"
    return "wrong_type"


def _piece(records: list[Any], kind: Shape, place: Place, lines: np.ndarray, reading: FileReading) -> Piece:
    """Checked records as rows where they are few, as arrays where they are many.

    Raises GapsUnreadable, OverflowError or ArrowException where a value does not fit its column.
    """
    arrays: list[pa.Array] = []
    if kind.kind == "request":
        found = gaps.read_gaps([record.chunk_gap_ns for record in records])
        arrays = [*gaps.per_request(found).values()]
        arrays.append(gaps.of_users(found, [record.user is not None for record in records]))
        wanted = np.fromiter((r.outcome == "ok" and r.phase == "timed" for r in records), bool, len(records))
        between = gaps.between_chunks(found, wanted)
    if len(records) < FEW:
        more = list(zip(*(array.to_pylist() for array in arrays), strict=True)) or [()] * len(records)
        piece: Piece = [
            (*_values(record, kind), place.file, line, *rest)
            for record, line, rest in zip(records, lines.tolist(), more, strict=True)
        ]
    else:
        piece = _record_batch(records, kind, place, lines, arrays)
    if kind.kind == "request":
        reading.between.append(between)
    return piece


def _values(record: Any, kind: Shape) -> list[Any]:
    values = list(kind.getter(record))
    for at in kind.counted_at:
        if values[at] is not None and not 0 <= values[at] < 1 << 63:
            raise OverflowError(f"{kind.names[at]} is {values[at]}")
    for at in kind.json_at:
        if values[at] is not None:
            values[at] = _encode(values[at]).decode()
    return values


def _record_batch(
    records: list[Any], kind: Shape, place: Place, lines: np.ndarray, gap_arrays: list[pa.Array]
) -> pa.RecordBatch:
    arrays: list[pa.Array] = []
    columns = zip(*map(kind.getter, records), strict=True)
    for at, values in enumerate(columns):
        if at in kind.json_at:
            values = tuple(None if value is None else _encode(value).decode() for value in values)
        array = pa.array(values, kind.schema.field(at).type)
        if at in kind.counted_at:
            low = pa.compute.min(array).as_py()
            if low is not None and low < 0:
                raise OverflowError(f"{kind.names[at]} is {low}")
        arrays.append(array)
    arrays.append(pa.array([place.file] * len(records), pa.string()))
    arrays.append(pa.array(lines))
    return pa.RecordBatch.from_arrays([*arrays, *gap_arrays], schema=kind.schema)


def as_table(kind: str, pieces: list[Piece]) -> pa.Table:
    """Pieces of one kind, in the order of arrival within rows and within arrays, as one table."""
    schema = shape(kind).schema
    rows = [row for piece in pieces if isinstance(piece, list) for row in piece]
    batches = [piece for piece in pieces if not isinstance(piece, list)]
    if rows:
        columns = zip(*rows, strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema)
