"""Every public /metrics body gives the counters that were worked out for it by reading (cases/ANSWERS.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows.engines.metrics import read_counters, read_metrics_facts

pytestmark = pytest.mark.shared_cases


def read(shared_cases: Path, number: str) -> dict[str, Any]:
    return read_counters(next((shared_cases / "metrics").glob(f"{number}-*")).read_text())


def test_kv_tokens_come_from_the_label(shared_cases: Path) -> None:
    text = next((shared_cases / "metrics").glob("01-*")).read_text()
    facts = read_metrics_facts(text)
    assert (facts.kv_tokens, facts.prefix_caching) == (400_448, True)


def test_an_idle_server_has_zeros_and_a_histogram_is_no_counter(shared_cases: Path) -> None:
    counters = read(shared_cases, "01")
    assert counters["prompt_tokens"] == 0.0
    assert "iteration_tokens" not in str(counters["source_names"])


def test_blocks_are_no_tokens(shared_cases: Path) -> None:
    counters = read(shared_cases, "03")
    assert counters["prefix_queries"] is None
    assert counters["cached_prompt_tokens"] is None
    assert any("in blocks" in note for note in counters["notes"])


def test_old_and_new_names_are_one_counter_and_created_is_a_time(shared_cases: Path) -> None:
    counters = read(shared_cases, "04")
    assert counters["prefix_queries"] == 32.0
    assert counters["cached_prompt_tokens"] == 0.0
    assert counters["source_names"]["prefix_queries"] == "vllm:prefix_cache_queries_total"


def test_help_without_samples_is_absent_and_never_zero(shared_cases: Path) -> None:
    counters = read(shared_cases, "05")
    assert counters["requests_running"] is None
    assert counters["kv_usage"] is None


def test_sglang_counters_and_the_rate_that_is_not_one(shared_cases: Path) -> None:
    counters = read(shared_cases, "06")
    assert counters["prompt_tokens"] == 8_128_902
    assert counters["output_tokens"] == 7_557_572
    assert counters["cached_prompt_tokens"] is None
    text = next((shared_cases / "metrics").glob("07-*")).read_text()
    assert read_metrics_facts(text).kv_tokens == 161_721


def test_nan_is_absent(shared_cases: Path) -> None:
    counters = read(shared_cases, "08")
    assert counters["prompt_tokens"] == 0.0
    assert counters["cached_prompt_tokens"] is None


def test_llama_cpp_prefill_and_decode_counts(shared_cases: Path) -> None:
    counters = read(shared_cases, "09")
    assert (counters["prompt_tokens"], counters["output_tokens"]) == (6886, 3469)


def test_acceptance_is_a_difference_of_two_bodies(shared_cases: Path) -> None:
    before, after = read(shared_cases, "12"), read(shared_cases, "13")
    delta = {k: after[k] - before[k] for k in ("drafts", "draft_tokens", "accepted_tokens")}
    assert delta == {"drafts": 768, "draft_tokens": 1536, "accepted_tokens": 1218}


def test_the_contaminated_cells_show_in_the_counters(shared_cases: Path) -> None:
    before = read_counters((shared_cases / "h200" / "metrics0.txt").read_text())
    after = read_counters((shared_cases / "h200" / "metrics1.txt").read_text())
    assert after["cached_prompt_tokens"] - before["cached_prompt_tokens"] == 135_600
    assert after["prompt_tokens"] - before["prompt_tokens"] == 659_456


def test_servers_without_metrics_give_nothing(shared_cases: Path) -> None:
    counters = read_counters((shared_cases / "engines" / "tfserve_metrics_after.txt").read_text())
    assert all(counters[name] is None for name in counters if name not in ("source_names", "notes", "blocks"))
