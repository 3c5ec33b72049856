"""What a config claims about precision: the method, its bits and groups, and which modules it leaves alone.

Read from `quantization_config`, `quantization` (MLX), `compression_config`, ModelOpt's `hf_quant_config.json`, or a
publisher's own keys (`dtype: fp8`, `expert_dtype: fp4`). The claim is kept apart from what the tensors are.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import Any

PLAIN_DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16", "float32": "fp32",
    "fp32": "fp32", "float": "fp32", "float64": "fp64",
}  # fmt: skip
NATIVE_DTYPES = {
    "fp8": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e4m3": "fp8",
    "fp4": "fp4",
    "int8": "int8",
    "int4": "int4",
}
# A module of each kind by the name that most families give it, to ask a config's patterns about.
SAMPLES = {
    "attention": ("model.layers.7.self_attn.q_proj", "model.layers.7.self_attn.o_proj", "model.layers.7.attn.wkv"),
    "mixer": ("model.layers.7.linear_attn.in_proj_qkvz", "model.layers.7.linear_attn.out_proj", "model.layers.7.mixer.in_proj"),
    "mlp": ("model.layers.7.mlp.down_proj", "model.layers.7.mlp.gate_proj", "model.layers.7.ffn.w1"),
    "experts": ("model.layers.7.mlp.experts.3.down_proj", "model.layers.7.block_sparse_moe.experts.3.w1"),
    "shared_experts": ("model.layers.7.mlp.shared_experts.down_proj", "model.layers.7.mlp.shared_expert.down_proj"),
    "router": ("model.layers.7.mlp.gate", "model.layers.7.mlp.router", "model.layers.7.block_sparse_moe.gate"),
    "embed": ("model.embed_tokens",),
    "lm_head": ("lm_head", "model.transformer.ff_out"),
    "vision": ("model.vision_tower.layers.7.attn.q_proj", "model.visual.blocks.7.attn.qkv", "vision_tower.x", "model.vision_backbone.x"),
}  # fmt: skip
# Methods whose own loader leaves the output head alone unless told otherwise.
_SKIPS_HEAD = {
    "fp8",
    "bitsandbytes",
    "mxfp4",
    "gptq",
    "awq",
    "fbgemm_fp8",
    "finegrained_fp8",
    "hqq",
    "eetq",
    "auto-round",
}


@dataclass
class Scheme:
    """How some weights are stored. format: fp8, mxfp8, fp4, mxfp4, nvfp4, nf4, int8, int4, int3, int2, ...

    group: weights that share a scale along a row; block: [rows, columns] of a two-dimensional block.
    """

    format: str
    group: int | None = None
    block: list[int] | None = None
    strategy: str | None = None

    @property
    def layout(self) -> str | None:
        """per-tensor, per-channel, block [r, c] or group g; null when the config does not say."""
        if self.block:
            return f"block {self.block}"
        if self.group and self.group > 0:
            return f"group {self.group}"
        return {"tensor": "per-tensor", "channel": "per-channel", "token": "per-token"}.get(self.strategy or "")  # fmt: skip

    @property
    def bits(self) -> float:
        """Bits a weight takes, scales counted in."""
        base = format_bits(self.format)
        scale = 8.0 if self.format in ("mxfp4", "mxfp8", "nvfp4", "fp4", "mxfp6") else 16.0
        if self.block:
            return base + 32.0 / (self.block[0] * self.block[1])
        return base + (scale / self.group if self.group and self.group > 0 else 0.0)


@dataclass
class Claim:
    """A config's own words on precision. method null: it claims no quantisation.

    label: the claim in one phrase. plain: what is left alone is stored in (`bf16`), null when not stated.
    by_pattern: schemes of named modules, before the default scheme; null means left alone.
    activations: static, dynamic, weight-only or null. kv_cache: a format the config asks for the KV cache.
    """

    label: str
    method: str | None = None
    default: Scheme | None = None
    plain: str | None = None
    skips: list[str] = field(default_factory=list)
    by_pattern: list[tuple[str, Scheme | None]] = field(default_factory=list)
    by_kind: dict[str, Scheme | None] = field(default_factory=dict)
    activations: str | None = None
    kv_cache: str | None = None
    is_load_time: bool = False
    notes: list[str] = field(default_factory=list)

    def scheme_for(self, kind: str, names: tuple[str, ...] = ()) -> Scheme | None:
        """The scheme that the config gives a kind of module; null: left alone."""
        if self.method is None and not self.by_kind:
            return None
        if kind in self.by_kind:
            return self.by_kind[kind]
        if kind in ("norm", "other"):
            return None
        samples = names or SAMPLES.get(kind, ())
        for pattern, scheme in self.by_pattern:
            if any(matches(pattern, name) for name in samples):
                return scheme
        if any(matches(pattern, name) for pattern in self.skips for name in samples):
            return None
        if self.by_pattern and self.default is None:
            return None
        if kind == "embed" and self.method != "mlx":
            return None
        if kind == "lm_head" and self.method in _SKIPS_HEAD:
            return None
        if kind == "router" and self.method != "mlx":  # a parameter or a class of its own, not a Linear
            return None
        return self.default


def matches(pattern: str, name: str) -> bool:
    """Whether a config's module pattern (plain, `*` glob or `re:`) names a module or one around it."""
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], name) is not None
        except re.error:
            return False
    if "*" in pattern:
        return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern.rstrip('.')}.*")
    return f".{pattern}." in f".{name}."


