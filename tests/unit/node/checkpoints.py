"""Writes small checkpoints for tests: headers whose weights are never read."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from flows.node.tensors import DTYPE_BITS

Shapes = dict[str, tuple[str, tuple[int, ...]]]


def header_bytes(tensors: Shapes) -> bytes:
    """A safetensors header of `name -> (dtype, shape)`, without any weights behind it."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = math.prod(shape) * DTYPE_BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw


def write_safetensors(path: Path, tensors: Shapes) -> Path:
    path.write_bytes(header_bytes(tensors))
    return path


def write_folder(folder: Path, tensors: Shapes, config: dict[str, Any] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    first = _value(value[0])
    return (
        struct.pack("<I", 9)
        + first[:4]
        + struct.pack("<Q", len(value))
        + b"".join(_value(v)[4:] for v in value)
    )


def gguf_bytes(metadata: dict[str, Any], tensors: dict[str, tuple[int, tuple[int, ...]]]) -> bytes:
    """A GGUF header of version 3; tensors are `name -> (ggml type number, shape)`."""
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        raw += _string(key) + _value(value)
    for name, (kind, shape) in tensors.items():
        raw += _string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        raw += struct.pack("<IQ", kind, 0)
    return raw
