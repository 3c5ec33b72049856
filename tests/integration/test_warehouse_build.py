"""The build: swapped in whole or not at all, incremental without differences, and refusing with words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from contracts.errors import BadInput, BuildFailed, PublicationRefused
from flows.cli import app
from flows.synthetic import SyntheticCell, SyntheticRun, needle_cell, write_run
from flows.warehouse import build_warehouse
from flows.warehouse.scan import scan

CELLS = (SyntheticCell(requests=24, output_tokens=16), needle_cell())


def _rows(database: Path, query: str) -> list[Any]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """raw and warehouse of two published runs. The tests that build further stand in the order in which they run."""
    folder = tmp_path_factory.mktemp("published")
    write_run(folder / "raw", SyntheticRun("a", cells=CELLS))
    write_run(folder / "raw", SyntheticRun("gone", cells=CELLS))
    build_warehouse(folder / "raw", folder / "warehouse")
    return folder / "raw", folder / "warehouse"


def test_a_build_that_fails_leaves_the_published_warehouse(
    built: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, warehouse = built
    before = (warehouse / "weighbridge.duckdb").read_bytes()
    from flows.warehouse import dbt

    original = dbt.DbtProcess.run
    monkeypatch.setattr(
        dbt.DbtProcess,
        "run",
        lambda self, arguments, say=None: original(self, ["build", "--select", "nowhere"], say),
    )
    with pytest.raises(BuildFailed):
        build_warehouse(raw, warehouse)
    assert (warehouse / "weighbridge.duckdb").read_bytes() == before
    assert not (warehouse / "next").exists()


def test_an_incremental_build_reads_what_changed_and_says_what_a_full_one_says(
    built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, warehouse = built
    # whoever edits the project while this test runs must not make the step a full one
    monkeypatch.setattr("flows.warehouse.build.project_fingerprint", lambda: _fingerprint(warehouse))
    write_run(raw, SyntheticRun("b", cells=CELLS))
    write_run(raw, SyntheticRun("c", recipe="bad", failure_class="kv_too_small"))
    shutil.rmtree(raw / "synthetic" / "gone")
    path = raw / "synthetic" / "a" / "windows" / "sweep-c4.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"processes":1', b'"processes":2'))
    step = build_warehouse(raw, warehouse)
    assert (step.new_runs, step.removed_runs, step.is_full) == (3, 1, False)
    full = build_warehouse(raw, tmp_path / "full")
    assert full.is_full
    for table in ("runs", "measured_rows", "gated_rows", "cost_per_token", "roofline_shares"):
        query = f"select * from marts.{table} order by 1"
        assert _rows(step.database, query) == _rows(full.database, query), table
    query = "select run_id, count(*) from staging.stg_requests group by 1 order by 1"
    assert _rows(step.database, query) == _rows(full.database, query) == [("a", 40), ("b", 40)]
    query = "select standing, standing_reason from marts.measured_rows where row_id = 'a/sweep-c4'"
    ((standing, reason),) = _rows(step.database, query)
    assert standing == "invalid"
    assert "edited: synthetic/a/windows/sweep-c4.jsonl" in reason


def test_a_row_that_must_not_be_gated_stops_the_publication_and_is_named(built: tuple[Path, Path]) -> None:
    raw, warehouse = built
    write_run(raw, SyntheticRun("real", start={"source": "measured"}, cells=CELLS))
    before = (warehouse / "weighbridge.duckdb").read_bytes()
    standings: dict[str, str] = {}

    def smuggle(database: Path) -> None:
        standings.update(_rows(database, "select row_id, standing from marts.measured_rows"))
        with duckdb.connect(str(database)) as connection:
            connection.execute(
                "update intermediate.int_row_evidence set uncached_prefill_tokens_per_s = 90000"
                " where row_id = 'real/sweep-c4'"
            )

    with pytest.raises(PublicationRefused) as refused:
        build_warehouse(raw, warehouse, on_loaded=smuggle)
    assert "real/sweep-c4 fails cache_screen" in str(refused.value)
    assert "90000" in str(refused.value)
    assert (warehouse / "weighbridge.duckdb").read_bytes() == before
    assert not (warehouse / "next").exists()
    # synthetic rows never stand beside measured ones
    assert (standings["real/sweep-c4"], standings["b/sweep-c4"]) == ("publishable", "invalid")


def _fingerprint(warehouse: Path) -> str:
    ((found,),) = _rows(warehouse / "weighbridge.duckdb", "select fingerprint from raw.meta")
    return str(found)


def test_a_second_build_of_one_warehouse_is_refused(built: tuple[Path, Path]) -> None:
    raw, warehouse = built
    from flows.warehouse.build import _locked

    with _locked(warehouse), pytest.raises(BuildFailed, match="another build"):
        build_warehouse(raw, warehouse)


def test_a_raw_folder_that_is_none_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a folder"):
        build_warehouse(tmp_path / "nothing", tmp_path / "warehouse")


def test_the_scan_notices_an_edit_that_keeps_size_and_modification_time(tmp_path: Path) -> None:
    import os

    run = write_run(tmp_path / "raw", SyntheticRun("a", cells=CELLS))
    before = scan(tmp_path / "raw")[0].fingerprint
    path = run.path / "run_start.jsonl"
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"gpus":1', b'"gpus":8'))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert scan(tmp_path / "raw")[0].fingerprint != before


def test_explain_prints_every_screen_with_what_to_do(judged: Any) -> None:
    arguments = ["explain", "third-failed/sweep-c4", "--warehouse", str(judged.warehouse)]
    text = CliRunner().invoke(app, arguments).stdout
    assert "held under strict" in text
    assert "served: fail, measured 0.671875 ok/planned, required >= 0.99" in text
    assert "next: see the failed requests' error classes" in text
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert len(found["screens"]) == 16
    population = next(one for one in found["screens"] if one["screen"] == "population")
    assert population["evidence"] == "synthetic/third-failed/requests/sweep-c4.jsonl:5"
    assert population["is_required"] is True


def test_explain_names_the_nearest_row(judged: Any) -> None:
    result = CliRunner().invoke(
        app, ["explain", "third-failed/sweep-c5", "--warehouse", str(judged.warehouse)]
    )
    assert isinstance(result.exception, BadInput)
    assert "third-failed/sweep-c4" in str(result.exception)
