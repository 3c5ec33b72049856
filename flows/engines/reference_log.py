"""The start log of the reference server: the lines by which vLLM tells its effective settings."""

from __future__ import annotations

from collections.abc import Iterator

from flows.engines.reference_scenario import Scenario


def start_log(scenario: Scenario) -> Iterator[str]:
    """The lines of a start, in order, without the last one that says that it serves."""
    start = scenario.start
    if start.log == "vllm":
        config = {
            "model": f"'{scenario.model}'",
            "max_seq_len": str(start.max_model_len),
            "enable_prefix_caching": str(scenario.cache.enabled),
            "max_num_seqs": str(scenario.timing.slots or start.max_num_seqs),
            "block_size": str(scenario.cache.block_tokens),
            **start.config,
        }
        told = ", ".join(f"{name}={value}" for name, value in config.items())
        yield f"(APIServer pid=1) INFO 01-01 00:00:00 [api_server.py:1400] vLLM API server version {start.version}"
        yield (
            "(EngineCore pid=2) INFO 01-01 00:00:00 [core.py:133] Initializing a V1 LLM engine "
            f"(v{start.version}) with config: {told}"
        )
        yield f"(EngineCore pid=2) INFO 01-01 00:00:00 [model.py:2152] Using max model len {start.max_model_len}"
        yield (
            f"(EngineCore pid=2) INFO 01-01 00:00:01 [gpu_model_runner.py:3500] Model loading took "
            f"{start.weight_gib} GiB and {start.load_s} seconds"
        )
        times = start.kv_tokens / max(1, start.max_model_len)
        yield (
            f"(EngineCore pid=2) INFO 01-01 00:00:01 [kv_cache_utils.py:1200] GPU KV cache size: {start.kv_tokens:,} tokens"
        )
        yield (
            "(EngineCore pid=2) INFO 01-01 00:00:01 [kv_cache_utils.py:1205] Maximum concurrency for "
            f"{start.max_model_len:,} tokens per request: {times:.2f}x"
        )
    yield from start.lines
