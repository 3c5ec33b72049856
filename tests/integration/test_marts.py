"""The wider marts, from raw to table: one build of a campaign whose every figure can be worked out by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from database_rows import rows_of
from marts_evidence import known_campaign, land

from contracts.errors import BadInput
from flows.warehouse import build_warehouse
from flows.warehouse.dbt import PROJECT
from flows.warehouse.docs import write_docs

Rows = list[dict[str, Any]]


class Marts:
    """The built database; `rows` gives plain dicts."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.database = warehouse / "weighbridge.duckdb"
        self._connection = duckdb.connect(str(self.database), read_only=True)

    def rows(self, query: str) -> Rows:
        return rows_of(self._connection, query)

    def one(self, query: str) -> dict[str, Any]:
        rows = self.rows(query)
        assert len(rows) == 1, rows
        return rows[0]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="session")
def marts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Marts]:
    folder = tmp_path_factory.mktemp("marts")
    for run in known_campaign():
        land(folder / "raw", run)
    build_warehouse(folder / "raw", folder / "warehouse")
    built = Marts(folder / "warehouse")
    yield built
    built.close()


# Published figures


@pytest.mark.parametrize(
    ("claim", "comparison", "verdict"),
    [
        ("dsv41_dspark_decode", 269 / 116, None),
        ("glm53f_ep4_mtp5_decode", 208.8 / 107.0, None),
        ("glm53f_ep4_mtp5_kv", 241_344 / 1.60e6, None),
        ("soak_k3_rate", 4237.158 / 2129.887, "confounded"),
        ("dsv4f_fp8_two_users", 129 / 7, None),
    ],
)
def test_published_comparisons_are_those_of_the_documents(
    marts: Marts, claim: str, comparison: float, verdict: str | None
) -> None:
    found = marts.one(f"select * from marts.claims where claim_id = '{claim}'")
    assert found["comparison"] == pytest.approx(comparison)
    assert found["verdict"] == verdict
    assert found["source"] == "published"


def test_published_standings_stay_as_published(marts: Marts) -> None:
    found = marts.rows(
        "select claims.claim_id from marts.claims inner join seeds.published_claims as seed using (claim_id)"
        " where claims.standing != seed.standing or claims.value != seed.value"
    )
    assert found == []
    assert marts.one("select count(*) as n from marts.claims where source = 'published'")["n"] == 57


def test_a_published_claim_leads_to_its_line(marts: Marts) -> None:
    lines = (PROJECT / "seeds" / "published_claims.csv").read_text(encoding="utf-8").splitlines()
    for claim in marts.rows("select claim_id, raw_line from marts.claims where source = 'published'"):
        assert lines[claim["raw_line"] - 1].startswith(claim["claim_id"] + ",")


def test_failed_pairs_have_no_ratio(marts: Marts) -> None:
    found = marts.one("select * from marts.claims where claim_id = 'glm53f_sglang_prefix_cache'")
    assert found["comparison"] is None
    assert found["verdict"] == "not comparable"
    assert found["comparison_standing"] == "failed"


# Soaks


def test_the_seeds_soak_pair_comes_out_as_published(marts: Marts) -> None:
    found = {
        row["soak_id"]: row
        for row in marts.rows("select * from marts.soak_verdicts where source = 'published'")
    }
    k3, base = found["soak_k3"], found["soak_base"]
    assert (base["verdict"], base["completed_requests"], base["output_tokens_per_s"]) == (
        "handoff",
        64_507,
        2129.887,
    )
    assert (k3["verdict"], k3["completed_requests"], k3["output_tokens_per_s"]) == (
        "no handoff",
        128_156,
        4237.158,
    )
    assert k3["comparison_verdict"] == "confounded"
    assert k3["throughput_ratio"] == pytest.approx(1.99, abs=0.005)
    assert "HTTP 500" in k3["verdict_reason"]


