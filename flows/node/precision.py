"""The precision audit: what a checkpoint's label claims, and what its headers (or, failing those, its config) show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.node.architecture import Architecture, read_architecture
from flows.node.formats import NAME_ONLY, NOT_QUANTISED, Reading, Weight, read_formats
from flows.node.gguf import gguf_config
from flows.node.quantization import Claim, Scheme, format_bits, read_claim
from flows.node.source import Source, open_source, take_facts
from flows.node.tensors import KINDS, kind_of

# Weights that carry a model's arithmetic, in the order in which a summary names them.
_BASE_KINDS = ("attention", "mlp", "mixer", "shared_experts", "other")
_SUMMARY_BITS = 0.02  # a format that holds less of a kind than this is not named in the one-line summary
_FAMILIES = {"mxfp4": "fp4", "nvfp4": "fp4", "mxfp8": "fp8"}


@dataclass
class Audit:
    """One checkpoint read: its source, claim, weights and architecture, for `report` and for the model facts."""

    source: Source
    claim: Claim
    reading: Reading
    architecture: Architecture | None

    @property
    def has_tensors(self) -> bool:
        return self.source.has_headers and bool(self.reading.weights)


def audit(path: Path) -> Audit:
    """Reads everything at `path` but the weights. Raises RefusedCheckpoint."""
    return audit_source(open_source(path))


def audit_source(source: Source) -> Audit:
    config = source.config or (gguf_config(source.gguf) if source.gguf else {})
    architecture = read_architecture(config)
    claim = read_claim(config, source.extra)
    if source.gguf is not None:
        claim = Claim(label=(source.gguf.file_type or "not stated").lower(), method="gguf")
    layers = len(architecture.layers) if architecture else None
    return Audit(source, claim, read_formats(source.tensors, claim, layers), architecture)


def read_precision(path: Path) -> dict[str, Any]:
    """The audit of `path` as the command prints it; keys are explained in docs/precision.md. JSON-ready."""
    source = open_source(path)
    entries = source.config or {}
    if not source.tensors and entries and all(_is_facts(entry) for entry in entries.values()):
        return {
            "path": str(path),
            "entries": {name: report(_noted(path, entry)) for name, entry in entries.items()},
        }
    return report(audit_source(source))


def judge(facts: dict[str, Any]) -> dict[str, Any]:
    """The audit of facts noted from a checkpoint: {"quantization_config", "header", "total_size", ...}."""
    return report(_noted(Path("facts"), facts))


def _is_facts(entry: Any) -> bool:
    return isinstance(entry, dict) and bool({"header", "quantization_config", "total_size"} & set(entry))


def _noted(path: Path, facts: dict[str, Any]) -> Audit:
    source = Source(path, read=["noted facts"])
    take_facts(source, facts)
    return audit_source(source)


def report(found: Audit) -> dict[str, Any]:
    """What was read, as one JSON-ready dict; null where the source cannot say."""
    source, claim = found.source, found.claim
    by_kind = _by_kind(found)
    params, nbytes, size_source = sizes(found)
    truth, truth_source = true_precision(found, by_kind)
    return {
        "path": str(source.path),
        "read": source.read,
        "revision": source.revision,
        "label": claim.label,
        "label_method": claim.method,
        "label_layout": claim.default.layout if claim.default else None,
        "true": truth,
        "true_source": truth_source,
        "is_label_true": is_label_true(found, by_kind),
        "params": params,
        "bytes": nbytes,
        "bytes_per_param": round(nbytes / params, 4) if params and nbytes else None,
        "size_source": size_source,
        "by_dtype": _by_dtype(found),
        "by_format": _by_format(by_kind),
        "by_kind": by_kind,
        "scales": _scales(found),
        "activations": _activations(found),
        "kv_cache": claim.kv_cache or ("scales stored" if found.reading.has_cache_scales else None),
        "quantised_modules": sum(w.is_quantised for w in found.reading.weights) if source.tensors else None,
        "tensors": len(source.tensors) or (source.index or {}).get("tensors"),
        "not_converted": claim.skips,
        "notes": [*source.notes, *claim.notes, *found.reading.notes, *_assumptions(found)],
        "cannot_tell": _cannot_tell(found),
    }


def sizes(found: Audit) -> tuple[int | None, int | None, str | None]:
    """Parameters, bytes, and where they come from: headers, index or config."""
    if found.has_tensors:
        listed = found.source.tensors
        nbytes = None if any(t.nbytes is None for t in listed) else sum(t.nbytes or 0 for t in listed)
        weights = found.reading.weights
        params = None if any(w.params is None for w in weights) else sum(w.params or 0 for w in weights)
        if nbytes is not None or params is not None:
            return params, nbytes, "headers"
    index = found.source.index or {}
    total, counted = index.get("total_size"), index.get("total_parameters")
    if isinstance(total, int) and total > 0:
        computed = found.architecture.params_total if found.architecture else None
        return (counted if isinstance(counted, int) and counted > 0 else computed), total, "index"
    if found.architecture is None or found.architecture.params_total is None:
        return None, None, None
    estimate = sum(entry["bytes"] or 0 for entry in _kinds_of_config(found).values())
    return found.architecture.params_total, estimate, "config"


def true_precision(found: Audit, by_kind: dict[str, dict[str, Any]]) -> tuple[str | None, str | None]:
    """The truth in one phrase: the format of most weights, then the kinds that differ ("fp8, experts fp4")."""
    if found.has_tensors:
        truth_source = "headers"
    elif found.reading.weights:
        truth_source = "names"
    else:
        truth_source = "config"
    suffixes = (found.source.index or {}).get("suffixes")
    if not by_kind and isinstance(suffixes, dict):
        return _by_suffixes(suffixes), "names"
    named = {kind: named for kind, entry in by_kind.items() if (named := _main_formats(entry)) is not None}
    base = next((named[k] for k in _largest_first(by_kind, _BASE_KINDS) if k in named), None)
    lesser = ("experts", "lm_head", "embed", "vision", "router")
    base = base or next((named[k] for k in lesser if k in named), None)
    if base in (None, "plain"):
        by_size = _by_size(found)
        if base is None or by_size is not None:
            return by_size, "size" if by_size else None
    parts: list[str] = [str(base)]
    for kind in ("attention", "mlp", "mixer", "shared_experts", "experts"):
        if kind in named and named[kind] != base:
            parts.append(f"{kind.replace('_', ' ')} {named[kind]}")
    return ", ".join(parts), truth_source


def _by_size(found: Audit) -> str | None:
    """What bytes a parameter show where no name or dtype does: 16 and 32 bit are told, a mixture only bounded."""
    params, nbytes, _ = sizes(found)
    if not params or not nbytes or found.source.index is None:
        return None
    each = nbytes / params
    for width, said in ((2.0, "16-bit"), (4.0, "fp32")):
        if abs(each / width - 1) < 0.01:
            return said
    return f"mixed or quantised, {each:.2f} bytes a parameter" if each < 1.9 else None


def _by_suffixes(suffixes: dict[str, Any]) -> str | None:
    """What counts of tensor-name endings alone show."""
    if suffixes.get("biases") and suffixes.get("biases") == suffixes.get("scales"):
        return f"mlx: {suffixes['scales']} weights quantised in groups with scales and biases, bits not shown"
    for ending, said in (
        ("absmax", "nf4 or fp4 (bitsandbytes)"), ("SCB", "int8 (bitsandbytes)"), ("weight_scale_inv", "fp8"),
        ("weight_scale_2", "nvfp4"), ("qweight", "gptq or awq integers"), ("weight_packed", "compressed-tensors, packed"),
    ):  # fmt: skip
        if suffixes.get(ending):
            return said
    return None


def _largest_first(by_kind: dict[str, dict[str, Any]], kinds: tuple[str, ...]) -> list[str]:
    return sorted((k for k in kinds if k in by_kind), key=lambda k: -(by_kind[k]["params"] or 0))


def _main_formats(entry: dict[str, Any]) -> str | None:
    """`fp8`, or `nvfp4/fp8` where a kind really is both; small tensors (biases, norms) are not named."""
    formats: dict[str, Any] = entry["formats"]
    if not formats:
        return None
    total = sum(value or 0 for value in formats.values())
    if total == 0:
        quantised = [name for name in formats if name not in NOT_QUANTISED]
        return "/".join(quantised or list(formats)[:1])
    kept = [name for name, value in formats.items() if (value or 0) >= _SUMMARY_BITS * total]
    return "/".join(sorted(kept, key=lambda name: -(formats[name] or 0)))


def is_label_true(found: Audit, by_kind: dict[str, dict[str, Any]]) -> bool | None:
    """Whether every quantised weight has the label's format and most weights do; null without label or weights."""
    claim = found.claim
    if claim.method is None and claim.plain is None:
        return None
    verdict = _label_verdict(found, by_kind)
    # A config alone can contradict its label; it cannot bear it out.
    return verdict if found.reading.weights or verdict is False else None