def format_bits(name: str) -> float:
    """Bits of one weight of a format, scales left out."""
    for part, bits in (
        ("fp64", 64.0), ("fp32", 32.0), ("tf32", 32.0), ("bf16", 16.0), ("fp16", 16.0), ("fp8", 8.0), ("int8", 8.0),
        ("fp6", 6.0), ("fp4", 4.0), ("nf4", 4.0), ("int6", 6.0), ("int5", 5.0), ("int4", 4.0), ("int3", 3.0),
        ("int2", 2.0), ("int1", 1.0), ("ternary", 2.0), ("int16", 16.0), ("int32", 32.0), ("int64", 64.0),
    ):  # fmt: skip
        if part in name:
            return bits
    return 16.0


def read_claim(config: dict[str, Any], extra: dict[str, Any] | None = None) -> Claim:
    """The claim of a `config.json`; `extra` is ModelOpt's `hf_quant_config.json` where there is one."""
    inner = _text(config)
    plain = _plain(config, inner)
    for source in (config, inner):
        for key in ("quantization_config", "quantization", "compression_config"):
            if isinstance(found := source.get(key), dict) and found:
                return _read(found, plain, key)
    if extra and isinstance(found := extra.get("quantization"), dict):
        return _read({"quant_method": "modelopt", **found}, plain, "hf_quant_config.json")
    said: str = str(config.get("dtype") or config.get("torch_dtype") or inner.get("dtype") or "").lower()
    native = NATIVE_DTYPES.get(said.removeprefix("torch."))
    expert = NATIVE_DTYPES.get(str(inner.get("expert_dtype") or config.get("expert_dtype") or "").lower())
    if native or expert:
        return _native(config, native, expert, plain)
    return Claim(label=plain or "not stated", plain=plain)


def _text(config: dict[str, Any]) -> dict[str, Any]:
    for key in ("text_config", "llm_config", "language_config"):
        if isinstance(inner := config.get(key), dict):
            return inner
    return config


def _plain(config: dict[str, Any], inner: dict[str, Any]) -> str | None:
    for source in (inner, config):
        for key in ("dtype", "torch_dtype"):
            value = source.get(key)
            if isinstance(value, str) and (known := PLAIN_DTYPES.get(value.lower().removeprefix("torch."))):
                return known
    return None


