"""Lands raw files: written to `.part`, flushed, renamed, then sealed with lines, bytes and sha256.

A file is evidence once its seal line is on disk. A `.part` is what a killed writer left; `recover_part`
keeps its whole lines. Nothing here edits a landed file.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from contracts.errors import RawRefused
from contracts.records import Record, Seal

SEAL_FILE = "seal.jsonl"
_encode = msgspec.json.Encoder().encode


def utc_now() -> str:
    """The wall clock now, as records write it: UTC, ISO 8601, microseconds, `Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def encode_line(record: Record | Seal) -> bytes:
    """One record as one JSON line, newline included. Raises ValueError on NaN: NaN is an error, not a number."""
    _refuse_nan(msgspec.to_builtins(record), type(record).__name__)
    return _encode(record) + b"\n"


def _refuse_nan(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}: NaN and infinity are errors, absence is null")
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_nan(inner, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _refuse_nan(inner, where)


class RunFolder:
    """`raw/<campaign>/<run_id>/`: where one run's evidence lands.

    Not safe for two writers of one file; the seal itself is appended atomically (one write, O_APPEND).
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, raw_root: Path, campaign: str, run_id: str) -> RunFolder:
        """Make the folder. Raises FileExistsError when the run id is taken: run ids are never reused."""
        path = raw_root / campaign / run_id
        path.mkdir(parents=True, exist_ok=False)
        return cls(path)

    @property
    def campaign(self) -> str:
        return self.path.parent.name

    @property
    def run_id(self) -> str:
        return self.path.name

    def part(self, name: str) -> Path:
        """Where `name` (a path inside the run, e.g. `requests/c1.jsonl`) is written before it lands."""
        target = self.path / (name + ".part")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Write a file and land it on a clean exit; on an exception the `.part` stays for recovery."""
        with self.part(name).open("wb") as stream:
            yield stream
        self.land(name)

    def land(self, name: str) -> Seal:
        """Flush, rename and seal `name`, whose `.part` is complete. Raises FileExistsError if it has landed."""
        part, target = self.part(name), self.path / name
        if target.exists():
            raise FileExistsError(f"{target} has landed already; raw is never rewritten")
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
            lines, size, digest = _measure(stream)
        os.rename(part, target)
        _fsync_folder(target.parent)
        seal = Seal(
            path=name,
            lines=lines if name.endswith(".jsonl") else None,
            bytes=size,
            sha256=digest,
            landed_at=utc_now(),
        )
        self._append_seal(seal)
        return seal

    def land_records(self, name: str, records: Iterable[Record]) -> Seal:
        """Write `records` as the JSONL file `name` and land it."""
        with self.part(name).open("wb") as stream:
            for record in records:
                stream.write(encode_line(record))
        return self.land(name)

    def land_file(self, name: str, source: Path) -> Seal:
        """Copy an artefact (an engine log) to `files/<name>` and land it."""
        part = self.part(f"files/{name}")
        with source.open("rb") as reader, part.open("wb") as writer:
            while block := reader.read(1 << 20):
                writer.write(block)
        return self.land(f"files/{name}")

    def seals(self) -> dict[str, Seal]:
        """Every landed file by its path. A torn last seal line is ignored: that file has not landed."""
        path = self.path / SEAL_FILE
        if not path.exists():
            return {}
        found: dict[str, Seal] = {}
        for line in path.read_bytes().split(b"\n"):
            try:
                seal = msgspec.json.decode(line, type=Seal)
            except msgspec.DecodeError:
                continue
            found[seal.path] = seal
        return found

    def has_landed(self, name: str) -> bool:
        return name in self.seals()

    def recover(self) -> list[str]:
        """Finish what a killed writer left, and name the files that this landed.

        A renamed file without a seal gets one. A `.part` keeps its whole lines; a torn last line is cut off
        into `<name>.torn`, so that nothing is thrown away unseen.
        """
        landed = []
        seals = self.seals()
        for path in sorted(self.path.rglob("*")):
            name = path.relative_to(self.path).as_posix()
            if not path.is_file() or name == SEAL_FILE or name.endswith(".torn") or name in seals:
                continue
            if name.startswith(".load/"):
                continue  # a load window's own files; flows.load.recover_window turns them into records
            if not name.endswith(".part"):
                os.rename(path, path.with_name(path.name + ".part"))
                name += ".part"
            target = name.removesuffix(".part")
            if target in seals:
                continue
            if target.endswith(".jsonl"):
                _cut_torn_line(self.path / name, self.path / (target + ".torn"))
            self.land(target)
            landed.append(target)
        return landed

    def verify(self) -> None:
        """Compare every landed file with its seal. Raises RawRefused on the first that differs."""
        for name, seal in self.seals().items():
            path = self.path / name
            if not path.exists():
                raise RawRefused(f"{name} is sealed but missing", evidence=str(path))
            with path.open("rb") as stream:
                _, size, digest = _measure(stream)
            if digest != seal.sha256:
                raise RawRefused(
                    f"{name} was edited after it was sealed",
                    measured=f"sha256 {digest[:12]}, {size} bytes",
                    required=f"sha256 {seal.sha256[:12]}, {seal.bytes} bytes",
                    evidence=str(path),
                    next_step="restore the file; raw is never edited",
                )

    def _append_seal(self, seal: Seal) -> None:
        path = self.path / SEAL_FILE
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, (b"\n" if torn else b"") + encode_line(seal))
            os.fsync(handle)
        finally:
            os.close(handle)


def read_records(path: Path, kind: type[Any]) -> list[Any]:
    """Every record of a landed JSONL file, decoded as `kind`. Raises msgspec.ValidationError on a wrong line."""
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(line) for line in path.read_bytes().splitlines() if line]


def _measure(stream: BinaryIO) -> tuple[int, int, str]:
    digest, lines, size = hashlib.sha256(), 0, 0
    while block := stream.read(1 << 20):
        digest.update(block)
        lines += block.count(b"\n")
        size += len(block)
    return lines, size, digest.hexdigest()


def _cut_torn_line(part: Path, torn: Path) -> None:
    with part.open("rb+") as stream:
        size = stream.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - (1 << 16))
            stream.seek(start)
            cut = stream.read(end - start).rfind(b"\n")
            if cut >= 0:
                end = start + cut + 1
                break
            end = start
        if end < size:
            stream.seek(end)
            torn.write_bytes(stream.read())
            stream.truncate(end)


def _fsync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
