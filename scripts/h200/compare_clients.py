"""Puts the same load on one vLLM server with this client and with `vllm bench serve`, window by window in turn.

    python scripts/h200/compare_clients.py campaigns/h200-clients.yaml RAW OUT

RAW gets this client's evidence as any run's. OUT gets one result file of `vllm bench serve` for each window, with a
seed of its own, and at the end two at the default seed (`default-seed-*.json`) with the server's /metrics before and
after them: the second of the two meets the prompts of the first in the prefix cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from flows import executions, node
from flows.campaign_file import load_campaign
from flows.runs import RecipeRun

HERE = Path(__file__).resolve().parent


class Bench:
    """The other client, in a process of its own."""

    def __init__(self, run: RecipeRun, model: Path, out: Path) -> None:
        assert run.served is not None
        self._base = [
            "--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--base-url", run.served.endpoints[0],
            "--model", run.served.model, "--tokenizer", str(model.resolve()), "--dataset-name", "random",
            "--random-input-len", "1024", "--random-output-len", "256", "--ignore-eos",
            "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99",
            "--save-result", "--save-detailed", "--result-dir", str(out.resolve()),
        ]  # fmt: skip
        log = (out / "bench.log").open("wb")
        self._process = subprocess.Popen(
            ["python3", str(HERE / "bench_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )

    def run(self, name: str, concurrency: int, requests: int, seed: int | None) -> dict[str, Any]:
        """One window; seed None leaves the default."""
        arguments = [*self._base, "--max-concurrency", str(concurrency), "--num-prompts", str(requests)]
        arguments += ["--result-filename", f"{name}.json"] + (
            ["--seed", str(seed)] if seed is not None else []
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline() or b'{"error": "it ended"}')
        return answer

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    """Run the comparison."""
    path, raw, out = (Path(argument) for argument in sys.argv[1:4])
    out.mkdir(parents=True, exist_ok=True)
    campaign = load_campaign(path)
    recipe = campaign.recipes[0]
    execution = executions.open_execution(campaign, path.read_bytes(), raw, is_resumed=False, notice=say)
    execution.node_facts = node.read_node()
    run = RecipeRun(execution, recipe)
    run.start()
    if not run.bring_up():
        raise SystemExit(str(run.failure))
    bench = Bench(run, Path(recipe.model), out)
    try:
        for entry in campaign.entries_of(recipe):
            for seed, plan in enumerate(run.cells(entry), start=1):
                order = ["ours", "bench"] if seed % 2 else ["bench", "ours"]
                for client in order:
                    if client == "ours":
                        _, window = run.run_cell(plan, None)
                        say(f"{plan.cell_id}: {window.ok if window else 0} of {plan.planned_requests}")
                    else:
                        name = f"bench-c{plan.concurrency}-r{plan.repeat}"
                        distinct = 1000 * plan.concurrency + seed
                        answer = bench.run(name, plan.concurrency, plan.planned_requests, distinct)
                        say(f"{name}: {answer}")
        assert run.served is not None
        for place in (1, 2):
            dump(run.served.endpoints[0], out / f"default-seed-{place}-before.prom")
            say(f"default seed {place}: {bench.run(f'default-seed-{place}', 32, 128, None)}")
            dump(run.served.endpoints[0], out / f"default-seed-{place}-after.prom")
    finally:
        bench.close()
        run.finish()


def dump(base_url: str, path: Path) -> None:
    """Keep the server's /metrics as it stands."""
    path.write_text(httpx.get(f"{base_url}/metrics", timeout=30).text)


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
