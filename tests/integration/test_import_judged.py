"""Other people's results judged by the same screens: every fixture and every public file, in one warehouse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.importers import import_files
from flows.importers.judge import judge_runs
from flows.landing import RunFolder

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "tests" / "fixtures" / "results"
SHARED = ROOT.parent / "shared" / "cases" / "results"
# Files that are one result are imported together; what is refused is tested in tests/unit/importers.
TOGETHER = [
    ("bench-c1.json", "bench-c32.json", "bench-c128.json"),
    ("aiperf-summary.json", "aiperf-records-two-of-four.jsonl"),
    ("llmperf-summary.json", "llmperf-individual.json"),
    ("vllm-all-failed.json",),
    ("vllm-two-of-four-failed.json",),
    ("vllm-speculative.json",),
    ("vllm-sweep-list.json",),
    ("vllm-detailed.json",),
    ("sglang-two-lines.jsonl",),
    ("sglang-retokenised.jsonl",),
    ("sglang-not-streamed.jsonl",),
    ("guidellm-0.2.json",),
    ("guidellm-v2-mock.json",),
    ("inference-perf-stage_0_lifecycle.json",),
    ("inference-perf-stage_1_overload.json",),
    ("inference-perf-prometheus-zeros.json",),
    ("llmperf-errors.json",),
    ("inferencex-agg.json",),
    ("genai-perf.json",),
    ("genai-perf-profile.json",),
    ("trtllm-colon.json",),
    ("aiperf-telemetry.jsonl",),
]
PUBLIC_TOGETHER = [("01", "02", "05"), ("18", "19")]

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rows, Path]:
    """source file -> its rows, all judged in one build; and the database's folder."""
    raw = tmp_path_factory.mktemp("imports")
    runs: list[RunFolder] = []
    for names in TOGETHER:
        dumps = {}
        if names[0].startswith("bench"):
            dumps = {
                "metrics_before": FILES / "h200-metrics0.txt",
                "metrics_after": FILES / "h200-metrics1.txt",
            }
        runs += import_files([FILES / name for name in names], raw / "raw", **dumps)
    if SHARED.is_dir():
        groups = [*PUBLIC_TOGETHER, *((path.name[:2],) for path in sorted(SHARED.iterdir()))]
        for group in groups:
            paths = [next(SHARED.glob(f"{start}-*")) for start in group]
            runs += import_files(paths, raw / "raw", campaign="public" if len(group) == 1 else "public-pairs")
    rows: Rows = {}
    for row in judge_runs(runs, raw=raw / "raw", warehouse=raw / "warehouse"):
        pair = (
            "+"
            if "public-pairs" in str(next(run.path for run in runs if run.run_id in row["row_id"]))
            else ""
        )
        rows.setdefault(pair + row["source_file"], []).append(row)
    return rows, raw / "warehouse" / "weighbridge.duckdb"


def one(judged: tuple[Rows, Path], name: str) -> dict[str, Any]:
    (row,) = judged[0][name]
    return row


def test_no_imported_row_publishes(judged: tuple[Rows, Path]) -> None:
    rows, database = judged
    assert all(row["standing"] != "publishable" for found in rows.values() for row in found)
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.sql("select count(*) from marts.gated_rows").fetchall() == [(0,)]


def test_the_contaminated_cells_of_the_h200_are_held(judged: tuple[Rows, Path]) -> None:
    for concurrency in (32, 128):
        row = one(judged, f"bench-c{concurrency}.json")
        assert row["standing"] == "held"
        assert row["screens"]["cache_accounting"] == "fail"
        assert row["screens"]["nonce_audit"] == "fail"
    first = one(judged, "bench-c1.json")["screens"]
    assert (first["cache_accounting"], first["nonce_audit"]) == ("unknown", "unknown")
    assert first["sample_size"] == "fail"  # four requests


