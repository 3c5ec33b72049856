"""From a reference server to the marts: who hands off, who recalls, and how far one user slows another, exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flows import node, runs
from flows.campaign_file import load_campaign
from flows.executions import open_execution
from flows.warehouse import build_warehouse

SLOW = {"ttft_ms": 2.0, "itl_ms": 4.0, "prefill_tokens_per_s": 2000, "interference": 17.0}
QUICK = {"ttft_ms": 2.0, "itl_ms": 1.0}

# The soak's load is streamed and the probes are not, and only the after-probes come this late.
BREAKS_AFTER = {"when": {"streamed": False, "from_request": 100}, "set": {"breaks": {"status": 500}}}

CAMPAIGN: dict[str, Any] = {
    "name": "truth",
    "policy": "original",
    "price": {"usd_per_gpu_hour": 3.5, "key": "test", "source": "a test", "as_of": "2026-10-09"},
    "probes": {"before": 2, "after": 2, "kinds": ["json", "tool"]},
    "workloads": [
        {
            "workload": "soak", "concurrency": 8, "duration_s": 2.0, "window_s": 1.0, "max_requests": 4000,
            "prompt_tokens": 40, "output_tokens": 16,
        },
        {
            "workload": "conversation_ramp", "turns": 4, "start_tokens": 200, "end_tokens": 800, "users": [1, 2],
        },
        {
            "workload": "interference", "prefill_tokens": 2400, "first_prefill_after_s": 0.3,
            "writer_prompt_tokens": 64, "writer_output_tokens": 150, "warmup_requests": 1,
        },
    ],
}  # fmt: skip


def recipe(name: str, entries: list[str], **server: Any) -> dict[str, Any]:
    return {
        "name": name,
        "engine": "reference",
        "model": "default",
        "args": ["--set", json.dumps(server)],
        "workloads": entries,
    }


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of a campaign of three reference servers, run as the flow runs it, without Prefect."""
    folder = tmp_path_factory.mktemp("truth")
    ramp_misses = {"needle": {"misses_after_turns": 2}}
    recipes = [
        recipe("baseline", ["soak"], timing=QUICK),
        recipe("draft-k3", ["soak"], timing=QUICK, variants=[BREAKS_AFTER]),
        recipe("forgetful", ["conversation_ramp", "interference"], timing=SLOW, answers=ramp_misses),
    ]
    path = folder / "truth.yaml"
    path.write_text(json.dumps({**CAMPAIGN, "recipes": recipes}))  # JSON is YAML
    campaign = load_campaign(path)
    execution = open_execution(
        campaign, path.read_bytes(), folder / "raw", is_resumed=False, notice=lambda _: None
    )
    execution.node_facts = node.read_node()
    for entry in campaign.recipes:
        run = runs.RecipeRun(execution, entry)
        run.start()
        assert run.bring_up()
        try:
            run.run_probes("before")
            for workload_entry in campaign.entries_of(entry):
                grade = runs.workloads.get(workload_entry.workload).grade
                for plan in run.cells(workload_entry):
                    run.run_cell(plan, grade)
            run.run_probes("after")
        finally:
            run.finish()
    build_warehouse(folder / "raw", folder / "warehouse")
    return folder / "warehouse" / "weighbridge.duckdb"


def rows(database: Path, query: str) -> list[Any]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_one_500_after_clean_load_decides_the_soak(database: Path) -> None:
    found = rows(
        database,
        "select subject, verdict, failed_requests, before_probes_passed, after_probes, after_probes_passed "
        "from marts.soak_verdicts where source = 'synthetic' order by subject",
    )
    assert found == [("baseline", "handoff", 0, 4, 4, 4), ("draft-k3", "no handoff", 0, 4, 4, 0)]
    reason = rows(database, "select verdict_reason from marts.soak_verdicts where subject = 'draft-k3'")[0][0]
    assert "500" in reason


def test_a_timed_window_is_whole(database: Path) -> None:
    found = rows(database, "select population from marts.measured_rows where workload = 'soak'")
    assert found == [("pass",), ("pass",)]


def test_the_seeds_own_soaks_come_out_as_they_were_told(database: Path) -> None:
    found = dict(
        rows(
            database, "select soak_id, verdict from marts.soak_verdicts where source = 'published' order by 1"
        )
    )
    assert found == {"soak_base": "handoff", "soak_k3": "no handoff"}


def test_recall_is_counted_turn_by_turn(database: Path) -> None:
    found = rows(
        database,
        "select users, turn, count(*) filter (where is_recalled), count(*) from marts.ramp_turns "
        "where source = 'synthetic' group by all order by all",
    )
    wanted = [(1, turn, int(turn < 2), 1) for turn in range(4)] + [
        (2, turn, 2 * int(turn < 2), 2) for turn in range(4)
    ]
    assert found == wanted


def test_the_reported_cache_hits_of_a_ramp_are_within_its_declared_share(database: Path) -> None:
    found = rows(
        database,
        "select cache_accounting from marts.measured_rows where workload = 'conversation_ramp' order by 1",
    )
    assert found == [("pass",), ("pass",)]
    tokens = rows(
        database,
        "select expected_cached_tokens, cached_tokens from marts.ramp_turns where source = 'synthetic'",
    )
    assert all(cached == expected // 16 * 16 for expected, cached in tokens)


def test_the_factor_of_interference_is_the_servers_own(database: Path) -> None:
    # 4 ms a token alone, 4 * (1 + 17) = 72 ms while the other prompt is read.
    (found,) = rows(
        database,
        "select decode_tokens_per_s_alone, decode_slowdown_during_prefill from marts.interference "
        "where source = 'synthetic' and workload = 'interference'",
    )
    assert found[0] == pytest.approx(250, rel=0.1)
    assert found[1] == pytest.approx(18, rel=0.15)
