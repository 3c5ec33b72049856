"""What tensors really are: each weight with its scales, its format, and how many parameters it holds.

A storage dtype says little: FP4 hides in I8 (DeepSeek), U8 (gpt-oss, ModelOpt, bitsandbytes) and U32 (MLX), int4 in I32
(GPTQ, AWQ, compressed-tensors). The companions of a weight (`_scale_inv`, `.absmax`, `_blocks`/`_scales`, `qzeros`) and
the ratio of their shapes decide; the config is only asked where they cannot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from flows.node.quantization import Claim, format_bits
from flows.node.tensors import DTYPE_BITS, Tensor, kind_of

PLAIN = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp64"}
NOT_QUANTISED = {
    "bf16", "fp16", "fp32", "fp64", "f16", "f32", "f64", "int16", "int32", "int64", "i16", "i32", "i64", "bool", "plain",
}  # fmt: skip
NAME_ONLY = "?"  # an index names a tensor and no more
FLOAT8 = {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}
_SCALE_DTYPES = {"F8_E8M0": "E8M0", "F8_E4M3": "E4M3"}

# Companions by the end of their name, after `.` or `_`; the first that fits counts, so longer ends stand first.
_ENDINGS: tuple[tuple[str, str], ...] = tuple(
    (end, role)
    for role, ends in (
        ("note", "nested_absmax nested_quant_map quant_map weight_format weight_shape"),
        ("scale", "absmax SCB"),
        ("scale2", "weight_scale_2 weight_global_scale scale_2 global_scale"),
        (
            "input",
            "input_scale input_scale_inv input_scale_ub input_scales input_global_scale activation_scale act_scale",
        ),
        ("input", "qscale_act pre_quant_scale smooth_scale"),
        ("cache", "k_scale v_scale q_scale kv_scale prob_scale attn_scale prob_output_scale output_scale"),
        ("scale", "weight_scale_inv weight_scales weight_scale qscale_weight scale_inv"),
        (
            "zero",
            "weight_zero_point weight_zero_points qzeros zero_point zero_points weight_g_idx g_idx perm",
        ),
        ("scale", "scales"),
    )
    for end in ends.split()
)
_STATE = re.compile(r"\.quant_state\.[\w.]+$")
# Only beside a weight of the same base: other tensors carry these names as well.
_SHY_ENDINGS = ((".scale", "scale"), (".biases", "zero"), ("_biases", "zero"), ("_scale", "scale"))
_WEIGHT_END = re.compile(r"([._]weight|\.qweight|[._]weight_packed|_packed|_blocks|\.W_q|\._data)$")


@dataclass
class Weight:
    """One stored weight with its companions. params: weights it holds, packing undone; null when not known."""

    name: str
    kind: str
    dtype: str
    format: str
    params: int | None
    nbytes: int | None
    layout: str | None = None
    scale_dtype: str | None = None
    has_second_scale: bool = False
    has_zero_points: bool = False
    has_input_scale: bool = False
    companion_bytes: int = 0
    is_assumed: bool = False

    @property
    def is_quantised(self) -> bool:
        return self.format not in NOT_QUANTISED


@dataclass
class Reading:
    """All weights of a checkpoint, companions attached; orphans: companions whose weight is not there."""

    weights: list[Weight]
    orphans: list[Tensor] = field(default_factory=list)
    has_cache_scales: bool = False
    notes: list[str] = field(default_factory=list)


def read_formats(tensors: Iterable[Tensor], claim: Claim | None = None, layers: int | None = None) -> Reading:
    """Groups tensors by module and decides every weight's format. claim: the config's, asked last."""
    listed = list(tensors)
    names = {t.name for t in listed}
    bases: dict[str, list[Tensor]] = {}
    companions: dict[str, list[tuple[str, Tensor]]] = {}
    for tensor in listed:
        role, base = _companion(tensor, names)
        if role is None:
            bases.setdefault(_WEIGHT_END.sub("", tensor.name), []).append(tensor)
        else:
            companions.setdefault(base, []).append((role, tensor))
    reading = Reading([])
    for base, stored in bases.items():
        # A weight and, say, its bias share no base; where they do, the largest is the weight.
        main = max(stored, key=lambda t: (t.elements or 0, t.nbytes or 0, bool(_WEIGHT_END.search(t.name))))
        for tensor in stored:
            own = companions.pop(base, []) if tensor is main else []
            weight = _judge(tensor, own, claim, layers)
            reading.weights.append(weight)
            reading.has_cache_scales |= any(role == "cache" for role, _ in own)
    for leftovers in companions.values():
        reading.has_cache_scales |= any(role == "cache" for role, _ in leftovers)
        reading.orphans += [tensor for _, tensor in leftovers]
    return reading


def _companion(tensor: Tensor, names: set[str]) -> tuple[str | None, str]:
    if tensor.name.endswith((".weight", ".bias")):  # most tensors, and no companion
        return None, tensor.name
    name = tensor.name
    if found := _STATE.search(name):
        return "state", _WEIGHT_END.sub("", name[: found.start()])
    for end, role in _ENDINGS:
        if name.endswith(end) and name[-len(end) - 1 : -len(end)] in (".", "_"):
            return role, _WEIGHT_END.sub("", name[: -len(end) - 1])
    for end, role in _SHY_ENDINGS:
        if name.endswith(end):
            base = name[: -len(end)]
            beside = (".scales",) if role == "zero" else (".weight", "_weight", "", ".scales")
            if any(base + other in names for other in beside):
                return role, _WEIGHT_END.sub("", base)
    return None, name


def _judge(tensor: Tensor, own: list[tuple[str, Tensor]], claim: Claim | None, layers: int | None) -> Weight:
    kind = kind_of(tensor.name, layers)
    scale = next((t for role, t in own if role == "scale"), None)
    weight = Weight(
        name=tensor.name,
        kind=kind,
        dtype=tensor.dtype,
        format=PLAIN.get(tensor.dtype, tensor.dtype.lower()),
        params=tensor.elements,
        nbytes=tensor.nbytes,
        companion_bytes=sum(t.nbytes or 0 for _, t in own),
        has_second_scale=any(role == "scale2" for role, _ in own),
        has_zero_points=any(role == "zero" for role, _ in own),
        has_input_scale=any(role == "input" for role, _ in own),
        scale_dtype=_scale_dtype(scale, tensor),
    )
    if tensor.bits is not None:  # GGUF: the block type says it all
        weight.format, weight.layout = tensor.dtype.lower(), None
        return weight
    bits = DTYPE_BITS.get(tensor.dtype)
    if weight.params is None and tensor.nbytes is not None and bits is not None:
        weight.params = tensor.nbytes * 8 // bits
    if tensor.dtype == NAME_ONLY:
        _by_name(weight, own, claim)
    elif tensor.dtype in FLOAT8:
        _float8(weight, tensor, scale)
    elif tensor.dtype in ("F4", "F6_E2M3", "F6_E3M2"):
        weight.format = "fp4" if tensor.dtype == "F4" else "fp6"
        _set_layout(weight, tensor.shape, scale, 1)
        _name_fp4(weight)
    elif tensor.dtype in ("I8", "U8"):
        _byte(weight, tensor, scale, own, claim)
    elif tensor.dtype in ("I32", "U32", "I16"):
        _word(weight, tensor, scale, own, claim)
    elif tensor.dtype in ("I4", "U4"):
        weight.format = "int4"
        _set_layout(weight, tensor.shape, scale, 1)
    elif tensor.dtype in ("I64", "U64", "U16", "BOOL"):
        weight.format = {"I64": "int64", "U64": "int64", "U16": "int16", "BOOL": "bool"}[tensor.dtype]
    return weight


def _by_name(weight: Weight, own: list[tuple[str, Tensor]], claim: Claim | None) -> None:
    """An index gives names alone: companions tell that a weight is quantised, seldom how."""
    weight.scale_dtype = None
    said = claim.scheme_for(weight.kind) if claim else None
    names = [t.name for _, t in own]
    state = next(
        (name for role, name in zip([r for r, _ in own], names, strict=True) if role == "state"), None
    )
    scales = [name for name, (role, _) in zip(names, own, strict=True) if role == "scale"]
    if state is not None:
        weight.format = "nf4" if "nf4" in state else "fp4"
    elif any(name.endswith(".absmax") for name in scales):
        weight.format, weight.is_assumed = (said.format if said else "nf4"), True
    elif any(name.endswith(".SCB") for name in scales):
        weight.format = "int8"
    elif weight.name.endswith("_blocks") and scales:
        weight.format, weight.layout = "mxfp4", "group 32"
    elif any(role == "scale2" for role, _ in own):
        weight.format, weight.is_assumed = "nvfp4", True
    elif scales:
        by_name = (
            "fp8" if any("scale_inv" in name for name in scales) else "quantised, format not shown by names"
        )
        weight.format, weight.is_assumed = (said.format if said else by_name), True
        weight.layout = said.layout if said else None
    else:
        weight.format = "plain"


def _float8(weight: Weight, tensor: Tensor, scale: Tensor | None) -> None:
    weight.format = "fp8"
    _set_layout(weight, tensor.shape, scale, 1)
    if weight.scale_dtype == "E8M0" and weight.layout == "group 32":
        weight.format = "mxfp8"


def _byte(
    weight: Weight, tensor: Tensor, scale: Tensor | None, own: list[tuple[str, Tensor]], claim: Claim | None
) -> None:
    """I8 and U8: two FP4 or NF4 a byte, three FP6 in four... or plain 8-bit integers."""
    state = next((t.name for role, t in own if role == "state"), None)
    if state is not None or (scale is not None and scale.name.endswith(".absmax")):
        said = claim.default.format if claim and claim.default else "nf4"
        weight.format = "nf4" if state and "nf4" in state else "fp4" if state and "fp4" in state else said
        weight.is_assumed = state is None
        _double(weight)
        if scale is not None and scale.elements and weight.params:
            weight.layout = f"group {_power_of_two(weight.params / scale.elements)}"
        elif claim and claim.default and claim.default.format == weight.format:
            weight.layout = claim.default.layout
        return
    if tensor.name.endswith("_blocks"):
        weight.format, weight.layout = "mxfp4", "group 32"
        _double(weight)
        return
    if scale is not None and scale.name.endswith(".SCB"):
        weight.format, weight.layout = "int8", "per-channel"
        return
    ratio = _ratio(tensor, scale)
    if scale is None:
        scheme = claim.scheme_for(weight.kind) if claim else None
        if scheme is not None and format_bits(scheme.format) in (4.0, 8.0):
            weight.format, weight.is_assumed = scheme.format, True
            if format_bits(scheme.format) == 4.0:
                _double(weight)
        else:
            weight.format = "int8" if tensor.dtype == "I8" else "uint8"
            weight.is_assumed = True
        return
    if weight.scale_dtype == "E4M3" and (ratio is None or ratio == 8):
        weight.format, weight.layout = "nvfp4", "group 16"
        _double(weight)
    elif weight.scale_dtype == "E8M0" and ratio == 24:
        weight.format, weight.layout = "mxfp6", "group 32"
        weight.params = None if weight.params is None else weight.params * 4 // 3
    elif weight.scale_dtype == "E8M0" and ratio in (None, 16):
        weight.format, weight.layout = ("fp4" if tensor.dtype == "I8" else "mxfp4"), "group 32"
        _double(weight)
    elif weight.scale_dtype == "E8M0" and ratio == 32:
        weight.format, weight.layout = "mxint8", "group 32"
    elif tensor.dtype == "U8" and ratio is not None and 8 <= ratio <= 128 and weight.has_zero_points:
        weight.format = "int4"
        _double(weight)
        _set_layout(weight, tensor.shape, scale, 2)
    else:
        scheme = claim.scheme_for(weight.kind) if claim else None
        if scheme is not None and format_bits(scheme.format) == 4.0:
            weight.format, weight.is_assumed = scheme.format, True
            _double(weight)
            _set_layout(weight, tensor.shape, scale, 2)
        else:
            weight.format = "int8"
            _set_layout(weight, tensor.shape, scale, 1)


def _word(
    weight: Weight, tensor: Tensor, scale: Tensor | None, own: list[tuple[str, Tensor]], claim: Claim | None
) -> None:
    """I32, U32, I16: integers of a few bits packed into words, or real integers where there is no scale."""
    word = DTYPE_BITS[tensor.dtype]
    if scale is None:
        weight.format = f"int{word}"
        return
    zeros = next((t for role, t in own if role == "zero" and t.dtype == tensor.dtype), None)
    said = claim.scheme_for(weight.kind, (_WEIGHT_END.sub("", tensor.name),)) if claim else None
    is_gptq = tensor.name.endswith(".qweight")
    bits: float | None = None
    if zeros is not None and zeros.shape and scale.shape and scale.shape[-1]:
        bits = word * zeros.shape[-1] / scale.shape[-1]
    elif said is not None and format_bits(said.format) <= 8:
        bits = format_bits(said.format)
    if bits is None and weight.scale_dtype in ("E4M3", "E8M0"):
        bits = 4.0
    if bits is None and tensor.shape and scale.shape and scale.shape[-1] and not is_gptq:
        # columns × word / bits = groups × group: the group of 64 that MLX takes, else 128, decides
        packed = word * tensor.shape[-1] / scale.shape[-1]
        bits = next(
            (b for g in (64, 128, 32) for b in (4.0, 8.0, 3.0, 6.0, 2.0, 5.0) if packed == b * g), None
        )
        weight.is_assumed = True
    if bits is None or not 1 <= bits <= 8:
        bits, weight.is_assumed = 4.0, True
    weight.params = None if tensor.elements is None else round(tensor.elements * word / bits)
    if tensor.shape and scale.shape and len(tensor.shape) >= 2 and scale.elements:
        if is_gptq:  # [in, out]; scales [groups, out]
            rows = tensor.shape[0] * (word / bits if tensor.shape[-1] == scale.shape[-1] else 1)
            weight.layout = f"group {round(rows / scale.shape[0])}" if scale.shape[0] > 1 else "per-channel"
        else:
            columns = tensor.shape[-1] * word / bits
            weight.layout = (
                f"group {round(columns / scale.shape[-1])}" if scale.shape[-1] > 1 else "per-channel"
            )
    elif said is not None:
        weight.layout = said.layout
    name = f"int{round(bits)}"
    if bits == 4.0 and weight.scale_dtype == "E8M0":
        name = "mxfp4"
    elif bits == 4.0 and weight.scale_dtype == "E4M3":
        name = "nvfp4"
    elif scale.dtype == "U8" and said is not None and "fp" in said.format:
        name = said.format
    weight.format = name


def _set_layout(weight: Weight, shape: tuple[int, ...] | None, scale: Tensor | None, packing: int) -> None:
    """per-tensor, per-channel, group g or block [r, c] from the two shapes; null where one is not known."""
    if scale is None or scale.shape is None:
        return
    count = scale.elements or 0
    if count <= 1 or (shape and len(shape) >= 3 and count == shape[0]):
        weight.layout = "per-tensor"
        return
    if shape is None and weight.params and len(scale.shape) == 2:
        side = math.isqrt(
            weight.params // count
        )  # noted facts without a shape: square blocks, or nothing is said
        if side > 1 and side * side * count == weight.params:
            weight.layout = f"block [{side}, {side}]"
        return
    if not shape or len(shape) < 2:
        return
    rows, columns = shape[-2], shape[-1] * packing
    if scale.shape == shape[:-1] or scale.shape == (*shape[:-1], 1) or scale.shape in ((rows,), (rows, 1)):
        weight.layout = "per-channel"
        return
    if len(scale.shape) == 1:
        # Fused projections (qkv, gate and up) keep one scale for each part.
        weight.layout = "per-tensor" if count <= 8 else None
        return
    tall, wide = scale.shape[-2], scale.shape[-1]
    if not tall or not wide:
        return
    if tall == rows:
        weight.layout = f"group {_power_of_two(columns / wide)}"
    elif wide == columns:
        weight.layout = "per-channel" if tall == 1 else f"group {_power_of_two(rows / tall)} (rows)"
    else:
        weight.layout = f"block [{_power_of_two(rows / tall)}, {_power_of_two(columns / wide)}]"


def _power_of_two(ratio: float) -> int:
    """The block size that a count of blocks rounds up to: 576 rows in 5 blocks are blocks of 128."""
    size = 1
    while size < ratio:
        size *= 2
    return size


def _ratio(tensor: Tensor, scale: Tensor | None) -> float | None:
    """Stored elements along the last axis for each scale; null where a shape is not known."""
    if scale is None or not tensor.shape or not scale.shape or not scale.shape[-1]:
        return None
    if len(scale.shape) < len(tensor.shape):
        return None if scale.elements != 1 else float(tensor.elements or 0)
    return tensor.shape[-1] / scale.shape[-1]


def _scale_dtype(scale: Tensor | None, weight: Tensor) -> str | None:
    if scale is None:
        return None
    if scale.dtype == "U8" and not scale.name.endswith(".absmax"):
        return "E8M0"  # an exponent byte
    return _SCALE_DTYPES.get(scale.dtype, scale.dtype)


def _name_fp4(weight: Weight) -> None:
    if weight.format == "fp4":
        weight.format = {"E4M3": "nvfp4", "E8M0": "mxfp4"}.get(weight.scale_dtype or "", "fp4")


def _double(weight: Weight) -> None:
    weight.params = None if weight.params is None else weight.params * 2
