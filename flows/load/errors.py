"""What the load core refuses, and how it fails. Both are printed without a traceback."""

from __future__ import annotations

from contracts.errors import WeighbridgeError


class EndpointUnusable(WeighbridgeError):
    """An endpoint is not what was asked for: raised before a window opens, so that nothing was measured."""


class LoadProcessDied(WeighbridgeError):
    """A load process ended before its window did. What it had completed was recovered and landed first."""
