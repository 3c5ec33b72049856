"""Loads what changed under raw into the schema `raw` of the database under construction.

dbt reads that schema as its sources. Small kinds are tables; requests stay in Parquet under `<warehouse>/evidence/`
(they outweigh everything else, and a copy of the database must stay cheap) and are seen through two views:
`raw.request`, all of them, and `raw.request_new`, those of this build, which the incremental models read.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from contracts.fields import fields_of
from contracts.records import KINDS
from flows.warehouse.digest import Digest, digest_runs
from flows.warehouse.scan import RunFound, scan
from flows.warehouse.shapes import shape

SMALL_KINDS = tuple(kind for kind in KINDS if kind != "request")

_FILES = """
create table if not exists raw.files (
    file varchar, campaign varchar, run_id varchar, path varchar, kind varchar, cell_id varchar, state varchar,
    reason varchar, sealed_lines bigint, staged_lines bigint, quarantined_lines bigint, bytes bigint, sha256 varchar,
    sealed_sha256 varchar, landed_at varchar
);
create table if not exists raw.quarantine (
    campaign varchar, run_id varchar, cell_id varchar, kind varchar, file varchar, line bigint, reason varchar,
    detail varchar
);
create table if not exists raw.cell_chunks (
    run_id varchar, cell_id varchar, gap_count bigint, gap_mean_ms double, gap_zero_count bigint, gap_p50_ms double,
    gap_p90_ms double, gap_p99_ms double
);
create table if not exists raw.run_loads (
    folder varchar, campaign varchar, run_id varchar, fingerprint varchar, load_id varchar, refused varchar
);
create table if not exists raw.meta (fingerprint varchar, generation varchar);
create or replace table raw.changed_runs (run_id varchar, is_present boolean);
"""


@dataclass
class Loaded:
    """What a load did. runs: all under raw; new: read now; removed: gone since. lines and bytes read now."""

    runs: int
    new: int
    removed: int
    lines: int = 0
    quarantined: int = 0
    bytes: int = 0


def load(
    raw: Path,
    database: Path,
    evidence: Path,
    fingerprint: str,
    on_progress: Callable[[int, int], None] | None = None,
) -> Loaded:
    """Bring the schema `raw` of `database` up to what lies under `raw`.

    evidence: where Parquet files go, in a folder of the database's generation: a full build begins a new one, and
    the files of the published database stay as they are until it is replaced. fingerprint: of the project, kept in
    the database. Runs whose own fingerprint is unchanged are left alone.
    """
    found = scan(raw)
    with duckdb.connect(str(database)) as connection:
        connection.execute("create schema if not exists raw")
        connection.execute(_FILES)
        for kind in SMALL_KINDS:
            connection.execute(f"create table if not exists raw.{kind} ({_columns(kind)})")
        meta = connection.execute("select generation from raw.meta").fetchall()
        generation = meta[0][0] if meta else uuid.uuid4().hex[:12]
        if not meta:
            connection.execute("insert into raw.meta values ($1, $2)", [fingerprint, generation])
        evidence = evidence / generation
        evidence.mkdir(parents=True, exist_ok=True)
        known = dict(connection.execute("select folder, fingerprint from raw.run_loads").fetchall())
        new = [run for run in found if known.get(run.folder) != run.fingerprint]
        removed = sorted(known.keys() - {run.folder for run in found})
        _forget(connection, [run.folder for run in new if run.folder in known] + removed)
        changed = [(run.run_id, True) for run in new] + [(name.partition("/")[2], False) for name in removed]
        if changed:
            connection.executemany("insert into raw.changed_runs values (?, ?)", changed)
        load_id = uuid.uuid4().hex[:12]
        digest = digest_runs(raw, new, evidence, load_id, on_progress)
        _insert(connection, new, digest, load_id)
        _view_requests(connection, evidence, digest)
    return Loaded(
        runs=len(found),
        new=len(new),
        removed=len(removed),
        lines=sum(file.staged_lines or 0 for file in digest.files) + len(digest.quarantine),
        quarantined=len(digest.quarantine),
        bytes=sum(file.bytes or 0 for file in digest.files),
    )


def sweep_evidence(database: Path, evidence: Path) -> None:
    """Delete the Parquet files that the published database does not need: other generations, forgotten loads."""
    with duckdb.connect(str(database), read_only=True) as connection:
        generation = connection.execute("select generation from raw.meta").fetchall()[0][0]
        needed = {
            row[0] for row in connection.execute("select distinct load_id from raw.run_loads").fetchall()
        }
    for folder in evidence.iterdir():
        if folder.name != generation:
            shutil.rmtree(folder, ignore_errors=True)
    for path in (evidence / generation).glob("*.parquet"):
        if path.stem.split("-")[1] not in needed:
            path.unlink()


def _columns(kind: str) -> str:
    types = {"bool": "boolean", "int": "bigint", "float": "double", "text": "varchar", "json": "json"}
    columns = [f'"{field.name}" {types[field.type]}' for field in fields_of(kind)]
    return ", ".join([*columns, "file varchar", "line bigint"])


def _forget(connection: duckdb.DuckDBPyConnection, folders: list[str]) -> None:
    if not folders:
        return
    for table in (*SMALL_KINDS, "files", "quarantine"):
        connection.execute(
            f"delete from raw.{table} where campaign || '/' || run_id in (select unnest($folders))",
            {"folders": folders},
        )
    ids = [folder.partition("/")[2] for folder in folders]
    connection.execute("delete from raw.cell_chunks where run_id in (select unnest($ids))", {"ids": ids})
    connection.execute(
        "delete from raw.run_loads where folder in (select unnest($folders))", {"folders": folders}
    )


def _insert(connection: duckdb.DuckDBPyConnection, new: list[RunFound], digest: Digest, load_id: str) -> None:
    for kind in SMALL_KINDS:
        if paths := digest.parquet.get(kind):
            connection.execute(f"insert into raw.{kind} select * from read_parquet($paths)", {"paths": paths})
            for path in paths:
                Path(path).unlink()
    _insert_rows(connection, "files", [asdict(file) for file in digest.files])
    names = ("campaign", "run_id", "cell_id", "kind", "file", "line", "reason", "detail")
    _insert_rows(connection, "quarantine", [dict(zip(names, row, strict=True)) for row in digest.quarantine])
    _insert_rows(connection, "cell_chunks", digest.chunks)
    _insert_rows(
        connection,
        "run_loads",
        [
            {
                "folder": run.folder, "campaign": run.campaign, "run_id": run.run_id,
                "fingerprint": run.fingerprint, "load_id": load_id, "refused": run.refused,
            }
            for run in new
        ],
    )  # fmt: skip


def _insert_rows(connection: duckdb.DuckDBPyConnection, table: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    batch = pa.Table.from_pylist(rows)
    connection.register("rows_to_insert", batch)
    connection.execute(f"insert into raw.{table} by name select * from rows_to_insert")
    connection.unregister("rows_to_insert")


def _view_requests(connection: duckdb.DuckDBPyConnection, evidence: Path, digest: Digest) -> None:
    kinds = dict(
        connection.execute(
            "select table_name, table_type from information_schema.tables"
            " where table_schema = 'raw' and table_name in ('request', 'request_new')"
        ).fetchall()
    )
    for name, kind in kinds.items():
        connection.execute(f"drop {'view' if kind == 'VIEW' else 'table'} raw.{name}")
    everything = [str(path) for path in sorted(evidence.resolve().glob("request-*.parquet"))]
    _view(connection, "request", [f"{evidence.resolve()}/request-*.parquet"] if everything else [])
    _view(
        connection, "request_new", [str(Path(path).resolve()) for path in digest.parquet.get("request", [])]
    )


def _view(connection: duckdb.DuckDBPyConnection, name: str, paths: list[str]) -> None:
    if not paths:
        schema = ", ".join(f'"{field.name}" {_duckdb_type(field.type)}' for field in shape("request").schema)
        connection.execute(f"create table raw.{name} ({schema})")
        return
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    # A run that was read again leaves its older rows in an older file: only the rows of its last load count.
    connection.execute(
        f"create view raw.{name} as select requests.* exclude (filename)"
        f" from read_parquet([{listed}], filename = true) as requests"
        " semi join raw.run_loads as loads on requests.run_id = loads.run_id"
        " and requests.campaign = loads.campaign"
        " and split_part(parse_filename(requests.filename), '-', 2) = loads.load_id"
    )


def _duckdb_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_duckdb_type(kind.value_type)}[]"
    return {pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}.get(kind, "varchar")
