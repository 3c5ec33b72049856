"""The dictionary of columns: name, type, unit, meaning, and what null means. One name, one quantity, one unit.

It feeds the yml of the marts (with their enforced contracts), docs/columns.md, and the check that no model shows a
column that nobody described. `python -m contracts.generate` writes what follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contracts.policies import POLICIES
from contracts.screens import SCREENS

SqlType = Literal["varchar", "bigint", "double", "boolean", "timestamp"]


@dataclass(frozen=True)
class Column:
    """One column. unit: empty for names and words. null: what null means; "never" where it cannot be."""

    name: str
    type: SqlType
    unit: str
    meaning: str
    null: str


@dataclass(frozen=True)
class Mart:
    """One mart: its grain in a sentence, its key, its columns in order, and where each may not be null."""

    name: str
    grain: str
    key: str
    columns: tuple[str, ...]
    not_null: tuple[str, ...]


_TYPES: dict[str, SqlType] = {"v": "varchar", "i": "bigint", "d": "double", "b": "boolean", "t": "timestamp"}

# name | type | unit | meaning | null
_TEXT = """
row_id|v||The row: `<run_id>/<cell_id>`.|never
source|v||Where the evidence comes from: measured, imported, synthetic; unknown where run_start is unreadable.|never
campaign|v||The campaign's folder under raw.|never
run_id|v||The run: one bring-up of one recipe, successful or not. Sorts by time.|never
cell_id|v||The cell within its run.|never
recipe|v||The recipe that was brought up.|run_start is unreadable
engine|v||The engine of the recipe.|run_start is unreadable
engine_version|v||The version that the engine itself stated.|the engine did not say
model|v||The model as the recipe names it.|run_start is unreadable
layout|v||Replicas, tensor, expert, data and pipeline parallelism, prefill/decode split, in words.|not stated
gpus|i|devices|Devices in use, by which the price is multiplied; 1 for a CPU node.|run_start is unreadable
gpu_name|v||The first GPU as the node reports it.|a node without GPUs, or node facts unreadable
node_id|v||The machine, as the node facts name it.|run_start is unreadable
workload|v||The workload that planned the cell.|the cell record is unreadable
variant|v||What tells this cell from another of the same workload, concurrency, context and repeat; empty when nothing does.|the cell record is unreadable
concurrency|i|requests|Requests, or sessions, that were to be in flight.|the cell record is unreadable
context_tokens|i|tokens|The context that the cell was planned for.|the workload has none of its own
repeat|i||Which repetition of the cell, from 0.|the cell record is unreadable
attempt|i||Which attempt at the cell, from 1; later ones follow an interruption.|the cell record is unreadable
users|i|users|Users with conversations of their own.|not a workload of users
asked_prompt_tokens|i|tokens|Prompt length that was planned for every request.|lengths vary, or the cell record is unreadable
asked_output_tokens|i|tokens|Output length that was asked for of every request.|the length is free
window_s|d|s|The timed window, from its opening to its close; warm-up is outside.|the window's record is unreadable
requests_planned|i|requests|Timed requests that were planned.|the cell record is unreadable
requests_ok|i|requests|Served to the end, with a token and without an error.|requests are unreadable
requests_failed|i|requests|Ended in an error, also in one after a 200.|requests are unreadable
requests_cancelled|i|requests|Cancelled by the client.|requests are unreadable
requests_unsent|i|requests|Planned and never sent.|requests are unreadable, or an imported file does not say
prompt_tokens|i|tokens|Prompt tokens of served requests, from usage.|usage was absent
cached_tokens|i|tokens|Of them, from the prefix cache, by usage.|usage does not say: never 0 by absence
output_tokens|i|tokens|Output tokens of served requests, from usage.|usage was absent
output_tokens_per_s|d|tokens/s|Output tokens of served requests over the whole window.|no window or no tokens
total_tokens_per_s|d|tokens/s|Prompt and output tokens of served requests over the whole window.|no window or no tokens
requests_per_s|d|requests/s|Served requests over the whole window.|no window
steady_output_tokens_per_s|d|tokens/s|Output tokens over the steady part: from the end of the ramp-up to the last send, each request's spread over its time on the server.|one wave only, or no instants
ttft_ms_p50|d|ms|Time to first token of any kind, from the planned send, median; exact, from raw.|fewer than 11 requests
ttft_ms_p90|d|ms|As ttft_ms_p50, 90th percentile.|fewer than 64 requests (LoadGen's floor)
ttft_ms_p99|d|ms|As ttft_ms_p50, 99th percentile.|fewer than 662 requests (LoadGen's floor)
ttft_ms_mean|d|ms|Mean time to first token, from the planned send.|no first token
tpot_ms_p50|d|ms|Time per output token, (last - first) / (output tokens - 1) of each request, median.|fewer than 11 requests of two tokens
tpot_ms_p90|d|ms|As tpot_ms_p50, 90th percentile.|fewer than 64 requests
tpot_ms_p99|d|ms|As tpot_ms_p50, 99th percentile.|fewer than 662 requests
itl_ms_p50|d|ms|Inter-token latency, every gap of the cell's served requests, median.|chunks do not carry one token each: the gaps are then per chunk
itl_ms_p99|d|ms|As itl_ms_p50, 99th percentile.|as itl_ms_p50, or fewer than 662 gaps
e2e_ms_p50|d|ms|End to end, from the planned send to the end of the answer, median.|fewer than 11 requests
e2e_ms_p90|d|ms|As e2e_ms_p50, 90th percentile.|fewer than 64 requests
e2e_ms_p99|d|ms|As e2e_ms_p50, 99th percentile.|fewer than 662 requests
e2e_ms_mean|d|ms|Mean end-to-end latency, from the planned send.|no served request
chunk_gap_ms_p50|d|ms|Median gap between chunks, whatever they carry.|no answer of two chunks
tokens_per_chunk|d|tokens/chunk|Output tokens of usage over streamed chunks.|no usage or no chunks
uncached_prefill_tokens_per_s|d|tokens/s|Uncached prompt tokens over the time from send to first token, of the fastest request; the figure of cache_screen.|no first token or no prompt count
decode_tokens_per_s|d|tokens/s|Output rate of single requests of eight tokens or more, (output tokens - 1) / (last - first), median.|no such request
mean_concurrency|d|requests|Requests in flight, mean over the window.|no window
needles_found|i|needles|Needles of this cell that the answers held.|the cell plants none
needles_asked|i|needles|Needles of this cell that were asked for.|the cell plants none
quality_correct|i|answers|Graded answers that were right, strictly.|not graded for quality
quality_asked|i|answers|Answers that were graded for quality.|not graded for quality
is_slot_limited|b||Requests waited while less than half of the KV cache was in use: slots, not memory, were the limit.|never
policy|v||The publication policy that the row is judged by; strict where the campaign's is not known.|never
standing|v||invalid (the measurement is broken), held (a required screen failed), provisional (one is unknown) or publishable, under the row's policy.|never
standing_original|v||The standing under policy original.|never
standing_strict|v||The standing under policy strict.|never
standing_reason|v||Why the row is not publishable: faults, or the screens with their findings.|the row is publishable
quarantined_lines|i|lines|Lines of the cell's raw files that were refused.|never
window_state|v||How the window ended: complete, interrupted, engine_died, deadline, client_failed.|the cell record is unreadable
opened_at|t|UTC|When the window opened.|it never opened, or the cell record is unreadable
raw_file|v||The raw file that the row comes from, under raw.|never
raw_sha256|v||Its hash in the seal.|not sealed, or an import without requests
raw_lines|i|lines|Its lines in the seal.|not sealed, or an import without requests
state|v||How the run ended: served, failed (bring-up), interrupted, engine_died, unfinished, unreadable.|never
failure_class|v||The class of a failed bring-up; unknown where the log does not say.|the engine was served
failure_summary|v||The failure in one sentence.|the engine was served
failure_evidence|v|JSON|The log lines that decided the class: file, line, text.|nothing was kept
claimed_precision|v||The precision that the recipe claims.|none is claimed
claimed_context_tokens|i|tokens|The context ceiling that the recipe claims.|none is claimed
rescues|v||The recipe that this one is tried for after it failed.|not a rescue
rescue_change|v|JSON|The one setting that the rescue changes.|not a rescue
rescue_attempt|i||Which attempt at the rescue.|not a rescue
reproduces_run_id|v||The failed run that this one tries to reproduce.|not a reproduction
resumes_run_id|v||The interrupted run that this one goes on from.|not a resume
execution_id|v||The `weighbridge run` that the run belongs to.|not recorded
kv_tokens|i|tokens|KV cache capacity as the engine stated it; never computed.|the engine did not say
max_concurrency|d|requests|Sequences at full context that the engine said it can hold.|the engine did not say
is_prefix_caching|b||Whether prefix caching is in effect, by the engine's word.|the engine did not say
max_running_requests|i|requests|Sequences at once, by the engine's word.|the engine did not say
max_model_len_tokens|i|tokens|Context ceiling in effect, by the engine's word.|the engine did not say
weight_bytes|i|bytes|Weights as loaded, by the engine's word.|the engine did not say
load_s|d|s|Time to load the weights, by the engine's word.|the engine did not say
ready_s|d|s|From the start of the process to the first served token.|the engine was not served
is_warm_start|b||Whether a compile cache was there.|not known
is_teardown_clean|b||Whether the engine left no process, port or memory behind.|the run did not end
price_usd_per_gpu_hour|d|USD/GPU-hour|The campaign's price of one device for one hour.|no price
price_source|v||Where the price comes from.|no source: nothing is priced by it
price_as_of|v|date|The day of the price.|no date: nothing is priced by it
cells|i|cells|Rows of the run.|never
started_at|t|UTC|When the bring-up began.|run_start is unreadable
ended_at|t|UTC|When the run ended.|it has not ended, or was killed
cost_usd|d|USD|Price x devices x hours of the window.|no window
input_cost_usd_per_mtok|d|USD/Mtok|The window's whole cost over its prompt tokens, in millions.|no prompt tokens
output_cost_usd_per_mtok|d|USD/Mtok|The window's whole cost over its output tokens, in millions.|no output tokens
total_cost_usd_per_mtok|d|USD/Mtok|The window's whole cost over its prompt and output tokens, in millions.|no tokens
input_cost_with_load_usd_per_mtok|d|USD/Mtok|As input_cost_usd_per_mtok, with the start of the server spread over the run's windows by length.|no prompt tokens, or the start was not timed
output_cost_with_load_usd_per_mtok|d|USD/Mtok|As output_cost_usd_per_mtok, with the start of the server.|no output tokens, or the start was not timed
total_cost_with_load_usd_per_mtok|d|USD/Mtok|As total_cost_usd_per_mtok, with the start of the server.|no tokens, or the start was not timed
failed_run_id|v||The latest failed run of the rescued recipe before this one.|it never failed in this campaign
original_failure_class|v||How that run failed.|it never failed in this campaign
reproductions|i|runs|Runs that tried to reproduce the failure.|never
reproduced_failures|i|runs|Of them, those that failed.|never
probes_passed|i|probes|Probes of the run that passed.|no probe was asked
probes_asked|i|probes|Probes of the run.|no probe was asked
best_output_tokens_per_s|d|tokens/s|The highest output rate of the run's valid rows.|no valid row
confounders|v||Settings that differ from the failed run besides the change.|none, or nothing to compare
device|v||The device by whose peaks the row is judged, from the seed gpu_peaks.|a CPU node, or a GPU that the seed lacks
is_cpu|b||Whether the ceilings come from the node's own measurement.|never
compute_precision|v||The fastest arithmetic that the weights allow.|model facts are missing
prefill_length_tokens|d|tokens|Prompt length at which the prefill ceiling is taken: that of the fastest prefill.|no prompt count
prefill_tokens_per_s|d|tokens/s|The fastest single prefill, or the window's uncached prompt rate where that is higher.|no first token
prefill_ceiling_tokens_per_s|d|tokens/s|Devices x peak / (2 x active parameters + attention at that length).|model facts or peaks are missing
prefill_share|d|share|prefill_tokens_per_s over its ceiling.|either is missing
decode_ceiling_tokens_per_s|d|tokens/s|Bandwidth x devices x batch / (active weight bytes + batch x KV bytes read), at most what the arithmetic allows; times 1 + draft tokens.|model facts or peaks are missing
decode_share|d|share|output_tokens_per_s over the decode ceiling.|either is missing
single_decode_tokens_per_s|d|tokens/s|The fastest single request's output rate.|no answer of eight tokens
single_ceiling_tokens_per_s|d|tokens/s|The decode ceiling at a batch of one.|model facts or peaks are missing
mfu|d|share|Model FLOP utilisation: arithmetic of the window's tokens over what the devices could do in it.|model facts or peaks are missing
mbu|d|share|Model bandwidth utilisation: bytes of weights and KV that the window's output had to read, over what the devices could move.|model facts or peaks are missing
"""


def _read() -> dict[str, Column]:
    found: dict[str, Column] = {}
    for line in _TEXT.strip().splitlines():
        name, kind, unit, meaning, null = line.split("|")
        found[name] = Column(name, _TYPES[kind], unit, meaning, null)
    for screen in SCREENS.values():
        meaning = f"Screen: {screen.passes_when}. pass, fail, unknown or not_applicable."
        found[screen.name] = Column(screen.name, "varchar", "", meaning, "never")
    return found


COLUMNS: dict[str, Column] = _read()


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ROW = _names(
    "row_id source campaign run_id cell_id recipe engine engine_version model layout gpus gpu_name workload variant "
    "concurrency context_tokens repeat attempt users asked_prompt_tokens asked_output_tokens window_s requests_planned "
    "requests_ok requests_failed requests_cancelled requests_unsent prompt_tokens cached_tokens output_tokens "
    "output_tokens_per_s total_tokens_per_s requests_per_s steady_output_tokens_per_s ttft_ms_p50 ttft_ms_p90 "
    "ttft_ms_p99 tpot_ms_p50 tpot_ms_p90 tpot_ms_p99 e2e_ms_p50 e2e_ms_p90 e2e_ms_p99 ttft_ms_mean e2e_ms_mean "
    "itl_ms_p50 itl_ms_p99 chunk_gap_ms_p50 tokens_per_chunk uncached_prefill_tokens_per_s decode_tokens_per_s "
    "mean_concurrency needles_found needles_asked quality_correct quality_asked is_slot_limited "
    + " ".join(SCREENS)
    + " policy standing standing_original standing_strict standing_reason quarantined_lines window_state opened_at "
    "raw_file raw_sha256 raw_lines"
)
_ROW_NOT_NULL = ("row_id", "source", "campaign", "run_id", "cell_id", *SCREENS, "policy", "standing",
                 "standing_original", "standing_strict", "quarantined_lines", "raw_file")  # fmt: skip

MARTS: dict[str, Mart] = {
    mart.name: mart
    for mart in (
        Mart(
            "runs",
            "One row per run_id: every bring-up that was tried, the failed ones with their class and evidence.",
            "run_id",
            _names(
                "run_id campaign source recipe state failure_class failure_summary failure_evidence engine "
                "engine_version model layout gpus gpu_name node_id claimed_precision claimed_context_tokens policy "
                "rescues rescue_change rescue_attempt reproduces_run_id resumes_run_id execution_id kv_tokens "
                "max_concurrency is_prefix_caching max_running_requests max_model_len_tokens weight_bytes load_s "
                "ready_s is_warm_start is_teardown_clean price_usd_per_gpu_hour price_source price_as_of cells "
                "started_at ended_at raw_file"
            ),
            ("run_id", "campaign", "source", "state", "cells", "raw_file"),
        ),
        Mart(
            "measured_rows",
            "One row per row_id, `<run_id>/<cell_id>`: every cell that was measured, whatever its standing, with its "
            "figures, sixteen screens and standings. Not for quoting: see gated_rows.",
            "row_id",
            _ROW,
            _ROW_NOT_NULL,
        ),
        Mart(
            "gated_rows",
            "One row per publishable row_id and nothing else: what may be quoted.",
            "row_id",
            _ROW,
            _ROW_NOT_NULL,
        ),
        Mart(
            "cost_per_token",
            "One row per row_id that is valid and has a price with source and date: what its tokens cost.",
            "row_id",
            _names(
                "row_id source campaign run_id recipe model gpus workload concurrency context_tokens "
                "price_usd_per_gpu_hour price_source price_as_of window_s ready_s prompt_tokens output_tokens cost_usd "
                "input_cost_usd_per_mtok output_cost_usd_per_mtok total_cost_usd_per_mtok "
                "input_cost_with_load_usd_per_mtok output_cost_with_load_usd_per_mtok "
                "total_cost_with_load_usd_per_mtok standing"
            ),
            (
                "row_id",
                "source",
                "run_id",
                "price_usd_per_gpu_hour",
                "price_source",
                "price_as_of",
                "standing",
            ),
        ),
        Mart(
            "rescue_comparisons",
            "One row per run that rescues a recipe: what changed, how it ended, and what else differed.",
            "run_id",
            _names(
                "run_id campaign recipe rescues failed_run_id original_failure_class reproductions reproduced_failures "
                "rescue_attempt rescue_change state failure_class probes_passed probes_asked requests_ok "
                "best_output_tokens_per_s kv_tokens confounders source"
            ),
            ("run_id", "campaign", "rescues", "state", "reproductions", "reproduced_failures", "source"),
        ),
        Mart(
            "roofline_shares",
            "One row per row_id: its rates, the physical ceilings, and its share of them.",
            "row_id",
            _names(
                "row_id source campaign run_id model gpus device is_cpu compute_precision workload concurrency "
                "prefill_length_tokens prefill_tokens_per_s prefill_ceiling_tokens_per_s prefill_share "
                "output_tokens_per_s decode_ceiling_tokens_per_s decode_share single_decode_tokens_per_s "
                "single_ceiling_tokens_per_s mfu mbu roofline standing"
            ),
            ("row_id", "source", "run_id", "roofline", "standing"),
        ),
    )
}

POLICY_NAMES = tuple(POLICIES)
