"""Imported rows in raw: sealed like everything else, nothing invented, nothing half-read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contracts.errors import BadInput
from contracts.records import Cell, Counters, ImportedResult, Request, RunStart, Telemetry, Window
from flows.importers import import_files
from flows.importers.land import LEFT_OUT, without_texts
from flows.landing import RunFolder, read_records

FILES = Path(__file__).resolve().parents[2] / "fixtures" / "results"


def test_a_row_lands_with_its_tool_files_and_seals(tmp_path: Path) -> None:
    (run,) = import_files([FILES / "vllm-detailed.json"], tmp_path, campaign="theirs")
    assert run.path.parent == tmp_path / "theirs"
    run.verify()
    (start,) = read_records(run.path / "run_start.jsonl", RunStart)
    assert (start.source, start.model) == ("imported", "acme/lion-1b")
    assert start.importer is not None and start.importer["tool"] == "vllm bench serve"
    assert start.price["usd_per_gpu_hour"] is None
    (cell,) = read_records(run.path / "cells/c000.jsonl", Cell)
    assert (cell.concurrency, cell.planned_requests) == (2, 4)
    (result,) = read_records(run.path / "imported/c000.jsonl", ImportedResult)
    assert result.headline["ttft_mean_ms"] == 250.0


def test_prompts_answers_and_keys_never_enter_raw(tmp_path: Path) -> None:
    (run,) = import_files([FILES / "vllm-detailed.json"], tmp_path)
    given, kept = (
        json.loads(path.read_text())
        for path in (FILES / "vllm-detailed.json", run.path / "files/vllm-detailed.json")
    )
    assert given["generated_texts"] == ["a b c d e"] * 4
    assert kept == {**given, "generated_texts": LEFT_OUT}
    report = {
        "api_key": "secret",
        "output": {"tokens": 4},
        "requests": [{"prompt": "words", "output": "more", "prompt_tokens": 1}],
    }
    assert without_texts(report) == {
        "api_key": LEFT_OUT, "output": {"tokens": 4}, "requests": [{"prompt": LEFT_OUT, "output": LEFT_OUT, "prompt_tokens": 1}],
    }  # fmt: skip


def test_both_halves_of_a_result_are_kept(tmp_path: Path) -> None:
    (run,) = import_files([FILES / "aiperf-summary.json", FILES / "aiperf-records.jsonl"], tmp_path)
    assert sorted(path.name for path in (run.path / "files").iterdir()) == [
        "aiperf-records.jsonl",
        "aiperf-summary.json",
    ]


def test_requests_without_a_clock_keep_their_own_latencies_only(tmp_path: Path) -> None:
    (run,) = import_files([FILES / "vllm-detailed.json"], tmp_path)
    requests = read_records(run.path / "requests/c000.jsonl", Request)
    assert [request.first_token_ns for request in requests] == [10**8, 2 * 10**8, 3 * 10**8, 4 * 10**8]
    assert all(request.sent_ns == 0 and request.sent_at is None for request in requests)
    assert not (run.path / "windows").exists()  # no common clock: a window would be invented


def test_requests_on_one_clock_get_a_window_without_a_certificate(tmp_path: Path) -> None:
    files = [
        FILES / name for name in ("aiperf-summary.json", "aiperf-records.jsonl", "aiperf-telemetry.jsonl")
    ]
    (run,) = import_files(files, tmp_path)
    (window,) = read_records(run.path / "windows/c000.jsonl", Window)
    assert window.closed_ns - window.opened_ns == 230_000_000
    assert window.loop_lag_p99_ms is None and window.drift_ms_per_min is None
    assert len(read_records(run.path / "telemetry/c000.jsonl", Telemetry)) == 4


def test_an_aggregate_file_gets_no_requests(tmp_path: Path) -> None:
    (run,) = import_files([FILES / "bench-c32.json"], tmp_path)
    assert not (run.path / "requests").exists()


def test_rows_of_one_server_are_one_run_and_of_two_are_two(tmp_path: Path) -> None:
    runs = import_files([FILES / "vllm-sweep-list.json"], tmp_path)
    assert [len(list((run.path / "cells").iterdir())) for run in runs] == [2, 1]


def test_dumps_land_as_counters_of_the_rows_they_speak_of(tmp_path: Path) -> None:
    files = [FILES / f"bench-c{concurrency}.json" for concurrency in (1, 32, 128)]
    (run,) = import_files(
        files,
        tmp_path,
        metrics_before=FILES / "h200-metrics0.txt",
        metrics_after=FILES / "h200-metrics1.txt",
    )
    results = {path.stem: read_records(path, ImportedResult)[0] for path in (run.path / "imported").iterdir()}
    with_counters = {results[path.stem].source_file for path in (run.path / "counters").iterdir()}
    assert with_counters == {"bench-c32.json", "bench-c128.json"}
    counters = read_records(next((run.path / "counters").iterdir()), Counters)
    assert [record.at for record in counters] == ["before", "after"]
    assert (counters[1].prompt_tokens, counters[1].cached_prompt_tokens) == (659456.0, 135600.0)
    assert (run.path / "files/h200-metrics1.txt").exists()


def test_one_refused_file_keeps_all_of_them_out_of_raw(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        import_files([FILES / "vllm-detailed.json", FILES / "torn.jsonl"], tmp_path / "raw")
    assert not (tmp_path / "raw").exists()


def test_a_run_folder_is_whole_for_its_recovery(tmp_path: Path) -> None:
    for name in ("llmperf-individual.json", "genai-perf-profile.json", "inferencex-agg.json"):
        for run in import_files([FILES / name], tmp_path):
            assert RunFolder(run.path).recover() == []
