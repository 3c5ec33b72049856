"""Opens what a user points at: a folder, a config, an index, a safetensors or GGUF file, or header facts as JSON."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.node.formats import NAME_ONLY
from flows.node.gguf import Gguf, is_gguf, read_gguf
from flows.node.headers import RefusedCheckpoint, read_header
from flows.node.tensors import Tensor

MAX_JSON_BYTES = 256 << 20
# What a checkpoint's folder may hold beside its weights, and must not be counted as weights of the model.
_NOT_THE_MODEL = re.compile(r"adapter|optimizer|training|tokenizer|draft", re.I)


@dataclass
class Source:
    """Everything that a path offers without reading a weight.

    read: names of the files that were read. tensors: from headers (or an index: names alone). is_complete: false
    where shards that an index names are missing. index: the index's own metadata, with `tensors` counted.
    """

    path: Path
    read: list[str] = field(default_factory=list)
    config: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None
    index: dict[str, Any] | None = None
    tensors: list[Tensor] = field(default_factory=list)
    has_headers: bool = False
    gguf: Gguf | None = None
    revision: str | None = None
    notes: list[str] = field(default_factory=list)


def open_source(path: Path) -> Source:
    """Reads config, index and headers at `path`. Raises RefusedCheckpoint when there is nothing it can read."""
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError) as error:
        raise RefusedCheckpoint("the path cannot be read", evidence=str(path)) from error
    if not is_folder and not is_file:
        raise RefusedCheckpoint(
            "no such file or folder",
            evidence=str(path),
            next_step="give a folder, a config.json, an index, a .safetensors or a .gguf file",
        )
    source = Source(path, revision=read_revision(path))
    if is_folder:
        _open_folder(source, path)
    elif is_gguf(path):
        _open_gguf(source, [path])
    elif path.suffix == ".json":
        _open_json(source, path)
    elif path.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt"):
        raise RefusedCheckpoint(
            "pickled weights say nothing without being loaded, and loading runs code",
            evidence=str(path),
            next_step="point at the safetensors files, or at the folder with config.json",
        )
    else:
        _open_safetensors(source, [path])
        _read_beside(source, path.parent)
    return source


def read_revision(path: Path) -> str | None:
    """The commit of a hub snapshot, from where the files lie: `snapshots/<commit>`, `refs/main`, download metadata."""
    parts = path.absolute().parts
    for before, part in itertools.pairwise(parts):
        if before == "snapshots" and re.fullmatch(r"[0-9a-f]{7,64}", part):
            return part
    folder = path if path.is_dir() else path.parent
    try:
        if (ref := folder / "refs" / "main").is_file():
            text = ref.read_text(errors="replace").strip()
            return text if re.fullmatch(r"[0-9a-f]{7,64}", text) else None
        for note in sorted((folder / ".cache" / "huggingface" / "download").glob("*.metadata")):
            text = note.read_text(errors="replace").split("\n", 1)[0].strip()
            if re.fullmatch(r"[0-9a-f]{40}", text):
                return text
    except OSError:
        pass
    return None


def read_json(path: Path) -> Any:
    """A JSON file. Raises RefusedCheckpoint with the place of the error."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise RefusedCheckpoint(
                "too large for a config or an index", evidence=str(path), required="<= 256 MB"
            )
        raw = path.read_bytes()
    except OSError as error:
        raise RefusedCheckpoint(f"cannot be read: {error.strerror}", evidence=str(path)) from error
    if raw.startswith(b"version https://git-lfs"):
        raise RefusedCheckpoint(
            "this is a Git LFS pointer, not the file", evidence=str(path), next_step="git lfs pull"
        )
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise RefusedCheckpoint("not JSON", measured=str(error)[:120], evidence=str(path)) from error


def _open_folder(source: Source, folder: Path) -> None:
    snapshots = folder / "snapshots"
    if source.revision and (snapshots / source.revision).is_dir():
        folder = snapshots / source.revision
    _read_beside(source, folder)
    index = next(iter(sorted(folder.glob("*.safetensors.index.json"))), None)
    shards: list[Path] = []
    if index is not None:
        named = _read_index(source, read_json(index), index.name, index)
        shards = [folder / name for name in named if (folder / name).is_file()]
        if missing := [name for name in named if not (folder / name).is_file()]:
            source.notes.append(
                f"{len(missing)} of {len(named)} shards are missing: {', '.join(missing[:3])}"
            )
    if not shards:
        found = sorted(p for p in folder.glob("*.safetensors") if not _NOT_THE_MODEL.search(p.name))
        of_model = [p for p in found if p.name.startswith("model")]
        shards = of_model or found
    if shards:
        _open_safetensors(source, shards)
        return
    if ggufs := sorted(folder.glob("*.gguf")):
        _open_gguf(source, _one_gguf(source, ggufs))
        return
    if source.config is None and source.index is None:
        raise RefusedCheckpoint(
            "the folder holds no checkpoint",
            evidence=str(folder),
            required="config.json, *.safetensors, an index or a *.gguf",
        )
    source.notes.append("no weights lie in the folder: what follows is what the config shows")


def _one_gguf(source: Source, files: list[Path]) -> list[Path]:
    """The files of one model: a split set counts as one; of several models the first is read, and that is said."""
    split = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
    first = next((p for p in files if "mmproj" not in p.name.lower()), files[0])
    stem = split.sub("", first.name)
    chosen = [p for p in files if split.sub("", p.name) == stem]
    if others := [p.name for p in files if p not in chosen]:
        source.notes.append(f"other GGUF files in the folder were not read: {', '.join(others[:4])}")
    return chosen


