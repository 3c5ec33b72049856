"""Makes a start cold, as far as this machine lets it be: the compile cache emptied, the weights out of memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from flows import engines
from flows.recipe import Recipe
from flows.workloads.cold_start import Start


def prepare(recipe: Recipe, start: Start) -> bool | None:
    """Do what a start asks for before the engine is started; say whether it will be warm.

    True: it was brought up before in this execution and nothing was cleared. False: everything that the start asks to
    be cold was made cold. None: something could not be, so no cold start may be claimed.
    """
    if start.kind == "warm":
        return True
    is_cold = True
    cache = recipe.compile_cache
    if start.clears_compile_cache and cache is not None and cache != "off":
        shutil.rmtree(cache, ignore_errors=True)
        is_cold = not Path(cache).exists()
    if start.drops_page_cache:
        weights = engines.model_path(recipe)
        is_cold = is_cold and weights is not None and _drop_page_cache(weights)
    return False if is_cold else None


def _drop_page_cache(weights: Path) -> bool:
    """Ask the kernel to forget the weights' pages, which needs no rights beyond reading them."""
    files = [path for path in weights.rglob("*") if path.is_file()] if weights.is_dir() else [weights]
    try:
        for path in files:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
    except OSError:
        return False
    return True
