"""Digests changed runs: raw JSONL to Parquet, one file a kind and worker, checked against the seals.

Big raw is read by several processes. A request file over SPLIT_BYTES is cut at line ends and shared among them.
"""

from __future__ import annotations

import gc
import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from contracts.records import Seal
from flows.warehouse import gaps
from flows.warehouse.reading import FileReading, Piece, Place, as_table, read_file
from flows.warehouse.scan import RunFound, read_seals
from flows.warehouse.shapes import cell_of, kind_of, shape
from flows.warehouse.workers import Workers

SPLIT_BYTES = 96 << 20
# Below this, starting processes takes longer than reading.
POOL_BYTES = 48 << 20
ROWS_PER_GROUP = 20_000


@dataclass
class FileState:
    """A file of a run, and what became of it.

    state: loaded; edited (its hash differs from its seal; its rows are read, and nothing of that run's cell may
    publish); missing; unsealed, stranger (not read); artefact (hashed only).
    """

    file: str
    campaign: str
    run_id: str
    path: str
    kind: str | None
    cell_id: str | None
    state: str
    reason: str | None = None
    sealed_lines: int | None = None
    staged_lines: int | None = None
    quarantined_lines: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    sealed_sha256: str | None = None
    landed_at: str | None = None


@dataclass
class Digest:
    """What digesting gave. parquet: kind -> files written. chunks: one row a request file."""

    files: list[FileState] = field(default_factory=list)
    quarantine: list[tuple[Any, ...]] = field(default_factory=list)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    parquet: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: Digest) -> None:
        """Take in what another worker found."""
        self.files += other.files
        self.quarantine += other.quarantine
        self.chunks += other.chunks
        for kind, paths in other.parquet.items():
            self.parquet.setdefault(kind, []).extend(paths)


@dataclass(frozen=True)
class _Piece:
    """A part of a big request file: bytes start..end, beginning with line `line`."""

    start: int
    end: int | None
    line: int


@dataclass(frozen=True)
class _BigFile:
    path: str
    place: Place
    piece: _Piece
    seal: Seal


@dataclass
class _PieceRead:
    """A piece as a worker read it. between: where its gaps were written, or none."""

    reading: FileReading
    between: str | None
    parquet: dict[str, list[str]]


def digest_runs(
    raw: Path,
    runs: list[RunFound],
    out: Path,
    load_id: str,
    on_progress: Callable[[int, int], None] | None = None,
) -> Digest:
    """Read every file of these runs into Parquet files `<out>/<kind>-<load_id>-<n>.parquet`.

    on_progress(done_bytes, all_bytes) is called now and then.
    """
    for run in runs:
        run.seals, faults = read_seals(raw / run.folder)
        run.refused = run.refused or ("; ".join(faults) if not run.seals else None)
    size = sum(sum(run.sizes.values()) for run in runs)
    workers = min(os.cpu_count() or 1, 8)
    if size < POOL_BYTES or workers == 1:
        return _digest_batch(str(raw), runs, str(out), f"{load_id}-0")
    return _digest_in_processes(raw, runs, out, load_id, workers, size, on_progress)


