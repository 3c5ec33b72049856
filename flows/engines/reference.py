"""The reference server as an engine, and its command: `python -m flows.engines.reference --scenario FILE --port 0`.

What it serves is known by construction: docs/reference-server.md lists what a scenario can ask for, and `--truth FILE`
receives every request's token instants (CLOCK_MONOTONIC ns), counts and cache hits, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contracts.errors import WeighbridgeError
from flows.priority import ask_for_short_slices

if TYPE_CHECKING:
    from flows.engines.base import LogReading, ProcessSpec
    from flows.recipe import Recipe

DEFAULT = "default"
# It must keep the instants that it was told, beside busy neighbours; a client of the project is still woken before it.
SLICE_NS = 1_000_000


class ReferenceEngine:
    """`recipe.model` is a scenario file, or `default`; `--set JSON` in `recipe.args` is laid over it.

    Where `recipe.stand_in` is given, the recipe is another engine's, which this server plays: the scenario is the
    stand-in's, and model and args are only what that engine would have got.
    """

    name = "reference"
    token_counter = "/tokenize"

    def served_model(self, recipe: Recipe) -> str:
        """The name that clients ask for."""
        if recipe.stand_in is not None:
            from flows.engines import layout

            return layout.served_name(recipe)
        return recipe.served_name or _read(recipe.model, recipe.args).model

    def processes(self, recipe: Recipe, folder: Path) -> list[ProcessSpec]:
        """One server a replica, or one a side and a router. Raises BadInput for a scenario that cannot be read."""
        from flows.engines import layout

        if recipe.stand_in is not None:
            scenario = ["--set", json.dumps(recipe.stand_in, sort_keys=True)]
            _read(DEFAULT, scenario)
        else:
            scenario = [*([] if recipe.model == DEFAULT else ["--scenario", recipe.model]), *recipe.args]
        if recipe.prefill_decode is not None:
            split = recipe.prefill_decode
            prefill = self._server(recipe, scenario, "prefill", split.prefill_gpus)
            decode = self._server(recipe, scenario, "decode", split.decode_gpus)
            return [prefill, decode, layout.router_of_split("vllm", prefill, decode)]
        role = "replica" if recipe.replicas > 1 else "server"
        each = layout.gpus_per_replica(recipe)
        return [
            self._server(recipe, scenario, role, ids)
            for ids in layout.split_gpus(recipe, recipe.replicas, each)
        ]

    def _server(
        self, recipe: Recipe, scenario: list[str], role: str, gpu_ids: list[int] | None
    ) -> ProcessSpec:
        from flows.engines.base import ProcessSpec
        from flows.engines.processes import free_port

        port = free_port()
        argv = [sys.executable, "-m", "flows.engines.reference", "--port", str(port)]
        argv += ["--model", self.served_model(recipe), *scenario]
        return ProcessSpec(argv, dict(recipe.env), port, role, gpu_ids)

    def is_ready(self, base_url: str, log_text: str) -> bool:
        from flows.engines import http

        return "Application startup complete" in log_text and http.is_ok(f"{base_url}/health")

    def read_log(self, lines: Any) -> LogReading:
        """Its log is in vLLM's words."""
        from flows.engines.logs import read_lines

        return read_lines(lines, engine="vllm")

    def read_counters(self, metrics_text: str) -> dict[str, Any]:
        from flows.engines.metrics import read_counters

        return read_counters(metrics_text, engine="vllm")


def reference_recipe(
    server: dict[str, Any], *, name: str = "reference", claims: dict[str, Any] | None = None
) -> Recipe:
    """A recipe for a reference server that does what `server` says. claims: further settings of the recipe."""
    from flows.recipe import Recipe

    settings: dict[str, Any] = {"name": name, "engine": "reference", "model": DEFAULT, **(claims or {})}
    settings["args"] = [*settings.get("args", []), "--set", json.dumps(server, sort_keys=True)]
    return Recipe(**settings)


def played_recipe(recipe: Recipe, *changes: dict[str, Any]) -> Recipe:
    """The recipe on a reference server that announces what the recipe asks for. changes: laid over that, in order.

    Raises BadInput for a key of a scenario that the reference server does not know.
    """
    from flows.engines.reference_scenario import build_scenario, merge

    start: dict[str, Any] = {}
    if recipe.context_tokens is not None:
        start["max_model_len"] = recipe.context_tokens
    if recipe.max_running_requests is not None:
        start["max_num_seqs"] = recipe.max_running_requests
    scenario: dict[str, Any] = {"start": start, "cache": {"enabled": recipe.prefix_caching is not False}}
    for change in changes:
        scenario = merge(scenario, change)
    build_scenario(scenario, f"the server that plays {recipe.name}")
    return recipe.model_copy(
        update={"engine": "reference", "stand_in": scenario, "url": None, "launcher": None}
    )


def _read(model: str, args: list[str]) -> Any:
    from flows.engines.reference_scenario import build_scenario, read_scenario

    laid_over = [args[at + 1] for at, arg in enumerate(args[:-1]) if arg == "--set"]
    scenario = build_scenario({}) if model == DEFAULT else read_scenario(Path(model))
    return _with(scenario, laid_over)


def _with(scenario: Any, changes: list[str]) -> Any:
    import msgspec

    from contracts.errors import BadInput
    from flows.engines.reference_scenario import build_scenario, merge

    data = msgspec.to_builtins(scenario)
    for text in changes:
        try:
            data = merge(data, json.loads(text))
        except ValueError as error:
            raise BadInput(f"--set is not JSON: {error}", measured=text[:200]) from None
    return build_scenario(data, "--set") if changes else scenario


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM. Port 0 takes a free one; the log says which."""
    parser = argparse.ArgumentParser(prog="python -m flows.engines.reference", description=__doc__)
    parser.add_argument("--scenario", default=DEFAULT, help="a scenario file (JSON or YAML), or `default`")
    parser.add_argument("--set", action="append", default=[], metavar="JSON", help="laid over the scenario")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", help="the served model's name, in place of the scenario's")
    parser.add_argument("--truth", type=Path, help="write what was truly done to this file")
    given = parser.parse_args(argv)
    try:
        scenario = _with(_read(given.scenario, []), given.set)
    except WeighbridgeError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    if given.model:
        scenario.model = given.model
    from flows.engines.reference_server import serve

    ask_for_short_slices(SLICE_NS)
    serve(scenario, given.host, given.port, given.truth)
    return 0


if __name__ == "__main__":
    sys.exit(main())