def _native(config: dict[str, Any], native: str | None, expert: str | None, plain: str | None) -> Claim:
    """DeepSeek's own config: one dtype for everything, another for the experts."""
    block = [128, 128] if native == "fp8" else None
    base = Scheme(native, block=block) if native else None
    claim = Claim(label=native or plain or "not stated", method="native", default=base, plain=plain)
    claim.by_kind = {"embed": None, "lm_head": None, "router": None, "norm": None, "vision": None}
    if expert:
        claim.by_kind["experts"] = Scheme(expert, group=32 if expert == "fp4" else None)
    if (scales := config.get("scale_fmt")) is not None:
        claim.notes.append(f"scale_fmt {scales}: scales are powers of two (E8M0)")
    return claim


def _read(found: dict[str, Any], plain: str | None, key: str) -> Claim:
    method = str(found.get("quant_method") or found.get("quant_algo") or "").lower()
    if method in ("fp8", "finegrained_fp8", "fbgemm_fp8"):
        return _fp8(found, plain, method)
    if method == "mxfp4":
        claim = Claim(
            "mxfp4", method, Scheme("mxfp4", group=32), plain, _names(found, "modules_to_not_convert")
        )
        # The loader converts the experts of gpt-oss and nothing else (transformers, integrations/mxfp4.py).
        claim.by_kind = {
            k: None for k in ("attention", "router", "embed", "lm_head", "norm", "mlp", "vision", "mixer")
        }
        claim.activations = "weight-only"
        return claim
    if method in ("bitsandbytes", "bnb") or any(k in found for k in ("load_in_4bit", "load_in_8bit")):
        return _bitsandbytes(found, plain)
    if method in (
        "gptq",
        "awq",
        "auto-round",
        "autoround",
        "intel/auto-round",
        "gptq_marlin",
        "awq_marlin",
        "auto_gptq",
    ):
        return _integer(found, plain, method)
    if method in ("compressed-tensors", "compressed_tensors") or (
        "config_groups" in found and method != "modelopt"
    ):
        return _compressed_tensors(found, plain)
    if method.startswith("modelopt") or "quantized_layers" in found or found.get("producer"):
        return _modelopt(found, plain)
    if method == "quark":
        return _quark(found, plain)
    if method in (
        "torchao",
        "hqq",
        "eetq",
        "quanto",
        "aqlm",
        "vptq",
        "higgs",
        "spqr",
        "bitnet",
        "fp_quant",
        "sinq",
    ):
        return _other(found, plain, method)
    if "bits" in found and ("group_size" in found or key == "quantization"):
        return _mlx(found, plain)
    if "qformat_weight" in found:  # Mistral's own params.json
        static = str(found.get("qscheme_act") or "").upper() == "TENSOR"
        return Claim(
            "fp8", "fp8", Scheme("fp8", strategy="tensor"), plain, activations="static" if static else None
        )
    if method == "w4afp8":  # experts in int4, the rest in fp8 (SGLang)
        claim = Claim(method, method, Scheme("fp8", block=[128, 128]), plain, activations="static")
        claim.by_kind = {
            "experts": Scheme("int4", group=_int(found.get("group_size")) or 128),
            "lm_head": None,
        }
        return claim
    if method in ("nvfp4", "mxfp8", "fp4"):
        skips = _names(found, "ignore", "modules_to_not_convert")
        return Claim(method, method, Scheme(method, _int(found.get("group_size"))), plain, skips)
    claim = Claim(method or "quantised, method not stated", method or "unknown", None, plain)
    claim.notes.append(f"quantisation method {method or 'not stated'!r} is not known to this reader")
    return claim


def _fp8(found: dict[str, Any], plain: str | None, method: str) -> Claim:
    block = found.get("weight_block_size")
    is_block = (
        isinstance(block, list) and len(block) == 2 and all(isinstance(b, int) and b > 0 for b in block)
    )
    strategy = "channel" if method == "fbgemm_fp8" else "tensor"
    scheme = Scheme("fp8", block=block if is_block else None, strategy=None if is_block else strategy)
    claim = Claim("fp8", method, scheme, plain, _names(found, "modules_to_not_convert", "ignored_layers"))
    scheme_said = found.get("activation_scheme")
    claim.activations = str(scheme_said) if scheme_said in ("static", "dynamic") else None
    if found.get("fmt") == "mxfp8" or found.get("scale_fmt") == "ue8m0":
        claim.notes.append("scales are powers of two (E8M0)")
    if expert := NATIVE_DTYPES.get(str(found.get("expert_dtype") or "").lower()):
        claim.by_kind["experts"] = Scheme(expert, group=32 if expert == "fp4" else None)
    return claim


