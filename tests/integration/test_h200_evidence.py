"""The campaign on one H200, judged again from its raw evidence: docs/h200.md tells it.

Expected values are worked from the raw lines in `Window` and from literals in comments, never taken from a mart.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from database_rows import rows_of

from flows.importers import import_files
from flows.warehouse import build_warehouse

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "h200"
CONCURRENCIES = (1, 32, 128)
USD_PER_GPU_HOUR = 3.50
# The 8B model: 36 layers, 8 KV heads of 128, two bytes a number, keys and values.
KV_BYTES_PER_TOKEN = 36 * 2 * 8 * 128 * 2
WEIGHT_BYTES = 16_381_470_720
BANDWIDTH_BYTES_PER_S = 4.8e12
CAMPAIGN_RUNS = {
    "qwen3-8b-ceiling": "20261201T044107Z-qwen3-8b-ceiling-3aa7",
    "qwen3-8b-ngram": "20261201T043730Z-qwen3-8b-ngram-660a",
    "qwen3-8b-rescued": "20261201T044210Z-qwen3-8b-rescued-a982",
    "smollm2-135m": "20261201T044504Z-smollm2-135m-fd71",
    "smollm2-135m-fp8": "20261201T044822Z-smollm2-135m-fp8-d25d",
}
COLD, WARM = "20261201T042958Z-qwen3-8b-5dd4", "20261201T043300Z-qwen3-8b-c599"
CLIENTS_ENDED, CLIENTS = "20261201T044328Z-qwen3-8b-dab8", "20261201T044943Z-qwen3-8b-2dc6"


@dataclass(frozen=True)
class Window:
    """One cell's timed requests, read from the raw lines themselves."""

    requests: list[dict[str, Any]]
    opened_ns: int
    closed_ns: int

    @property
    def seconds(self) -> float:
        """From the opening of the window, just before the first send, to the end of the last answer."""
        assert self.opened_ns <= min(line["sent_ns"] for line in self.requests)
        assert self.closed_ns == max(line["end_ns"] for line in self.requests)
        return (self.closed_ns - self.opened_ns) / 1e9

    def tokens(self, kind: str) -> int:
        return int(sum(line[f"{kind}_tokens"] for line in self.requests))

    @property
    def output_tokens_per_s(self) -> float:
        return self.tokens("output") / self.seconds


@dataclass(frozen=True)
class Evidence:
    """Where raw was unpacked, and the database that was built of it."""

    raw: Path
    bench: Path
    connection: duckdb.DuckDBPyConnection

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        return rows_of(self.connection, sql, *values)

    def row(self, run: str, cell: str) -> dict[str, Any]:
        (row,) = self.rows("select * from marts.measured_rows where row_id = ?", f"{run}/{cell}")
        return row

    def lines(self, campaign: str, run: str, path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.raw / campaign / run / path).read_text().splitlines()]

    def window(self, campaign: str, run: str, cell: str) -> Window:
        lines = self.lines(campaign, run, f"requests/{cell}.jsonl")
        (window,) = self.lines(campaign, run, f"windows/{cell}.jsonl")
        timed = [line for line in lines if line["phase"] == "timed"]
        return Window(timed, window["opened_ns"], window["closed_ns"])

    def cells(self, campaign: str, run: str) -> list[str]:
        names = sorted(path.stem for path in (self.raw / campaign / run / "cells").iterdir())
        return [name for name in names if not name.startswith("probes")]

    def bench_file(self, name: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.bench / name).read_text())
        return result


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("h200")
    for name in ("raw.tar.xz", "bench-serve.tar.xz"):
        with tarfile.open(FIXTURES / name) as archive:
            archive.extractall(folder, filter="data")
    raw, bench = folder / "raw", folder / "h200-bench"
    for concurrency in CONCURRENCIES:
        for repeat in (0, 1):
            import_files([bench / f"bench-c{concurrency}-r{repeat}.json"], raw, campaign="bench")
    pair = [bench / "default-seed-1.json", bench / "default-seed-2.json"]
    for place, file in enumerate(pair, start=1):
        import_files(
            [file],
            raw,
            campaign="default-seed-each",
            metrics_before=bench / f"default-seed-{place}-before.prom",
            metrics_after=bench / f"default-seed-{place}-after.prom",
        )
    import_files(
        pair,
        raw,
        campaign="default-seed-pair",
        metrics_before=bench / "default-seed-1-before.prom",
        metrics_after=bench / "default-seed-2-after.prom",
    )
    built = build_warehouse(raw, folder / "warehouse")
    assert (built.quarantined_lines, built.refused_files) == (0, 0)
    with duckdb.connect(str(built.database), read_only=True) as connection:
        yield Evidence(raw, bench, connection)


