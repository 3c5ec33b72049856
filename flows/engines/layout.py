"""What the engines' command lines have in common: names, GPU shares, and refusals of what an engine cannot do."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from contracts.errors import BadInput
from flows.engines.base import ProcessSpec
from flows.engines.processes import free_port
from flows.recipe import Recipe


def served_name(recipe: Recipe) -> str:
    """The model name that clients send."""
    return recipe.served_name or Path(recipe.model).name.removesuffix(".gguf")


def model_argument(recipe: Recipe) -> str:
    """The model as the engine gets it: an absolute path where it is a path here, else the name as written."""
    return os.path.abspath(recipe.model) if os.path.exists(recipe.model) else recipe.model


def split_gpus(recipe: Recipe, servers: int, gpus_each: int) -> list[list[int] | None]:
    """The GPU ids of each server. None: not pinned. Raises BadInput when ids and layout do not fit together.

    servers: processes that own GPUs; gpus_each: devices that the layout gives one of them.
    """
    if recipe.gpu_ids is None:
        if recipe.gpus and servers > 1:
            ids = list(range(recipe.gpus))
        else:
            return [None] * servers
    else:
        ids = recipe.gpu_ids
    if len(set(ids)) != len(ids):
        raise BadInput("gpu_ids names a device twice", measured=str(ids))
    if len(ids) != servers * gpus_each:
        raise BadInput(
            "the layout and the GPUs do not fit together",
            measured=f"{len(ids)} GPU(s) {ids}",
            required=f"{servers} server(s) x {gpus_each} GPU(s) each",
            next_step="set gpu_ids, replicas and the parallel sizes so that they multiply out",
        )
    return [ids[i * gpus_each : (i + 1) * gpus_each] for i in range(servers)]


def key_headers(recipe: Recipe) -> dict[str, str]:
    """The Authorization header, when the recipe names a variable for the key.

    A server that is started here may get its key through the recipe's own env; an external one's is in ours. Raises
    BadInput when it is in neither.
    """
    if recipe.api_key_env is None:
        return {}
    key = os.environ.get(recipe.api_key_env) or recipe.env.get(recipe.api_key_env)
    if not key:
        raise BadInput(
            f"{recipe.engine}: the variable {recipe.api_key_env} is not set",
            next_step=f"export {recipe.api_key_env}",
        )
    return {"Authorization": f"Bearer {key}"}


def gpus_per_replica(recipe: Recipe) -> int:
    """Devices of one replica where no parallel size says so: an equal share, at least one."""
    devices = len(recipe.gpu_ids) if recipe.gpu_ids is not None else recipe.gpus
    return max(1, devices // recipe.replicas)


def refuse(recipe: Recipe, engine: str, **fields: str) -> None:
    """Raise BadInput for each named field that is set although the engine has no such thing."""
    for name, why in fields.items():
        value = getattr(recipe, name)
        is_default = value is None or value is False or (type(value) is int and value == 1)
        if not is_default:
            raise BadInput(f"{engine}: {name} cannot be expressed: {why}", measured=f"{name}: {value}")


def compile_cache_environment(recipe: Recipe) -> dict[str, str]:
    """Where compiled code is kept. `compile_cache: off` starts cold every time; a path keeps it there."""
    cache = recipe.compile_cache
    if cache is None:
        return {}
    if cache == "off":
        return {"VLLM_DISABLE_COMPILE_CACHE": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    folder = os.path.abspath(cache)
    return {
        "VLLM_CACHE_ROOT": f"{folder}/vllm",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
    }


def router_of_split(dialect: str, prefill: ProcessSpec, decode: ProcessSpec, *options: str) -> ProcessSpec:
    """The router before the two sides of a prefill/decode split (flows.engines.router)."""
    port = free_port()
    argv = [sys.executable, "-m", "flows.engines.router", "--dialect", dialect, "--port", str(port), *options]
    for side, spec in (("--prefill", prefill), ("--decode", decode)):
        argv += [side, f"http://127.0.0.1:{spec.port}"]
    return ProcessSpec(argv, {}, port, "router")