def _bitsandbytes(found: dict[str, Any], plain: str | None) -> Claim:
    skips = _names(found, "llm_int8_skip_modules")
    if found.get("load_in_4bit") or found.get("_load_in_4bit"):
        kind = str(found.get("bnb_4bit_quant_type") or "fp4").lower()
        scheme = Scheme(
            kind if kind in ("nf4", "fp4") else "nf4", group=_int(found.get("bnb_4bit_blocksize")) or 64
        )
        claim = Claim(scheme.format, "bitsandbytes", scheme, plain, skips)
        if found.get("bnb_4bit_use_double_quant"):
            claim.notes.append("double quantisation: the scales (absmax) are 8 bit themselves")
    else:
        claim = Claim("int8", "bitsandbytes", Scheme("int8", strategy="channel"), plain, skips)
    claim.activations = "weight-only" if claim.label != "int8" else "dynamic"
    return claim


def _integer(found: dict[str, Any], plain: str | None, method: str) -> Claim:
    bits = _int(found.get("bits") or found.get("w_bit") or found.get("wbits")) or 4
    group = _int(found.get("group_size") or found.get("q_group_size"))
    scheme = Scheme(f"int{bits}", group=group if group and group > 0 else None, strategy="channel")
    claim = Claim(
        f"{method} int{bits}",
        method,
        scheme,
        plain,
        _names(found, "modules_to_not_convert", "modules_to_not_quantize"),
    )
    claim.activations = "weight-only"
    dynamic = found.get("dynamic")
    if isinstance(dynamic, dict):  # GPTQModel: "-:pattern" leaves modules alone
        for pattern, override in dynamic.items():
            if str(pattern).startswith("-:"):
                claim.by_pattern.append((f"re:{pattern[2:]}", None))
            elif isinstance(override, dict) and (other := _int(override.get("bits"))):
                claim.by_pattern.append(
                    (f"re:{str(pattern).removeprefix('+:')}", Scheme(f"int{other}", group))
                )
    if isinstance(extra := found.get("extra_config"), dict):  # AutoRound
        for name, override in extra.items():
            if isinstance(override, dict) and (other := _int(override.get("bits"))):
                claim.by_pattern.append((str(name), None if other >= 16 else Scheme(f"int{other}", group)))
    if found.get("lm_head") is True:
        claim.by_kind["lm_head"] = scheme
    return claim


def _mlx(found: dict[str, Any], plain: str | None) -> Claim:
    bits, group = _int(found.get("bits")) or 4, _int(found.get("group_size")) or 64
    mode = str(found.get("mode") or "affine")
    name = mode if mode in ("mxfp4", "nvfp4", "mxfp8") else f"int{bits}"
    claim = Claim(f"mlx {bits}-bit", "mlx", Scheme(name, group=group), plain, activations="weight-only")
    for module, override in found.items():
        if isinstance(override, dict):
            other = _int(override.get("bits"))
            scheme = (
                Scheme(f"int{other}", _int(override.get("group_size")) or group) if other else claim.default
            )
            claim.by_pattern.append((str(module), scheme))
        elif override is False:
            claim.by_pattern.append((str(module), None))
    claim.notes.append(
        "MLX keeps scales and biases beside each weight; dtype in the config is not the storage"
    )
    return claim


