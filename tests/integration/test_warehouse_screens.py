"""SQL and Python judge the same rows alike; standings follow from verdicts as written."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from warehouse_scenarios import ROOFS, SCENARIOS

from contracts.columns import MARTS
from contracts.policies import POLICIES, required_screens
from contracts.screens import SCREENS
from contracts.verdicts import standing, worst


@pytest.mark.parametrize("name", list(SCREENS))
def test_sql_and_python_agree_on_every_row(judged: Any, name: str) -> None:
    evidence = {row["row_id"]: row for row in judged.rows("select * from intermediate.int_row_evidence")}
    results = judged.rows("select * from intermediate.int_screen_results where screen = ?", name)
    assert len(results) == len(evidence)
    for result in results:
        parts = SCREENS[name].judge(evidence[result["row_id"]])
        assert worst(part.verdict for part in parts) == result["verdict"], result["row_id"]
        in_sql = {part["part"]: part for part in result["parts"]}
        for part in parts:
            assert in_sql[part.name]["verdict"] == part.verdict, (result["row_id"], part)
            measured = in_sql[part.name]["measured"]
            if part.measured is not None and measured is not None:
                assert math.isclose(measured, part.measured, rel_tol=1e-9, abs_tol=1e-12), (
                    result["row_id"],
                    part,
                )


def test_every_screen_fails_and_passes_on_some_row(judged: Any) -> None:
    seen: dict[str, Counter[str]] = {}
    for row in judged.rows("select screen, verdict from intermediate.int_screen_results"):
        seen.setdefault(row["screen"], Counter())[row["verdict"]] += 1
    assert set(seen) == set(SCREENS)
    for name, verdicts in seen.items():
        assert verdicts["pass"], name
        assert verdicts["fail"], name


def test_standings_follow_from_the_verdicts_under_each_policy(judged: Any) -> None:
    for row in judged.rows("select * from marts.measured_rows"):
        is_invalid = row["standing"] == "invalid"
        for policy, column in (("original", "standing_original"), ("strict", "standing_strict")):
            expected = standing(is_invalid, [row[name] for name in POLICIES[policy]])
            assert row[column] == expected, (row["row_id"], policy)
        assert row["standing"] == standing(
            is_invalid, [row[name] for name in required_screens(row["policy"])]
        )


def test_unknown_never_publishes(judged: Any) -> None:
    for row in judged.rows("select * from marts.gated_rows"):
        assert {row[name] for name in required_screens(row["policy"])} <= {"pass", "not_applicable"}, row[
            "row_id"
        ]


def test_a_clean_sweep_publishes_under_strict_with_every_screen_answered(judged: Any) -> None:
    row = judged.row("clean/sweep-c4")
    assert row["standing"] == "publishable"
    assert {row[name] for name in SCREENS} == {"pass"}


def test_a_policy_of_an_unknown_name_is_judged_as_strict(judged: Any) -> None:
    row = judged.row("no-such-policy/fresh-4096")
    assert (row["policy"], row["standing"]) == ("strict", "provisional")
    assert judged.row("original/fresh-4096")["standing"] == "publishable"


@pytest.mark.parametrize("run", ["no-needles", "short-needles"])
def test_a_server_without_needles_at_this_context_is_unknown_and_provisional(judged: Any, run: str) -> None:
    assert judged.screen(f"{run}/sweep-c4", "needle_gate")["verdict"] == "unknown"
    assert judged.row(f"{run}/sweep-c4")["standing"] == "provisional"


def test_no_witness_of_the_cache_is_unknown_and_one_is_enough(judged: Any) -> None:
    assert judged.row("no-witness/sweep-c4")["cache_accounting"] == "unknown"
    assert judged.row("no-witness/sweep-c4")["cached_tokens"] is None
    assert judged.row("clean/sweep-c4")["cache_accounting"] == "pass"


def test_an_engine_that_died_makes_the_row_invalid_whatever_the_screens_say(judged: Any) -> None:
    row = judged.row("engine-died/sweep-c4")
    assert (row["standing"], row["standing_original"], row["standing_strict"]) == ("invalid",) * 3
    assert "exit 137" in row["standing_reason"]


@pytest.mark.parametrize(
    ("run", "what"),
    [
        ("drafts-in-words", "recipe_settings.speculation.draft_tokens is three"),
        ("drafts-without-end", "recipe_settings.speculation.draft_tokens is NaN"),
        ("caching-perhaps", "recipe_settings.prefix_caching is perhaps"),
        ("slots-in-words", "recipe_settings.max_running_requests is many"),
        ("sized-in-words", "model_facts.params_active is 8B"),
        ("node-in-words", "node_facts.cpu_gflops is fast"),
        ("thinking-a-little", "params.thinking is a little"),
        ("ramp-in-words", "shape.ramp_up_s is soon"),
    ],
)
def test_a_value_that_cannot_be_read_makes_the_row_invalid_and_is_named(
    judged: Any, run: str, what: str
) -> None:
    row = judged.row(f"{run}/sweep-c4")
    assert row["standing"] == "invalid"
    assert f"unreadable: {what}" in row["standing_reason"]


def test_declared_speculation_shows_no_itl_and_may_publish(judged: Any) -> None:
    row = judged.row("speculating/sweep-c4")
    assert row["itl_ms_p50"] is None
    assert row["chunk_gap_ms_p50"] == pytest.approx(20, rel=0.01)
    assert row["standing"] == "publishable"


def test_percentiles_are_exact_and_shown_from_their_floors_on(judged: Any) -> None:
    row = judged.row("clean/sweep-c4")
    (raw,) = judged.rows(
        "select quantile_cont((first_token_ns - planned_ns) / 1e6, 0.9) as p90 from read_json(?,"
        " columns = {'phase': 'varchar', 'planned_ns': 'bigint', 'first_token_ns': 'bigint'})"
        " where phase = 'timed'",
        str(judged.raw / row["raw_file"]),
    )
    assert row["ttft_ms_p90"] == pytest.approx(raw["p90"], rel=1e-12)
    assert row["ttft_ms_p99"] is None  # 64 requests; LoadGen's floor for p99 is 662
    (gaps,) = judged.rows(
        "select quantile_cont(gap / 1e6, 0.5) as p50, quantile_cont(gap / 1e6, 0.99) as p99 from ("
        "select unnest(chunk_gap_ns[2:]) as gap from read_json(?, columns = {'phase': 'varchar',"
        " 'chunk_gap_ns': 'bigint[]'}) where phase = 'timed')",
        str(judged.raw / row["raw_file"]),
    )
    assert row["itl_ms_p50"] == pytest.approx(gaps["p50"], rel=1e-12)
    assert row["itl_ms_p99"] == pytest.approx(gaps["p99"], rel=1e-12)


def test_failed_runs_and_rescues_are_kept(judged: Any) -> None:
    (broken,) = judged.rows("select state, failure_class from marts.runs where run_id = 'broken'")
    assert broken == {"state": "failed", "failure_class": "kv_too_small"}
    (pair,) = judged.rows("select * from marts.rescue_comparisons")
    assert (pair["run_id"], pair["failed_run_id"]) == ("mended", "broken")
    assert pair["confounders"] is None
    others = judged.rows(
        "select count(*) as n from marts.runs where failure_class is null and state = 'served'"
    )
    assert others[0]["n"] == len(SCENARIOS) + len(ROOFS) - 1


def test_cost_is_price_times_devices_times_hours_over_tokens(judged: Any) -> None:
    (cost,) = judged.rows("select * from marts.cost_per_token where row_id = 'clean/sweep-c4'")
    usd = 3.5 * 1 * cost["window_s"] / 3600
    assert cost["output_cost_usd_per_mtok"] == pytest.approx(usd / (64 * 64) * 1e6)
    assert cost["input_cost_usd_per_mtok"] == pytest.approx(usd / (64 * 512) * 1e6)
    assert cost["output_cost_with_load_usd_per_mtok"] > cost["output_cost_usd_per_mtok"]


def test_the_marts_have_the_columns_of_the_dictionary(judged: Any) -> None:
    for mart in MARTS.values():
        found = judged.rows(
            "select column_name from information_schema.columns where table_schema = 'marts' and table_name = ?"
            " order by ordinal_position",
            mart.name,
        )
        assert [one["column_name"] for one in found] == list(mart.columns), mart.name


def test_the_inner_models_show_the_columns_that_are_described(judged: Any) -> None:
    from flows.warehouse.describe import describe

    stale = [
        str(path)
        for path, content in describe(judged.result.database).items()
        if path.read_text(encoding="utf-8") != content
    ]
    assert stale == [], "run python -m flows.warehouse.describe DATABASE"