def test_a_measured_soak_pair_comes_out_alike(marts: Marts) -> None:
    found = {
        row["subject"]: row
        for row in marts.rows("select * from marts.soak_verdicts where source = 'synthetic'")
    }
    k3, base = found["soak-k3"], found["soak-base"]
    assert base["verdict"] == "handoff"
    assert k3["verdict"] == "no handoff"
    assert k3["verdict_reason"] == "after json: HTTP 500"
    # Two streams, each request 0.8 s to the first token and 20 more tokens: 1.0 s and 1.2 s for 21 tokens.
    assert k3["output_tokens_per_s"] == pytest.approx(42)
    assert k3["throughput_ratio"] == pytest.approx(1.2)
    assert k3["comparison_verdict"] == "confounded"
    assert [text.split(":")[0] for text in k3["confounders"]] == ["max_running_requests", "memory_fraction"]
    # 1000, 1010 and 1020 MB, each a third of 300 s after the other.
    assert k3["server_memory_drift_mb_per_hour"] == pytest.approx(10 / (100 / 3600))


# Comparisons


def test_speculation_shows_rate_acceptance_and_what_it_costs(marts: Marts) -> None:
    found = marts.one(
        "select * from marts.speculation_comparisons where base_recipe = 'base' and changed_recipe = 'spec'"
        " and workload = 'sweep'"
    )
    # Rates of the three server starts: 100, 80, 125 and twice that.
    assert found["base_decode_tokens_per_s"] == pytest.approx(305 / 3)
    assert found["decode_ratio"] == pytest.approx(2)
    assert (found["base_n"], found["changed_n"], found["interval_unit"]) == (3, 3, "server start")
    # By hand: variances 1525/3 and four times that, degrees of freedom 2.94, so t(2) = 4.302653.
    half = 4.302653 * math.sqrt(1525 / 3 / 3 + 4 * 1525 / 3 / 3)
    assert found["decode_difference_low"] == pytest.approx(305 / 3 - half)
    assert found["decode_difference_high"] == pytest.approx(305 / 3 + half)
    assert found["acceptance_length_tokens"] == pytest.approx(3)
    assert found["kv_ratio"] == pytest.approx(0.15084)
    assert (found["verdict"], found["confounders"]) == ("isolated", [])
    assert found["standing"] == "publishable"


def test_a_confounder_is_named_and_one_start_gives_no_interval(marts: Marts) -> None:
    found = marts.one(
        "select * from marts.speculation_comparisons where base_recipe = 'base' and changed_recipe = 'spec-eager'"
    )
    assert found["verdict"] == "confounded"
    assert found["confounders"] == ["cuda_graphs: not set / false"]
    assert found["decode_ratio_low"] is None
    assert found["base_n"] is None
    # base may publish, spec-eager was never asked for a needle: the pair stands as its worse side.
    assert found["standing"] == "provisional"


def test_layouts_are_compared_on_the_same_hardware_only(marts: Marts) -> None:
    rows = marts.rows(
        "select * from marts.layout_comparisons where base_recipe = 'base' and metric = 'decode_tokens_per_s'"
    )
    found = {row["changed_recipe"]: row for row in rows}
    assert found["tp4"]["verdict"] == "isolated"
    assert found["tp4"]["under_test"] == ["gpus", "tensor_parallel"]
    assert found["tp4"]["ratio"] == pytest.approx(250 / (305 / 3))
    assert found["tp2"]["verdict"] == "not comparable"
    assert found["tp2"]["verdict_reason"] == "other hardware"
    assert found["tp2"]["ratio"] is None


def test_a_claim_on_measured_rows_is_bound_to_publishable_ones(marts: Marts) -> None:
    rows = marts.rows("select * from marts.claims where source = 'synthetic'")
    gain = next(row for row in rows if row["comparison"] is not None)
    assert gain["sentence"].startswith(
        "spec decoded 2.00 times as fast as base at concurrency 1 (95 % interval 1.21"
    )
    assert len(gain["row_ids"]) == 6
    gated = {row["row_id"] for row in marts.rows("select row_id from marts.gated_rows")}
    assert {row_id for row in rows for row_id in row["row_ids"]} <= gated


