"""`transformers serve`: a reference more than a rival. No /metrics, no context refusal, no batching by default."""

from __future__ import annotations

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

PYTHON_VARIABLE = "WEIGHBRIDGE_TRANSFORMERS_PYTHON"


class Transformers:
    """The model is named by place, which loads it before the server listens."""

    name = "transformers"
    token_counter = None

    def processes(self, recipe: Recipe, folder: Path) -> list[ProcessSpec]:
        """One process a replica. Raises BadInput for everything that `transformers serve` has no flag for."""
        layout.refuse(
            recipe,
            "transformers",
            tensor_parallel="it has no tensor parallel server",
            pipeline_parallel="it has no pipeline",
            data_parallel="use replicas",
            expert_parallel="it has no expert parallel server",
            prefill_decode="it has no split",
            speculation="it has no speculation over HTTP",
            kv_offload_gb="it keeps no KV tiers",
            kv_cache_dtype="it has no such flag",
            prefix_caching="it shares no prefixes",
            context_tokens="it refuses no prompt length; leave context_tokens out",
        )
        model = layout.model_argument(recipe)
        if recipe.served_name not in (None, model):
            raise BadInput(
                "transformers serves a model under its own path or id", measured=recipe.served_name
            )
        argv = list(recipe.launcher) if recipe.launcher else default_launcher(recipe)
        argv += [model, "--host", "127.0.0.1"]
        if recipe.slots is not None or recipe.max_running_requests is not None:
            argv += ["--continuous-batching"]
        if recipe.quantization is not None:
            argv += ["--quantization", recipe.quantization]
        if recipe.memory_fraction is not None:
            argv += ["--cb-max-memory-percent", f"{recipe.memory_fraction:g}"]
        if recipe.cuda_graphs is not None:
            argv += ["--cb-use-cuda-graph" if recipe.cuda_graphs else "--no-cb-use-cuda-graph"]
        # Its own messages are needed for evidence; the default level hides them.
        argv += ["--log-level", "info", *recipe.args]
        environment = {**layout.compile_cache_environment(recipe), **recipe.env}
        specs = []
        for ids in layout.split_gpus(recipe, recipe.replicas, layout.gpus_per_replica(recipe)):
            port = free_port()
            role = "replica" if recipe.replicas > 1 else "server"
            specs.append(ProcessSpec([*argv, "--port", str(port)], environment, port, role, ids))
        return specs

    def served_model(self, recipe: Recipe) -> str:
        """The name that requests must carry: the path or id itself."""
        return layout.model_argument(recipe)

    def is_ready(self, base_url: str, log_text: str) -> bool:
        return http.is_ok(f"{base_url}/health")

    def read_log(self, lines: Any) -> LogReading:
        from flows.engines.logs import read_lines

        return read_lines(lines, engine="transformers")

    def read_counters(self, metrics_text: str) -> dict[str, Any]:
        """Every counter is None: there is no /metrics."""
        from flows.engines.metrics import read_counters

        return read_counters(metrics_text, engine="transformers")

    def read_facts(self, base_url: str, client: httpx.Client) -> EngineFacts:
        return EngineFacts()


def default_launcher(recipe: Recipe) -> list[str]:
    """The Python that WEIGHBRIDGE_TRANSFORMERS_PYTHON names, else the command on the path."""
    python = recipe.env.get(PYTHON_VARIABLE) or os.environ.get(PYTHON_VARIABLE)
    if python:
        return [str(Path(python).with_name("transformers")), "serve"]
    return [shutil.which("transformers") or str(Path(sys.executable).with_name("transformers")), "serve"]
