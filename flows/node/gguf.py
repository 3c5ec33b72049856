"""Reads the header of a GGUF file (llama.cpp): metadata and the tensor table. Never a weight.

Format: ggml-org/ggml, docs/gguf.md; block types: ggml.h and ggml-common.h.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from flows.node.headers import RefusedCheckpoint
from flows.node.tensors import Tensor

# id: (name, weights in a block, bytes of a block)
BLOCK_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
}  # fmt: skip
# general.file_type, llama.h (llama_ftype)
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_KEPT_ARRAY = 4096  # longer arrays (vocabularies) are counted, not kept
_MAX_COUNT = 10_000_000


@dataclass
class Gguf:
    """metadata: key -> value, long arrays as their length under `<key>.length`; tensors: the table."""

    metadata: dict[str, Any]
    tensors: list[Tensor]

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture") or "unknown")

    @property
    def file_type(self) -> str | None:
        """The quantisation that the file claims for itself."""
        value = self.metadata.get("general.file_type")
        return FILE_TYPES.get(value) if isinstance(value, int) else None

    def get(self, name: str) -> Any:
        """A value of this architecture: `get("block_count")` reads `llama.block_count`."""
        return self.metadata.get(f"{self.architecture}.{name}")


def is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"GGUF"
    except OSError:
        return False


def read_gguf(path: Path) -> Gguf:
    """Metadata and tensor table of one GGUF file. Raises RefusedCheckpoint when it is cut off or not GGUF."""
    try:
        with path.open("rb") as stream:
            return _Reader(stream, path).read()
    except OSError as error:
        raise RefusedCheckpoint(f"cannot be read: {error.strerror}", evidence=str(path)) from error


def gguf_config(gguf: Gguf) -> dict[str, Any]:
    """A GGUF's metadata under the names that configs use, as far as the roofline needs them."""
    names = {"qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "gpt-oss": "gpt_oss", "deepseek2": "deepseek_v3",
             "glm4moe": "glm4_moe", "qwen3next": "qwen3_next", "qwen35moe": "qwen3_5_moe", "falcon-h1": "falcon_h1"}  # fmt: skip
    get = gguf.get
    kv_heads, layers = get("attention.head_count_kv"), get("block_count")
    if isinstance(layers, int):
        layers -= get("nextn_predict_layers") if isinstance(get("nextn_predict_layers"), int) else 0
    config: dict[str, Any] = {
        "model_type": names.get(gguf.architecture, gguf.architecture),
        "num_hidden_layers": layers,
        "hidden_size": get("embedding_length"),
        "num_attention_heads": get("attention.head_count"),
        "num_key_value_heads": kv_heads,
        "head_dim": get("attention.key_length"),
        "intermediate_size": get("feed_forward_length"),
        "moe_intermediate_size": get("expert_feed_forward_length"),
        "shared_expert_intermediate_size": get("expert_shared_feed_forward_length"),
        "num_experts": get("expert_count"),
        "num_experts_per_tok": get("expert_used_count"),
        "n_shared_experts": get("expert_shared_count"),
        "first_k_dense_replace": get("leading_dense_block_count"),
        "vocab_size": get("vocab_size") or gguf.metadata.get("tokenizer.ggml.tokens.length"),
        "max_position_embeddings": get("context_length"),
        "sliding_window": get("attention.sliding_window"),
        "sliding_window_pattern": get("attention.sliding_window_pattern"),
        "kv_lora_rank": get("attention.kv_lora_rank"),
        "q_lora_rank": get("attention.q_lora_rank"),
        "qk_rope_head_dim": get("rope.dimension_count") if get("attention.kv_lora_rank") else None,
        "v_head_dim": get("attention.value_length_mla") or get("attention.value_length"),
        "full_attention_interval": get("full_attention_interval"),
        "ssm_state_size": get("ssm.state_size"),
        "conv_kernel": get("ssm.conv_kernel"),
        "tie_word_embeddings": not any(t.name == "output.weight" for t in gguf.tensors),
    }  # fmt: skip
    if get("full_attention_interval") and get("ssm.state_size"):  # gated delta net under ssm names
        config |= {
            "linear_num_value_heads": get("ssm.time_step_rank"),
            "linear_num_key_heads": get("ssm.group_count"),
            "linear_key_head_dim": get("ssm.state_size"),
            "linear_value_head_dim": get("ssm.state_size"),
            "linear_conv_kernel_dim": get("ssm.conv_kernel"),
        }
    if isinstance(kv_heads, list) and 0 in kv_heads:
        other = "mamba" if get("ssm.state_size") else "conv"
        config["layer_types"] = ["full_attention" if n else other for n in kv_heads]
    pattern = get("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        config["layer_types"] = ["sliding_attention" if p else "full_attention" for p in pattern]
    return {key: value for key, value in config.items() if value is not None}


class _Reader:
    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self.stream, self.path = stream, path
        self.wide = "<Q"  # version 1 wrote 32-bit counts

    def read(self) -> Gguf:
        if self._take(4) != b"GGUF":
            raise self._refused("this is no GGUF file: the magic is missing")
        (version,) = struct.unpack("<I", self._take(4))
        if version not in (1, 2, 3):
            raise self._refused(f"GGUF version {version} is not known (big-endian files are not read)")
        if version == 1:
            self.wide = "<I"
        tensors, pairs = self._count(), self._count()
        metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string()
            (kind,) = struct.unpack("<I", self._take(4))
            metadata[key] = self._value(kind, 0)
            if isinstance(metadata[key], _Counted):
                metadata[f"{key}.length"] = metadata.pop(key).length
        return Gguf(metadata, [self._tensor() for _ in range(tensors)])

    def _tensor(self) -> Tensor:
        name = self._string()
        (dims,) = struct.unpack("<I", self._take(4))
        if dims > 8:
            raise self._refused(f"tensor {name!r} has {dims} dimensions")
        shape = tuple(int(self._scalar(self.wide)) for _ in range(dims))
        kind, _offset = struct.unpack("<IQ", self._take(12))
        type_name, block, block_bytes = BLOCK_TYPES.get(kind, (f"type {kind}", 0, 0))
        elements = math.prod(shape)
        if elements > 1 << 50:
            raise self._refused(f"tensor {name!r} has {elements} elements")
        nbytes = -(-elements // block) * block_bytes if block else None
        return Tensor(name, type_name, shape, nbytes, 8 * block_bytes / block if block else None)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY and depth < 4:
            (inner,) = struct.unpack("<I", self._take(4))
            count = self._count()
            if inner in _SCALARS and count > _KEPT_ARRAY:
                self._skip(count * struct.calcsize(_SCALARS[inner]))
                return _Counted(count)
            kept = [self._value(inner, depth + 1) for _ in range(min(count, _KEPT_ARRAY))]
            for _ in range(count - len(kept)):
                self._skip_string() if inner == _STRING else self._value(inner, depth + 1)
            return kept if count == len(kept) else _Counted(count)
        raise self._refused(f"a metadata value has the unknown type {kind}")

    def _scalar(self, code: str) -> Any:
        return struct.unpack(code, self._take(struct.calcsize(code)))[0]

    def _count(self) -> int:
        count = int(self._scalar(self.wide))
        if count > _MAX_COUNT:
            raise self._refused(f"a count of {count} cannot be right")
        return count

    def _string(self) -> str:
        return self._take(self._length()).decode("utf-8", errors="replace")

    def _skip_string(self) -> None:
        self._skip(self._length())

    def _length(self) -> int:
        length = int(self._scalar(self.wide))
        if length > 1 << 26:
            raise self._refused(f"a string of {length} bytes cannot be right")
        return length

    def _take(self, count: int) -> bytes:
        data = self.stream.read(count)
        if len(data) < count:
            raise self._refused("the file is cut off inside its header")
        return data

    def _skip(self, count: int) -> None:
        self._take(count) if count <= 1 << 20 else self._take_long(count)

    def _take_long(self, count: int) -> None:
        while count > 0:
            count -= len(self._take(min(count, 1 << 20)))

    def _refused(self, what: str) -> RefusedCheckpoint:
        return RefusedCheckpoint(what, evidence=f"{self.path}, byte {self.stream.tell()}")


@dataclass
class _Counted:
    length: int
