"""`weighbridge log FILE`: what an engine's log says, and which lines decided it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from contracts.errors import BadInput


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def log(
        file: Annotated[Path, typer.Argument(help="an engine's log, of any size")],
        engine: Annotated[
            str | None,
            typer.Option(help="vllm, sglang, llamacpp, transformers; found from the log by default"),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
        timed_out: Annotated[
            bool, typer.Option("--timed-out", help="readiness was waited for in vain: name a hang")
        ] = False,
    ) -> None:
        """Read an engine's log: state, failure class, KV capacity, load time, and the lines that say so."""
        from flows.engines.logs import read_log
        from flows.engines.registry import ENGINES

        if engine is not None and engine not in ENGINES:
            raise BadInput(f"there is no engine {engine!r}", required=f"one of {', '.join(sorted(ENGINES))}")
        if not file.is_file():
            raise BadInput(f"{file} is not a file", next_step="give the path of an engine's log")
        try:
            answer = describe(read_log(file, engine, timed_out))
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}") from error
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False) if as_json else in_words(answer))


def describe(reading: Any) -> dict[str, Any]:
    """A reading as the JSON answer. state is ready, failed or unknown; null where the log does not say."""
    facts = reading.facts
    return {
        "engine": reading.engine,
        "version": facts.version,
        "state": reading.state if reading.state in ("ready", "failed") else "unknown",
        "failure_class": reading.failure_class,
        "kv_tokens": facts.kv_tokens,
        "max_concurrency": facts.max_concurrency,
        "load_s": facts.load_s,
        "evidence": reading.evidence,
        "is_offline_run": reading.state == "offline_ran",
        "prefix_caching": facts.prefix_caching,
        "max_running_requests": facts.max_running_requests,
        "max_model_len": facts.max_model_len,
        "phases_s": facts.phases_s,
        "is_warm_start": facts.extra.get("is_warm_start"),
        "kv_tokens_source": facts.extra.get(
            "kv_tokens_source", "read" if facts.kv_tokens is not None else None
        ),
        "failure_class_if_timed_out": facts.extra.get("failure_class_if_timed_out"),
        "notes": reading.notes,
        "details": {
            k: v
            for k, v in facts.extra.items()
            if k not in ("kv_tokens_source", "failure_class_if_timed_out")
        },
    }


def in_words(answer: dict[str, Any]) -> str:
    """The same answer as a few lines for a reader."""
    head = f"{answer['engine'] or 'unknown engine'} {answer['version'] or ''}".strip()
    lines = [
        f"{head}: {answer['state']}" + (f", {answer['failure_class']}" if answer["failure_class"] else "")
    ]
    for name in ("kv_tokens", "max_concurrency", "load_s", "prefix_caching", "max_model_len"):
        if answer[name] is not None:
            lines.append(f"  {name} {answer[name]}")
    for name, seconds in answer["phases_s"].items():
        lines.append(f"  phase {name} {seconds} s")
    lines += [f"  note: {note}" for note in answer["notes"]]
    lines += [f"  line {row['line']}: {row['text']}" for row in answer["evidence"]]
    return "\n".join(lines)