# Long contexts


def test_the_million_token_table_has_a_standing_in_every_cell(marts: Marts) -> None:
    long = marts.one("select * from marts.million_token_table where subject = 'long'")
    assert (long["fresh_found"], long["fresh_asked"], long["is_fresh_passed"]) == (3, 3, True)
    assert (long["ramp_1_recalled"], long["ramp_1_asked"]) == (9, 10)
    assert (long["ramp_2_recalled"], long["ramp_2_asked"]) == (20, 20)
    assert long["last_turn_1_ttft_ms"] == pytest.approx(7000)
    assert long["last_turn_1_decode_tokens_per_s"] == pytest.approx(129, rel=1e-6)
    assert long["last_turn_2_ttft_ms"] == pytest.approx(14_000)
    assert long["last_turn_2_decode_tokens_per_s"] == pytest.approx(7, rel=1e-6)
    assert (long["capacity_tokens"], long["configured_tokens"]) == (32_000, 40_000)
    # The ramp's window at 3.50 USD for its 176,000 prompt and 210 answered tokens.
    window_s = (9 * (500 + 200) + 7000 + 20_000 / 129) / 1000
    assert long["ramp_1_usd_per_mtok"] == pytest.approx(3.5 * window_s / 3600 / 176_210 * 1e6, rel=1e-6)
    assert (long["quality_score"], long["quality_asked"]) == (0.75, 20)
    for cell in (
        "capacity",
        "fresh",
        "ramp_1",
        "ramp_2",
        "last_turn_1",
        "last_turn_2",
        "ramp_1_cost",
        "quality",
    ):
        assert long[f"{cell}_standing"] is not None, cell


def test_published_long_contexts_stand_beside_and_apart(marts: Marts) -> None:
    rows = marts.rows("select * from marts.million_token_table where source = 'published'")
    found = {row["subject"]: row for row in rows}
    minimax, flash = found["MiniMax-M3"], found["GLM-5.3-Flash"]
    assert (minimax["fresh_found"], minimax["fresh_asked"], minimax["fresh_standing"]) == (
        2,
        3,
        "provisional",
    )
    assert (flash["is_fresh_passed"], flash["ramp_1_recalled"], flash["ramp_1_asked"]) == (True, 1, 10)
    assert flash["ramp_2_recalled"] is None
    assert found["DeepSeek-V4-Flash FP8 (sgl-project)"]["last_turn_2_decode_tokens_per_s"] == 7
    assert all(row["campaign"] is None for row in rows)


def test_a_second_user_s_cost_is_a_slowdown(marts: Marts) -> None:
    found = marts.one("select * from marts.interference where subject = 'long' and is_last_turn")
    assert found["decode_slowdown"] == pytest.approx(129 / 7, rel=1e-6)
    assert found["ttft_slowdown"] == pytest.approx(2)
    published = marts.one("select * from marts.interference where source = 'published'")
    assert published["decode_slowdown"] == pytest.approx(129 / 7)


def test_tokens_during_a_prefill_come_from_the_chunks_themselves(marts: Marts) -> None:
    found = marts.one("select * from marts.interference where workload = 'interference'")
    # The prefill covers 300 to 800 ms; the writer's tokens come every 10 ms, so 50 tokens in 0.5 s.
    assert found["decode_tokens_per_s_during_prefill"] == pytest.approx(100)
    assert found["decode_slowdown_during_prefill"] == pytest.approx(1)
    assert found["interference_id"] == "r30-long/beside"