def _compressed_tensors(found: dict[str, Any], plain: str | None) -> Claim:
    groups = found.get("config_groups")
    claim = Claim("compressed-tensors", "compressed-tensors", None, plain, _names(found, "ignore"))
    schemes = []
    for group in groups.values() if isinstance(groups, dict) else []:
        if not isinstance(group, dict) or not isinstance(weights := group.get("weights"), dict):
            continue
        scheme = _compressed_scheme(weights, str(group.get("format") or found.get("format") or ""))
        schemes.append(scheme)
        activations = group.get("input_activations")
        if isinstance(activations, dict):
            claim.activations = "dynamic" if activations.get("dynamic") in (True, "local") else "static"
        targets = [str(t) for t in group.get("targets") or [] if isinstance(t, str)]
        named = [t for t in targets if t not in ("Linear", "Embedding")]
        claim.by_pattern += [(target, scheme) for target in named]
        if "Linear" in targets or not targets:
            claim.default = scheme
    if claim.activations is None:
        claim.activations = "weight-only"
    cache = found.get("kv_cache_scheme")
    if isinstance(cache, dict):
        claim.kv_cache = _compressed_scheme(cache, "").format
    if schemes:
        claim.label = ", ".join(dict.fromkeys(s.format for s in schemes))
    return claim


def _compressed_scheme(weights: dict[str, Any], packing: str) -> Scheme:
    bits = _int(weights.get("num_bits")) or 8
    is_float = str(weights.get("type") or "int") == "float"
    group = _int(weights.get("group_size"))
    strategy = str(weights.get("strategy") or "") or None
    if "nvfp4" in packing or (is_float and bits == 4 and group == 16):
        name = "nvfp4"
    elif "mxfp4" in packing or (is_float and bits == 4 and group == 32):
        name = "mxfp4"
    elif "mxfp8" in packing or (is_float and bits == 8 and group == 32):
        name = "mxfp8"
    else:
        name = f"{'fp' if is_float else 'int'}{bits}"
    block = weights.get("block_structure")
    if isinstance(block, str) and re.fullmatch(r"\d+x\d+", block):
        block = [int(part) for part in block.split("x")]
    is_block = (
        isinstance(block, list) and len(block) == 2 and all(isinstance(b, int) and b > 0 for b in block)
    )
    return Scheme(
        name,
        group=group if group and group > 0 else None,
        block=block if is_block else None,
        strategy=strategy,
    )


_ALGORITHMS = {
    "NVFP4": ("nvfp4", 16), "NVFP4_AWQ": ("nvfp4", 16), "W4A16_NVFP4": ("nvfp4", 16), "FP8": ("fp8", None),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8", None), "FP8_PB_WO": ("fp8", None), "FP8_PB_REAL": ("fp8", None),
    "W4A16_AWQ": ("int4", 128), "W4A8_AWQ": ("int4", 128), "INT4_AWQ": ("int4", 128), "INT8_SQ": ("int8", None),
    "W8A8_SQ_PER_CHANNEL": ("int8", None), "W8A16": ("int8", None), "MXFP4": ("mxfp4", 32), "MXFP8": ("mxfp8", 32),
    "W4A8_MXFP4_FP8": ("mxfp4", 32), "W4A8_NVFP4_FP8": ("nvfp4", 16), "INT8": ("int8", None), "INT4": ("int4", 128),
}  # fmt: skip


