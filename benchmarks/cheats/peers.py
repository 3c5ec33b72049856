"""`make bench-cheats-peers`: the same awkward streams through every client that is installed, each in its own words.

    python -m benchmarks.cheats.peers [--only NAME] [--timeout S] [--json FILE]

A peer is found by its command on PATH or in $WEIGHBRIDGE_PEERS (folders of virtual environments, separated by `:`);
one that is not there is skipped with a word. Its result file is read by the importer of its format, so that every
figure stands under one name. Nothing leaves this machine: the server is the reference server on loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from contracts.errors import WeighbridgeError
from contracts.records import Request
from flows import load
from flows.importers import read_files
from flows.landing import RunFolder, read_records
from flows.load.plan import Deadlines, PlannedRequest, Shape, WindowSpec

HERE = Path(__file__).resolve().parent
REQUESTS, STREAMS, TOKENS = 8, 4, 20
BASE = {"timing": {"ttft_ms": 60.0, "itl_ms": 10.0}}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True)
class Peer:
    """One client: its command, its arguments (U url, TOK tokenizer folder, OUT folder) and its result files."""

    name: str
    command: str
    arguments: str
    results: str
    is_offline: bool = True
    program: str | None = None  # Python that is run by the command's own interpreter, in place of the command


# The wheel for CPUs refuses `vllm bench` without a platform; the benchmark itself needs none.
VLLM = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; parser = argparse.ArgumentParser(); "
    "add_cli_args(parser); main(parser.parse_args())"
)
# The command lines of the comparison that began this table, with N = 8, C = 4, T = 20.
PEERS = (
    Peer("vllm bench serve", "vllm",
         "--backend openai-chat --base-url U --endpoint /v1/chat/completions --model reference "
         "--tokenizer TOK --dataset-name random --random-input-len 64 --random-output-len 20 --num-prompts 8 "
         "--max-concurrency 4 --ignore-eos --percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,99 "
         "--save-result --save-detailed --result-dir OUT", "*.json", program=VLLM),
    Peer("AIPerf", "aiperf",
         "profile -m reference --endpoint-type chat --streaming -u U --tokenizer TOK --concurrency 4 --request-count 8 "
         "--isl 64 --isl-stddev 0 --osl 20 --osl-stddev 0 --use-server-token-count --ui none --no-gpu-telemetry "
         "--no-server-metrics --extra-inputs ignore_eos:true --output-artifact-dir OUT", "profile_export*.json*",
         is_offline=False),
    Peer("GuideLLM", "guidellm",
         "run --backend kind=openai_http,target=U,model=reference --profile kind=concurrent,streams=4 "
         "--constraint kind=max_requests,count=8 --tokenizer kind=hf_auto,model=TOK "
         "--data kind=synthetic_text,prompt_tokens=64,output_tokens=20 --output kind=json,path=OUT/guidellm.json "
         "--disable-console-interactive", "guidellm.json"),
    Peer("inference-perf", "inference-perf", "-c OUT/config.yml", "reports*/*lifecycle_metrics.json"),
)  # fmt: skip


def main() -> int:
    """Run every stream through every client and print the table. Exit 0: the table is the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="run the streams whose name holds this")
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="seconds after which a client counts as hung"
    )
    parser.add_argument("--keep", type=Path, help="keep what the clients wrote in this folder")
    parser.add_argument("--json", type=Path, help="write the cells of the table here as well")
    given = parser.parse_args()
    streams = yaml.safe_load((HERE / "streams.yaml").read_text())
    streams = [stream for stream in streams if not given.only or given.only in stream["name"]]
    found = {peer: path for peer in PEERS if (path := find_command(peer.command)) is not None}
    for peer in PEERS:
        if peer not in found:
            say(f"{peer.name} is not installed: skipped")
    table: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="weighbridge-peers-") as scratch:
        kept = given.keep or Path(scratch)
        tokenizer = make_tokenizer(kept / "tokenizer")
        for place, stream in enumerate(streams):
            say(stream["name"])
            cells = {"truth": stream["truth"]}
            folder = kept / f"stream-{place}"
            cells["Weighbridge"] = run_own(stream, folder / "own")
            for peer, command in found.items():
                cells[peer.name] = run_peer(
                    peer, command, stream, tokenizer, folder / peer.command, given.timeout
                )
            table[stream["name"]] = cells
    print_table(table)
    if given.json:
        given.json.write_text(json.dumps(table, indent=2) + "\n")
    return 0


def find_command(name: str) -> str | None:
    """The command on PATH, or in a virtual environment that $WEIGHBRIDGE_PEERS names."""
    for folder in filter(None, os.environ.get("WEIGHBRIDGE_PEERS", "").split(":")):
        if (path := Path(folder) / "bin" / name).exists():
            return str(path)
    return shutil.which(name)


@contextmanager
def serving(server: dict[str, Any], folder: Path) -> Iterator[str]:
    """A reference server of this scenario; gives its base URL. Each client meets a fresh one."""
    folder.mkdir(parents=True, exist_ok=True)
    merged = {**server, "timing": {**BASE["timing"], **server.get("timing", {})}}
    command = [sys.executable, "-m", "flows.engines.reference", "--port", "0", "--set", json.dumps(merged)]
    log = folder / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        for _ in range(300):
            found = re.search(r"listening on (http://\S+)", log.read_text())
            if found and "startup complete" in log.read_text():
                break
            time.sleep(0.1)
        else:
            raise RuntimeError(log.read_text())
        yield found[1]  # type: ignore[index]
    finally:
        process.terminate()
        process.wait(timeout=10)


