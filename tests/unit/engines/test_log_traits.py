"""The traits of real logs, on small inputs of our own."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.engines.logs import read_lines, read_log

VLLM_START = """\
(APIServer pid=1) INFO 03-01 10:00:00 [utils.py:302]   █▄█▀ █  version 0.17.0
(APIServer pid=1) INFO 03-01 10:00:01 [utils.py:238] non-default args: {'model': 'm', 'api_key': ['s3cr3t-key'], 'enable_prefix_caching': True, 'max_num_seqs': 16}
(APIServer pid=1) INFO 03-01 10:00:02 [model.py:1554] Using max model len 4096
(EngineCore_DP0 pid=2) INFO 03-01 10:00:05 [core.py:101] Initializing a V1 LLM engine (v0.17.0) with config: model='m', max_seq_len=4096, kv_cache_dtype=auto, enable_prefix_caching=False, quantization=None
(EngineCore_DP0 pid=2) INFO 03-01 10:00:20 [gpu_model_runner.py:4338] Model loading took 14.37 GiB memory and 12.5 seconds
(EngineCore_DP0 pid=2) INFO 03-01 10:00:40 [monitor.py:35] torch.compile takes 18.25 s in total
(EngineCore_DP0 pid=2) INFO 03-01 10:00:40 [gpu_worker.py:424] Available KV cache memory: 41.81 GiB
(EngineCore_DP0 pid=2) INFO 03-01 10:00:41 [kv_cache_utils.py:1314] GPU KV cache size: 782,800 tokens
(EngineCore_DP0 pid=2) INFO 03-01 10:00:41 [kv_cache_utils.py:1319] Maximum concurrency for 4,096 tokens per request: 191.11x
(EngineCore_DP0 pid=2) INFO 03-01 10:00:50 [gpu_model_runner.py:5360] Graph capturing finished in 9 secs, took -0.41 GiB
(EngineCore_DP0 pid=2) INFO 03-01 10:00:50 [core.py:282] init engine (profile, create kv cache, warmup model) took 30.00 seconds
(APIServer pid=1) INFO:     Application startup complete.
"""


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_start_reads_whole() -> None:
    reading = read_lines(lines(VLLM_START))
    facts = reading.facts
    assert (reading.engine, reading.state, reading.failure_class) == ("vllm", "ready", None)
    assert (facts.version, facts.kv_tokens, facts.max_concurrency, facts.load_s) == (
        "0.17.0",
        782_800,
        191.11,
        12.5,
    )
    assert facts.prefix_caching is False  # asked for, and turned off by the engine
    assert (facts.max_model_len, facts.max_running_requests) == (4096, 16)
    assert facts.phases_s == {
        "weights": 12.5, "compile": 18.25, "graph_capture": 9.0, "engine_init": 30.0, "kv": 1.0, "ready": 50.0,
    }  # fmt: skip
    assert "s3cr3t-key" not in repr(reading.evidence)


def test_colours_nul_bytes_and_progress_bars_hide_nothing() -> None:
    noisy = []
    for line in lines(VLLM_START):
        noisy.append(f"\x1b[1;36m{line[:10]}\x1b[0;0m{line[10:]}")
    noisy[4] = "\0\0Loading shards:  50%|#####     | 1/2\rLoading shards: 100%|##########| 2/2\r" + noisy[4]
    noisy[7] = "^@^@" + noisy[7]
    reading = read_lines(noisy)
    assert (reading.state, reading.facts.kv_tokens, reading.facts.load_s) == ("ready", 782_800, 12.5)


def test_a_crash_after_ready_is_a_failure_with_its_cause() -> None:
    crash = [
        "(EngineCore_DP0 pid=2) ERROR 03-01 11:00:00 [core.py:900] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "(EngineCore_DP0 pid=2) ERROR 03-01 11:00:00 [core.py:901] EngineCore encountered a fatal error.",
    ]
    reading = read_lines(lines(VLLM_START) + crash)
    assert (reading.state, reading.failure_class) == ("failed", "device_oom")
    assert any("was ready" in note for note in reading.notes)


def test_a_request_error_after_ready_ends_nothing() -> None:
    errors = [
        "ERROR 03-01 11:00:00 [serving_chat.py:203] ValueError: This model's maximum context length is 4096 tokens.",
        "ERROR 03-01 11:00:01 [serving_chat.py:203] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.",
        "INFO:     Shutting down",
        "(EngineCore_DP0 pid=2) Worker proc VllmWorker-0 died unexpectedly (exit code: -15)",
    ]
    assert read_lines(lines(VLLM_START) + errors).state == "ready"


def test_the_last_of_several_starts_counts() -> None:
    first = lines(VLLM_START.replace("782,800", "1,000"))[:9]
    failed = [*first, "(EngineCore_DP0 pid=2) ValueError: No available memory for the cache blocks."]
    reading = read_lines(failed + lines(VLLM_START))
    assert (reading.state, reading.facts.kv_tokens) == ("ready", 782_800)
    assert any("2 starts" in note for note in reading.notes)
    again = read_lines(lines(VLLM_START) + failed)
    assert (again.state, again.failure_class, again.facts.kv_tokens) == ("failed", "kv_too_small", 1_000)


def test_data_parallel_engines_keep_their_own_kv_and_are_not_added_up() -> None:
    both = lines(VLLM_START)
    both.insert(8, both[7].replace("DP0", "DP1").replace("782,800", "700,000"))
    facts = read_lines(both).facts
    assert facts.kv_tokens == 700_000
    assert facts.extra["kv_tokens_by_engine"] == {"EngineCore_DP0": 782_800, "EngineCore_DP1": 700_000}


def test_the_slowest_rank_loads_last() -> None:
    text = [
        "(EngineCore pid=5) (RayWorkerProc pid=7) (Worker_TP1 pid=7) INFO 06-20 01:28:08 [r.py:1] Model loading took 64.98 GiB memory and 261.7 seconds",
        "(EngineCore pid=5) (RayWorkerProc pid=8) (Worker_TP0 pid=8) INFO 06-20 01:33:02 [r.py:1] Model loading took 64.98 GiB memory and 560.5 seconds",
    ]
    assert read_lines(text).facts.load_s == 560.5


def test_sglang_pools_ranks_and_time_only_stamps() -> None:
    text = [
        "[09:06:20 TP0] Load weight begin. avail mem=60.42 GB",
        "[09:06:20 TP1] Load weight begin. avail mem=60.42 GB",
        "[09:06:50 TP0] Load weight end. type=X, dtype=torch.bfloat16, avail mem=50.41 GB",
        "[09:07:00 TP1] Load weight end. type=X, dtype=torch.bfloat16, avail mem=50.41 GB",
        "[09:07:02 TP0] KV Cache is allocated. #tokens: 148717, K size: 10.21 GB, V size: 10.21 GB",
        "[09:07:02 TP0] KV Cache is allocated. #tokens: 185897, K size: 4.25 GB, V size: 4.25 GB",
        "[09:07:20 TP0] Capture cuda graph end. Time elapsed: 14.5 s. avail mem=6.22 GB",
    ]
    reading = read_lines(text)
    assert (reading.engine, reading.state) == ("sglang", "unknown")
    assert (reading.facts.kv_tokens, reading.facts.load_s) == (185_897, 40.0)
    assert reading.facts.phases_s["graph_capture"] == 14.5
    total = "[09:07:30] max_total_num_tokens=150000, max_running_requests=48, context_len=65536"
    ready = "[09:07:49] The server is fired up and ready to roll!"
    reading = read_lines([*text, total, "INFO:     Application startup complete.", ready])
    facts = reading.facts
    assert (reading.state, facts.kv_tokens, facts.max_running_requests, facts.max_model_len) == (
        "ready", 150_000, 48, 65_536,
    )  # fmt: skip
    assert facts.extra["ready_at_text"] == "09:07:49"


def test_llama_server_is_ready_when_the_model_is_loaded_and_not_when_http_listens() -> None:
    start = [
        "build: 5177 (80982e81) with cc (GCC) 12.2.1 for x86_64-linux",
        "main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 7",
        "srv    load_model: loading model 'x.gguf'",
        "llama_context: n_ctx         = 8192",
        "llama_context: n_ctx_per_seq = 4096",
    ]
    reading = read_lines(start)
    assert (reading.engine, reading.state, reading.facts.kv_tokens) == ("llamacpp", "unknown", 8192)
    reading = read_lines([*start, "main: model loaded", "main: server is listening on http://127.0.0.1:8080"])
    assert (reading.state, reading.facts.version) == ("ready", "b5177-80982e81")


def test_old_vllm_prints_no_seconds_and_blocks_only() -> None:
    text = [
        "INFO 08-06 01:39:00 api_server.py:219] vLLM API server version 0.5.4",
        "INFO 08-06 01:39:01 api_server.py:220] args: Namespace(block_size=32, enable_prefix_caching=False, max_num_seqs=256)",
        "INFO 08-06 01:39:02 llm_engine.py:174] Initializing an LLM engine (v0.5.4) with config: model='m', max_seq_len=8192, enable_prefix_caching=False)",
        "INFO 08-06 01:39:05 model_runner.py:720] Starting to load model m...",
        "INFO 08-06 01:39:21 model_runner.py:732] Loading model weights took 7.1694 GB",
        "INFO 08-06 01:39:23 gpu_executor.py:102] # GPU blocks: 1000, # CPU blocks: 2048",
        "INFO:     Application startup complete.",
    ]
    facts = read_lines(text).facts
    assert (facts.version, facts.load_s, facts.extra["weight_gib"]) == ("0.5.4", 16.0, 7.1694)
    assert facts.kv_tokens == 32_000
    assert facts.extra["kv_tokens_source"] == "derived: 1000 blocks x block size 32"
    assert facts.max_model_len == 8192


def test_the_oldest_sglang_words() -> None:
    text = [
        "Rank 0: Load weight ends.",
        "Rank 1: Max_total_num_token=115621, max_prefill_num_token=19270, context_len=4096",
    ]
    facts = read_lines(text).facts
    assert (facts.kv_tokens, facts.max_model_len) == (115_621, 4096)


def test_an_empty_log_says_nothing() -> None:
    reading = read_lines([])
    assert (reading.engine, reading.state, reading.failure_class, reading.evidence) == (
        None,
        "unknown",
        None,
        [],
    )


def test_a_prompt_in_the_log_is_never_read() -> None:
    prompt = "INFO 04-12 18:37:02 [logger.py:39] Received request c-1: prompt: 'CUDA out of memory. RuntimeError: Killed'"
    reading = read_lines([prompt])
    assert reading.failure_class is None
    assert reading.evidence == []


def test_two_hundred_megabytes_take_seconds_and_little_memory(tmp_path: Path) -> None:
    requests = "".join(
        f'INFO:     127.0.0.1:{30_000 + i % 20_000} - "POST /v1/completions HTTP/1.1" 200 OK\n'
        f"(APIServer pid=1) INFO 03-01 10:{i % 60:02d}:00 [loggers.py:123] Engine 000: Avg prompt throughput: {i}.1 tokens/s, "
        f"GPU KV cache usage: {i % 100}.0%, Prefix cache hit rate: 0.0%\n"
        for i in range(5_000)
    ).encode()
    path = tmp_path / "server.log"
    with path.open("wb") as stream:
        stream.write(VLLM_START.encode())
        while stream.tell() < 200_000_000:
            stream.write(requests)
        stream.write(
            b"(EngineCore_DP0 pid=2) RuntimeError: CUDA error: an illegal memory access was encountered\n"
        )
    started = time.process_time()
    reading = read_log(path)
    spent_s = time.process_time() - started
    assert (reading.failure_class, reading.facts.kv_tokens) == ("cuda_illegal_memory_access", 782_800)
    assert spent_s < 5.0
    tracemalloc.start()
    with path.open("rb") as stream:
        sample = tmp_path / "sample.log"
        sample.write_bytes(stream.read(8_000_000))
    tracemalloc.reset_peak()
    read_log(sample)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16_000_000


def test_one_endless_line_is_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "progress.log"
    path.write_bytes(
        b"Loading: 1%\r" * 400_000 + b"\nValueError: No available memory for the cache blocks.\n"
    )
    reading = read_log(path)
    assert reading.failure_class == "kv_too_small"
    assert reading.evidence[0]["line"] == 2


def test_a_hostile_line_costs_little() -> None:
    started = time.process_time()
    for words in ("Error fp8 ", "connection TCPStore ", "capability error sm_8 ", "mamba pool slots "):
        read_lines([words * 6_000])
    assert time.process_time() - started < 10.0


def test_the_command_prints_the_agreed_object(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM_START)
    result = CliRunner().invoke(app, ["log", str(path), "--json"])
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    agreed = (
        "engine",
        "version",
        "state",
        "failure_class",
        "kv_tokens",
        "max_concurrency",
        "load_s",
        "evidence",
    )
    assert {name: answer[name] for name in agreed[:-1]} == {
        "engine": "vllm", "version": "0.17.0", "state": "ready", "failure_class": None, "kv_tokens": 782_800,
        "max_concurrency": 191.11, "load_s": 12.5,
    }  # fmt: skip
    assert answer["evidence"][0]["line"] == 12
    words = CliRunner().invoke(app, ["log", str(path), "--engine", "vllm"]).stdout
    assert "vllm 0.17.0: ready" in words


@pytest.mark.parametrize("arguments", [["/no/such/file.log"], ["--engine", "vlm", "x"]])
def test_a_wrong_file_or_engine_is_refused_in_words(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["log", *arguments, "--json"])
    assert result.exit_code != 0
    assert type(result.exception).__name__ == "BadInput"
