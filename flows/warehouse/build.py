"""Builds the warehouse beside the published one, judges it, and swaps it in whole."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from contracts.errors import BadInput, BuildFailed
from flows.warehouse.dbt import PROJECT, DbtProcess

DATABASE = "weighbridge.duckdb"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class BuildResult:
    """A published build.

    runs: under raw; new_runs: read by this build; rows: measured rows; standings: rows by standing;
    quarantined_lines: in the whole warehouse; seconds: by step.
    """

    database: Path
    runs: int
    new_runs: int
    removed_runs: int
    rows: int
    standings: dict[str, int]
    quarantined_lines: int
    refused_files: int
    raw_bytes: int
    is_full: bool
    seconds: dict[str, float] = field(default_factory=dict)


def build_warehouse(
    raw: Path,
    warehouse: Path,
    on_event: Tell | None = None,
    *,
    is_full: bool = False,
    on_loaded: Callable[[Path], None] | None = None,
) -> BuildResult:
    """Load what changed under `raw`, run dbt with its tests, check the contract, and publish.

    on_event: told of every step, in words. is_full: forget what
    earlier builds read, and hash and read all of raw again. on_loaded: called with the database under construction
    when dbt is done, before the contract is checked.

    Raises BadInput when raw is not a folder, BuildFailed when dbt or a reconciliation fails, PublicationRefused when a
    row is in gated_rows that must not be there. In each case the published database stays as it was.
    """
    raw, warehouse = Path(raw), Path(warehouse)
    if not raw.is_dir():
        raise BadInput(
            f"{raw} is not a folder", next_step="give the folder that holds <campaign>/<run_id>/ with --raw"
        )
    warehouse.mkdir(parents=True, exist_ok=True)
    say = on_event or (lambda text: None)
    seconds: dict[str, float] = {}
    with _locked(warehouse), _scratch(warehouse) as folder:
        started = time.monotonic()
        database = folder / DATABASE
        published = warehouse / DATABASE
        fingerprint = project_fingerprint()
        is_full = is_full or not _take_base(published, database, fingerprint)
        with DbtProcess(folder, warehouse.resolve() / ".dbt") as dbt:
            from flows.warehouse.load import load

            say("reading raw")
            loaded = load(
                raw,
                database,
                warehouse / "evidence",
                fingerprint,
                lambda done, size: say(f"{done / 1e6:,.0f} of {size / 1e6:,.0f} MB of raw read"),
            )
            seconds["load"] = time.monotonic() - started
            say(f"{loaded.new} of {loaded.runs} runs read, {loaded.bytes / 1e6:,.1f} MB")
            started = time.monotonic()
            arguments = ["build", "--threads", "2", "--fail-fast", "--exclude-resource-type", "unit_test"]
            if not is_full:
                # Views and seeds are as the base has them: the project is the same, by its fingerprint.
                arguments += ["--exclude-resource-type", "seed", "--exclude", "config.materialized:view"]
            # Needed after dbt, slow to import, and this process now only waits.
            threading.Thread(
                target=importlib.import_module, args=["contracts.publication"], daemon=True
            ).start()
            dbt.run(arguments, say)
        seconds["dbt"] = time.monotonic() - started
        started = time.monotonic()
        if on_loaded:
            on_loaded(database)
        say("checking the publication contract")
        from flows.warehouse.check import check_database

        summary = check_database(database)
        seconds["check"] = time.monotonic() - started
        os.replace(database, published)
        if is_full or loaded.removed:
            from flows.warehouse.load import sweep_evidence

            sweep_evidence(published, warehouse / "evidence")
    say(f"published {published}")
    return BuildResult(
        database=published,
        runs=loaded.runs,
        new_runs=loaded.new,
        removed_runs=loaded.removed,
        raw_bytes=loaded.bytes,
        is_full=is_full,
        seconds=seconds,
        **summary,
    )


def project_fingerprint() -> str:
    """A hash of everything that decides what the same raw becomes: the dbt project, contracts, this package."""
    root = PROJECT.parent
    digest = hashlib.sha256()
    for folder, pattern in (
        (PROJECT / "models", "*.*"),
        (PROJECT / "macros", "*.sql"),
        (PROJECT / "seeds", "*.csv"),
        (PROJECT / "tests", "*.sql"),
        (PROJECT, "*.yml"),
        (root / "contracts", "*.py"),
        (root / "flows" / "warehouse", "*.py"),
    ):
        paths = folder.glob(pattern) if folder == PROJECT else folder.rglob(pattern)
        for path in sorted(paths):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _take_base(published: Path, database: Path, fingerprint: str) -> bool:
    """Copy the published database as the base of an incremental build; False where it cannot be one."""
    if not published.exists():
        return False
    import duckdb

    shutil.copyfile(published, database)
    try:
        with duckdb.connect(str(database), read_only=True) as connection:
            found = connection.execute("select fingerprint from raw.meta").fetchall()
    except duckdb.Error:
        found = []
    if found and found[0][0] == fingerprint:
        return True
    # Another version of the project, or not one of ours: raw is the truth, and everything is read again.
    database.unlink()
    return False


@contextmanager
def _locked(warehouse: Path) -> Iterator[None]:
    with (warehouse / ".lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BuildFailed(
                "another build of this warehouse is running",
                evidence=str(warehouse / ".lock"),
                next_step="wait for it, or build into another folder with --warehouse",
            ) from error
        yield


@contextmanager
def _scratch(warehouse: Path) -> Iterator[Path]:
    folder = warehouse / "next"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