def test_a_ramp_turn_leads_back_to_its_raw_line(marts: Marts) -> None:
    turn = marts.one("select * from marts.ramp_turns where users = 1 and turn = 4")
    assert turn["is_recalled"] is False
    raw = marts.warehouse.parent / "raw" / turn["raw_file"]
    assert (
        f'"request_id":"{turn["request_id"]}"'
        in raw.read_text(encoding="utf-8").splitlines()[turn["raw_line"] - 1]
    )


def test_asking_costs_throughput_and_the_score_stands_beside_it(marts: Marts) -> None:
    found = marts.one("select * from marts.graded_load_costs")
    # Four requests in a row: 100 ms and ten more tokens of 40 or 30 ms, so 11 tokens in 0.5 s or 0.4 s.
    assert found["graded_output_tokens_per_s"] == pytest.approx(22)
    assert found["plain_output_tokens_per_s"] == pytest.approx(27.5)
    assert found["throughput_cost_share"] == pytest.approx(0.2)
    assert (found["carries"], found["correct"], found["graded"]) == ("needle", 3, 4)


def test_a_full_pool_shows_in_the_second_round(marts: Marts) -> None:
    first, second = marts.rows("select * from marts.kv_offload_rounds order by round")
    assert (first["cached_share"], first["ttft_ms_mean"]) == (0, pytest.approx(400))
    # One user of four comes back to a document that is still there: (50 + 3 x 400) / 4 ms.
    assert (second["cached_share"], second["ttft_ms_mean"]) == (0.25, pytest.approx(312.5))
    assert (second["pool_asked_tokens"], second["kv_tokens"], second["found"]) == (4000, 100_000, 4)


# The rest


