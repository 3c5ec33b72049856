"""The sixteen screens, in the order of docs/design.md. One file each; `SCREENS` maps name to Screen."""

from __future__ import annotations

import importlib

from contracts.screens.base import Screen, Threshold

NAMES = (
    "needle_gate",
    "cache_screen",
    "roofline",
    "cache_accounting",
    "nonce_audit",
    "output_attainment",
    "token_reconciliation",
    "population",
    "little_law",
    "client_lag",
    "clock_sanity",
    "steady_state",
    "sample_size",
    "stream_granularity",
    "server_health",
    "declared_config",
)

SCREENS: dict[str, Screen] = {
    name: importlib.import_module(f"contracts.screens.{name}").SCREEN for name in NAMES
}

__all__ = ["NAMES", "SCREENS", "Screen", "Threshold"]
