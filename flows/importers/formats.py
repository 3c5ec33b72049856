"""Every format that is read, told by the keys it cannot be without, and the nearest one when none fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flows.importers import aiperf, guidellm, inference_perf, inferencex, llmperf, sglang, vllm
from flows.importers.reading import Document
from flows.importers.result import RefusedResult, ResultRow, UnknownResult


@dataclass(frozen=True)
class Format:
    """One file format. signature: keys that tell it; required: keys without which it cannot be read.

    typical: keys that settle which of two formats an unknown file is nearer to.
    """

    name: str
    kinds: tuple[str, ...]
    signature: frozenset[str]
    required: frozenset[str]
    read: Callable[[Document], list[ResultRow]]
    without: frozenset[str] = frozenset()
    typical: frozenset[str] = frozenset()

    def fits(self, document: Document) -> bool:
        keys = document.keys()
        return document.kind in self.kinds and self.signature <= keys and not self.without & keys


# In order: a more particular format stands before the one it is a copy of.
FORMATS = (
    Format("SGLang bench_serving JSONL", ("jsonl", "json"), sglang.SIGNATURE, sglang.REQUIRED, sglang.read,
           without=frozenset({"model_id", "tokenizer_id"})),
    Format("InferenceX benchmark_serving result", ("json", "jsonl"), inferencex.RAW_SIGNATURE, vllm.REQUIRED,
           inferencex.read_raw),
    Format("vllm bench serve result, sweep run or summary list", ("json", "jsonl"), vllm.SIGNATURE, vllm.REQUIRED,
           vllm.read, typical=vllm.KNOWN),
    Format("InferenceX aggregate", ("json", "jsonl"), inferencex.SIGNATURE, inferencex.REQUIRED, inferencex.read),
    Format("InferenceX aggregate", ("json", "jsonl"), frozenset({"conc", "model", "metrics"}), inferencex.REQUIRED,
           inferencex.read),
    Format("LLMPerf summary", ("json",), llmperf.SIGNATURE, llmperf.REQUIRED, llmperf.read),
    Format("LLMPerf individual responses", ("json", "jsonl"), llmperf.INDIVIDUAL_SIGNATURE,
           llmperf.INDIVIDUAL_REQUIRED, llmperf.read_individual),
    Format("GuideLLM benchmarks report", ("json",), guidellm.SIGNATURE, guidellm.REQUIRED, guidellm.read),
    Format("inference-perf lifecycle or prometheus report", ("json",), inference_perf.SIGNATURE,
           inference_perf.REQUIRED, inference_perf.read),
    Format("inference-perf per-request lifecycle metrics", ("json", "jsonl"), inference_perf.REQUESTS_SIGNATURE,
           inference_perf.REQUESTS_SIGNATURE, inference_perf.read_requests),
    Format("AIPerf or genai-perf summary JSON", ("json",), aiperf.SIGNATURE, aiperf.REQUIRED, aiperf.read),
    Format("AIPerf per-request JSONL", ("jsonl",), aiperf.RECORDS_SIGNATURE, aiperf.RECORDS_SIGNATURE,
           aiperf.read_records),
    Format("AIPerf GPU telemetry JSONL", ("jsonl",), aiperf.TELEMETRY_SIGNATURE, aiperf.TELEMETRY_SIGNATURE,
           aiperf.read_telemetry),
    Format("genai-perf profile export", ("json",), aiperf.PROFILE_SIGNATURE, aiperf.PROFILE_SIGNATURE,
           aiperf.read_profile),
)  # fmt: skip


def read_rows(document: Document) -> list[ResultRow]:
    """Every row of one document. Raises UnknownResult or RefusedResult, naming the nearest format and what it lacks."""
    if document.kind == "csv":
        return aiperf.read_csv(document)
    found = next((known for known in FORMATS if known.fits(document)), None)
    if found is None:
        raise _unknown(document)
    entries = document.data if isinstance(document.data, list) else [document.data]
    for place, entry in enumerate(entries):
        absent = found.required - set(entry) if isinstance(entry, dict) else found.required
        if absent:
            raise RefusedResult(
                f"{document.path.name} is a {found.name}, of a version that is not known: its fields differ",
                measured=f"entry {place} lacks {', '.join(sorted(absent))}",
                required=", ".join(sorted(found.required)),
                evidence=str(document.path),
                next_step="docs/import.md lists what is read of every format",
            )
    try:
        return found.read(document)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RefusedResult(
            f"{document.path.name} is a {found.name}, but not of a known version: {type(error).__name__} {error}",
            evidence=str(document.path),
            next_step="docs/import.md lists what is read of every format",
        ) from error


def _unknown(document: Document) -> UnknownResult:
    keys = document.keys()

    def likeness(known: Format) -> tuple[float, int]:
        wanted = known.signature | known.required
        return len(wanted & keys) / len(wanted), len(known.typical & keys)

    nearest = max(FORMATS, key=likeness)
    absent = sorted((nearest.signature | nearest.required) - keys)
    shown = ", ".join(sorted(keys)[:12]) or "no fields"
    return UnknownResult(
        f"{document.path.name} is of no known tool",
        measured=f"fields {shown}",
        required=f"nearest known format {nearest.name}; missing {', '.join(absent)}",
        evidence=str(document.path),
        next_step="docs/import.md lists the formats that are read",
    )
