"""llama.cpp for real, on the CPU, with the 5.6 MB model: up, measured, killed, refused, gone."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flows.engines import bring_up
from flows.engines.base import BringUpFailed
from flows.engines.processes import is_port_free, is_running
from flows.engines.served import Served
from flows.landing import RunFolder
from flows.recipe import Recipe, Speculation

pytestmark = pytest.mark.e2e
pytest.importorskip(
    "xllamacpp", reason="the embedded engine is not installed: weighbridge doctor --install cpu"
)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until the condition holds or the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and not condition():
        time.sleep(0.05)
    return condition()


def recipe(**fields: Any) -> Recipe:
    return Recipe(
        **{"name": "small", "engine": "llamacpp", "model": "needle-2.8m", "context_tokens": 1024, **fields}
    )


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "engines", "run-1")


@pytest.fixture
def served(run: RunFolder) -> Iterator[Served]:
    one = bring_up(recipe(slots=2), run)
    yield one
    one.stop()


def ask(served: Served, **fields: Any) -> httpx.Response:
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": "Hello there"}],
        "max_tokens": 4,
        **fields,
    }
    return httpx.post(served.endpoints[0] + "/v1/chat/completions", json=body, timeout=60, trust_env=False)


def test_a_server_comes_up_says_what_it_is_and_goes_without_a_trace(run: RunFolder) -> None:
    events: list[str] = []
    served = bring_up(recipe(slots=2), run, on_event=lambda name, _: events.append(name))
    facts = served.facts
    assert events == ["process_started", "engine_ready", "ready"]
    assert (facts.kv_tokens, facts.max_running_requests, facts.max_model_len) == (2048, 2, 1024)
    assert facts.version is not None
    assert facts.version.startswith("xllamacpp ")
    assert facts.prefix_caching is True
    assert facts.phases_s["ready"] == pytest.approx(served.ready_s, abs=0.01)
    assert facts.load_s is not None
    assert served.count_tokens("Hello there") == served.count_tokens("Hello there")
    assert (served.count_tokens("Hello there") or 0) > 0
    before = served.counters()[0]
    answer = ask(served).json()["usage"]
    after = served.counters()[0]
    assert after["prompt_tokens"] - before["prompt_tokens"] == answer["prompt_tokens"]
    assert after["output_tokens"] - before["output_tokens"] == answer["completion_tokens"]
    assert before["preemptions"] is None  # llama.cpp counts none
    assert served.is_alive()
    assert served.death() is None
    pids = [process.status()["pid"] for process in served.processes]
    ports = [process.spec.port for process in served.processes]
    teardown = served.stop()
    assert (teardown.is_clean, teardown.note) == (True, None)
    assert not any(map(is_running, pids))
    assert all(is_port_free(port) for port in ports if port)
    assert served.log_names == ["files/server-0.log"]
    run.land("files/server-0.log")
    assert sorted(run.seals()) == ["files/server-0.log"]
    assert served.stop().is_clean


def test_prefix_caching_can_be_turned_off_and_the_server_says_so(run: RunFolder) -> None:
    served = bring_up(recipe(prefix_caching=False), run)
    try:
        assert served.facts.prefix_caching is False
        text = "The keeper of the harbour wrote a long list of boats. " * 8
        for _ in range(2):
            usage = ask(served, messages=[{"role": "user", "content": text}]).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    finally:
        served.stop()


def test_replicas_are_several_endpoints(run: RunFolder) -> None:
    served = bring_up(recipe(replicas=2), run)
    try:
        assert len(set(served.endpoints)) == 2
        assert len(served.counters()) == 2
        assert served.log_names == ["files/server-0.log", "files/server-1.log"]
        assert len(served.command) == 2
    finally:
        assert served.stop().is_clean


def test_speculation_is_what_the_server_says_it_does(run: RunFolder) -> None:
    served = bring_up(recipe(speculation=Speculation(method="ngram-simple", draft_tokens=3)), run)
    try:
        assert served.facts.extra["config"]["speculative"] == ["ngram_simple"]
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("fields", "failure_class", "words"),
    [
        ({"args": ["--ctx-sise", "1"]}, "bad_argument", "unrecognized arguments"),
        ({"model": "/no/such/model.gguf"}, "model_not_found", "failed to open GGUF"),
        # 4 KB a token: a gigabyte of address space and a half holds the model and the libraries, and not 8 GB of KV.
        ({"context_tokens": 2_000_000, "args": ["--address-space-gib", "1.5"]}, "host_oom", "allocate"),
        ({"args": ["--api-key", "abc"]}, "bad_argument", "would be written to raw"),
        ({"data_parallel": 2}, "bad_argument", "no data_parallel"),
        ({"launcher": ["/no/such/llama-server"]}, "dependency_missing", "cannot run"),
    ],
)
def test_a_failure_is_kept_with_its_class_and_lines(
    run: RunFolder, fields: dict[str, Any], failure_class: str, words: str
) -> None:
    with pytest.raises(BringUpFailed) as raised:
        bring_up(recipe(**fields), run)
    failure = raised.value
    assert failure.failure_class == failure_class
    assert words in failure.summary
    evidence = failure.reading.evidence[0]
    log = (run.path / (evidence["file"] + ".part")).read_text().split("\n")
    assert evidence["text"] in log[evidence["line"] - 1]
    assert failure.log_tail
    assert "abc" not in repr(failure.command)
    run.land("files/server-0.log")


def test_a_truncated_model_is_refused_by_the_engine(run: RunFolder, tmp_path: Path) -> None:
    whole = Path(__file__).parents[1] / "fixtures/models/needle-2.8m/needle-2.8m-f16.gguf"
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole.read_bytes()[:100_000])
    with pytest.raises(BringUpFailed) as raised:
        bring_up(recipe(model=str(cut)), run)
    assert raised.value.failure_class == "model_not_found"


def test_a_server_that_answers_without_a_token_is_not_ready(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.engines.start.RETRY_S", 0.01)
    healthy = (
        "import http.server as h, sys\n"
        "class A(h.BaseHTTPRequestHandler):\n"
        "  def do_GET(s): s.send_response(200); s.end_headers()\n"
        "  def do_POST(s): s.send_response(500); s.end_headers()\n"
        "h.HTTPServer(('127.0.0.1', int(sys.argv[-1])), A).serve_forever()\n"
    )
    with pytest.raises(BringUpFailed) as raised:
        bring_up(recipe(launcher=[sys.executable, "-c", healthy]), run)
    assert raised.value.failure_class == "unknown"
    assert "500 on /v1/chat/completions" in raised.value.summary


def test_a_server_that_dies_is_seen_and_explained(served: Served) -> None:
    os.kill(served.processes[0].status()["pid"], signal.SIGKILL)
    assert wait_until(lambda: not served.is_alive(), 10)
    assert served.exit_codes() == {"server-0": -9}
    death = served.death()
    assert death is not None
    assert (death.failure_class, death.exit_code) == ("died_silently", -9)
    assert "SIGKILL" in death.summary
    assert any("model loaded" in line for line in death.log_tail)
    assert served.stop().is_clean


def test_a_server_that_never_gets_ready_times_out(run: RunFolder) -> None:
    sleeper = ["/bin/sh", "-c", "echo still loading; sleep 600"]
    started = time.monotonic()
    with pytest.raises(BringUpFailed) as raised:
        bring_up(recipe(launcher=sleeper, ready_timeout_s=1.0), run)
    assert raised.value.failure_class == "timeout"
    assert raised.value.log_tail == ["still loading"]
    assert time.monotonic() - started < 30
