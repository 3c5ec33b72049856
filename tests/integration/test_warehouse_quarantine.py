"""Broken raw: nothing is lost unseen, nothing broken publishes, and the build goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.landing import RunFolder
from flows.synthetic import SyntheticCell, SyntheticRun, needle_cell, write_run
from flows.warehouse import build_warehouse
from flows.warehouse.load import load
from flows.warehouse.reading import FileReading, Place, as_table, read_file

REQUESTS = "requests/sweep-c4.jsonl"
SMALL = SyntheticCell(requests=16, output_tokens=12, warmup_requests=0)


def _edit(path: Path, change: Callable[[list[bytes]], None]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))


def _set(line: bytes, **fields: Any) -> bytes:
    return json.dumps(json.loads(line) | fields).encode() + b"\n"


def _load(raw: Path, folder: Path) -> duckdb.DuckDBPyConnection:
    folder.mkdir(exist_ok=True)
    load(raw, folder / "x.duckdb", folder / "evidence", "test")
    return duckdb.connect(str(folder / "x.duckdb"), read_only=True)


def test_three_broken_lines_are_quarantined_and_the_rest_is_built(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write_run(raw, SyntheticRun("good"))
    bad = write_run(raw, SyntheticRun("bad"))

    def change(lines: list[bytes]) -> None:
        lines[-1] = lines[-1][: len(lines[-1]) // 2]
        lines[30] = lines[30][:1] + lines[30][5:]
        lines[10] = _set(lines[10], surprise=1)

    _edit(bad.path / REQUESTS, change)
    result = build_warehouse(raw, tmp_path / "warehouse")
    with duckdb.connect(str(result.database), read_only=True) as connection:
        found = connection.execute(
            "select file, line, reason from staging.stg_quarantine order by line"
        ).fetchall()
        file = f"synthetic/bad/{REQUESTS}"
        assert found == [(file, 11, "unknown_field"), (file, 31, "not_json"), (file, 68, "cut_line")]
        counts = connection.execute(
            "select sealed_lines, staged_lines, quarantined_lines from staging.stg_files where file = ?",
            [file],
        ).fetchall()
        assert counts == [(68, 65, 3)]
        staged = connection.execute(
            "select count(*) from staging.stg_requests where file = ?", [file]
        ).fetchall()
        assert staged == [(65,)]
        rows = dict(connection.execute("select row_id, standing from marts.measured_rows").fetchall())
        assert rows["bad/sweep-c4"] == "invalid"
        assert rows["good/sweep-c4"] == "publishable"
        assert rows["bad/fresh-4096"] == "publishable"
        gated = connection.execute("select row_id from marts.gated_rows order by 1").fetchall()
        assert ("bad/sweep-c4",) not in gated


LINES: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("nul_bytes", lambda line: line[:-1] + b"\x00" * 20 + b"\n"),
    ("not_utf8", lambda line: line.replace(b"sweep-c4/3", b"sweep-c4/\xff3")),
    ("wrong_type", lambda line: _set(line, prompt_tokens=1.7)),
    ("wrong_type", lambda line: _set(line, prompt_tokens="512")),
    ("wrong_type", lambda line: _set(line, outcome="fine")),
    ("wrong_type", lambda line: _set(line, chunk_gap_ns=[1, 2.5])),
    ("wrong_type", lambda line: _set(line, chunk_gap_ns=["1"])),
    ("wrong_type", lambda line: _set(line, chunk_gap_ns=[[1], 2])),
    ("wrong_type", lambda line: _set(line, chunk_gap_ns=[10**30])),
    ("not_json", lambda line: _set(line, retry_after_s=float("nan"))),
    ("not_json", lambda line: _set(line, retry_after_s=float("inf"))),
    ("not_json", lambda line: b"[1, 2]\n"),
    ("not_json", lambda line: b"[" * 5000 + b"\n"),
    ("blank_line", lambda line: b"\n"),
    ("missing_field", lambda line: line.replace(b'"outcome":"ok",', b"")),
    ("unknown_field", lambda line: _set(line, colour="red")),
    ("unknown_record", lambda line: _set(line, record="reqest")),
    ("unknown_record", lambda line: _set(line, record=[])),
    ("unknown_record", lambda line: _set(line, record={"a": 1})),
    ("misplaced_record", lambda line: _set(line, record="window")),
    ("unknown_schema_version", lambda line: _set(line, schema_version=0)),
    ("unknown_schema_version", lambda line: _set(line, schema_version=2)),
    ("foreign_campaign", lambda line: _set(line, campaign="another")),
    ("foreign_run", lambda line: _set(line, run_id="another")),
    ("foreign_cell", lambda line: _set(line, cell_id="another")),
    ("duplicate_request_id", lambda line: _set(line, request_id="r/sweep-c4/1")),
    ("out_of_range", lambda line: _set(line, prompt_tokens=-1)),
    ("out_of_range", lambda line: _set(line, prompt_tokens=10**30)),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "change"), LINES, ids=[f"{i}-{one[0]}" for i, one in enumerate(LINES)])
def test_a_wrong_line_is_quarantined_with_reason_file_and_line(
    tmp_path: Path, reason: str, change: Callable[[bytes], bytes]
) -> None:
    run = write_run(tmp_path / "raw", SyntheticRun("r", cells=(SMALL,)))
    _edit(run.path / REQUESTS, lambda lines: lines.__setitem__(3, change(lines[3])))
    with _load(tmp_path / "raw", tmp_path / "w") as connection:
        found = connection.execute("select file, line, reason from raw.quarantine").fetchall()
        assert found == [(f"synthetic/r/{REQUESTS}", 4, reason)]
        assert connection.execute("select count(*) from raw.request").fetchall() == [(15,)]
        state = connection.execute("select state from raw.files where path = ?", [REQUESTS]).fetchall()
        assert state == [("edited",)]


def test_a_whole_folder_under_another_campaign_is_quarantined(tmp_path: Path) -> None:
    run = write_run(tmp_path / "raw", SyntheticRun("r", cells=(SMALL,)))
    moved = tmp_path / "raw" / "other" / "r2"
    moved.parent.mkdir()
    shutil.copytree(run.path, moved)
    with _load(tmp_path / "raw", tmp_path / "w") as connection:
        reasons = connection.execute("select distinct reason from raw.quarantine").fetchall()
        assert reasons == [("foreign_campaign",)]
        assert connection.execute("select count(*) from raw.run_start").fetchall() == [(1,)]
        _assert_reconciled(connection)


def test_a_run_id_in_two_campaigns_is_refused_where_it_landed_later(tmp_path: Path) -> None:
    write_run(tmp_path / "raw", SyntheticRun("r", campaign="first", cells=(SMALL,)))
    write_run(tmp_path / "raw", SyntheticRun("r", campaign="another", cells=(SMALL,)))
    with _load(tmp_path / "raw", tmp_path / "w") as connection:
        assert connection.execute("select campaign from raw.run_start").fetchall() == [("first",)]
        refused = connection.execute(
            "select distinct campaign, state, reason from raw.files where state = 'refused'"
        ).fetchall()
        assert refused == [("another", "refused", "run id r belongs to first/r, which landed first")]


def test_unsealed_missing_and_strange_files_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "raw", SyntheticRun("r", cells=(SMALL,)))
    (run.path / "requests" / "sweep-c9.jsonl").write_text("{}\n")
    (run.path / "windows" / "sweep-c4.jsonl").unlink()
    run.land_records("surprises/x.jsonl", [])
    with _load(tmp_path / "raw", tmp_path / "w") as connection:
        states = dict(
            connection.execute("select path, state from raw.files where state != 'loaded'").fetchall()
        )
        assert states == {
            "requests/sweep-c9.jsonl": "unsealed",
            "windows/sweep-c4.jsonl": "missing",
            "surprises/x.jsonl": "stranger",
        }


def test_an_edit_cannot_be_blessed_by_a_second_seal(tmp_path: Path) -> None:
    run = write_run(tmp_path / "raw", SyntheticRun("r", cells=(SMALL,)))
    _edit(run.path / REQUESTS, lambda lines: lines.__setitem__(2, _set(lines[2], output_tokens=11)))
    part = run.path / (REQUESTS + ".part")
    (run.path / REQUESTS).rename(part)
    RunFolder(run.path).land(REQUESTS)
    with _load(tmp_path / "raw", tmp_path / "w") as connection:
        found = connection.execute("select state from raw.files where path = ?", [REQUESTS]).fetchall()
        assert found == [("edited",)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_line_is_lost_whatever_stands_in_a_file(tmp_path: Path, data: st.DataObject) -> None:
    good = _good_lines(tmp_path)
    lines = []
    for line in good:
        how = data.draw(st.sampled_from(["keep", "keep", "keep", "bytes", "cut", "splice", "field"]))
        if how == "bytes":
            line = data.draw(st.binary(max_size=60)).replace(b"\n", b"") + b"\n"
        elif how == "cut":
            line = line[: data.draw(st.integers(0, len(line) - 1))].rstrip(b"\n") + b"\n"
        elif how == "splice":
            at = data.draw(st.integers(0, len(line) - 2))
            line = (
                line[:at] + data.draw(st.binary(min_size=1, max_size=4)).replace(b"\n", b"") + line[at + 1 :]
            )
        elif how == "field":
            name = data.draw(st.sampled_from(list(json.loads(line))))
            junk = st.one_of(
                st.none(), st.integers(), st.text(max_size=5), st.booleans(), st.lists(st.integers())
            )
            line = _set(line, **{name: data.draw(junk)})
        lines.append(line)
    content = b"".join(lines)
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    path = tmp_path / "fuzzed.jsonl"
    path.write_bytes(content)
    place = Place("f", "synthetic", "r", "request", "sweep-c4")
    reading = FileReading()
    table = as_table("request", list(read_file(path, place, set(), reading)))
    rows = table.num_rows
    expected = content.count(b"\n") + (0 if content.endswith(b"\n") or not content else 1)
    assert rows == reading.rows
    assert reading.rows + len(reading.quarantined) == reading.lines == expected
    numbers = table.column("line").to_pylist()
    assert sorted(numbers + [one.line for one in reading.quarantined]) == list(range(1, expected + 1))


def _good_lines(tmp_path: Path) -> list[bytes]:
    raw = tmp_path / "good"
    if not raw.exists():
        write_run(raw, SyntheticRun("r", cells=(SMALL, needle_cell())))
    return (raw / "synthetic" / "r" / REQUESTS).read_bytes().splitlines(keepends=True)


def _assert_reconciled(connection: duckdb.DuckDBPyConnection) -> None:
    wrong = connection.execute(
        "select * from raw.files where state in ('loaded', 'edited')"
        " and sealed_lines != staged_lines + quarantined_lines"
    ).fetchall()
    assert wrong == []
