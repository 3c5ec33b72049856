"""Finds an engine file by the name that a recipe uses."""

from __future__ import annotations

import importlib
from typing import cast

from contracts.errors import BadInput
from flows.engines.base import Engine

ENGINES: dict[str, str] = {
    "llamacpp": "flows.engines.llamacpp:LlamaCpp",
    "vllm": "flows.engines.vllm:Vllm",
    "sglang": "flows.engines.sglang:Sglang",
    "transformers": "flows.engines.transformers:Transformers",
    "external": "flows.engines.external:External",
    "reference": "flows.engines.reference:ReferenceEngine",
}


def get_engine(name: str) -> Engine:
    """The engine of this name, imported now. Raises BadInput for a name that there is no file for."""
    try:
        module, _, kind = ENGINES[name].partition(":")
    except KeyError:
        raise BadInput(
            f"there is no engine {name!r}", required=f"one of {', '.join(sorted(ENGINES))}"
        ) from None
    return cast(Engine, getattr(importlib.import_module(module), kind)())
