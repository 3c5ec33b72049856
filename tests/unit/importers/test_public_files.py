"""The public result files that lie beside the checkout, read as their answers say. Never copied into the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.importers import ResultRow, read_files

pytestmark = pytest.mark.shared_cases


@pytest.fixture
def results(shared_cases: Path) -> Path:
    return shared_cases / "results"


def rows_of(folder: Path, *starts: str) -> list[ResultRow]:
    paths = [next(folder.glob(f"{start}-*")) for start in starts]
    return [row for group in read_files(paths)[0] for row in group]


def test_every_public_file_is_read(results: Path) -> None:
    for path in sorted(results.iterdir()):
        groups, _ = read_files([path])
        assert all(group for group in groups), path.name


def test_aiperf_summary_and_its_ten_records(results: Path) -> None:
    (row,) = rows_of(results, "01", "02", "05")
    assert row.figure("requests_ok") == 64
    assert row.figure("prompt_tokens_mean") == 100
    assert row.figure("ttft_mean_ms") == pytest.approx(30.81, abs=0.01)
    assert (row.evidence["records_found"], row.evidence["records_claimed"]) == (10, 64)
    assert len(row.requests[0].chunk_gap_ns) == 200
    assert len(row.telemetry) == 20


def test_guidellm_mock_server(results: Path) -> None:
    rows = rows_of(results, "06")
    assert len(rows) == 2
    assert all(row.evidence["is_mock"] for row in rows)


def test_guidellm_02_has_one_request_of_its_46(results: Path) -> None:
    (row,) = rows_of(results, "07")
    assert (row.evidence["records_found"], row.evidence["records_claimed"]) == (1, 47)


def test_trtllm_copy(results: Path) -> None:
    (row,) = rows_of(results, "09")
    assert row.tool == "TensorRT-LLM benchmark_serving"


def test_inference_perf_missing_metric_and_kv(results: Path) -> None:
    (zeros,), (seen,) = rows_of(results, "11"), rows_of(results, "12")
    assert "kv_usage_mean" not in zeros.headline
    assert seen.headline["kv_usage_mean"] == pytest.approx(0.0488, abs=1e-4)


def test_sglang_lengths_and_infinity(results: Path) -> None:
    first, *_ = rows_of(results, "15")
    assert first.figure("prompt_tokens_mean") == pytest.approx(508.7, abs=0.1)
    assert first.asked_prompt_tokens == 1024
    (decode_only,) = rows_of(results, "16")
    assert decode_only.figure("asked_rps") is None
    assert any("decode-only" in note for note in decode_only.notes)


def test_llmperf_errors_and_recomputed_headline(results: Path) -> None:
    (refused,) = rows_of(results, "20")
    assert refused.headline["requests_failed"] == 49
    assert refused.evidence["errors"] == {"-100": 49}
    (row,) = rows_of(results, "18", "19")
    assert len(row.requests) == 150
    assert [d["figure"] for d in row.differences] == ["itl_mean_ms"]  # another definition; all else agrees


def test_speculation_itl_against_tpot(results: Path) -> None:
    (row,) = rows_of(results, "26")
    assert (row.figure("itl_mean_ms") or 0) / (row.figure("tpot_mean_ms") or 1) == pytest.approx(
        2.59, abs=0.02
    )
    assert row.recomputed["acceptance_length"] == pytest.approx(2.61, abs=0.01)
    assert row.headline["acceptance_rate"] == pytest.approx(0.806, abs=0.001)
    (random,) = rows_of(results, "28")
    assert any("no speed-up" in note for note in random.notes)
