"""SGLang's server, 0.3 and later."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import httpx

from contracts.errors import BadInput
from flows.engines import http, layout
from flows.engines.base import EngineFacts, LogReading, ProcessSpec
from flows.engines.processes import free_port
from flows.recipe import Recipe

PYTHON_VARIABLE = "WEIGHBRIDGE_SGLANG_PYTHON"
READY_WORDS = "The server is fired up and ready to roll"


class Sglang:
    """One process a replica; a prefill/decode split is a process for each side and a router before them."""

    name = "sglang"
    token_counter = "/tokenize"

    def processes(self, recipe: Recipe, folder: Path) -> list[ProcessSpec]:
        """The command lines. Raises BadInput for what SGLang cannot express."""
        environment = {**layout.compile_cache_environment(recipe), **recipe.env}
        world = recipe.tensor_parallel * recipe.pipeline_parallel * recipe.data_parallel
        if recipe.prefill_decode is not None:
            return self._split(recipe, environment, world)
        specs = []
        for ids in layout.split_gpus(recipe, recipe.replicas, world):
            port = free_port()
            role = "replica" if recipe.replicas > 1 else "server"
            specs.append(ProcessSpec(self._argv(recipe, port), environment, port, role, ids))
        return specs

    def _split(self, recipe: Recipe, environment: dict[str, str], world: int) -> list[ProcessSpec]:
        split = recipe.prefill_decode
        assert split is not None
        if recipe.replicas > 1:
            raise BadInput(
                "sglang: replicas of a prefill/decode split are not supported", next_step="two recipes"
            )
        bootstrap = free_port()
        specs = []
        for role, ids in (("prefill", split.prefill_gpus), ("decode", split.decode_gpus)):
            if len(ids) != world:
                raise BadInput(
                    f"sglang: the {role} side and the layout do not fit together",
                    measured=f"{len(ids)} GPU(s)",
                    required=f"{world} (tensor x pipeline x data)",
                )
            port = free_port()
            argv = [*self._argv(recipe, port), "--disaggregation-mode", role]
            argv += ["--disaggregation-transfer-backend", split.transfer]
            if role == "prefill":
                argv += ["--disaggregation-bootstrap-port", str(bootstrap)]
            specs.append(ProcessSpec(argv, environment, port, role, ids))
        return [
            *specs,
            layout.router_of_split("sglang", specs[0], specs[1], "--bootstrap-port", str(bootstrap)),
        ]

    def _argv(self, recipe: Recipe, port: int) -> list[str]:
        python = recipe.env.get(PYTHON_VARIABLE) or os.environ.get(PYTHON_VARIABLE) or sys.executable
        argv = list(recipe.launcher) if recipe.launcher else [python, "-m", "sglang.launch_server"]
        argv += [
            "--model-path",
            layout.model_argument(recipe),
            "--served-model-name",
            layout.served_name(recipe),
        ]
        argv += ["--host", "127.0.0.1", "--port", str(port)]
        # Without these there are no counters, and usage says nothing of cached tokens.
        argv += ["--enable-metrics", "--enable-cache-report"]
        for flag, value in (
            ("--context-length", recipe.context_tokens),
            ("--max-running-requests", recipe.max_running_requests or recipe.slots),
            ("--mem-fraction-static", recipe.memory_fraction),
            ("--quantization", recipe.quantization),
            ("--kv-cache-dtype", recipe.kv_cache_dtype),
        ):
            if value is not None:
                argv += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
        for flag, size in (
            ("--tp-size", recipe.tensor_parallel),
            ("--pp-size", recipe.pipeline_parallel),
            ("--dp-size", recipe.data_parallel),
            ("--ep-size", recipe.expert_parallel),
        ):
            if size > 1:
                argv += [flag, str(size)]
        if recipe.prefix_caching is False:
            argv += ["--disable-radix-cache"]
        if recipe.cuda_graphs is False:
            argv += ["--disable-cuda-graph"]
        if recipe.kv_offload_gb is not None:
            argv += ["--enable-hierarchical-cache", "--hicache-size", f"{recipe.kv_offload_gb:.0f}"]
        if recipe.speculation is not None:
            argv += _speculation(recipe)
        return argv + recipe.args

    def is_ready(self, base_url: str, log_text: str) -> bool:
        """`Application startup complete` comes before the warm-up; SGLang says "fired up" after it.

        A recipe may silence that line (--log-level warning): then the server's own generating health check decides.
        """
        if READY_WORDS in log_text:
            return True
        if " INFO" in log_text or "server_args=" in log_text:
            return False
        return http.is_ok(f"{base_url}/health_generate", timeout_s=30.0)

    def read_log(self, lines: Any) -> LogReading:
        from flows.engines.logs import read_lines

        return read_lines(lines, engine="sglang")

    def read_counters(self, metrics_text: str) -> dict[str, Any]:
        from flows.engines.metrics import read_counters

        return read_counters(metrics_text, engine="sglang")

    def read_facts(self, base_url: str, client: httpx.Client) -> EngineFacts:
        """What the running server states: version, KV tokens, request ceiling, radix cache."""
        facts = EngineFacts()
        info = None
        for path in ("/server_info", "/get_server_info"):
            info = info or http.get_json(client, base_url + path)
        if not isinstance(info, dict):
            return facts
        # Data-parallel ranks answer one by one under internal_states.
        states = [s for s in info.get("internal_states") or [] if isinstance(s, dict)]
        merged = {**(states[0] if states else {}), **info}
        facts.version = merged.get("version") if isinstance(merged.get("version"), str) else None
        facts.kv_tokens = _whole(merged.get("max_total_num_tokens"))
        facts.max_running_requests = _whole(merged.get("max_running_requests"))
        facts.max_model_len = _whole(merged.get("context_length")) or http.model_length(client, base_url)
        if isinstance(merged.get("disable_radix_cache"), bool):
            facts.prefix_caching = not merged["disable_radix_cache"]
        return facts


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _speculation(recipe: Recipe) -> list[str]:
    """draft_tokens is what one step proposes. SGLang's chain of depth n verifies n + 1 tokens."""
    speculation = recipe.speculation
    assert speculation is not None
    method = speculation.method.upper()
    argv = ["--speculative-algorithm", method]
    if method != "NGRAM":
        argv += ["--speculative-num-steps", str(speculation.draft_tokens), "--speculative-eagle-topk", "1"]
    argv += ["--speculative-num-draft-tokens", str(speculation.draft_tokens + 1)]
    if speculation.draft_model:
        argv += ["--speculative-draft-model-path", speculation.draft_model]
    return argv
