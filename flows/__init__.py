"""Runs campaigns against LLM servers and writes raw evidence."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """`__version__`, read when asked for: the load process starts in this package for every window."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("weighbridge")
    except PackageNotFoundError:  # a source tree without an install
        return "0.1.0"
