"""`weighbridge precision`: what a checkpoint's label claims against what its headers show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from flows.node.precision import read_precision


def register(app: typer.Typer) -> None:
    """Add the command to the app."""

    @app.command()
    def precision(
        path: Path = typer.Argument(help="A folder, config.json, index, .safetensors or .gguf file."),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
    ) -> None:
        """Compare a checkpoint's precision label with its tensors, from headers alone.

        No weight is read. A file that is cut off or something else is refused with the reason, exit 2.
        """
        found = read_precision(path)
        typer.echo(json.dumps(found) if as_json else describe(found))


def describe(found: dict[str, Any]) -> str:
    """The audit for a person, one thing a line."""
    if "entries" in found:
        return "\n\n".join(f"{name}\n{describe(entry)}" for name, entry in found["entries"].items())
    verdict = {True: "the label holds", False: "the label does not hold", None: "not decided"}[
        found["is_label_true"]
    ]
    lines = [
        f"label     {found['label']}" + (f" ({found['label_layout']})" if found["label_layout"] else ""),
        f"true      {found['true'] or 'cannot be told'}"
        + (f" (by {found['true_source']})" if found["true"] else ""),
        f"verdict   {verdict}",
    ]
    if found["params"] or found["bytes"]:
        params = f"{found['params'] / 1e9:.3f} B parameters" if found["params"] else "parameters not known"
        size = f"{found['bytes'] / 1e9:.3f} GB" if found["bytes"] else "bytes not known"
        each = f", {found['bytes_per_param']} bytes each" if found["bytes_per_param"] else ""
        lines.append(f"size      {params}, {size}{each} (from {found['size_source']})")
    for kind, entry in found["by_kind"].items():
        formats = ", ".join(entry["formats"])
        size = f" {entry['bytes'] / 1e9:.3f} GB" if entry["bytes"] else ""
        lines.append(f"{kind:<15} {formats}{size}")
    for scale in found["scales"][:12]:
        layout = scale["layout"] or "layout not shown"
        lines.append(
            f"scales    {scale['kind']}: {scale['format']}, {layout}, {scale['scale_dtype'] or 'dtype not shown'}"
        )
    lines += [f"note      {note}" for note in found["notes"]]
    lines += [f"unknown   {missing}" for missing in found["cannot_tell"]]
    return "\n".join(lines)
