"""Engines: one file each. `bring_up` starts a recipe's processes on a leash and waits until it serves.

Imports stay inside the functions: the server launchers of this package start without loading the flow's libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.engines.served import Served
    from flows.landing import RunFolder
    from flows.recipe import Recipe


def bring_up(
    recipe: Recipe, run: RunFolder, on_event: Callable[[str, dict[str, Any]], None] | None = None
) -> Served:
    """Start a recipe and return the running server. Raises BringUpFailed; nothing is left running then."""
    from flows.engines import start

    return start.bring_up(recipe, run, on_event)


def sweep(run_folder: Path) -> list[int]:
    """End what a killed flow left of a run's engine processes. Returns the process ids that were ended."""
    from flows.engines import processes

    return processes.sweep(run_folder)


def model_path(recipe: Recipe) -> Path | None:
    """Where a recipe's model lies on this machine: a GGUF file or a folder; None for hub ids and external engines."""
    from contracts.errors import BadInput
    from flows.engines.models import find_gguf

    if recipe.engine == "external":
        return None
    try:
        path = find_gguf(recipe.model)
    except BadInput:
        return None  # bring-up says what is missing, as a kept failure
    return path if path.exists() else None


def reference_recipe(
    server: dict[str, Any], *, name: str = "reference", claims: dict[str, Any] | None = None
) -> Recipe:
    """A recipe for a reference server that does what `server` says (docs/reference-server.md)."""
    from flows.engines import reference

    return reference.reference_recipe(server, name=name, claims=claims)


def played_recipe(recipe: Recipe, *changes: dict[str, Any]) -> Recipe:
    """A recipe of any engine with the reference server in the engine's place. changes: laid over its scenario."""
    from flows.engines import reference

    return reference.played_recipe(recipe, *changes)
