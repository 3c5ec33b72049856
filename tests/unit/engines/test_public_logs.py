"""Every public log has the answer that was worked out for it by reading (cases/ANSWERS.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.engines.logs import read_log

pytestmark = pytest.mark.shared_cases

# file prefix: state, failure class, KV tokens, maximum concurrency, load seconds
VLLM = {
    "02": ("unknown", None, None, None, None),
    "03": ("failed", "kv_too_small", None, None, 2736.6),
    "04": ("ready", None, 3_366_051, 12.84, 125.7),
    "06": ("ready", None, 868_080, 847.73, 20.67),
    "07": ("ready", None, 127_664, 249.34, 1.41),
    "08": ("ready", None, 32_832, 1.00, 4.06),
    "09": ("ready", None, 20_960, 10.23, 9.14),
    "11": ("ready", None, 782_800, 191.11, 132.6),
    "12": ("offline_ran", None, 1_856, 1.81, 5.97),
    "13": ("failed", "device_oom", None, None, 230.5),
    "14": ("failed", "unsupported_arch", None, None, 4.15),
    "15": ("failed", "max_model_len_rejected", None, None, None),
    "17": ("failed", "bad_argument", None, None, None),
    "18": ("unknown", None, None, None, None),
    "19": ("failed", "tp_not_divisible", None, None, None),
    "20": ("failed", "quant_unsupported", None, None, None),
    "22": ("unknown", None, 188_640, 5.23, None),
    "25": ("unknown", None, None, None, None),
    "26": ("unknown", None, 507_904, 62.00, 560.5),
}
VERSIONS = {
    "02": "0.25.1", "03": "0.25.1", "04": "0.25.1", "06": "0.11.2", "07": "0.8.3", "08": "0.8.5.post1",
    "09": "0.10.0", "11": "0.17.0", "15": "0.25.1", "17": None,
}  # fmt: skip
SGLANG = {
    "01": ("ready", None, 185_897),
    "03": ("failed", "died_silently", None),
    "04": ("failed", "state_pool_exhausted", None),
    "06": ("unknown", None, 2_795_207),
    "07": ("failed", "graph_capture_failed", None),
    "09": ("ready", None, 450_560),
    "10": ("ready", None, 527_360),
    "12": ("failed", "watchdog_timeout", None),
    "13": ("failed", "cuda_illegal_memory_access", None),
    "14": ("ready", None, None),
    "16": ("unknown", None, None),
}


def find(folder: Path, number: str) -> Path:
    return next(folder.glob(f"{number}-*"))


@pytest.mark.parametrize("number", VLLM)
def test_a_vllm_log_reads_as_its_answer(shared_cases: Path, number: str) -> None:
    state, failure_class, kv_tokens, concurrency, load_s = VLLM[number]
    reading = read_log(find(shared_cases / "vllm-log", number))
    assert reading.engine == "vllm"
    assert (reading.state, reading.failure_class) == (state, failure_class)
    assert reading.facts.kv_tokens == kv_tokens
    assert reading.facts.max_concurrency == concurrency
    assert reading.facts.load_s == (None if load_s is None else pytest.approx(load_s, abs=0.06))
    if number in VERSIONS:
        assert reading.facts.version == VERSIONS[number]


@pytest.mark.parametrize("number", SGLANG)
def test_an_sglang_log_reads_as_its_answer(shared_cases: Path, number: str) -> None:
    state, failure_class, kv_tokens = SGLANG[number]
    reading = read_log(find(shared_cases / "sglang-log", number))
    assert reading.engine == "sglang"
    assert (reading.state, reading.failure_class, reading.facts.kv_tokens) == (
        state,
        failure_class,
        kv_tokens,
    )


def test_a_server_that_answered_but_never_said_fired_up_is_not_ready(shared_cases: Path) -> None:
    reading = read_log(find(shared_cases / "sglang-log", "08"))
    assert reading.state == "failed"
    assert reading.facts.kv_tokens == 1_359_146
    assert "ready_line" not in reading.facts.extra


def test_sglang_is_ready_at_fired_up_and_not_at_application_startup_complete(shared_cases: Path) -> None:
    reading = read_log(find(shared_cases / "sglang-log", "01"))
    assert reading.facts.extra["ready_at_text"] == "2026-08-01 23:43:47"


def test_a_hang_is_named_only_when_readiness_was_waited_for(shared_cases: Path) -> None:
    path = find(shared_cases / "vllm-log", "18")
    assert read_log(path).failure_class is None
    assert read_log(path, timed_out=True).failure_class == "comm_hang"


def test_the_deciding_lines_carry_their_numbers(shared_cases: Path) -> None:
    path = find(shared_cases / "vllm-log", "13")
    first = read_log(path).evidence[0]
    assert b"HIP out of memory" in path.read_bytes().split(b"\n")[first["line"] - 1]
    assert "HIP out of memory" in first["text"]


def test_prefix_caching_is_what_the_engine_said_and_not_what_was_asked(shared_cases: Path) -> None:
    assert read_log(find(shared_cases / "vllm-log", "04")).facts.prefix_caching is False


def test_v0_blocks_become_tokens_that_say_how_they_were_derived(shared_cases: Path) -> None:
    facts = read_log(find(shared_cases / "vllm-log", "23")).facts
    assert facts.extra["kv_blocks"] == 185_231
    assert facts.kv_tokens == 2_963_696
    assert facts.extra["kv_tokens_source"].startswith("derived")


def test_starvation_and_offline_runs_are_noted(shared_cases: Path) -> None:
    reading = read_log(find(shared_cases / "vllm-log", "12"))
    assert any("memory starvation: 0.34 GiB" in note for note in reading.notes)
    assert reading.facts.phases_s["graph_capture"] == 2173.0


def test_mamba_slots_and_cached_prompts_are_read(shared_cases: Path) -> None:
    assert read_log(find(shared_cases / "sglang-log", "09")).facts.extra["mamba_slots"] == 80
    extra = read_log(find(shared_cases / "sglang-log", "16")).facts.extra
    # Two prefill batches: 8192 + 8192 new, 159358 + 159453 cached.
    assert (extra["prefill_new_tokens"], extra["prefill_cached_tokens"]) == (16_384, 318_811)


def test_no_key_of_a_log_becomes_evidence(shared_cases: Path) -> None:
    for path in sorted((shared_cases / "vllm-log").iterdir()):
        text = repr(read_log(path))
        assert "token-abc123" not in text
        assert "anton-vllm-key" not in text
