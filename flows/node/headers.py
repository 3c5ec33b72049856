"""Reads safetensors headers: names, dtypes, shapes and bytes of every tensor. Never a weight."""

from __future__ import annotations

import json
import math
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from contracts.errors import BadInput
from flows.node.tensors import DTYPE_BITS, Tensor

MAX_HEADER_BYTES = 100_000_000  # the format's own limit (huggingface/safetensors, MAX_HEADER_SIZE)


class RefusedCheckpoint(BadInput):
    """A file that is not the checkpoint that it seems to be."""


@dataclass
class Header:
    """A safetensors header: tensors in the order of the file, the file's own metadata, and warnings."""

    tensors: list[Tensor]
    metadata: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_header(path: Path) -> Header:
    """The header of one `.safetensors` file. Raises RefusedCheckpoint with what is wrong and where."""
    try:
        size = os.path.getsize(path)
        with path.open("rb") as stream:
            start = stream.read(8)
            if start.startswith(b"version "):
                raise RefusedCheckpoint(
                    "this is a Git LFS pointer, not a checkpoint",
                    evidence=str(path),
                    next_step="git lfs pull, or download the file itself",
                )
            if len(start) < 8:
                raise _refused(
                    path, "the file ends inside the header's length", f"{len(start)} bytes", "8 bytes"
                )
            (length,) = struct.unpack("<Q", start)
            if length > MAX_HEADER_BYTES:
                raise _refused(
                    path, "this is no safetensors file", f"a header of {length} bytes", "<= 100 MB"
                )
            if length > size - 8:
                raise _refused(
                    path, "the file is cut off inside its header", f"{size - 8} bytes", f"{length} bytes"
                )
            raw = stream.read(length)
    except OSError as error:
        raise RefusedCheckpoint(f"cannot be read: {error.strerror}", evidence=str(path)) from error
    header = parse_header(raw, str(path))
    end = max((t.nbytes or 0 for t in header.tensors), default=0)
    end = sum(t.nbytes or 0 for t in header.tensors) if header.tensors else end
    if size - 8 - length < end:
        header.warnings.append(
            f"{path.name} holds {size - 8 - length} of the {end} bytes of weights that its header names: "
            "cut off, or a header alone"
        )
    return header


def parse_header(raw: bytes, where: str = "header") -> Header:
    """Reads the JSON of a header. Raises RefusedCheckpoint when it is not one or contradicts itself."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _refused(Path(where), "the header is not JSON", str(error)[:80], "a JSON object") from error
    if not isinstance(found, dict):
        raise _refused(Path(where), "the header is not a JSON object", type(found).__name__, "object")
    metadata = found.pop("__metadata__", {})
    tensors = [_tensor(name, entry, where) for name, entry in found.items()]
    return Header(tensors, metadata if isinstance(metadata, dict) else {})


def _tensor(name: str, entry: Any, where: str) -> Tensor:
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        raise _refused(
            Path(where), f"tensor {name!r} has no dtype", repr(entry)[:60], "dtype, shape, data_offsets"
        )
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _is_counts(shape):
        raise _refused(Path(where), f"tensor {name!r} has no shape", repr(shape)[:60], "a list of counts")
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[1] < offsets[0]:
        raise _refused(
            Path(where), f"tensor {name!r} has no place", repr(offsets)[:60], "data_offsets [start, end]"
        )
    dtype, nbytes = entry["dtype"].upper(), offsets[1] - offsets[0]
    bits = DTYPE_BITS.get(dtype)
    if bits is not None and -(-math.prod(shape) * bits // 8) != nbytes:
        raise _refused(
            Path(where),
            f"tensor {name!r} contradicts itself",
            f"{nbytes} bytes",
            f"{-(-math.prod(shape) * bits // 8)} for {dtype} {shape}",
        )
    return Tensor(name, dtype, tuple(shape), nbytes)


def _is_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in value
    )


def _refused(path: Path, what: str, measured: str, required: str) -> RefusedCheckpoint:
    return RefusedCheckpoint(what, measured=measured, required=required, evidence=str(path))
