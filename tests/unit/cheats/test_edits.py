"""Edits of evidence: each primitive on records of a few fields, and what a reseal leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.errors import RawRefused
from flows.cheats.edits import Edit, apply, inserted, reseal
from flows.landing import RunFolder


def requests() -> list[dict[str, Any]]:
    return [
        {"index": place, "phase": "timed", "outcome": "failed" if place == 2 else "ok", "sent_ns": 100, "first_token_ns": 150,
         "chunk_gap_ns": [50, 10], "output_tokens": 4, "first_block_sha256": "aa"}
        for place in range(4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "field", "values"),
    [
        ({"set": {"output_tokens": 9}}, "output_tokens", [9, 9, 9, 9]),
        ({"where": {"outcome": "failed"}, "set": {"outcome": "ok"}}, "outcome", ["ok"] * 4),
        ({"every": 2, "scale": {"output_tokens": 2.0}}, "output_tokens", [8, 4, 8, 4]),
        ({"where": {"index": [1, 3]}, "add": {"sent_ns": 5}}, "sent_ns", [100, 105, 100, 105]),
        ({"first": 1, "set": {"output_tokens": None}}, "output_tokens", [None, 4, 4, 4]),
        ({"last": 2, "drop": True}, "index", [0, 1]),
        ({"where": {"index": 0}, "repeat": 2}, "index", [0, 0, 1, 2, 3]),
        ({"scale": {"chunk_gap_ns": 0.5}}, "chunk_gap_ns", [[25, 5]] * 4),
        (
            {"copy_from": {"first_token_ns": "sent_ns"}, "add": {"first_token_ns": 1}},
            "first_token_ns",
            [101] * 4,
        ),
    ],
)
def test_each_primitive(edit: dict[str, Any], field: str, values: list[Any]) -> None:
    assert [line[field] for line in apply(Edit(record="request", **edit), requests())] == values


def test_unique_values_differ_and_a_dotted_name_reaches_into_a_mapping() -> None:
    lines = apply(Edit(record="request", unique=["first_block_sha256"]), requests())
    assert len({line["first_block_sha256"] for line in lines}) == 4
    (start,) = apply(
        Edit(record="run_start", set={"price.source": None}), [{"price": {"key": "a", "source": "b"}}]
    )
    assert start["price"] == {"key": "a", "source": None}


def test_inserted_records_know_where_they_are() -> None:
    edit = Edit(record="telemetry", insert=[{"gpu": 0, "at_ns": 1}], times=2)
    lines = inserted(edit, {"campaign": "c", "run_id": "r", "cell_id": "x"})
    assert len(lines) == 2
    assert lines[0] == {
        "record": "telemetry", "schema_version": 1, "campaign": "c", "run_id": "r", "cell_id": "x", "gpu": 0, "at_ns": 1,
    }  # fmt: skip


def measured(tmp_path: Path) -> RunFolder:
    run = RunFolder.create(tmp_path / "measured", "cheats", "run-1")
    for name, text in (
        ("requests/x.jsonl", b'{"index":0}\n{"index":1}\n'),
        ("windows/x.jsonl", b'{"planned":2}\n'),
    ):
        run.part(name).write_bytes(text)
        run.land(name)
    return run


def test_a_lie_is_sealed_as_if_it_were_true_and_the_measurement_stays(tmp_path: Path) -> None:
    run = measured(tmp_path)
    target = RunFolder.create(tmp_path / "raw", "cheats", "run-1")
    changes = [
        (Edit(record="request", first=1, drop=True), "x", None),
        (Edit(record="window", delete_file=True), "x", None),
    ]
    assert reseal(run.path, target, changes) == ["requests/x.jsonl", "windows/x.jsonl"]
    target.verify()
    assert (target.path / "requests/x.jsonl").read_bytes() == b'{"index":1}\n'
    assert not (target.path / "windows/x.jsonl").exists()
    run.verify()


def test_tampering_breaks_the_seal(tmp_path: Path) -> None:
    run = measured(tmp_path)
    target = RunFolder.create(tmp_path / "raw", "cheats", "run-1")
    reseal(run.path, target, [(Edit(record="request", when="after_seal", last=1, drop=True), "x", None)])
    with pytest.raises(RawRefused):
        target.verify()
