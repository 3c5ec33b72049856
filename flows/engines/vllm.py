"""vLLM's OpenAI server, 0.4 and later."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import httpx

from contracts.errors import BadInput
from flows.engines import http, layout
from flows.engines.base import EngineFacts, LogReading, ProcessSpec
from flows.engines.processes import free_port
from flows.recipe import Recipe

# Where vLLM's Python is when it is not this one; the launcher of a recipe goes before it.
PYTHON_VARIABLE = "WEIGHBRIDGE_VLLM_PYTHON"


class Vllm:
    """One process a replica; a prefill/decode split is a process for each side and a router before them."""

    name = "vllm"
    token_counter = "/tokenize"

    def processes(self, recipe: Recipe, folder: Path) -> list[ProcessSpec]:
        """The command lines. Raises BadInput for what vLLM cannot express."""
        world = recipe.tensor_parallel * recipe.pipeline_parallel * recipe.data_parallel
        if recipe.expert_parallel not in (1, recipe.tensor_parallel * recipe.data_parallel):
            raise BadInput(
                "vllm spreads experts over all tensor- and data-parallel ranks",
                measured=f"expert_parallel {recipe.expert_parallel}",
                required=f"1 or {recipe.tensor_parallel * recipe.data_parallel}",
            )
        environment = {**layout.compile_cache_environment(recipe), **recipe.env}
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
                "vllm: replicas of a prefill/decode split are not supported", next_step="two recipes"
            )
        if split.transfer != "nixl":
            raise BadInput(
                f"vllm: the router speaks the nixl connector's protocol, not {split.transfer}",
                required="nixl",
            )
        specs = []
        for role, ids in (("prefill", split.prefill_gpus), ("decode", split.decode_gpus)):
            if len(ids) != world:
                raise BadInput(
                    f"vllm: the {role} side and the layout do not fit together",
                    measured=f"{len(ids)} GPU(s)",
                    required=f"{world} (tensor x pipeline x data)",
                )
            port = free_port()
            transfer = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
            argv = [*self._argv(recipe, port), "--kv-transfer-config", json.dumps(transfer)]
            # Each side announces its memory on a port of its own; on one host the default would collide.
            side = {
                "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
                "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
            }
            specs.append(ProcessSpec(argv, {**environment, **side}, port, role, ids))
        return [*specs, layout.router_of_split("vllm", specs[0], specs[1])]

    def _argv(self, recipe: Recipe, port: int) -> list[str]:
        argv = launcher(recipe)
        model = layout.model_argument(recipe)
        # `vllm serve` takes the model by place and warns about --model; the older module knows only --model.
        argv += [model] if argv[-1] == "serve" else ["--model", model]
        argv += [
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--served-model-name",
            layout.served_name(recipe),
        ]
        slots = recipe.max_running_requests or recipe.slots
        for flag, value in (
            ("--max-model-len", recipe.context_tokens),
            ("--max-num-seqs", slots),
            ("--gpu-memory-utilization", recipe.memory_fraction),
            ("--quantization", recipe.quantization),
            ("--kv-cache-dtype", recipe.kv_cache_dtype),
            ("--kv-offloading-size", recipe.kv_offload_gb),
        ):
            if value is not None:
                argv += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
        for flag, size in (
            ("--tensor-parallel-size", recipe.tensor_parallel),
            ("--pipeline-parallel-size", recipe.pipeline_parallel),
            ("--data-parallel-size", recipe.data_parallel),
        ):
            if size > 1:
                argv += [flag, str(size)]
        if recipe.expert_parallel > 1:
            argv += ["--enable-expert-parallel"]
        if recipe.prefix_caching is not None:
            argv += ["--enable-prefix-caching" if recipe.prefix_caching else "--no-enable-prefix-caching"]
        if recipe.cuda_graphs is False:
            argv += ["--enforce-eager"]
        if recipe.speculation is not None:
            argv += ["--speculative-config", json.dumps(_speculative_config(recipe))]
        return argv + recipe.args

    def is_ready(self, base_url: str, log_text: str) -> bool:
        """vLLM listens only once its engine core is up; /health asks the core."""
        return http.is_ok(f"{base_url}/health")

    def read_log(self, lines: Any) -> LogReading:
        from flows.engines.logs import read_lines

        return read_lines(lines, engine="vllm")

    def read_counters(self, metrics_text: str) -> dict[str, Any]:
        from flows.engines.metrics import read_counters

        return read_counters(metrics_text, engine="vllm")

    def read_facts(self, base_url: str, client: httpx.Client) -> EngineFacts:
        """Version, context ceiling and cache settings as the running server states them."""
        from flows.engines.metrics import read_metrics_facts

        facts = read_metrics_facts(http.get_text(client, f"{base_url}/metrics") or "")
        version = http.get_json(client, f"{base_url}/version")
        if isinstance(version, dict) and isinstance(version.get("version"), str):
            facts.version = version["version"]
        facts.max_model_len = http.model_length(client, base_url)
        return facts


def launcher(recipe: Recipe) -> list[str]:
    """What starts vLLM: the recipe's own words, else the Python that WEIGHBRIDGE_VLLM_PYTHON names, else `vllm serve`."""
    if recipe.launcher:
        return list(recipe.launcher)
    python = recipe.env.get(PYTHON_VARIABLE) or os.environ.get(PYTHON_VARIABLE)
    if python:
        return [python, "-m", "vllm.entrypoints.openai.api_server"]
    if command := shutil.which("vllm"):
        return [command, "serve"]
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]


def _speculative_config(recipe: Recipe) -> dict[str, Any]:
    speculation = recipe.speculation
    assert speculation is not None
    config: dict[str, Any] = {
        "method": speculation.method,
        "num_speculative_tokens": speculation.draft_tokens,
    }
    if speculation.draft_model:
        config["model"] = speculation.draft_model
    if speculation.method == "ngram":
        config["prompt_lookup_max"] = speculation.draft_tokens
    return config
