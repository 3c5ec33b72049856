"""The load core: sends a window's planned requests from a process of its own and lands what it saw.

    run_window(spec, requests, run, on_progress=None, should_abort=None, on_text=None) -> Window
    recover_window(run, cell_id) -> bool         after a kill: lands what was completed, idempotently
    left_over_windows(run) -> list[Path]         load folders (named by cell_id) that need it
    check_endpoint(url, model, api_key_env, kind)   raises EndpointUnusable
    read_stream(chunks, kind) -> Reading         a captured answer, read

docs/load.md says how it measures. Names are imported when they are first used: a load process starts inside this
package, and what it does not need would be part of every window's start.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.load.errors import EndpointUnusable, LoadProcessDied
    from flows.load.finish import left_over_windows, recover_window
    from flows.load.preflight import check_endpoint
    from flows.load.streams import Reading, read_stream
    from flows.load.window import Progress, run_window

__all__ = [
    "EndpointUnusable",
    "LoadProcessDied",
    "Progress",
    "Reading",
    "check_endpoint",
    "left_over_windows",
    "read_stream",
    "recover_window",
    "run_window",
]
_HOMES = {
    "EndpointUnusable": "errors",
    "LoadProcessDied": "errors",
    "Progress": "window",
    "Reading": "streams",
    "check_endpoint": "preflight",
    "left_over_windows": "finish",
    "read_stream": "streams",
    "recover_window": "finish",
    "run_window": "window",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