def run_own(stream: dict[str, Any], folder: Path) -> str:
    """The same eight requests through this project's client."""
    with serving(stream["server"], folder) as url:
        run = RunFolder.create(folder / "raw", "peers", "run")
        body = {"model": "reference", "messages": [{"role": "user", "content": "word " * 64}], "stream": True,
                "max_tokens": TOKENS, "ignore_eos": True, "stream_options": {"include_usage": True}}  # fmt: skip
        spec = WindowSpec(
            campaign="peers", run_id="run", cell_id="own", endpoints=[url], model="reference",
            shape=Shape(kind="closed", concurrency=STREAMS), deadlines=Deadlines(between_chunks_s=3.0),
        )  # fmt: skip
        planned = (
            PlannedRequest(request_id=f"own-{place}", index=place, body=body) for place in range(REQUESTS)
        )
        load.run_window(spec, planned, run)
        records: list[Request] = read_records(run.path / "requests/own.jsonl", Request)
    ok = [record for record in records if record.outcome == "ok"]
    ttfts = sorted((record.first_token_ns - record.planned_ns) / 1e6 for record in ok)  # type: ignore[operator]
    gaps = sorted(gap / 1e6 for record in ok for gap in record.chunk_gap_ns[1:])
    tokens = sum(record.output_tokens or 0 for record in ok)
    return words(
        len(ok), len(records) - len(ok), middle(ttfts), middle(gaps), tokens / len(ok) if ok else None
    )


def run_peer(
    peer: Peer, command: str, stream: dict[str, Any], tokenizer: Path, folder: Path, timeout_s: float
) -> str:
    """One peer on one stream: what its own result file says, or that it hung or left none."""
    out = folder / "out"
    out.mkdir(parents=True)
    with serving(stream["server"], folder) as url:
        if peer.command == "inference-perf":
            (out / "config.yml").write_text(inference_perf_config(url, tokenizer, out))
        places = {"U": url, "TOK": str(tokenizer)}
        arguments = [
            places.get(word, word).replace("target=U,", f"target={url},").replace("model=TOK", f"model={tokenizer}")
            .replace("OUT", str(out)) for word in peer.arguments.split()
        ]  # fmt: skip
        start = (
            [command] if peer.program is None else [str(Path(command).parent / "python"), "-c", peer.program]
        )
        environment = {**os.environ, **(OFFLINE if peer.is_offline else {})}
        with (folder / "client.log").open("wb") as log:
            process = subprocess.Popen(
                [*start, *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                cwd=out,
            )
        try:
            code = process.wait(timeout=timeout_s)
            ending = "" if code == 0 else f", exit {code}"
        except subprocess.TimeoutExpired:
            ending = f", hung (interrupted after {timeout_s:.0f} s)"
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return read_result(peer, out) + ending


def read_result(peer: Peer, out: Path) -> str:
    """The figures of a peer's result file under this project's names."""
    paths = [
        path
        for path in sorted(out.rglob(peer.results))
        if "inputs" not in path.name and "config" not in path.name
    ]
    if not paths:
        return "no result"
    try:
        groups, _ = read_files(paths)
    except WeighbridgeError as error:
        return f"no figures ({error.what.splitlines()[0][:60]})"
    row = groups[0][0]
    figure = row.figure
    return words(
        figure("requests_ok"), figure("requests_failed"), figure("ttft_p50_ms"),
        figure("itl_p50_ms") or figure("tpot_p50_ms"), figure("output_tokens_mean"),
    )  # fmt: skip


def words(
    ok: float | None, failed: float | None, ttft: float | None, itl: float | None, tokens: float | None
) -> str:
    """`8 ok, TTFT 61, ITL 10.0, 20 tokens`; what is not known is left out."""
    parts = [f"{ok:g} ok"] if ok is not None else []
    parts += [f"{failed:g} failed"] if failed else []
    parts += [f"TTFT {ttft:.0f}"] if ttft is not None else []
    parts += [f"ITL {itl:.1f}"] if itl is not None else []
    parts += [f"{tokens:.3g} tokens"] if tokens is not None else []
    return ", ".join(parts) or "no figures"


def middle(ordered: list[float]) -> float | None:
    return ordered[len(ordered) // 2] if ordered else None


def inference_perf_config(url: str, tokenizer: Path, out: Path) -> str:
    """A configuration of inference-perf for eight requests at four at a time."""
    lengths = {"min": 64, "max": 64, "mean": 64, "std_dev": 0, "total_count": REQUESTS}
    config = {
        "api": {"type": "completion", "streaming": True},
        "data": {"type": "random", "input_distribution": lengths,
                 "output_distribution": {**lengths, "min": TOKENS, "max": TOKENS, "mean": TOKENS}},
        "load": {"type": "concurrent", "stages": [{"num_requests": REQUESTS, "concurrency_level": STREAMS}],
                 "num_workers": 1},
        "server": {"type": "vllm", "model_name": "reference", "base_url": url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(tokenizer)},
        "storage": {"local_storage": {"path": str(out / "reports")}},
    }  # fmt: skip
    return yaml.safe_dump(config)


def make_tokenizer(folder: Path) -> Path:
    """A word tokenizer with a chat template, made here: no hub is asked."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True)
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for number in range(2000):
        vocabulary.setdefault(f"w{number}", len(vocabulary))
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>",
        "chat_template": template, "model_max_length": 131072,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": len(vocabulary)}))
    return folder


def print_table(table: dict[str, dict[str, str]]) -> None:
    """The table as Markdown, one stream a row."""
    columns = list(dict.fromkeys(name for cells in table.values() for name in cells))
    say("| stream | " + " | ".join(columns) + " |")
    say("|---|" + "---|" * len(columns))
    for name, cells in table.items():
        say(f"| {name} | " + " | ".join(cells.get(column, "") for column in columns) + " |")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