@pytest.mark.parametrize(
    ("name", "screen"),
    [
        ("vllm-all-failed.json", "population"),
        ("vllm-two-of-four-failed.json", "population"),
        ("llmperf-errors.json", "population"),
        ("aiperf-summary.json", "population"),  # two of four records
        ("vllm-speculative.json", "sample_size"),
        ("sglang-retokenised.jsonl", "token_reconciliation"),
        ("sglang-not-streamed.jsonl", "stream_granularity"),
        ("sglang-not-streamed.jsonl", "clock_sanity"),
        ("inference-perf-stage_1_overload.json", "little_law"),
    ],
)
def test_what_a_file_itself_denies_fails(judged: tuple[Rows, Path], name: str, screen: str) -> None:
    row = judged[0][name][0]
    assert row["screens"][screen] == "fail"
    assert row["standing"] in ("held", "invalid")


def test_a_label_that_is_not_the_load_fails_and_a_true_one_does_not(judged: tuple[Rows, Path]) -> None:
    mislabelled, honest = judged[0]["sglang-two-lines.jsonl"]
    assert mislabelled["screens"]["declared_config"] == "fail"
    assert honest["screens"]["declared_config"] != "fail"
    assert honest["standing"] == "provisional"


@pytest.mark.parametrize(
    "name", ["inferencex-agg.json", "genai-perf.json", "inference-perf-prometheus-zeros.json"]
)
def test_what_a_file_cannot_show_is_unknown(judged: tuple[Rows, Path], name: str) -> None:
    row = judged[0][name][0]
    assert row["standing"] == "provisional"
    for screen in (
        "needle_gate",
        "roofline",
        "client_lag",
        "steady_state",
        "server_health",
        "declared_config",
    ):
        assert row["screens"][screen] == "unknown"


def test_a_mock_is_invalid(judged: tuple[Rows, Path]) -> None:
    assert one(judged, "guidellm-v2-mock.json")["standing"] == "invalid"


def test_complete_per_request_data_is_not_held_for_what_it_lacks(judged: tuple[Rows, Path]) -> None:
    row = one(judged, "guidellm-0.2.json")  # three requests, no chunks recorded
    assert row["screens"]["stream_granularity"] == "unknown"
    assert row["screens"]["population"] == "pass"
    assert row["screens"]["sample_size"] == "fail"


@pytest.mark.shared_cases
def test_the_public_files_as_their_answers_say(judged: tuple[Rows, Path], shared_cases: Path) -> None:
    rows, _ = judged

    def of(start: str) -> list[dict[str, Any]]:
        return next(found for name, found in rows.items() if name.startswith(start))

    assert {row["standing"] for row in of("06-")} == {"invalid"}  # a mock server
    assert {row["standing"] for row in of("+02-")} == {"held"}  # 10 of 64 records
    assert of("+02-")[0]["screens"]["population"] == "fail"
    assert of("07-")[0]["standing"] in ("held", "invalid")  # one request of 46
    assert of("20-")[0]["screens"]["population"] == "fail"  # 49 of 150
    assert of("22-")[0]["screens"]["sample_size"] == "fail"  # n=8
    assert of("18-")[0]["standing"] == "provisional"
    assert of("09-")[0]["standing"] == "provisional"
    assert of("26-")[0]["screens"]["stream_granularity"] == "fail"  # ITL 25.9 ms, TPOT 10.0 ms
    assert of("15-")[0]["screens"]["population"] == "unknown"  # completed is all that it counts
    assert of("11-")[0]["screens"]["cache_accounting"] == "unknown"
    assert {row["screens"]["declared_config"] for row in of("15-") if row["row_in_file"] < 5} == {"fail"}


def test_the_command_prints_rows_as_json_and_refuses_before_it_writes(tmp_path: Path) -> None:
    refused = CliRunner().invoke(
        app, ["import", str(FILES / "unknown-tool.json"), "--raw", str(tmp_path / "raw")]
    )
    assert "nearest known format" in str(refused.exception)
    assert not (tmp_path / "raw").exists()
    done = CliRunner().invoke(
        app, ["import", str(FILES / "trtllm-colon.json"), "--raw", str(tmp_path / "raw"), "--json"]
    )
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.stdout)["rows"]
    assert row["standing"] == "held"  # four requests are too few
    assert len(row["screens"]) == 16
    assert row["figures"]["e2e_mean_ms"] == 102.0
    assert (tmp_path / "raw" / "imported" / row["row_id"].split("/")[0] / "seal.jsonl").exists()