def _open_gguf(source: Source, files: list[Path]) -> None:
    if len(files) == 1 and (split := re.search(r"-(\d{5})-of-(\d{5})\.gguf$", files[0].name)):
        pattern = files[0].name.replace(split.group(0), f"-*-of-{split.group(2)}.gguf")
        files = sorted(files[0].parent.glob(pattern))
        if len(files) < int(split.group(2)):
            source.notes.append(
                f"{int(split.group(2)) - len(files)} of {int(split.group(2))} parts are missing"
            )
    for file in files:
        part = read_gguf(file)
        source.read.append(file.name)
        if source.gguf is None:
            source.gguf = part
        else:
            source.gguf.tensors += part.tensors
    if source.gguf is not None:
        source.tensors, source.has_headers = source.gguf.tensors, True


def _open_safetensors(source: Source, files: list[Path]) -> None:
    tensors: dict[str, Tensor] = {}
    for file in files:
        header = read_header(file)
        source.read.append(file.name)
        source.notes += header.warnings
        for tensor in header.tensors:
            if tensor.name in tensors:
                source.notes.append(f"{tensor.name} is in more than one file; counted once")
            tensors[tensor.name] = tensor
    source.tensors, source.has_headers = list(tensors.values()), True


def _read_beside(source: Source, folder: Path) -> None:
    for name in ("config.json", "params.json"):
        path = folder / name
        if source.config is None and path.is_file() and isinstance(found := read_json(path), dict):
            source.config = found
            source.read.append(name)
    for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json"):
        path = folder / name
        if path.is_file() and isinstance(found := read_json(path), dict):
            if name == "hf_quant_config.json":
                source.extra = found
            elif source.config is not None and "quantization_config" not in source.config:
                method = "gptq" if name == "quantize_config.json" else "awq"
                source.config = {**source.config, "quantization_config": {"quant_method": method, **found}}
            source.read.append(name)


def _open_json(source: Source, path: Path) -> None:
    found = read_json(path)
    if not isinstance(found, dict) or not found:
        raise RefusedCheckpoint(
            "neither a config nor an index", measured=f"a JSON {type(found).__name__}", evidence=str(path)
        )
    if "weight_map" in found:
        named = _read_index(source, found, path.name, path)
        _read_beside(source, path.parent)
        if shards := [path.parent / name for name in named if (path.parent / name).is_file()]:
            if len(shards) < len(named):
                source.notes.append(f"{len(named) - len(shards)} of {len(named)} shards are missing")
            _open_safetensors(source, shards)
        return
    source.read.append(path.name)
    take_facts(source, found)


def take_facts(source: Source, found: dict[str, Any]) -> None:
    """Takes a config, a header as JSON, or facts noted from one ({quantization_config, header, total_size})."""
    header = found.get("header")
    if not isinstance(header, dict) and _looks_like_header(found):
        header, found = found, {}
    if isinstance(header, dict):
        source.tensors = [
            t for name, entry in header.items() if (t := _loose_tensor(name, entry)) is not None
        ]
        source.has_headers = bool(source.tensors)
    if isinstance(total := found.get("total_size"), int):
        source.index = {
            "total_size": total,
            "total_parameters": found.get("total_parameters"),
            "tensors": found.get("tensors"),
        }
        if isinstance(suffixes := found.get("suffixes"), dict):
            source.index["suffixes"] = suffixes
    if config := {k: v for k, v in found.items() if k not in ("header", "total_size", "total_parameters")}:
        source.config = config
    if source.config is not None and {"producer", "quantization"} <= set(source.config):
        source.extra, source.config = source.config, {}


def _looks_like_header(found: dict[str, Any]) -> bool:
    entries = [value for name, value in found.items() if name != "__metadata__"]
    return bool(entries) and all(isinstance(e, dict) and isinstance(e.get("dtype"), str) for e in entries)


def _loose_tensor(name: str, entry: Any) -> Tensor | None:
    """A tensor of noted facts: shape and bytes may be missing, or be words."""
    if name == "__metadata__" or not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return None
    shape, offsets, nbytes = entry.get("shape"), entry.get("data_offsets"), entry.get("bytes")
    is_shape = isinstance(shape, list) and all(isinstance(n, int) and n >= 0 for n in shape)
    if (
        nbytes is None
        and isinstance(offsets, list)
        and len(offsets) == 2
        and all(isinstance(n, int) for n in offsets)
    ):
        nbytes = offsets[1] - offsets[0]
    return Tensor(
        name,
        entry["dtype"].upper(),
        tuple(shape) if is_shape and shape is not None else None,
        nbytes if isinstance(nbytes, int) and nbytes >= 0 else None,
    )


def _read_index(source: Source, found: Any, name: str, path: Path) -> list[str]:
    """The shard names of an index; its tensor names stand in until headers are read."""
    weight_map = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(weight_map, dict):
        raise RefusedCheckpoint("the index has no weight_map", evidence=str(path))
    metadata = found.get("metadata")
    source.index = {**metadata} if isinstance(metadata, dict) else {}
    source.index["tensors"] = len(weight_map)
    source.read.append(name)
    source.tensors = [Tensor(str(tensor), NAME_ONLY) for tensor in weight_map]
    # A shard is a name in this folder: an index cannot send the reader elsewhere.
    return sorted(
        {str(v) for v in weight_map.values() if isinstance(v, str) and "/" not in v and "\\" not in v}
    )
