"""Every format as it is read: small files of our own, expected values worked by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from contracts.errors import BadInput
from flows.importers import RefusedResult, ResultRow, UnknownResult, read_files

FILES = Path(__file__).resolve().parents[2] / "fixtures" / "results"


def rows_of(*names: str) -> list[ResultRow]:
    groups, _ = read_files([FILES / name for name in names])
    return [row for group in groups for row in group]


def row_of(*names: str) -> ResultRow:
    (row,) = rows_of(*names)
    return row


def test_vllm_headline_is_recomputed_from_saved_details() -> None:
    row = row_of("vllm-detailed.json")
    assert row.figure("ttft_mean_ms") == 250.0
    assert row.recomputed["ttft_mean_ms"] == pytest.approx(250.0)
    assert row.recomputed["tpot_mean_ms"] == pytest.approx(10.0)  # 40 ms over 5 - 1 tokens
    assert row.recomputed["e2e_mean_ms"] == pytest.approx(290.0)
    assert row.recomputed["ttft_p99_ms"] == pytest.approx(397.0)  # linear between 300 and 400 at 2.97
    assert row.differences == []
    assert "duration_s" not in row.recomputed  # this version keeps no start instants


def test_vllm_headline_that_its_own_requests_deny_is_a_difference() -> None:
    row = row_of("vllm-detailed-wrong-mean.json")
    (difference,) = row.differences
    assert difference["figure"] == "ttft_mean_ms"
    assert (difference["claimed"], difference["recomputed"]) == (125.0, pytest.approx(250.0))


def test_zeros_of_an_all_failed_file_are_absence() -> None:
    row = row_of("vllm-all-failed.json")
    assert row.headline["requests_planned"] == 4
    assert row.headline["requests_ok"] == 0
    assert not any(name.endswith("_ms") for name in row.headline)
    assert "output_tokens_per_s" not in row.headline


def test_sweep_adds_run_number_and_the_swept_server_flag() -> None:
    row = row_of("vllm-sweep-run.json")
    assert row.evidence["sweep_run"] == 0
    assert row.server_settings == {"max_num_seqs": 4}
    groups, _ = read_files([FILES / "vllm-sweep-list.json"])
    assert [len(group) for group in groups] == [2, 1]  # two runs on one server, one on another


def test_acceptance_rate_is_per_cent_and_itl_is_per_step() -> None:
    row = row_of("vllm-speculative.json")
    assert row.headline["acceptance_rate"] == pytest.approx(0.75)
    assert row.recomputed["acceptance_length"] == pytest.approx(2.5)  # 1 + 2400 / 1600
    assert (row.figure("itl_mean_ms") or 0) / (row.figure("tpot_mean_ms") or 1) == pytest.approx(2.5)


def test_max_concurrent_requests_is_kept_apart_and_never_a_figure() -> None:
    row = row_of("vllm-speculative.json")
    assert row.evidence["never_evidence"]["max_concurrent_requests"] == 4
    assert "max_concurrent_requests" not in row.headline
    assert "mean_concurrency" not in row.headline


def test_trtllm_copy_is_told_by_its_key_with_a_colon() -> None:
    row = row_of("trtllm-colon.json")
    assert row.tool == "TensorRT-LLM benchmark_serving"
    assert row.figure("e2e_mean_ms") == 102.0


def test_bare_infinity_is_no_number_and_labels_are_compared() -> None:
    first, second = rows_of("sglang-two-lines.jsonl")
    assert first.figure("asked_rps") == 4.0
    assert first.figure("prompt_tokens_mean") == 510.0  # 51,000 / 100, labelled 1,024
    assert (first.asked_prompt_tokens, first.is_fixed_length) == (1024, False)
    assert any("labelled random input length 1024" in note for note in first.notes)
    assert second.figure("asked_rps") is None
    assert second.is_fixed_length


def test_aiperf_units_stand_beside_their_values() -> None:
    row = row_of("aiperf-summary.json", "aiperf-records.jsonl")
    assert (row.tool, row.tool_version, row.model) == ("AIPerf", "0.3.0", "acme/lion-1b")
    assert len(row.requests) == 4
    assert row.requests[0].chunk_gap_ns == [30_000_000, 10_000_000, 10_000_000]
    assert row.recomputed["tpot_mean_ms"] == pytest.approx(10.0)
    assert row.recomputed["mean_concurrency"] == pytest.approx(200 / 230)  # four of 50 ms in 230 ms
    assert row.differences == []


def test_records_that_do_not_reach_the_summary_are_incomplete() -> None:
    row = row_of("aiperf-summary.json", "aiperf-records-two-of-four.jsonl")
    assert (row.evidence["records_found"], row.evidence["records_claimed"]) == (2, 4)
    assert any("incomplete" in note for note in row.notes)


def test_an_error_record_is_a_failure() -> None:
    row = row_of("aiperf-records-one-error.jsonl")
    assert [request.outcome for request in row.requests] == ["ok", "ok", "ok", "failed"]
    assert row.requests[3].http_status == 500


def test_two_gpus_of_two_hosts_with_one_index_are_two() -> None:
    row = row_of("aiperf-telemetry.jsonl")
    assert sorted({sample["gpu"] for sample in row.telemetry}) == [0, 1]
    assert row.telemetry[0]["memory_used_mb"] == 40_000.0
    merged = row_of("aiperf-summary.json", "aiperf-telemetry.jsonl")
    assert len(merged.telemetry) == 4


@pytest.mark.parametrize("name", ["genai-perf.json", "genai-perf-old-ns.json"])
def test_genai_perf_is_given_in_ms_whatever_its_unit(name: str) -> None:
    row = row_of(name)
    assert (row.tool, row.model) == ("genai-perf", "acme/lion-1b")
    assert row.figure("e2e_mean_ms") == 500.0
    assert row.figure("tpot_p50_ms") == 5.0
    assert row.figure("output_tokens_mean") == 93


def test_genai_perf_csv_with_thousands_separators() -> None:
    row = row_of("genai-perf.csv")
    assert row.figure("e2e_mean_ms") == 1500.0
    assert row.figure("request_rps") == 2.0
    assert row.figure("requests_ok") == 20


def test_genai_perf_profile_gives_requests_but_no_tokens() -> None:
    row = row_of("genai-perf-profile.json")
    assert row.recomputed["ttft_mean_ms"] == pytest.approx(50.0)  # 40 and 60
    assert "output_tokens" not in row.recomputed
    assert "tpot_mean_ms" not in row.recomputed


def test_guidellm_02_requests_agree_with_its_latencies() -> None:
    row = row_of("guidellm-0.2.json")
    assert row.recomputed["ttft_mean_ms"] == pytest.approx(100.0, abs=0.001)
    assert row.recomputed["tpot_mean_ms"] == pytest.approx(20.0, abs=0.001)  # 200 ms over 10
    assert row.figure("tpot_mean_ms") == 20.0
    assert not [d for d in row.differences if d["figure"].endswith("_ms")]


def test_guidellm_v2_on_a_mock_is_told() -> None:
    row = row_of("guidellm-v2-mock.json")
    assert row.evidence["is_mock"] is True
    assert (row.tool_version, row.figure("asked_rps"), row.figure("requests_planned")) == ("0.8.0", 2.0, 3)


def test_inference_perf_overload_is_no_point_at_its_rate() -> None:
    assert "is_overload" not in row_of("inference-perf-stage_0_lifecycle.json").evidence
    row = row_of("inference-perf-stage_1_overload.json")
    assert row.evidence["is_overload"] is True
    assert row.figure("e2e_mean_ms") == 500.0  # 0.5 s without a suffix


def test_prometheus_zeros_are_a_missing_metric() -> None:
    zeros, seen = row_of("inference-perf-prometheus-zeros.json"), row_of("inference-perf-prometheus-kv.json")
    assert "kv_usage_mean" not in zeros.headline
    assert any(entry.startswith("KV cache usage") for entry in zeros.missing)
    assert seen.headline["kv_usage_mean"] == 0.05
    assert "cached_share" not in seen.headline
    assert {d["figure"] for d in zeros.differences} == {"prompt_tokens_mean", "output_tokens_mean"}


def test_inference_perf_requests_carry_instants_and_usage() -> None:
    row = row_of("inference-perf-per-request.json")
    assert row.requests[0].token_source == "usage"
    assert row.recomputed["ttft_mean_ms"] == pytest.approx(30.0, abs=1e-3)
    assert row.recomputed["tpot_mean_ms"] == pytest.approx(10.0, abs=1e-3)


def test_llmperf_itl_is_another_definition_and_says_so() -> None:
    row = row_of("llmperf-summary.json", "llmperf-individual.json")
    assert len(row.requests) == 10
    assert row.recomputed["tpot_mean_ms"] == pytest.approx(20.0)  # 200 ms over 11 - 1
    (difference,) = [d for d in row.differences if d["figure"] == "itl_mean_ms"]
    assert difference["recomputed"] == pytest.approx(20.0)
    assert "first token included" in difference["why"]
    assert row.figure("duration_s") == pytest.approx(1.5)  # 10 completed at 400 a minute
    assert not row.has_instants


def test_llmperf_error_frequency_is_a_dict_in_a_string() -> None:
    row = row_of("llmperf-errors.json")
    assert row.evidence["errors"] == {"-100": 2, "429": 1}
    assert (row.headline["requests_planned"], row.headline["requests_ok"]) == (10, 7)


def test_inferencex_seconds_have_no_suffix() -> None:
    row = row_of("inferencex-agg.json")
    assert row.figure("ttft_p50_ms") == 200.0
    assert row.figure("output_tokens_per_s") == 4000.0  # 500 on each of 8
    assert row.gpus == 8
    assert row.differences == []


def test_inferencex_interactivity_that_denies_its_tpot_is_a_difference() -> None:
    _, edited = rows_of("inferencex-agg-list.json")
    (difference,) = edited.differences
    assert (difference["claimed"], difference["recomputed"]) == (40.0, pytest.approx(80.0))


def test_inferencex_raw_keeps_vllm_keys_and_matrix() -> None:
    row = row_of("inferencex-raw.json")
    assert row.tool == "InferenceX benchmark_serving"
    assert (row.figure("ttft_mean_ms"), row.gpus) == (100.0, 8)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("unknown-tool.json", UnknownResult, "nearest known format"),
        ("aiperf-unknown-schema.json", UnknownResult, "unknown schema version 2.0"),
        ("guidellm-unknown-version.json", UnknownResult, "unknown version 7"),
        ("llmperf-unknown-version.json", UnknownResult, "unknown version 2031-01-01"),
        ("vllm-field-missing.json", RefusedResult, "lacks duration"),
        ("torn.jsonl", RefusedResult, "torn.jsonl:2"),
    ],
)
def test_what_is_not_known_is_named(name: str, kind: type[BadInput], words: str) -> None:
    with pytest.raises(kind) as caught:
        read_files([FILES / name])
    assert words in str(caught.value)


def test_nearest_format_names_the_missing_fields(tmp_path: Path) -> None:
    entry = json.loads((FILES / "vllm-detailed.json").read_text())
    del entry["model_id"]
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(entry))
    with pytest.raises(UnknownResult, match=r"nearest known format vllm bench serve.*missing model_id"):
        read_files([path])


@pytest.mark.parametrize(
    "text", ["", "hello\n", "[]", "{}", "3\n", '{"benchmarks": []}', '{"benchmarks": [{}]}']
)
def test_rubbish_is_refused_without_a_traceback(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rubbish.json"
    path.write_text(text)
    with pytest.raises(BadInput):
        read_files([path])


def test_a_torn_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    for name in ("vllm-detailed.json", "llmperf-individual.json", "guidellm-0.2.json"):
        data = (FILES / name).read_bytes()
        for cut in range(1, len(data) - 2, max(1, len(data) // 23)):
            path = tmp_path / name
            path.write_bytes(data[:cut])
            with pytest.raises(BadInput):
                read_files([path])


def test_the_same_file_twice_is_one_row(tmp_path: Path) -> None:
    shutil.copy(FILES / "vllm-detailed.json", tmp_path / "a.json")
    groups, _ = read_files([tmp_path / "a.json", tmp_path / "a.json"])
    assert sum(len(group) for group in groups) == 1