def test_the_archives_are_small() -> None:
    assert sum(path.stat().st_size for path in FIXTURES.iterdir()) < 10_000_000


def test_seven_runs_one_of_which_failed(evidence: Evidence) -> None:
    runs = evidence.rows(
        "select recipe, run_id, state, failure_class, gpu_name from marts.runs where campaign = 'h200'"
    )
    assert {row["run_id"] for row in runs} == {*CAMPAIGN_RUNS.values(), COLD, WARM}
    assert {row["gpu_name"] for row in runs} == {"NVIDIA H200"}
    failed = [(row["recipe"], row["failure_class"]) for row in runs if row["state"] != "served"]
    assert failed == [("qwen3-8b-ceiling", "kv_too_small")]


def test_the_failed_recipe_has_its_rescue(evidence: Evidence) -> None:
    (rescue,) = evidence.rows("select * from marts.rescue_comparisons where campaign = 'h200'")
    assert rescue["failed_run_id"] == CAMPAIGN_RUNS["qwen3-8b-ceiling"]
    assert rescue["run_id"] == CAMPAIGN_RUNS["qwen3-8b-rescued"]
    assert (rescue["original_failure_class"], rescue["state"]) == ("kv_too_small", "served")
    assert json.loads(rescue["rescue_change"]) == {"context_tokens": {"from": 32768, "to": 2048}}
    assert rescue["requests_ok"] == 9
    # The engine asked for 4.5 GiB: 32,768 tokens of 147,456 bytes. It had 1.84 GiB: the rescued pool.
    assert 32768 * KV_BYTES_PER_TOKEN == 4.5 * 2**30
    assert rescue["kv_tokens"] * KV_BYTES_PER_TOKEN / 2**30 == pytest.approx(1.84, abs=0.005)


def test_nothing_publishes_and_each_row_says_why(evidence: Evidence) -> None:
    assert evidence.rows("select row_id from marts.gated_rows") == []
    rows = evidence.rows(
        "select * from marts.measured_rows where source = 'measured' and campaign = 'h200' order by row_id"
    )
    assert len(rows) == sum(len(evidence.cells("h200", run)) for run in {row["run_id"] for row in rows})
    assert {row["standing"] for row in rows} == {"held"}
    assert all(row["standing_reason"] for row in rows)
    for row in rows:
        if row["model"].endswith("qwen3-8b-shape") and row["workload"] != "conversation_ramp":
            # Dummy weights recall nothing; the run of the cold start asked no needle.
            assert row["needle_gate"] == ("unknown" if row["run_id"] == COLD else "fail"), row["row_id"]
        for screen in ("population", "output_attainment", "token_reconciliation", "little_law", "roofline"):
            assert row[screen] == "pass", (row["row_id"], screen)


def test_no_needle_of_dummy_weights_is_found_and_every_one_of_smollm2(evidence: Evidence) -> None:
    found: dict[str, list[int]] = {}
    for recipe, run in {**CAMPAIGN_RUNS, "qwen3-8b": WARM}.items():
        grades = evidence.raw / "h200" / run / "grades"
        for path in sorted(grades.glob("*document*.jsonl")) if grades.is_dir() else []:
            lines = evidence.lines("h200", run, f"grades/{path.name}")
            total = found.setdefault(recipe, [0, 0])
            total[0] += sum(bool(line["is_correct"]) for line in lines)
            total[1] += len(lines)
            row = evidence.row(run, path.stem)
            assert (row["needles_found"], row["needles_asked"]) == (
                sum(bool(line["is_correct"]) for line in lines),
                len(lines),
            )
    assert found == {
        "qwen3-8b": [0, 6],
        "qwen3-8b-ngram": [0, 6],
        "qwen3-8b-rescued": [0, 9],
        "smollm2-135m": [9, 9],
        "smollm2-135m-fp8": [9, 9],
    }


def test_rows_of_smollm2_pass_the_needles_and_are_held_by_other_screens(evidence: Evidence) -> None:
    run = CAMPAIGN_RUNS["smollm2-135m"]
    for cell in evidence.cells("h200", run):
        row = evidence.row(run, cell)
        assert row["needle_gate"] == "pass"
        # Eight or nine requests are no p90; the longer windows drifted by more than 3 % or 1 % of their latency.
        assert row["sample_size"] == ("fail" if row["concurrency"] == 1 else "pass")
        assert row["steady_state"] == ("unknown" if row["concurrency"] == 1 else "fail")


