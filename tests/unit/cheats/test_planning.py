"""From a load to what goes on the wire: which prompts are shared, and what the cell declares."""

from __future__ import annotations

from typing import Any

import pytest

from flows.cheats.bench import WORDS
from flows.cheats.planning import plan_cells
from flows.cheats.scenario import Scenario
from flows.load.plan import PlannedRequest
from flows.workloads.base import CellPlan, PlanContext


def cells(**load: Any) -> list[CellPlan]:
    scenario = Scenario(
        id="one", family="cache", kind="fault", source="x/y#1", expect=["nonce_audit"],
        load={"concurrency": 2, "requests": 6, "prompt_tokens": 32, "output_tokens": 4, **load},
    )  # fmt: skip
    context = PlanContext("cheats", "run-1", 7, "reference", "nonce", WORDS)
    return plan_cells(scenario, context)


def timed(plan: CellPlan) -> list[PlannedRequest]:
    return [request for request in plan.requests() if request.phase == "timed"]


@pytest.mark.parametrize(
    ("prompts", "distinct"),
    [
        ({"mode": "fresh"}, 6),
        ({"mode": "same"}, 1),
        ({"mode": "pool", "size": 3}, 3),
        ({"mode": "warmup"}, 4),
    ],
)
def test_distinct_prompts_of_each_mode(prompts: dict[str, Any], distinct: int) -> None:
    (plan,) = cells(prompts=prompts)
    requests = timed(plan)
    assert len({request.prompt_sha256 for request in requests}) == distinct
    assert len({request.request_id for request in requests}) == 6


def test_an_earlier_window_sends_the_same_prompts_under_other_ids() -> None:
    earlier, judged = cells(prompts={"mode": "earlier"})
    assert (earlier.cell_id, judged.cell_id) == ("one-earlier", "one")
    first, second = timed(earlier), timed(judged)
    assert [request.prompt_sha256 for request in first] == [request.prompt_sha256 for request in second]
    assert not {request.request_id for request in first} & {request.request_id for request in second}


def test_a_shared_prefix_comes_before_each_prompt() -> None:
    (plan,) = cells(prompts={"mode": "prefix", "tokens": 50})
    texts = [request.body["messages"][0]["content"] for request in timed(plan)]  # type: ignore[index]
    assert len({text.split("\n\n", 1)[0] for text in texts}) == 1
    assert len(set(texts)) == 6


def test_the_wire_may_say_otherwise_than_the_row() -> None:
    (plan,) = cells(max_tokens=2, ignores_eos=False, body={"seed": 5}, is_streamed=False)
    body = timed(plan)[0].body
    assert isinstance(body, dict)
    assert (body["max_tokens"], body["seed"], body["stream"]) == (2, 5, False)
    assert "ignore_eos" not in body and "stream_options" not in body
    assert plan.asked_output_tokens == 4


@pytest.mark.parametrize(("api", "field"), [("completions", "prompt"), ("responses", "input")])
def test_other_endpoints_get_their_own_bodies(api: str, field: str) -> None:
    (plan,) = cells(api=api)
    body = timed(plan)[0].body
    assert isinstance(body, dict)
    assert isinstance(body[field], str) and "messages" not in body


def test_what_the_cell_declares() -> None:
    (plan,) = cells(declares_sharing=True, cache_budget=[0.5, 0.9], thinking=False)
    assert (plan.declares_sharing, plan.cache_budget_min, plan.cache_budget_max) == (True, 0.5, 0.9)
    assert plan.params["thinking"] is False