def _modelopt(found: dict[str, Any], plain: str | None) -> Claim:
    if isinstance(nested := found.get("quantization"), dict):
        found = {**found, **nested}
    algorithm = str(found.get("quant_algo") or "").upper()
    group = _int(found.get("group_size"))
    skips = _names(found, "exclude_modules", "ignore", "modules_to_not_convert")
    claim = Claim(algorithm.lower() or "modelopt", "modelopt", None, plain, skips)
    cache = found.get("kv_cache_quant_algo") or found.get("kv_cache_scheme")
    if isinstance(cache, dict):
        cache = _compressed_scheme(cache, "").format
    claim.kv_cache = str(cache).lower() if cache else None
    if algorithm == "FP8_PB_WO" or algorithm == "FP8_PB_REAL":
        claim.default = Scheme("fp8", block=[128, 128])
    elif algorithm in _ALGORITHMS:
        name, usual = _ALGORITHMS[algorithm]
        claim.default = Scheme(
            name, group=(group or usual) if usual else None, strategy=None if usual else "tensor"
        )
    layers = found.get("quantized_layers")
    if isinstance(layers, dict) and layers:
        kept: dict[str, int] = {}
        for name, entry in layers.items():
            algo = str(entry.get("quant_algo") or "").upper() if isinstance(entry, dict) else ""
            if algo not in _ALGORITHMS:
                continue
            scheme_name, usual = _ALGORITHMS[algo]
            size = (_int(entry.get("group_size")) or usual) if usual else None
            scheme = Scheme(scheme_name, group=size, strategy=None if usual else "tensor")
            claim.by_pattern.append((str(name), scheme))
            kept.setdefault(scheme_name, 0)
        if kept:
            claim.label = f"mixed precision ({', '.join(kept)})"
    elif claim.default is None and isinstance(found.get("config_groups"), dict):
        for entry in found["config_groups"].values():
            if isinstance(entry, dict) and isinstance(weights := entry.get("weights"), dict):
                claim.default = _compressed_scheme(weights, "")
    groups = found.get("config_groups")
    for entry in groups.values() if isinstance(groups, dict) else ():
        if isinstance(entry, dict) and isinstance(inputs := entry.get("input_activations"), dict):
            claim.activations = "dynamic" if inputs.get("dynamic") in (True, "local") else "static"
    if "A16" in algorithm or algorithm in ("INT4_AWQ", "FP8_PB_WO"):
        claim.activations = "weight-only"
    if claim.default is not None and claim.label == "modelopt":
        claim.label = claim.default.format
    return claim


def _quark(found: dict[str, Any], plain: str | None) -> Claim:
    claim = Claim("quark", "quark", None, plain, _names(found, "exclude"))
    everywhere = found.get("global_quant_config")
    claim.default = _quark_scheme(everywhere)
    if claim.default is not None:
        claim.label = claim.default.format
    if isinstance(everywhere, dict):
        inputs = everywhere.get("input_tensors")
        is_dynamic = inputs.get("is_dynamic") if isinstance(inputs, dict) else None
        claim.activations = "weight-only" if inputs is None else "dynamic" if is_dynamic else "static"
    layers = found.get("layer_quant_config")
    for pattern, entry in layers.items() if isinstance(layers, dict) else ():
        claim.by_pattern.append((str(pattern), _quark_scheme(entry)))
    return claim


def _quark_scheme(entry: Any) -> Scheme | None:
    weight = entry.get("weight") if isinstance(entry, dict) else None
    if isinstance(weight, list):
        weight = weight[0] if weight else None
    if not isinstance(weight, dict):
        return None
    dtype = str(weight.get("dtype") or "").lower()
    name = {"fp4": "mxfp4", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "uint4": "int4", "uint8": "int8"}.get(
        dtype, dtype
    )
    strategy = {"per_tensor": "tensor", "per_channel": "channel"}.get(str(weight.get("qscheme") or ""))
    return Scheme(name or "unknown", group=_int(weight.get("group_size")), strategy=strategy)


def _other(found: dict[str, Any], plain: str | None, method: str) -> Claim:
    bits = _int(found.get("bits") or found.get("nbits") or found.get("nbits_per_codebook"))
    text = str(
        found.get("quant_type") or found.get("weights") or found.get("linear_quant_mode") or ""
    ).lower()
    name = next((f for f in ("float8", "fp8", "int8", "int4", "uint4", "int2", "fp4") if f in text), None)
    name = {"float8": "fp8", "uint4": "int4"}.get(name or "", name)
    if name is None:
        name = {"eetq": "int8", "bitnet": "ternary", "aqlm": "int2", "higgs": "int4"}.get(
            method
        ) or f"int{bits or 4}"
    group = _int(found.get("group_size"))
    claim = Claim(
        f"{method} {name}", method, Scheme(name, group=group), plain, _names(found, "modules_to_not_convert")
    )
    if method == "torchao":
        claim.notes.append("torchao may quantise while loading: only the tensors show what is stored")
        claim.is_load_time = True
    return claim


def _names(found: dict[str, Any], *keys: str) -> list[str]:
    for key in keys:
        if isinstance(value := found.get(key), list):
            return [str(item) for item in value if isinstance(item, str)]
    return []


def _int(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if abs(number) < 1 << 31 else None