def _digest_in_processes(
    raw: Path,
    runs: list[RunFound],
    out: Path,
    load_id: str,
    workers: int,
    size: int,
    on_progress: Callable[[int, int], None] | None,
) -> Digest:
    whole = Digest()
    big = [run for run in runs if any(_is_big(name, size) for name, size in run.sizes.items())]
    small = [run for run in runs if run not in big]
    with Workers(workers) as pool:
        waiting = {}
        for number, batch in enumerate(_batches(small, max(size // (workers * 8), 4 << 20))):
            future = pool.submit(_digest_batch, str(raw), batch, str(out), f"{load_id}-{number}")
            waiting[future] = sum(sum(run.sizes.values()) for run in batch)
        done = 0
        for number, run in enumerate(big):
            whole.add(_digest_big_run(raw, run, out, f"{load_id}-b{number}", pool, workers))
        for future, part in waiting.items():
            whole.add(future.result())
            done += part
            if on_progress:
                on_progress(done, size)
    return whole


def _batches(runs: list[RunFound], target: int) -> list[list[RunFound]]:
    batches: list[list[RunFound]] = [[]]
    filled = 0
    for run in runs:
        if filled >= target:
            batches.append([])
            filled = 0
        batches[-1].append(run)
        filled += sum(run.sizes.values())
    return [batch for batch in batches if batch]


def _is_big(path: str, size: int) -> bool:
    return size > SPLIT_BYTES and kind_of(path) == "request"


class _Writers:
    """Parquet files of one worker, one a kind, opened when first needed."""

    def __init__(self, out: str, name: str) -> None:
        self._out, self._name = out, name
        self._open: dict[str, parquet.ParquetWriter] = {}
        self._held: dict[str, list[Piece]] = {}
        self._rows: dict[str, int] = {}
        self.paths: dict[str, list[str]] = {}

    def write(self, kind: str, piece: Piece) -> None:
        self._held.setdefault(kind, []).append(piece)
        self._rows[kind] = self._rows.get(kind, 0) + len(piece)
        if self._rows[kind] >= ROWS_PER_GROUP:
            self._flush(kind)

    def close(self) -> dict[str, list[str]]:
        for kind in list(self._held):
            self._flush(kind)
        for writer in self._open.values():
            writer.close()
        return self.paths

    def _flush(self, kind: str) -> None:
        held = self._held.pop(kind, [])
        self._rows.pop(kind, None)
        if not held:
            return
        if kind not in self._open:
            path = f"{self._out}/{kind}-{self._name}.parquet"
            hashes = {"prompt_sha256", "first_block_sha256", "output_sha256", "request_id"}
            self._open[kind] = parquet.ParquetWriter(
                path,
                shape(kind).schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=[name for name in shape(kind).schema.names if name not in hashes],
            )
            self.paths.setdefault(kind, []).append(path)
        self._open[kind].write_table(as_table(kind, held))


def _digest_batch(raw: str, runs: list[RunFound], out: str, name: str) -> Digest:
    digest = Digest()
    writers = _Writers(out, name)
    # Millions of short-lived objects without cycles: the collector would only walk them again and again.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for run in runs:
            _digest_run(Path(raw), run, digest, writers)
    finally:
        if was_enabled:
            gc.enable()
    digest.parquet = writers.close()
    return digest


def _digest_run(raw: Path, run: RunFound, digest: Digest, writers: _Writers) -> None:
    seen: set[str] = set()
    for path in sorted(run.sizes.keys() | run.seals.keys()):
        if path == "seal.jsonl":
            continue
        state = _state(run, path)
        digest.files.append(state)
        if state.state != "loaded":
            continue
        reading = FileReading()
        place = Place(state.file, run.campaign, run.run_id, state.kind or "", state.cell_id)
        for piece in read_file(raw / run.folder / path, place, seen, reading):
            writers.write(place.kind, piece)
        _conclude(state, reading, digest)
        if state.kind == "request":
            digest.chunks.append(_chunks(state, reading.between))


def _state(run: RunFound, path: str) -> FileState:
    """What a file is, before it is read."""
    seal = run.seals.get(path)
    kind = kind_of(path)
    state = FileState(f"{run.folder}/{path}", run.campaign, run.run_id, path, kind, cell_of(path), "loaded")
    if seal is not None:
        state.sealed_lines, state.sealed_sha256 = seal.lines, seal.sha256
        state.landed_at = seal.landed_at
    if run.refused:
        state.state, state.reason = "refused", run.refused
    elif seal is None:
        state.state, state.reason = "unsealed", "no seal line names this file: it has not landed"
    elif path not in run.sizes:
        state.state, state.reason = "missing", "sealed, but not there"
    elif kind is None:
        is_artefact = path.startswith("files/") or not path.endswith(".jsonl")
        state.state = "artefact" if is_artefact else "stranger"
        state.reason = None if is_artefact else "no record kind lies at this path"
    return state


def _conclude(state: FileState, reading: FileReading, digest: Digest) -> None:
    state.staged_lines, state.quarantined_lines = reading.rows, len(reading.quarantined)
    state.bytes, state.sha256 = reading.bytes, reading.sha256
    if reading.sha256 != state.sealed_sha256:
        state.state = "edited"
        state.reason = f"sha256 {reading.sha256[:12]} on disk, {str(state.sealed_sha256)[:12]} in the seal"
    digest.quarantine += [
        (
            state.campaign,
            state.run_id,
            state.cell_id,
            state.kind,
            state.file,
            one.line,
            one.reason,
            one.detail,
        )
        for one in reading.quarantined
    ]


def _chunks(state: FileState, between: list[np.ndarray]) -> dict[str, Any]:
    """The cell's gaps between chunks in a few exact figures, ms."""
    values = np.concatenate(between) if between else np.empty(0, np.int64)
    row: dict[str, Any] = {"run_id": state.run_id, "cell_id": state.cell_id, "gap_count": len(values)}
    row["gap_mean_ms"] = float(values.mean()) / 1e6 if len(values) else None
    row["gap_zero_count"] = int((values == 0).sum())
    found = gaps.percentiles(values)
    return row | {f"gap_{name}_ms": None if ns is None else ns / 1e6 for name, ns in found.items()}


def _digest_big_run(raw: Path, run: RunFound, out: Path, name: str, pool: Workers, workers: int) -> Digest:
    """A run with a file too big for one worker: its small files here, its big ones in pieces.

    A request id used twice across pieces is only seen when all are read; the run is then read again in one piece.
    """
    digest = Digest()
    writers = _Writers(str(out), name)
    small = RunFound(run.folder, run.fingerprint, dict(run.sizes), run.refused, dict(run.seals))
    big = [
        path
        for path, size in run.sizes.items()
        if _is_big(path, size) and _state(run, path).state == "loaded"
    ]
    for path in big:
        small.sizes.pop(path)
        small.seals.pop(path)
    _digest_run(raw, small, digest, writers)
    digest.parquet = writers.close()
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        for number, path in enumerate(big):
            state = _state(run, path)
            pieces, sha256 = _cut(raw / run.folder / path, workers * 2)
            place = Place(state.file, run.campaign, run.run_id, "request", state.cell_id)
            futures = [
                pool.submit(
                    _read_piece, str(raw / run.folder / path), place, piece, str(out), f"{name}-{number}-{part}",
                    f"{scratch}/{number}-{part}.npy",
                )
                for part, piece in enumerate(pieces)
            ]  # fmt: skip
            whole = FileReading(sha256=sha256)
            for future in futures:
                read = future.result()
                whole.rows += read.reading.rows
                whole.lines += read.reading.lines
                whole.bytes += read.reading.bytes
                whole.quarantined += read.reading.quarantined
                if read.between:
                    whole.between.append(np.load(read.between, mmap_mode="r"))
                for kind, paths in read.parquet.items():
                    digest.parquet.setdefault(kind, []).extend(paths)
            _conclude(state, whole, digest)
            digest.files.append(state)
            digest.chunks.append(_chunks(state, whole.between))
    if _has_twice(digest.parquet.get("request", [])):
        for paths in digest.parquet.values():
            for written in paths:
                Path(written).unlink()
        return _digest_batch(str(raw), [run], str(out), f"{name}-whole")
    return digest


def _cut(path: Path, pieces: int) -> tuple[list[_Piece], str]:
    """Cut a file at line ends into about equal pieces; hash it on the way."""
    target = max(path.stat().st_size // pieces, 1)
    digest = hashlib.sha256()
    cuts: list[_Piece] = []
    start, line, begun_line = 0, 1, 1
    with path.open("rb", buffering=0) as stream:
        position = 0
        while block := stream.read(8 << 20):
            digest.update(block)
            if position + len(block) - start >= target and (cut := block.rfind(b"\n") + 1):
                end = position + cut
                line += block.count(b"\n", 0, cut)
                cuts.append(_Piece(start, end, begun_line))
                start, begun_line = end, line
                line += block.count(b"\n", cut)
            else:
                line += block.count(b"\n")
            position += len(block)
    if start < position:
        cuts.append(_Piece(start, position, begun_line))
    return cuts, digest.hexdigest()


def _read_piece(path: str, place: Place, piece: _Piece, out: str, name: str, scratch: str) -> _PieceRead:
    gc.disable()
    try:
        writers = _Writers(out, name)
        reading = FileReading()
        for read in read_file(Path(path), place, set(), reading, piece.start, piece.end, piece.line):
            writers.write("request", read)
        between = np.concatenate(reading.between) if reading.between else np.empty(0, np.int64)
        reading.between = []
        np.save(scratch, between)
        return _PieceRead(reading, scratch, writers.close())
    finally:
        gc.enable()


def _has_twice(paths: list[str]) -> bool:
    if not paths:
        return False
    import duckdb

    with duckdb.connect() as connection:
        rows = connection.execute(
            "select count(*) - count(distinct request_id) from read_parquet($paths)", {"paths": paths}
        ).fetchall()
    return bool(rows[0][0])
