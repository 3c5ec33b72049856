"""The clients that are compared, each as one call that says how many tokens it got, in what time, with what CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contracts.records import Request, Window
from flows.landing import RunFolder, read_records
from flows.load import run_window
from flows.load.plan import PlannedRequest, Shape, WindowSpec

NATIVE = Path(__file__).parent / "native"


@dataclass
class Cost:
    """cpu_s: of the whole client, start-up included. ttft_ms: percentiles by the client's own account."""

    tokens: int
    wall_s: float
    cpu_s: float
    requests_per_s: float | None = None
    ttft_p50_ms: float | None = None
    ttft_p99_ms: float | None = None

    @property
    def cpu_us_per_token(self) -> float:
        return self.cpu_s / self.tokens * 1e6 if self.tokens else float("inf")


def build_native(folder: Path) -> tuple[Path, Path] | None:
    """(mock server, native client) built from native/, or None without a Rust compiler."""
    compiler = shutil.which("rustc") or shutil.which("rustc", path=str(Path.home() / ".cargo/bin"))
    if compiler is None:
        return None
    built = []
    for name in ("mock", "goldc"):
        target = folder / name
        subprocess.run(
            [
                compiler,
                "-O",
                "-C",
                "target-cpu=native",
                "-A",
                "warnings",
                "-o",
                str(target),
                str(NATIVE / f"{name}.rs"),
            ],
            check=True,
        )
        built.append(target)
    return built[0], built[1]


@contextmanager
def mock_server(mock: Path, ttft_ms: float, itl_ms: float, tokens: int) -> Iterator[int]:
    """The native server, on a free port."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [
        str(mock),
        "--port",
        str(port),
        "--ttft",
        str(ttft_ms),
        "--itl",
        str(itl_ms),
        "--tokens",
        str(tokens),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _wait_for_port(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def _wait_for_port(port: int) -> None:
    import socket

    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


def run_native(client: Path, port: int, streams: int, requests: int, tokens: int) -> Cost:
    out = subprocess.run(
        [str(client), str(port), str(streams), str(requests), str(tokens)],
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(out.stdout)
    made = round(said["tok_s"] * said["wall"])
    return Cost(made, said["wall"], said["cpu_s"], said["req_s"], said["ttft50"], said["ttft99"])


def run_plain_httpx(port: int, streams: int, requests: int, tokens: int) -> Cost:
    command = [
        sys.executable,
        "-m",
        "benchmarks.load.plain_httpx",
        *map(str, (port, streams, requests, tokens)),
    ]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(out.stdout)
    return Cost(said["tokens"], said["wall_s"], said["cpu_s"], requests / said["wall_s"])


@dataclass
class Measured:
    """A window of ours: its cost, its record and its requests."""

    cost: Cost
    window: Window
    records: list[Request]
    wall_s: float


def run_weighbridge(url: str, model: str, streams: int, requests: int, tokens: int) -> Measured:
    """One whole window: plan, start, preflight, load, parse, land. CPU: of the load process and of this one meanwhile."""

    def plan() -> Iterator[PlannedRequest]:
        for index in range(requests):
            yield PlannedRequest(
                request_id=f"r{index}", index=index, asked_output_tokens=tokens, body={
                    "model": model, "messages": [{"role": "user", "content": f"{index} " + "hello world " * 30}],
                    "max_tokens": tokens, "stream": True, "stream_options": {"include_usage": True},
                },
            )  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        run = RunFolder.create(Path(folder), "bench", "run")
        spec = WindowSpec(
            campaign="bench",
            run_id="run",
            cell_id="cell",
            endpoints=[url],
            model=model,
            shape=Shape(concurrency=streams),
        )
        before, begun = _cpu_s(), time.monotonic()
        window = run_window(spec, plan(), run)
        wall_s, cpu_s = time.monotonic() - begun, _cpu_s() - before
        records = read_records(run.path / "requests/cell.jsonl", Request)
    made = sum(record.output_tokens or 0 for record in records)
    window_s = (window.closed_ns - window.opened_ns) / 1e9
    ttfts = sorted(_ttft_ms(record) for record in records if record.first_token_ns is not None)
    cost = Cost(
        made,
        window_s,
        cpu_s,
        window.ok / window_s,
        ttfts[len(ttfts) // 2],
        ttfts[min(len(ttfts) - 1, len(ttfts) * 99 // 100)],
    )
    return Measured(cost, window, records, wall_s)


def _ttft_ms(record: Request) -> float:
    assert record.first_token_ns is not None and record.planned_ns is not None
    return (record.first_token_ns - record.planned_ns) / 1e6


def _cpu_s() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def installed_peers() -> dict[str, Any]:
    """Peers that can be started here: name -> how. docs/load.md says how each is installed."""
    peers: dict[str, Any] = {}
    if importlib.util.find_spec("vllm") is not None:
        peers["vllm bench serve"] = _vllm
    for name, runner in (("aiperf", _aiperf), ("guidellm", _guidellm)):
        if shutil.which(name):
            peers[name] = runner
    return peers


def run_peer(runner: Any, port: int, streams: int, requests: int, tokens: int) -> Cost:
    """A peer with its own command line; CPU of its whole process tree."""
    tokenizer = os.environ.get("BENCH_TOKENIZER")
    if not tokenizer:
        raise FileNotFoundError(
            "BENCH_TOKENIZER: a folder with tokenizer.json, tokenizer_config.json and config.json"
        )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    with tempfile.TemporaryDirectory(prefix="bench-peer-") as folder:
        command = runner(f"http://127.0.0.1:{port}", tokenizer, folder, streams, requests, tokens)
        before, begun = _cpu_s(), time.monotonic()
        subprocess.run(
            command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return Cost(requests * tokens, time.monotonic() - begun, _cpu_s() - before)


def _vllm(url: str, tokenizer: str, out: str, streams: int, requests: int, tokens: int) -> list[str]:
    code = (
        "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
        "parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
    )
    return [
        sys.executable, "-c", code, "--backend", "openai-chat", "--base-url", url, "--endpoint", "/v1/chat/completions",
        "--model", "mock", "--tokenizer", tokenizer, "--dataset-name", "random", "--random-input-len", "64",
        "--random-output-len", str(tokens), "--num-prompts", str(requests), "--max-concurrency", str(streams),
        "--ignore-eos", "--save-result", "--save-detailed", "--result-dir", out,
    ]  # fmt: skip


def _aiperf(url: str, tokenizer: str, out: str, streams: int, requests: int, tokens: int) -> list[str]:
    return [
        "aiperf", "profile", "-m", "mock", "--endpoint-type", "chat", "--streaming", "-u", url, "--tokenizer", tokenizer,
        "--concurrency", str(streams), "--request-count", str(requests), "--isl", "64", "--isl-stddev", "0", "--osl",
        str(tokens), "--osl-stddev", "0", "--use-server-token-count", "--ui", "none", "--no-gpu-telemetry",
        "--no-server-metrics", "--extra-inputs", "ignore_eos:true", "--output-artifact-dir", out,
    ]  # fmt: skip


def _guidellm(url: str, tokenizer: str, out: str, streams: int, requests: int, tokens: int) -> list[str]:
    return [
        "guidellm", "run", "--backend", f"kind=openai_http,target={url},model=mock", "--profile",
        f"kind=concurrent,streams={streams}", "--constraint", f"kind=max_requests,count={requests}", "--tokenizer",
        f"kind=hf_auto,model={tokenizer}", "--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={tokens}",
        "--output", f"kind=json,path={out}/guidellm.json", "--disable-console-interactive",
    ]  # fmt: skip
