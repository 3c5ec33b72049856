"""Reads an engine's log."""

from __future__ import annotations

import re
from typing import Any

from flows.engines.base import LogReading

_RULES = [
    (
        "bad_argument",
        re.compile(
            r"error: unrecognized arguments|error: invalid value|error: argument |error: the following arguments are required"
        ),
    ),
    ("model_not_found", re.compile(r"failed to open GGUF file|model not found")),
    ("host_oom", re.compile(r"insufficient memory \(attempted|failed to allocate CPU buffer")),
    ("port_in_use", re.compile(r"couldn't bind HTTP server socket|address already in use", re.I)),
    ("dependency_missing", re.compile(r"No module named|cannot run .*: No such file")),
    ("unsupported_arch", re.compile(r"unknown model architecture")),
]


def read_lines(lines: Any, engine: str | None = None) -> LogReading:
    reading = LogReading(engine=engine)
    for number, line in enumerate(lines, 1):
        for name, pattern in _RULES:
            if reading.failure_class is None and pattern.search(line):
                reading.failure_class = name
                reading.state = "failed"
                reading.evidence.append({"file": None, "line": number, "text": line.rstrip()})
        if found := re.search(r"llama_context: n_ctx +=\s+(\d+)", line):
            reading.facts.kv_tokens = int(found[1])
        if found := re.search(r"by xllamacpp (\S+)", line):
            reading.facts.version = f"xllamacpp {found[1]}"
        if "listening on http" in line and reading.failure_class is None:
            reading.state = "ready"
    return reading