def test_evidence_lines_hold_the_sealed_hash_of_every_file(marts: Marts) -> None:
    import hashlib

    rows = marts.rows("select * from marts.evidence_lines where row_id = 'r30-long/ramp-u2'")
    kinds = {row["kind"] for row in rows}
    assert {"run_start", "bring_up", "cell", "request", "window", "counters", "grade", "run_end"} <= kinds
    for row in rows:
        content = (marts.warehouse.parent / "raw" / row["raw_file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == row["sha256"]
        assert content.count(b"\n") == row["last_raw_line"]


def test_scores_of_different_sizes_keep_their_intervals(marts: Marts) -> None:
    rows = marts.rows("select * from marts.quality_scores where workload = 'chat_quality' order by asked")
    assert [(row["graded"], row["score"]) for row in rows] == [(20, 0.75), (40, 0.75)]
    # Wilson, z = 1.959964: the smaller sample says less.
    assert rows[0]["score_low"] == pytest.approx(0.5313, abs=5e-5)
    assert rows[0]["score_high"] == pytest.approx(0.8881, abs=5e-5)
    assert rows[1]["score_high"] - rows[1]["score_low"] < rows[0]["score_high"] - rows[0]["score_low"]


def test_cold_and_warm_starts_are_compared_by_phase(marts: Marts) -> None:
    found = marts.one("select * from marts.cold_starts where recipe = 'startup'")
    assert (found["cold_ready_s"], found["warm_ready_s"]) == (210, 62)
    assert (found["cold_compile_s"], found["warm_compile_s"]) == (160, 12)
    assert found["cold_kv_s"] is None
    # Variances 200 and 8 over two starts each, one degree of freedom.
    half = 12.706205 * math.sqrt(200 / 2 + 8 / 2)
    assert (found["saved_s_low"], found["saved_s_high"]) == (
        pytest.approx(148 - half),
        pytest.approx(148 + half),
    )


def test_a_label_that_the_tensors_contradict_is_named(marts: Marts) -> None:
    found = marts.one("select * from marts.precision_audit where precision_label = 'fp8'")
    assert (found["precision_true"], found["verdict"]) == ("fp8, experts fp4", "mislabelled")
    assert (
        marts.rows(
            "select 1 from marts.precision_audit where precision_true is null and verdict != 'unknown'"
        )
        == []
    )


def test_islands_of_the_node_and_of_the_documents(marts: Marts) -> None:
    rows = marts.rows("select * from marts.node_islands order by source, island")
    assert [(row["source"], row["gpu_count"], row["node_islands"]) for row in rows] == [
        ("published", 4, 2), ("published", 4, 2), ("synthetic", 4, 2), ("synthetic", 4, 2),
    ]  # fmt: skip
    assert rows[3]["gpu_ids"] == [4, 5, 6, 7]


def test_summary_counts_are_separate(marts: Marts) -> None:
    published = marts.one("select * from marts.campaign_summary where source = 'published'")
    counts = ("row_count", "runs", "variants", "rows_passing", "rows_invalid")
    assert tuple(published[name] for name in counts) == (683, 87, 14, 592, 22)
    own = marts.one("select * from marts.campaign_summary where source = 'synthetic'")
    assert (own["runs"], own["runs_failed"], own["row_count"]) == (19, 1, 32)
    assert own["rows_passing"] == marts.one("select count(*) as n from marts.gated_rows")["n"]


def test_every_probe_is_a_row(marts: Marts) -> None:
    failed = marts.one("select * from marts.probe_results where not is_passed")
    assert (failed["recipe"], failed["phase"], failed["kind"], failed["http_status"]) == (
        "soak-k3",
        "after",
        "json",
        500,
    )


def test_every_column_of_every_mart_says_what_it_means(marts: Marts) -> None:
    import yaml

    described: dict[str, set[str]] = {}
    for path in (PROJECT / "models" / "marts").glob("*.yml"):
        for model in yaml.safe_load(path.read_text(encoding="utf-8")).get("models", []):
            assert model["description"].strip(), model["name"]
            assert model["config"]["contract"]["enforced"] is True, model["name"]
            described[model["name"]] = {c["name"] for c in model["columns"] if len(c["description"]) > 5}
    columns = marts.rows(
        "select table_name, column_name from information_schema.columns where table_schema = 'marts'"
    )
    assert [
        (c["table_name"], c["column_name"])
        for c in columns
        if c["column_name"] not in described.get(c["table_name"], set())
    ] == []


def test_every_query_of_the_page_for_analysts_runs(marts: Marts) -> None:
    import re

    page = (PROJECT.parent / "docs" / "marts.md").read_text(encoding="utf-8")
    queries = re.findall(r"```sql\n(.*?)```", page, re.S)
    assert len(queries) >= 12
    for query in queries:
        marts.rows(query)


def test_the_docs_are_one_page_that_needs_no_network(marts: Marts, tmp_path: Path) -> None:
    import re

    page = write_docs(marts.warehouse.parent / "raw", marts.warehouse, tmp_path / "docs" / "index.html")
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?https?:", text) == []
    for node in (
        "source.weighbridge.raw.request",
        "model.weighbridge.million_token_table",
        "exposure.weighbridge.report",
    ):
        assert node in text
    # The catalog was read: column types come from the database, not from the yml.
    assert '"type": "VARCHAR[]"' in text
    assert str(PROJECT.parent) not in text


def test_docs_without_a_warehouse_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="weighbridge build"):
        write_docs(tmp_path, tmp_path, tmp_path / "index.html")


def test_the_formulas_hold_on_rows_worked_by_hand(marts: Marts, tmp_path: Path) -> None:
    """dbt's own unit tests, which no build runs: beside the models, in their yml."""
    import shutil

    shutil.copyfile(marts.database, tmp_path / "weighbridge.duckdb")
    done = subprocess.run(
        [
            sys.executable, "-m", "dbt.cli.main", "test", "--select", "comparisons,test_type:unit", "marts,test_type:unit",
            "intermediate,test_type:unit",
            "--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT), "--target-path", str(tmp_path / "target"),
            "--log-path", str(tmp_path), "--no-use-colors", "--no-send-anonymous-usage-stats",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert "unit tests" in done.stdout
