"""No input crashes a parser: an answer, or a clear refusal."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engines.logs import read_lines
from flows.engines.metrics import FIELDS, read_counters, read_metrics_facts

WORDS = st.sampled_from(
    [
        b"GPU KV cache size: ", b"tokens", b"1,2,3", b"99999999999999999999", b"Model loading took ", b" GiB and ", b" seconds",
        b"Maximum concurrency for ", b"x", b"# GPU blocks: ", b"max_total_num_tokens=", b"KV Cache is allocated. #tokens: ",
        b"server_args=ServerArgs(", b"[25:61:99 TP0] ", b"INFO 13-32 25:61:61 ", b"LLM engine (v", b"with config: ",
        b"Application startup complete", b"The server is fired up and ready to roll", b"CUDA out of memory", b"Killed",
        b"\r", b"\n", b"\0", b"\x1b[1;36m", b"\xff\xfe", b"#new-token: 5, #cached-token: 6", b"weighbridge: effective {",
        b"n_ctx = ", b"n_slots = 4, n_ctx_slot = ", b"0.00.000.000 I ", b"Load weight begin", b"Load weight end. elapsed=",
    ]
)  # fmt: skip


@given(st.lists(st.one_of(WORDS, st.binary(max_size=40)), max_size=40), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_log_gives_a_reading(parts: list[bytes], timed_out: bool) -> None:
    reading = read_lines(b"".join(parts).split(b"\n"), timed_out=timed_out)
    assert reading.state in ("ready", "failed", "unknown", "offline_ran")
    assert (reading.failure_class is not None) == (reading.state == "failed")


METRIC_PARTS = st.sampled_from(
    ["vllm:prompt_tokens_total", "sglang:cached_tokens_total", "llamacpp:prompt_tokens_total", "{", "}", '="', '"', "\\",
     "\n", " ", "NaN", "1e999", "-5", "# HELP ", "# TYPE ", "engine", ",", '{"metrics": [', "]}", "tp_rank"]
)  # fmt: skip


@given(st.lists(st.one_of(METRIC_PARTS, st.text(max_size=8)), max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_metrics_body_gives_counters(parts: list[str]) -> None:
    text = "".join(parts)
    counters = read_counters(text)
    assert set(FIELDS) <= set(counters)
    read_metrics_facts(text)
