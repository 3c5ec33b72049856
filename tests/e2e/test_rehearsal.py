"""The campaign for several GPUs, rehearsed through the same flow: reference servers play eight GPUs in two quads.

What each server does is known, so ratios are worked from the campaign file and not from a mart.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from database_rows import rows_of

from contracts.records import Request, RunStart
from flows.landing import read_records

ROOT = Path(__file__).resolve().parents[2]
CAMPAIGN = ROOT / "campaigns" / "multi-gpu.yaml"
USD_PER_GPU_HOUR = 3.50
pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Rehearsed:
    """Where a rehearsal's evidence lies, and the database that was built of it."""

    raw: Path
    connection: duckdb.DuckDBPyConnection

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        return rows_of(self.connection, sql, *values)

    def requests(self, recipe: str, cell: str) -> list[Request]:
        (path,) = self.raw.glob(f"multi-gpu-rehearsal/*-{recipe}-????/requests/{cell}.jsonl")
        return read_records(path, Request)


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory, prefect_env: dict[str, str]) -> Any:
    folder = tmp_path_factory.mktemp("rehearsal")
    command = [sys.executable, "-m", "flows.cli", "run", str(CAMPAIGN), "--rehearse", "--json"]
    for name in ("raw", "warehouse", "publication"):
        command += [f"--{name}", str(folder / name)]
    done = subprocess.run(command, env=prefect_env, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    outcome = json.loads(done.stdout)
    with duckdb.connect(outcome["database"], read_only=True) as connection:
        yield Rehearsed(folder / "raw", connection)


def _request_s(recipe: str, output_tokens: int) -> float:
    """What one request takes on a recipe's stand-in: first token, then gaps."""
    rehearsal = yaml.safe_load(CAMPAIGN.read_text())["rehearsal"]
    timing = rehearsal["server"]["timing"] | rehearsal["recipes"].get(recipe, {}).get("timing", {})
    return float(timing["ttft_ms"] + (output_tokens - 1) * timing["itl_ms"]) / 1000


def test_every_recipe_served_or_failed_as_told(rehearsed: Rehearsed) -> None:
    runs = {
        row["recipe"]: row for row in rehearsed.rows("select * from marts.runs where source = 'synthetic'")
    }
    assert {name: row["state"] for name, row in runs.items()} == {
        "replicas-8": "served", "tp2x4": "served", "tp4x2": "served", "tp8": "served", "split-4-4": "served",
        "tp3": "failed", "tp2": "served",
    }  # fmt: skip
    assert runs["tp3"]["failure_class"] == "tp_not_divisible"
    assert {name: row["gpus"] for name, row in runs.items()} == {
        "replicas-8": 8, "tp2x4": 8, "tp4x2": 8, "tp8": 8, "split-4-4": 8, "tp3": 3, "tp2": 2,
    }  # fmt: skip
    (pair,) = rehearsed.rows("select * from marts.rescue_comparisons where source = 'synthetic'")
    assert (pair["original_failure_class"], pair["state"]) == ("tp_not_divisible", "served")


def test_nothing_that_was_played_passes_for_measured(rehearsed: Rehearsed) -> None:
    starts = [read_records(path, RunStart)[0] for path in rehearsed.raw.glob("*/*/run_start.jsonl")]
    assert {(start.source, start.engine) for start in starts} == {("synthetic", "reference")}
    rows = rehearsed.rows("select distinct source from marts.measured_rows")
    assert rows == [{"source": "synthetic"}]
    assert all(
        json.loads(row["facts"])["is_rehearsal"]
        for row in rehearsed.rows("select facts from staging.stg_nodes")
    )


def test_two_quads_are_found_and_confirmed(rehearsed: Rehearsed) -> None:
    rows = rehearsed.rows("select * from marts.node_islands where source = 'synthetic' order by island")
    assert [row["gpu_ids"] for row in rows] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for row in rows:
        assert (row["gpu_name"], row["node_gpus"], row["node_islands"]) == ("NVIDIA H200", 8, 2)
        assert (row["island_link"], row["link_between_islands"]) == ("NV18", "SYS")
        # The slowest of the file's pairs inside a quad, the fastest across.
        assert (row["slowest_inside_gb_s"], row["fastest_across_gb_s"]) == (371, 41)
        assert row["is_confirmed"] is True


def test_layouts_differ_by_what_their_servers_were_told(rehearsed: Rehearsed) -> None:
    (row,) = rehearsed.rows(
        "select * from marts.layout_comparisons where base_recipe = 'replicas-8' and changed_recipe = 'tp2x4'"
        " and workload = 'sweep' and metric = 'output_tokens_per_s'"
    )
    told = _request_s("replicas-8", 32) / _request_s("tp2x4", 32)  # 370 ms against 298 ms
    assert told == pytest.approx(1.2416, abs=1e-4)
    assert row["ratio"] == pytest.approx(told, rel=0.05)
    assert row["ratio_per_gpu"] == pytest.approx(row["ratio"])  # eight devices on both sides
    assert (row["verdict"], row["confounders"], row["base_n"]) == ("isolated", [], 2)
    assert row["source"] == "synthetic"


def test_every_pair_of_layouts_lists_its_confounders(rehearsed: Rehearsed) -> None:
    rows = rehearsed.rows("select * from marts.layout_comparisons where source = 'synthetic'")
    pairs = {tuple(sorted((row["base_recipe"], row["changed_recipe"]))): row for row in rows}
    for asked in (("replicas-8", "tp2x4"), ("tp4x2", "tp8"), ("split-4-4", "tp4x2")):
        assert asked in pairs
    for pair, row in pairs.items():
        differing = row["under_test"] or []
        assert row["verdict"] in ("isolated", "confounded", "not comparable"), pair
        assert (row["verdict"] == "isolated") == (row["confounders"] == [] and bool(differing)), pair
    # The same eight devices, named by the two sides: no difference, and no confounder.
    split = pairs["split-4-4", "tp4x2"]
    assert not any("gpu_ids" in one for one in split["confounders"])
    assert any(one.startswith("prefill_decode") for one in split["under_test"])
    # Another number of devices is a confounder of nothing else: it is what a rescue by a smaller layout changes.
    small = pairs["tp2", "tp8"]
    assert (small["base_gpus"], small["changed_gpus"]) in ((2, 8), (8, 2))


def test_cost_is_price_times_devices_times_window_over_tokens(rehearsed: Rehearsed) -> None:
    rows = rehearsed.rows("select * from marts.cost_per_token where workload = 'sweep' and recipe = 'tp2x4'")
    assert rows
    for row in rows:
        timed = [
            line
            for line in rehearsed.requests("tp2x4", row["row_id"].partition("/")[2])
            if line.phase == "timed"
        ]
        tokens = sum(line.output_tokens or 0 for line in timed)
        assert row["output_tokens"] == tokens == len(timed) * 32
        paid = USD_PER_GPU_HOUR * 8 * row["window_s"] / 3600
        assert row["output_cost_usd_per_mtok"] == pytest.approx(1e6 * paid / tokens)
        assert row["output_cost_with_load_usd_per_mtok"] > row["output_cost_usd_per_mtok"]
        assert row["standing"] != "publishable"


def test_a_splits_two_sides_count_its_tokens_once(rehearsed: Rehearsed) -> None:
    rows = rehearsed.rows(
        "select screen, verdict, count(*) as n from intermediate.int_screen_results join marts.measured_rows using (row_id)"
        " where recipe = 'split-4-4' and screen in ('token_reconciliation', 'cache_accounting', 'population')"
        " group by all"
    )
    assert {row["screen"] for row in rows} == {"token_reconciliation", "cache_accounting", "population"}
    assert {row["verdict"] for row in rows} == {"pass"}


def test_a_conversation_stays_on_the_replica_that_holds_it(rehearsed: Rehearsed) -> None:
    seen: dict[int | None, set[int]] = defaultdict(set)
    for line in rehearsed.requests("tp4x2", "conversation_ramp-u2-r0"):
        if line.phase == "timed":
            seen[line.user].add(line.endpoint)
    assert seen == {0: {0}, 1: {1}}
    verdicts = rehearsed.rows(
        "select distinct verdict from intermediate.int_screen_results join marts.measured_rows using (row_id)"
        " where recipe = 'tp4x2' and workload = 'conversation_ramp' and screen = 'cache_accounting'"
    )
    assert verdicts == [{"verdict": "pass"}]