def test_rates_and_costs_are_those_of_the_raw_lines(evidence: Evidence) -> None:
    for recipe, run in {**CAMPAIGN_RUNS, "qwen3-8b": WARM}.items():
        if recipe == "qwen3-8b-ceiling":
            continue
        windows = {cell: evidence.window("h200", run, cell) for cell in evidence.cells("h200", run)}
        (bring_up,) = evidence.lines("h200", run, "bring_up.jsonl")
        start_s = bring_up["ready_s"]
        with_load = 1 + start_s / sum(window.seconds for window in windows.values())
        for cell, window in windows.items():
            row = evidence.row(run, cell)
            assert row["requests_ok"] == len(window.requests)
            assert row["output_tokens_per_s"] == pytest.approx(window.output_tokens_per_s, rel=1e-9)
            (cost,) = evidence.rows("select * from marts.cost_per_token where row_id = ?", f"{run}/{cell}")
            usd = USD_PER_GPU_HOUR * window.seconds / 3600
            assert cost["price_usd_per_gpu_hour"] == USD_PER_GPU_HOUR
            for kind in ("output", "prompt"):
                usd_per_mtok = usd / window.tokens(kind) * 1e6
                name = "input" if kind == "prompt" else kind
                assert cost[f"{name}_cost_usd_per_mtok"] == pytest.approx(usd_per_mtok, rel=1e-9)
                assert cost[f"{name}_cost_with_load_usd_per_mtok"] == pytest.approx(
                    usd_per_mtok * with_load, rel=1e-6
                )


def test_one_cost_worked_out(evidence: Evidence) -> None:
    # 32,768 tokens in 457.529841226 - 447.638519995 s = 9.891 s on one GPU at 3.50 USD an hour.
    row = evidence.row(WARM, "sweep-c0032-r0")
    assert row["output_tokens_per_s"] == pytest.approx(32768 / 9.891321231, rel=1e-4)
    (cost,) = evidence.rows(
        "select output_cost_usd_per_mtok as usd from marts.cost_per_token where row_id = ?", row["row_id"]
    )
    assert cost["usd"] == pytest.approx(3.50 * 9.891321231 / 3600 / 32768 * 1e6, rel=1e-4)
    assert cost["usd"] == pytest.approx(0.2935, abs=0.0001)


def test_no_decode_passes_bandwidth_over_weight_bytes(evidence: Evidence) -> None:
    for repeat in range(3):
        (share,) = evidence.rows(
            "select * from marts.roofline_shares where row_id = ?", f"{WARM}/sweep-c0001-r{repeat}"
        )
        # 293 tokens/s, were the embedding read at every step too; it is not, and the mart's ceiling is above that.
        assert share["output_tokens_per_s"] < share["single_decode_tokens_per_s"]
        assert share["single_decode_tokens_per_s"] < BANDWIDTH_BYTES_PER_S / WEIGHT_BYTES
        read_a_step = WEIGHT_BYTES - 2 * 151_936 * 4096 + (1024 + 128) * KV_BYTES_PER_TOKEN
        ceiling = BANDWIDTH_BYTES_PER_S / read_a_step
        assert share["single_ceiling_tokens_per_s"] == pytest.approx(ceiling, rel=1e-3)
        assert share["decode_share"] == pytest.approx(share["output_tokens_per_s"] / ceiling, rel=1e-3)
        assert 0.55 < share["decode_share"] < 0.65
    (prefill,) = evidence.rows(
        "select * from marts.roofline_shares where row_id = ?", f"{WARM}/fresh_document-24000-r0"
    )
    # 2 x 8.19e9 operations a token are the least; attention comes on top.
    assert prefill["prefill_tokens_per_s"] < prefill["prefill_ceiling_tokens_per_s"] < 989.5e12 / 2 / 8.19e9
    shares = evidence.rows("select * from marts.roofline_shares where campaign like 'h200%'")
    assert shares and all(
        (row["decode_share"] or 0) < 1 and (row["prefill_share"] or 0) < 1 for row in shares
    )


def test_a_warm_start_takes_a_third_of_a_cold_one(evidence: Evidence) -> None:
    (cold,) = evidence.lines("h200", COLD, "bring_up.jsonl")
    (warm,) = evidence.lines("h200", WARM, "bring_up.jsonl")
    assert (cold["is_warm_start"], warm["is_warm_start"]) == (False, True)
    (row,) = evidence.rows("select * from marts.cold_starts where campaign = 'h200' and recipe = 'qwen3-8b'")
    assert (row["cold_run_ids"], row["warm_run_ids"]) == ([COLD], [WARM])
    assert (row["cold_ready_s"], row["warm_ready_s"]) == (cold["ready_s"], warm["ready_s"])
    assert row["cold_ready_s"] == pytest.approx(180.25, abs=0.01)
    assert row["warm_ready_s"] == pytest.approx(58.47, abs=0.01)
    assert row["saved_s"] == pytest.approx(121.78, abs=0.01)
    # One start of each is no interval.
    assert row["saved_s_low"] is None