def _label_verdict(found: Audit, by_kind: dict[str, dict[str, Any]]) -> bool | None:
    claim = found.claim
    counted: Counter[str] = Counter()
    for kind, entry in by_kind.items():
        if kind in ("norm", "vision", "draft", "embed", "lm_head", "router"):
            continue
        for name, params in entry["formats"].items():
            counted[_FAMILIES.get(name, name)] += params or 1
    if not counted:
        return None
    if claim.method is None:
        return set(counted) <= {claim.plain, "plain"} | (
            {"fp32"} if counted.get("fp32", 0) < 0.02 * counted.total() else set()
        )
    if claim.method == "gguf":
        family = claim.label.split("_k_")[0].split("_")[0]
        return counted.most_common(1)[0][0].startswith(family) or claim.label == "not stated" or None
    claimed = {_FAMILIES.get(s.format, s.format) for s in _claimed_schemes(claim)}
    if not claimed:
        return None
    quantised = {name for name in counted if name not in NOT_QUANTISED}
    if claim.method == "native" and claim.default is not None:
        claimed = {_FAMILIES.get(claim.default.format, claim.default.format)}
    if not quantised:
        return False if found.has_tensors and not claim.is_load_time else None
    share = sum(counted[name] for name in quantised & claimed) / counted.total()
    return quantised <= claimed and share >= 0.5


