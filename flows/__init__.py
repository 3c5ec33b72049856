"""Runs campaigns against LLM servers and writes raw evidence."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("weighbridge")
except PackageNotFoundError:  # a source tree without an install
    __version__ = "0.1.0"