def test_speculation_is_isolated_accepted_and_held(evidence: Evidence) -> None:
    for concurrency in CONCURRENCIES:
        (row,) = evidence.rows(
            "select * from marts.speculation_comparisons where campaign = 'h200' and workload = 'sweep'"
            " and concurrency = ?",
            concurrency,
        )
        base, changed = (
            [evidence.window("h200", run, f"sweep-c{concurrency:04}-r{repeat}") for repeat in range(3)]
            for run in (WARM, CAMPAIGN_RUNS["qwen3-8b-ngram"])
        )
        means = [sum(window.output_tokens_per_s for window in side) / 3 for side in (base, changed)]
        assert row["output_ratio"] == pytest.approx(means[1] / means[0], rel=1e-6)
        assert (row["verdict"], row["standing"], row["base_n"], row["changed_n"]) == (
            "isolated",
            "held",
            3,
            3,
        )
        # Dummy weights repeat themselves: every drafted token is right, which no real text does.
        drafted = accepted = 0.0
        for repeat in range(3):
            path = f"counters/sweep-c{concurrency:04}-r{repeat}.jsonl"
            lines = evidence.lines("h200", CAMPAIGN_RUNS["qwen3-8b-ngram"], path)
            first, last = lines[0], lines[-1]
            assert (first["at"], last["at"]) == ("before", "after")
            drafted += last["draft_tokens"] - first["draft_tokens"]
            accepted += last["accepted_tokens"] - first["accepted_tokens"]
        assert row["acceptance_share"] == pytest.approx(accepted / drafted) == pytest.approx(1.0)


def test_a_second_user_slows_the_first(evidence: Evidence) -> None:
    turns = evidence.rows("select * from marts.ramp_turns where campaign = 'h200'")
    assert len(turns) == 6 + 12
    assert not any(row["is_recalled"] for row in turns)
    slowdowns = evidence.rows(
        "select decode_slowdown from marts.interference where campaign = 'h200' order by turn"
    )
    assert len(slowdowns) == 6
    assert all(row["decode_slowdown"] > 1.5 for row in slowdowns)


def test_precision_is_read_from_the_headers(evidence: Evidence) -> None:
    audits = {
        row["model"]: row
        for row in evidence.rows("select * from marts.precision_audit where campaign = 'h200'")
    }
    plain, quantized = audits["models/smollm2-135m"], audits["models/smollm2-135m-fp8"]
    assert json.loads(plain["storage_dtypes"]) == {"BF16": 134_515_008 * 2}
    # 30 layers of 7 matrices in a byte a number and a scale of 4 bytes each, the rest in two bytes.
    linear = 30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536)
    assert json.loads(quantized["storage_dtypes"]) == {
        "F8_E4M3": linear,
        "BF16": (134_515_008 - linear) * 2,
        "F32": 30 * 7 * 4,
    }
    assert (plain["verdict"], quantized["verdict"]) == ("as labelled", "as labelled")
    # Dummy weights have no file whose headers could show anything.
    assert audits["models/qwen3-8b-shape"]["verdict"] == "unknown"


def test_the_device_was_watched_throughout(evidence: Evidence) -> None:
    for run in (WARM, CAMPAIGN_RUNS["qwen3-8b-ngram"], CAMPAIGN_RUNS["smollm2-135m"]):
        for cell in evidence.cells("h200", run):
            samples = evidence.lines("h200", run, f"telemetry/{cell}.jsonl")
            assert samples and all(sample["power_w"] > 0 for sample in samples), cell
    # At 128 in flight every sample says that the power limit slows the clocks: not as declared.
    row = evidence.row(WARM, "sweep-c0128-r0")
    samples = evidence.lines("h200", WARM, "telemetry/sweep-c0128-r0.jsonl")
    assert all("sw_power_cap" in sample["throttle_reasons"] for sample in samples)
    assert max(sample["power_w"] for sample in samples) > 0.98 * 700
    assert row["declared_config"] == "fail"