def _claimed_schemes(claim: Claim) -> list[Any]:
    schemes = [claim.default, *(scheme for _, scheme in claim.by_pattern)]
    return [scheme for scheme in schemes if scheme is not None]


def _by_kind(found: Audit) -> dict[str, dict[str, Any]]:
    """Per module kind: params, bytes (scales with their weights), formats -> params."""
    if not found.reading.weights:
        return _kinds_of_config(found)
    kinds: dict[str, dict[str, Any]] = {}
    for kind in KINDS:
        weights = [w for w in found.reading.weights if w.kind == kind]
        if not weights:
            continue
        formats: dict[str, Any] = {}
        for weight in weights:
            formats[weight.format] = formats.get(weight.format, 0) + (weight.params or 0)
        kinds[kind] = {
            "params": _sum(w.params for w in weights),
            "bytes": _sum(_with_companions(w) for w in weights),
            "scale_bytes": sum(w.companion_bytes for w in weights),
            "tensors": len(weights),
            "formats": dict(sorted(formats.items(), key=lambda item: -item[1])),
        }
    return kinds


def _kinds_of_config(found: Audit) -> dict[str, dict[str, Any]]:
    """What a config alone shows: the format of each kind, with computed parameters where it has the shape."""
    counted = found.architecture.params_by_kind() if found.architecture else {}
    claim = found.claim
    if claim.method is None and claim.plain is None:
        return {}
    named = _named_kinds(claim)
    kinds = [k for k in KINDS if k in counted or k in named or (not counted and k in ("attention", "mlp"))]
    if counted:
        kinds = [k for k in kinds if k in counted or k == "vision"]
        if found.architecture is not None and found.architecture.has_vision and "vision" not in kinds:
            kinds.append("vision")
    elif claim.method == "mxfp4":
        kinds = ["attention", "experts", "router", "embed", "lm_head"]
    elif claim.by_pattern and claim.default is None:
        kinds = [k for k in KINDS if k in named]
    # gpt-oss and its like were trained in bfloat16; a config that names no dtype leaves the rest at 16 bit.
    plain = claim.plain or "bf16"
    described: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        schemes = named.get(kind) or [claim.scheme_for(kind)]
        if kind in claim.by_kind:
            schemes = [claim.by_kind[kind]]
        params = counted.get(kind)
        formats = {scheme.format if scheme else plain: 0 for scheme in schemes}
        bits = max(scheme.bits if scheme else format_bits(plain) for scheme in schemes)
        if len(formats) == 1:
            formats = dict.fromkeys(formats, params or 0)
        described[kind] = {
            "params": params,
            "bytes": round(params * bits / 8) if params is not None else None,
            "scale_bytes": None,
            "tensors": None,
            "formats": formats,
        }
    return described


def _named_kinds(claim: Claim) -> dict[str, list[Scheme | None]]:
    """Kinds that the config's own module names speak of, with the schemes it gives them."""
    named: dict[str, list[Scheme | None]] = {}
    for pattern, scheme in [*claim.by_pattern, *((skip, None) for skip in claim.skips)]:
        if (kind := kind_of(pattern.removeprefix("re:").replace("\\", "") + ".weight")) in ("norm", "other"):
            continue
        schemes = named.setdefault(kind, [])
        if scheme is None and claim.scheme_for(kind) is not None:
            continue  # some modules of a kind left alone: the kind as a whole is not
        if not any((s.format if s else None) == (scheme.format if scheme else None) for s in schemes):
            schemes.append(scheme)
    return {kind: schemes or [claim.scheme_for(kind)] for kind, schemes in named.items()}


def _with_companions(weight: Weight) -> int | None:
    return None if weight.nbytes is None else weight.nbytes + weight.companion_bytes


def _sum(values: Any) -> int | None:
    listed = list(values)
    return None if any(value is None for value in listed) else sum(listed)


