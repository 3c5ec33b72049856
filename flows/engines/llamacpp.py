"""llama.cpp's server: by the wheel xllamacpp, or by a `llama-server` binary named in the recipe's `launcher`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx

from contracts.errors import BadInput
from flows.engines import http, layout
from flows.engines.base import EngineFacts, LogReading, ProcessSpec
from flows.engines.models import find_gguf
from flows.engines.processes import free_port
from flows.recipe import Recipe

# Threads that wait sleep instead of spinning. Spinning threads starve each other wherever a core is shared: on two busy
# cores one request took 10 to 54 s, and 2 to 4 s like this. A recipe's own env goes before.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}


class LlamaCpp:
    """`context_tokens` is per sequence; llama.cpp splits one `--ctx-size` over its slots, so it gets the product."""

    name = "llamacpp"
    token_counter = "/tokenize"

    def processes(self, recipe: Recipe, folder: Path) -> list[ProcessSpec]:
        """One process a replica. Raises BadInput for layouts that llama.cpp does not have."""
        for name in ("data_parallel", "expert_parallel", "pipeline_parallel"):
            if getattr(recipe, name) > 1:
                raise BadInput(f"llamacpp has no {name}", measured=str(getattr(recipe, name)), required="1")
        if recipe.prefill_decode is not None:
            raise BadInput("llamacpp cannot split prefill from decode", next_step="use vllm or sglang")
        if recipe.kv_offload_gb is not None:
            raise BadInput(
                "llamacpp has no KV offload tier of a given size", next_step="see --cache-ram in args"
            )
        launcher = recipe.launcher or [sys.executable, "-m", "flows.engines.llamacpp_server"]
        slots = recipe.slots or recipe.max_running_requests or 1
        argv = [*launcher, "--model", str(find_gguf(recipe.model))]
        argv += ["--alias", layout.served_name(recipe)]
        argv += ["--host", "127.0.0.1", "--parallel", str(slots), "--metrics"]
        if recipe.context_tokens is not None:
            argv += ["--ctx-size", str(recipe.context_tokens * slots)]
        if recipe.prefix_caching is not None:
            argv += ["--cache-prompt" if recipe.prefix_caching else "--no-cache-prompt"]
        if recipe.kv_cache_dtype is not None:
            argv += ["--cache-type-k", recipe.kv_cache_dtype, "--cache-type-v", recipe.kv_cache_dtype]
        if recipe.tensor_parallel > 1:
            argv += ["--tensor-split", ",".join(["1"] * recipe.tensor_parallel)]
        if recipe.gpus or recipe.gpu_ids:
            argv += ["--n-gpu-layers", "999"]
        if recipe.speculation is not None:
            argv += ["--spec-type", recipe.speculation.method]
            argv += ["--draft-max", str(recipe.speculation.draft_tokens)]
            if recipe.speculation.draft_model:
                argv += ["--model-draft", str(find_gguf(recipe.speculation.draft_model))]
        if recipe.quantization is not None:
            raise BadInput(
                "llamacpp takes its quantization from the GGUF file", next_step="name another file"
            )
        argv += recipe.args
        specs = []
        for ids in layout.split_gpus(recipe, recipe.replicas, layout.gpus_per_replica(recipe)):
            port = free_port()
            role = "replica" if recipe.replicas > 1 else "server"
            specs.append(
                ProcessSpec([*argv, "--port", str(port)], {**ENVIRONMENT, **recipe.env}, port, role, ids)
            )
        return specs

    def is_ready(self, base_url: str, log_text: str) -> bool:
        """llama-server answers 503 on /health while it loads."""
        return http.is_ok(f"{base_url}/health")

    def read_log(self, lines: Any) -> LogReading:
        from flows.engines.logs import read_lines

        return read_lines(lines, engine="llamacpp")

    def read_counters(self, metrics_text: str) -> dict[str, Any]:
        from flows.engines.metrics import read_counters

        return read_counters(metrics_text, engine="llamacpp")

    def read_facts(self, base_url: str, client: httpx.Client) -> EngineFacts:
        """What the running server says over HTTP."""
        facts = EngineFacts()
        props = http.get_json(client, f"{base_url}/props") or {}
        slots = http.get_json(client, f"{base_url}/slots")
        models = http.get_json(client, f"{base_url}/v1/models") or {}
        build = props.get("build_info")
        if isinstance(build, str) and build != "b0-unknown":
            facts.version = build
        if isinstance(props.get("total_slots"), int):
            facts.max_running_requests = props["total_slots"]
        if isinstance(slots, list) and slots and isinstance(slots[0], dict):
            facts.max_model_len = slots[0].get("n_ctx")
        meta = ((models.get("data") or [{}])[0] or {}).get("meta") or {}
        facts.weight_bytes = meta.get("size")
        facts.extra["model_meta"] = meta
        return facts