@pytest.mark.parametrize("concurrency", CONCURRENCIES)
def test_this_client_is_no_slower_than_vllm_bench_serve(evidence: Evidence, concurrency: int) -> None:
    ours, theirs = [], []
    for repeat in (0, 1):
        cell = f"sweep-{concurrency}-c{concurrency:04}-r{repeat}"
        window = evidence.window("h200-clients", CLIENTS, cell)
        row = evidence.row(CLIENTS, cell)
        assert row["output_tokens_per_s"] == pytest.approx(window.output_tokens_per_s, rel=1e-9)
        ours.append(window.output_tokens_per_s)
        result = evidence.bench_file(f"bench-c{concurrency}-r{repeat}.json")
        assert (result["completed"], result["total_output_tokens"]) == (
            len(window.requests),
            window.tokens("output"),
        )
        (imported,) = evidence.rows(
            "select m.output_tokens_per_s from marts.measured_rows m join staging.stg_imported_results i"
            " using (run_id, cell_id) where m.campaign = 'bench' and i.source_file = ?",
            f"bench-c{concurrency}-r{repeat}.json",
        )
        # It counts until its last task has ended, a millisecond after the last answer.
        assert imported["output_tokens_per_s"] == pytest.approx(result["output_throughput"], rel=1e-3)
        theirs.append(result["output_throughput"])
    assert sum(ours) >= 0.99 * sum(theirs)
    # Interleaved, repeat by repeat too.
    assert all(mine >= 0.99 * other for mine, other in zip(ours, theirs, strict=True))


def test_prompts_of_this_client_never_repeat(evidence: Evidence) -> None:
    for campaign, run in (
        ("h200", WARM),
        ("h200", CAMPAIGN_RUNS["qwen3-8b-ngram"]),
        ("h200-clients", CLIENTS),
    ):
        blocks = [
            line["first_block_sha256"]
            for cell in evidence.cells(campaign, run)
            if cell.startswith("sweep")
            for line in evidence.lines(campaign, run, f"requests/{cell}.jsonl")
        ]
        assert len(set(blocks)) == len(blocks) > 600
        for cell in evidence.cells(campaign, run):
            if cell.startswith("sweep"):
                row = evidence.row(run, cell)
                assert (row["nonce_audit"], row["cache_accounting"]) == ("pass", "pass")


def default_seed_rows(evidence: Evidence, campaign: str) -> dict[str, dict[str, Any]]:
    """Source file -> row."""
    rows = evidence.rows(
        "select m.*, i.source_file from marts.measured_rows m join staging.stg_imported_results i"
        " using (run_id, cell_id) where m.campaign = ?",
        campaign,
    )
    return {row["source_file"]: row for row in rows}


def test_the_default_seed_repeat_is_caught_by_the_counters(evidence: Evidence) -> None:
    first, second = (evidence.bench_file(f"default-seed-{place}.json") for place in (1, 2))
    assert second["output_throughput"] / first["output_throughput"] == pytest.approx(
        4505.5 / 3301.7, rel=1e-4
    )
    assert (first["median_ttft_ms"], second["median_ttft_ms"]) == (
        pytest.approx(492.3, abs=0.1),
        pytest.approx(69.7, abs=0.1),
    )
    rows = default_seed_rows(evidence, "default-seed-each")
    # By /metrics: 3,072 to 3,072 hits in the first, 3,072 to 134,144 in the second, of 132,096 prompt tokens each.
    assert rows["default-seed-1.json"]["cache_accounting"] == "pass"
    assert rows["default-seed-2.json"]["cache_accounting"] == "fail"
    assert rows["default-seed-2.json"]["standing"] == "held"
    (part,) = evidence.rows(
        "select measured from intermediate.int_screen_results where screen = 'cache_accounting' and row_id = ?",
        rows["default-seed-2.json"]["row_id"],
    )
    assert part["measured"] == pytest.approx((134_144 - 3_072) / 132_096, rel=1e-6)


def test_one_pair_of_dumps_around_both_is_enough_and_accuses_nothing_else(evidence: Evidence) -> None:
    rows = default_seed_rows(evidence, "default-seed-pair")
    second = rows["default-seed-2.json"]
    assert (second["cache_accounting"], second["nonce_audit"]) == ("fail", "fail")
    assert rows["default-seed-1.json"]["standing"] == "provisional"
    # The counters are of both rows: they must not be held against the tokens and the TTFT of one.
    assert second["token_reconciliation"] == "pass"
    assert second["clock_sanity"] == "unknown"


def test_the_run_that_was_ended_early_is_kept(evidence: Evidence) -> None:
    row = evidence.row(CLIENTS_ENDED, "sweep-1-c0001-r0")
    assert (row["requests_ok"], row["standing"]) == (8, "held")
    window = evidence.window("h200-clients", CLIENTS_ENDED, "sweep-1-c0001-r0")
    assert row["output_tokens_per_s"] == pytest.approx(window.output_tokens_per_s, rel=1e-9)
