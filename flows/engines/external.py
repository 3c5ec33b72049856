"""An endpoint that is already up. Nothing is started; its key comes from the environment and goes nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from contracts.errors import BadInput
from flows.engines import http, layout
from flows.engines.base import EngineFacts, LogReading, ProcessSpec
from flows.recipe import Recipe


class External:
    """Any OpenAI-compatible server; its counters are read in whatever dialect its /metrics has."""

    name = "external"
    token_counter = "/tokenize"

    def processes(self, recipe: Recipe, folder: Path) -> list[ProcessSpec]:
        """None. Raises BadInput for settings that nobody could apply to a server that runs already."""
        for name in ("args", "env", "launcher", "speculation", "prefill_decode", "kv_offload_gb", "quantization",
                     "kv_cache_dtype", "memory_fraction", "compile_cache"):  # fmt: skip
            if getattr(recipe, name):
                raise BadInput(f"external: {name} cannot be applied to an endpoint that is already up")
        self.endpoint(recipe)
        layout.key_headers(recipe)
        return []

    def endpoint(self, recipe: Recipe) -> str:
        """The base URL without `/v1` and without a trailing slash."""
        url = (recipe.url or "").rstrip("/").removesuffix("/v1").rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"external: url {recipe.url!r} is no HTTP address", required="http://host:port")
        if "@" in url.split("//", 1)[1].split("/", 1)[0]:
            raise BadInput(
                "external: a url with a name and password in it would be written to raw",
                next_step="give the key through api_key_env",
            )
        return url

    def served_model(self, recipe: Recipe) -> str:
        """The name that requests must carry, as written: a hub id keeps its slash."""
        return recipe.served_name or recipe.model

    def is_ready(self, base_url: str, log_text: str) -> bool:
        return True  # the one-token request decides; there is no log and perhaps no /health

    def read_log(self, lines: Any) -> LogReading:
        from flows.engines.logs import read_lines

        return read_lines(lines)

    def read_counters(self, metrics_text: str) -> dict[str, Any]:
        from flows.engines.metrics import read_counters

        return read_counters(metrics_text)

    def read_facts(self, base_url: str, client: httpx.Client) -> EngineFacts:
        """What /version, /v1/models and /metrics say, where they exist."""
        from flows.engines.metrics import read_metrics_facts

        facts = read_metrics_facts(http.get_text(client, f"{base_url}/metrics") or "")
        version = http.get_json(client, f"{base_url}/version")
        if isinstance(version, dict) and isinstance(version.get("version"), str):
            facts.version = version["version"]
        facts.max_model_len = http.model_length(client, base_url)
        return facts