def _by_dtype(found: Audit) -> dict[str, dict[str, Any]]:
    """Per storage dtype: tensors, bytes, and the parameters in it; scales are apart under `of_scales`."""
    params: Counter[str] = Counter()
    for weight in found.reading.weights:
        params[weight.dtype] += weight.params or 0
    weights = {w.name for w in found.reading.weights}
    dtypes: dict[str, dict[str, Any]] = {}
    for tensor in found.source.tensors:
        if tensor.dtype == NAME_ONLY:
            continue
        entry = dtypes.setdefault(
            tensor.dtype, {"tensors": 0, "bytes": 0, "params": params[tensor.dtype], "of_scales": 0}
        )
        entry["tensors"] += 1
        entry["bytes"] += tensor.nbytes or 0
        entry["of_scales"] += 0 if tensor.name in weights else tensor.nbytes or 0
    return dict(sorted(dtypes.items(), key=lambda item: -item[1]["bytes"]))


def _by_format(by_kind: dict[str, dict[str, Any]]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for entry in by_kind.values():
        for name, params in entry["formats"].items():
            counted[name] += params or 0
    return dict(counted.most_common())


def _scales(found: Audit) -> list[dict[str, Any]]:
    """Each scale layout met: kind, format, layout, scale dtype, and how many weights have it."""
    counted: Counter[tuple[Any, ...]] = Counter()
    for w in found.reading.weights:
        if w.is_quantised:
            counted[
                (
                    w.kind,
                    w.format,
                    w.layout,
                    w.scale_dtype,
                    w.has_second_scale,
                    w.has_zero_points,
                    w.has_input_scale,
                )
            ] += 1
    if counted:
        return [
            {
                "kind": kind, "format": name, "layout": layout, "scale_dtype": dtype, "has_second_scale": second,
                "has_zero_points": zero, "has_input_scale": static, "weights": count,
            }
            for (kind, name, layout, dtype, second, zero, static), count in counted.most_common()
        ]  # fmt: skip
    return _claimed_scales(found)


def _claimed_scales(found: Audit) -> list[dict[str, Any]]:
    """The layouts that a config alone gives each kind."""
    claim, named, layouts = found.claim, _named_kinds(found.claim), []
    for kind in _kinds_of_config(found):
        schemes = (
            [claim.by_kind[kind]] if kind in claim.by_kind else named.get(kind) or [claim.scheme_for(kind)]
        )
        for scheme in schemes:
            if scheme is None:
                continue
            exponents = scheme.format in ("mxfp4", "mxfp8", "mxfp6") or "E8M0" in " ".join(claim.notes)
            dtype = "E4M3" if scheme.format == "nvfp4" else "E8M0" if exponents else None
            layouts.append(
                {
                    "kind": kind, "format": scheme.format, "layout": scheme.layout, "scale_dtype": dtype,
                    "has_second_scale": None, "has_zero_points": None, "has_input_scale": None, "weights": None,
                }
            )  # fmt: skip
    return layouts


def _activations(found: Audit) -> str | None:
    """static, dynamic or weight-only: by the config's word, else by whether input scales are stored."""
    if found.claim.activations is not None:
        return found.claim.activations
    quantised = [w for w in found.reading.weights if w.is_quantised]
    if not found.has_tensors or not quantised or found.claim.method == "gguf":
        return None
    if any(w.has_input_scale for w in quantised):
        return "static"
    return "weight-only" if any(w.format in ("nvfp4", "mxfp4", "int4", "nf4") for w in quantised) else None


def _assumptions(found: Audit) -> list[str]:
    notes = []
    assumed = [w for w in found.reading.weights if w.is_assumed]
    if assumed:
        notes.append(
            f"the format of {len(assumed)} tensors is taken from the config or the usual packing ({assumed[0].name})"
        )
    if found.reading.orphans:
        notes.append(
            f"{len(found.reading.orphans)} scales have no weight beside them ({found.reading.orphans[0].name})"
        )
    if found.claim.method is None and found.claim.plain and found.has_tensors:
        stored = {w.format for w in found.reading.weights if w.is_quantised}
        if stored:
            notes.append(f"the config claims no quantisation, yet weights are {', '.join(sorted(stored))}")
    if found.architecture:
        notes += found.architecture.notes
    return notes


def _cannot_tell(found: Audit) -> list[str]:
    """What would need more than was given."""
    missing = []
    if not found.source.has_headers:
        missing.append("storage dtypes and bytes of tensors: no safetensors header was given")
        if found.reading.weights:
            missing.append("parameters of each kind: an index gives names alone")
        elif found.claim.method is not None:
            missing.append("whether the weights are what the config says")
        if found.claim.plain is None and not found.reading.weights:
            missing.append("the dtype of what is not quantised: the config names none (bf16 is assumed)")
    if found.source.revision is None:
        missing.append("the revision: the path holds no hub snapshot")
    if found.architecture is None and not found.has_tensors and not found.reading.weights:
        missing.append("parameters: the config has no layer count and width")
    return missing
