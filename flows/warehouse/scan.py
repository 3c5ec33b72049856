"""Finds the runs under raw, and tells which of them changed since the last build.

A run's fingerprint is of every file's name, size, modification and change times and inode: an edit of the content
cannot leave all of them as they were. `--full` reads and hashes everything regardless.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from contracts.records import Seal
from flows.landing import SEAL_FILE

# What a writer in progress, or a killed one, leaves: not evidence yet.
UNLANDED = (".part", ".torn")


@dataclass
class RunFound:
    """A run folder. folder: `<campaign>/<run_id>`. sizes: bytes of every landed or stray file in it."""

    folder: str
    fingerprint: str
    sizes: dict[str, int]
    refused: str | None = None
    seals: dict[str, Seal] = field(default_factory=dict)

    @property
    def campaign(self) -> str:
        return self.folder.partition("/")[0]

    @property
    def run_id(self) -> str:
        return self.folder.partition("/")[2]


def scan(raw: Path) -> list[RunFound]:
    """Every run folder under raw, in order. A run id that two campaigns use is refused where it landed later."""
    found = []
    for campaign in _folders(raw):
        for run in _folders(Path(campaign.path)):
            sizes, fingerprint = _fingerprint(run.path)
            found.append(RunFound(f"{campaign.name}/{run.name}", fingerprint, sizes))
    by_id: dict[str, list[RunFound]] = {}
    for one in found:
        by_id.setdefault(one.run_id, []).append(one)
    for same in by_id.values():
        if len(same) > 1:
            same.sort(key=lambda one: (_first_landed(raw / one.folder), one.folder))
            for later in same[1:]:
                later.refused = f"run id {later.run_id} belongs to {same[0].folder}, which landed first"
                later.fingerprint += ":duplicate"
    return found


def read_seals(run: Path) -> tuple[dict[str, Seal], list[str]]:
    """The seals of a run, and what is wrong with the seal file itself.

    The first seal of a path counts: raw is never landed twice, so a later one cannot bless an edit.
    """
    path = run / SEAL_FILE
    if not path.exists():
        return {}, ["no seal.jsonl: nothing of this run has landed"]
    seals: dict[str, Seal] = {}
    faults = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        try:
            seal = msgspec.json.decode(line, type=Seal)
        except msgspec.MsgspecError as error:
            faults.append(f"seal.jsonl line {number}: {error}")
            continue
        if seal.path in seals:
            if seal.sha256 != seals[seal.path].sha256:
                faults.append(f"seal.jsonl line {number}: {seal.path} is sealed twice with different hashes")
            continue
        seals[seal.path] = seal
    return seals, faults


def _first_landed(run: Path) -> str:
    seals, _ = read_seals(run)
    return min((seal.landed_at for seal in seals.values()), default="9999")


def _folders(path: Path) -> list[os.DirEntry[str]]:
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return sorted((one for one in entries if one.is_dir()), key=lambda one: one.name)


def _fingerprint(run: str) -> tuple[dict[str, int], str]:
    sizes: dict[str, int] = {}
    stamps = []
    waiting = [(run, "")]
    while waiting:
        folder, prefix = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, f"{prefix}{entry.name}/"))
                elif not entry.name.endswith(UNLANDED):
                    stat = entry.stat()
                    name = prefix + entry.name
                    sizes[name] = stat.st_size
                    stamps.append(
                        f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}\0{stat.st_ino}"
                    )
    stamps.sort()
    return sizes, hashlib.blake2b("\n".join(stamps).encode(), digest_size=16).hexdigest()
