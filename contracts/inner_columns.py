"""The dictionary of the inner columns: what staging and intermediate models show beyond the columns of the marts.

One line a column: name | unit | meaning | null. Raw fields are explained at length in contracts/records.py.
"""

from __future__ import annotations

_TEXT = """
asked|answers|Graded answers.|never
graded|answers|Of them, those that could be graded.|never
correct|answers|Right, strictly.|never
correct_lenient|answers|Right, leniently.|never
blocks_missing|requests|Timed requests whose first block was not recorded.|no request
blocks_repeated|requests|Timed requests whose first block another conversation of the server had sent.|no request
first_repeated_line|line|The first of them in the raw file.|none
prompts|requests|Timed requests that were sent.|never
prompts_known|requests|Of them, those whose prompt hash was recorded.|never
file||The raw file, under raw.|never
line|line|The line in the raw file, from 1.|never
recorded|requests|Timed requests with a record.|never
ok|requests|Served to the end.|not recorded
failed|requests|Ended in an error.|not recorded
cancelled|requests|Cancelled by the client.|not recorded
unsent|requests|Planned and never sent.|not recorded
ok_with_error|requests|Counted as served although they ended in an error or without a token.|imported, or no requests
first_bad_line|line|The first request that was not served.|all were served
commonest_error||The most frequent error class.|no error
reasoning_tokens|tokens|Output tokens of reasoning, by usage.|usage does not say
prompt_missing|requests|Served without prompt tokens in usage.|never
cached_missing|requests|Served without cached tokens in usage.|never
output_missing|requests|Served without output tokens.|no requests
output_counted|requests|Served with output tokens that were counted, not in usage.|no requests
all_output_tokens|tokens|Output tokens of all timed requests; chunks where usage is absent.|no request has either
all_prompt_tokens|tokens|Prompt tokens of all timed requests.|usage was absent
prompt_tokens_where_asked|tokens|Prompt tokens of served requests whose length was planned.|none was
longest_tokens|tokens|The longest prompt and answer together.|usage was absent
prompt_tokens_mean|tokens|Mean prompt length of served requests.|usage was absent
output_tokens_mean|tokens|Mean answer length of served requests.|usage was absent
attainment_known|requests|Served with an asked and a known output length.|never
off_length|requests|Of them, those outside 0.98 to 1.02 of the asked.|never
finish_length|requests|Ended by length.|never
finish_stop|requests|Ended by a stop.|never
finish_missing|requests|Ended without a reason.|no requests
empty_answers|requests|Served with an answer of no text.|never
answers_missing|requests|Served without a hash of the answer.|no requests
reasoned|requests|Served with reasoning tokens.|never
chunks|chunks|Chunks of served requests with usage.|none
coalesced_chunks|chunks|Chunks that the client read together with the one before.|no requests
long_answers|answers|Served answers of eight tokens or more.|no requests, or an import without chunks
burst_answers|answers|Of them, those that came at once at their end.|never
ttft_count|requests|Requests behind the TTFT figures; in counters, first tokens that the engine counted.|none
ttft_from_send_ms_mean|ms|Mean TTFT from the actual send.|no first token
tpot_count|requests|Requests behind the TPOT figures.|none
tpot_ms_mean|ms|Mean time per output token.|no answer of two tokens
e2e_count|requests|Requests behind the end-to-end figures; in counters, those that the engine counted.|none
e2e_ms_stddev|ms|Standard deviation of end-to-end latency.|fewer than two requests
prefill_rate_max|tokens/s|The fastest request's uncached prompt tokens over send to first token.|no first token or prompt count
prefill_rate_prompt_tokens|tokens|That request's prompt length.|as prefill_rate_max
prefill_rate_line|line|That request in the raw file.|as prefill_rate_max
decode_rate_p50|tokens/s|Median output rate of single requests of eight tokens or more.|none
decode_rate_max|tokens/s|The highest of them.|none
decode_rate_line|line|That request in the raw file.|none
instant_first_tokens|requests|First token at or before the send.|no requests
disordered|requests|With an effect before its cause.|no requests
negative_gaps|gaps|Gaps below 0.|no requests
gaps_not_adding_up|requests|Whose gaps do not lead from the send to the last token.|no requests
chunks_not_adding_up|requests|With other than one gap a chunk.|no requests
busy_ns|ns|Time on the server, summed over requests.|none was sent
first_planned_ns|ns|The first planned send.|no instants
last_planned_ns|ns|The last planned send.|no instants
first_sent_ns|ns|The first send.|none was sent
last_sent_ns|ns|The last send.|none was sent
begins_ns|ns|Where the steady part begins.|never
ends_ns|ns|Where it ends: the last send.|never
steady_requests|requests|Served requests sent in the steady part.|no window or requests
steady_tokens|tokens|Output tokens in the steady part.|no tokens
first_half_tokens|tokens|Of them, those of its first half.|no tokens
steady_busy_ns|ns|Time on the server within the steady part, summed.|never
in_flight_at_last_send|requests|In flight after the last send.|never
trend_correlation||Correlation of latency a token with the send.|all latencies are equal, or too few
trend_slope|ms/ns|Slope of latency a token over the send.|too few requests
trend_mean|ms|Mean latency a token.|no request
first_wave_ms_p50|ms|Median latency of the first request of every stream.|none served
later_ms_p50|ms|Median latency of the others.|one wave only
later_requests|requests|The others.|never
telemetry_samples|samples|Samples of GPUs in the window.|no telemetry
throttled_share|share|Samples in which power or heat slowed the clocks.|the device does not say
throttle_reasons||Why clocks were slow: of a sample a list, of a cell in words.|the device does not say
requests_file||The cell's request file.|none landed
requests_sha256||Its hash in the seal.|none landed
requests_lines|lines|Its lines in the seal.|none landed
any_file||Any file of the cell.|never
cell_files|files|Readable cell records.|never
seed||The seed that planned the cell.|the cell record is unreadable
shape|JSON|How requests were released: kind, concurrency, rate, ramp, stop rules.|the cell record is unreadable
is_fixed_length||Whether the output length is fixed.|the cell record is unreadable
planned_requests|requests|Timed requests that were planned.|the cell record is unreadable
warmup_requests|requests|Warm-up requests before the window.|the cell record is unreadable
planned_finish_reason||How answers are meant to end.|no such plan
cache_budget_min|share|Least share of prompt tokens meant to come from the cache.|none is declared
cache_budget_max|share|Largest such share.|none is declared
declares_sharing||Whether prompts share their first block on purpose.|the cell record is unreadable
is_cold_expected||Whether prompts are meant to be fresh.|the cell record is unreadable
needle_depths_pct|JSON|Depths at which needles are planted, %.|the cell plants none
prompt_length_source||Where the prompt's length in tokens is known from.|not stated
planning_s|s|Time to plan the cell, outside the window.|not timed
objectives|JSON|Latency objectives of the cell.|none
params|JSON|Parameters of the workload.|the cell record is unreadable
window_note||What the window's end said.|nothing
log_tail|JSON|The engine's last log lines.|nothing went wrong
closed_at|UTC|When the window closed.|it never did
has_cell_record||Whether the cell's record is readable.|never
cell_file||The cell's record.|unreadable
shape_kind||closed, constant, poisson, gamma, trace or sessions.|the cell record is unreadable
stop_after_s|s|No request is started later than this.|no such rule
has_both_edges||Whether every endpoint was scraped before and after the window.|not scraped
cached_prompt_tokens|tokens|Prompt tokens from the cache, by the engine's counter; of a window the difference.|the engine has no such counter
prefix_queries|tokens|Tokens looked up in the prefix cache, by counter; of a window the difference.|the engine has no such counter
preemptions||Preemptions, by counter; of a window the difference.|the engine has no such counter
ttft_sum_s|s|Sum of TTFT, by counter; of a window the difference.|the engine has no such counter
draft_tokens|tokens|Draft tokens: by counter, or as the recipe declares them a step.|the engine has no such counter
accepted_tokens|tokens|Accepted draft tokens, by counter; of a window the difference.|the engine has no such counter
drafts||Draft steps, by counter; of a window the difference.|the engine has no such counter
has_restarted||Whether a process or its counters began anew.|not scraped
is_restart_observed||Whether a restart would have been seen.|not scraped
kv_usage_max|share|Most of the KV cache in use at any scrape.|not scraped
requests_waiting_max|requests|Most requests waiting at any scrape.|not scraped
fault||Why evidence cannot be believed.|never
is_mock||Whether an import says that its server was a mock.|not an import, or it does not say
cached_share|share|Cached over prompt tokens, as an import says.|it does not say
attributed_cached_share|share|Cached share of this row, out of a span of several.|it does not say
prompts_repeated|requests|Prompts that repeat an earlier row's, of an import.|not known
counted_output_ratio||Output tokens of the engine over the file's, of an import.|not known
coalesced_share|share|Chunks read together with the one before.|no chunks
reason||Why: of a refused line, an invalid row or a verdict.|nothing to say
found||Needles that were found; of a grade, what the answer held.|nothing found
ungraded|needles|Needles that could not be graded.|never
first_missed_line|line|The first needle that was missed, in the raw file.|none was
depths_pct|%|Depths that were probed.|never
has_required_depths||Whether 10, 50 and 90 % are among them.|never
gpu||The device, by gpu_peaks; of telemetry, its number.|a CPU node, or unknown
peak_flops|FLOP/s|Peak arithmetic of all devices at the precision.|facts are missing
peak_bytes_per_s|bytes/s|Peak bandwidth of all devices.|facts are missing
prefill_tokens|tokens|Prompt length of the prefill ceiling.|no prompt count
decode_tokens|tokens|Context of the decode ceiling: mean prompt and half of the answer.|no prompt count
batch|requests|The largest batch that can have been.|never
window_file||The window's record.|unreadable
counters_file||The counters.|not scraped
run_file||The run's record.|unreadable
row_context_tokens|tokens|The context that needles must cover.|not known
needle_context_tokens|tokens|The nearest probed context that covers it.|none does
needles_asked_at_context|needles|Needles asked there.|none does
needles_found_at_context|needles|Needles found there.|none does
needles_ungraded_at_context|needles|Needles there that could not be graded.|none does
has_required_needle_depths||Whether all three depths were probed there.|none does
needles_file||The grades.|none
needles_first_missed_line|line|The first missed needle.|none
cached_share_usage|share|Cached over prompt tokens, by usage.|usage does not say for every request
cached_share_counters|share|Cached over looked-up tokens, by counters.|the counters do not say
output_attainment_ratio||Output tokens over asked.|no length was asked
attainment_unknown|requests|Served with unknown length.|no requests
off_length_share|share|Requests of another length than asked.|none served
off_finish_share|share|Requests that ended otherwise than planned.|no plan, or none served
empty_answer_share|share|Answers without text.|none served
chunks_per_token|chunks/token|Streamed chunks over tokens of usage.|no usage
counter_output_ratio||Output tokens of the engine over usage.|not scraped
counter_prompt_ratio||Prompt tokens of the engine over usage.|not scraped
counter_uncached_prompt_ratio||Prompt tokens of the engine over uncached ones of usage.|not scraped
probes_in_window|probes|Probes inside the window.|none
window_planned|requests|Planned, by the window's record.|unreadable
requests_recorded|requests|Requests with a record, or that an import names.|none
is_window_count_right||Whether the window counted as the records do.|no requests
has_window_record||Whether the window's record is readable.|never
asked_concurrency|requests|Concurrency that the client was asked for.|open loop, or unreadable
certified_concurrency|requests|Mean in flight, by the client's certificate.|no certificate
busy_concurrency|requests|Time on the server over the window's length.|no instants
achieved_concurrency|requests|Mean in flight until the last send.|no instants
achieved_rate_ratio||Planned span of sends over the real one.|not an open loop
imported_rate_ratio||Sent over asked rate of an import.|it does not say
loop_lag_p99_ms|ms|The client's loop lag, 99th percentile.|no certificate
send_delay_p99_ms|ms|From planned to actual send, 99th percentile.|no certificate
engine_ttft_ms_mean|ms|Mean TTFT by the engine's counters.|it has none
drift_ms_per_min|ms/min|Wall clock against monotonic.|no certificate
steady_latencies||Length of the steady part in median latencies.|no requests
ramp_effect|share|Steady rate over the window's, less one.|no steady part
half_difference|share|Rate of the first half over the second, less one.|no steady part
trend_t||Student's t of the trend.|no trend can be computed
trend_drift|share|What the trend moves latency by over the steady part.|too few requests
e2e_interval_share|share|Half width of the 95 % interval of mean latency, over the mean.|fewer than two requests
burst_share|share|Long answers that came at once.|no long answers
preemptions_per_request||Preemptions a served request.|not counted
probes_before|probes|Probes before load.|none asked
probes_after|probes|Probes after load.|none asked
kinds_before|kinds|Kinds of probes before load.|none asked
kinds_compared|kinds|Of them, kinds asked again after.|none asked
probe_share_lost|share|Worst loss of a kind's pass rate.|nothing to compare
probe_failed_why||Why the first probe after load failed.|none failed
probes_file||The probes after load.|none
probes_failed_line|line|The first that failed.|none failed
first_wave_ratio||First wave's median latency over the others'.|fewer than three waves
declared_prefix_caching||Prefix caching as the recipe wants it.|not declared
observed_prefix_caching||Prefix caching by the engine's word.|it did not say
declared_max_running_requests|requests|Slots as the recipe wants them.|not declared
observed_max_running_requests|requests|Slots by the engine's word.|it did not say
true_precision||Precision by the checkpoint's headers.|not read
is_precision_label_true||Whether the checkpoint's own label is true.|not read
kernel_precision||Precision of the kernels by the engine's log.|it did not say
node_gpus|devices|GPUs of the node.|node facts unreadable
declared_thinking||Whether the workload asks for thinking.|it does not say
reasoned_share|share|Answers with reasoning tokens.|none served
prompt_dataset||The data set that an import's prompts come from.|not an import
cell_asked_prompt_tokens|tokens|Prompt length of the cell's plan.|lengths vary
prompt_tokens_off_mean|tokens|Mean prompt length less the asked.|not known
asked_prompt_tokens_mean|tokens|Mean prompt length that was asked for.|not planned
is_imported_mock||Whether an import says that its server was a mock.|it does not say
is_imported||Whether the row is another tool's.|never
has_requests||Whether an import has requests.|not an import
has_instants||Whether their instants are of one clock.|not an import
asked_rps|requests/s|Rate that an import's tool was asked for.|it does not say
sent_rps|requests/s|Rate that it sent at.|it does not say
imported_output_tokens_per_s|tokens/s|Output rate as the tool computed it.|not an import
imported_total_tokens_per_s|tokens/s|Total rate as the tool computed it.|not an import
imported_requests_per_s|requests/s|Request rate as the tool computed it.|not an import
chunk_gap_ms_p99|ms|Gap between chunks, 99th percentile.|no gaps
gap_count|gaps|Gaps between chunks; of a request, its first wait included.|no requests
uncached_tokens_per_s|tokens/s|Uncached prompt tokens over the window.|no window
params_active|parameters|Parameters that one token uses.|model facts are missing
active_weight_bytes|bytes|Weights read for one decoded token.|model facts are missing
kv_read_bytes_per_token_full|bytes|Cache read for every cached token, in full layers.|model facts are missing
kv_read_bytes_per_token_sparse|bytes|Cache read for each of the top-k tokens.|no such layers
kv_bytes_per_token_sliding|bytes|Cache of one token in windowed layers.|no such layers
state_bytes_per_sequence|bytes|Recurrent state of a sequence.|no such layers
attn_flops_per_token_per_key_full|FLOP|Attention of one token to one key, full layers.|model facts are missing
attn_flops_per_token_per_key_sliding|FLOP|The same in windowed layers.|no such layers
attn_flops_per_token_per_key_sparse|FLOP|The same in indexed layers.|no such layers
state_flops_per_token|FLOP|State layers, one token.|no such layers
sliding_window|tokens|Width of the window.|no such layers
sparse_topk|tokens|Tokens that an indexed layer chooses.|no such layers
kv_element_bytes|bytes|One cached element, by the checkpoint.|model facts are missing
kv_cache_element_bytes|bytes|One cached element, by the recipe's cache type.|the recipe sets none
cpu_gflops|GFLOP/s|Measured float32 arithmetic of the node.|not measured
cpu_low_gflops|GFLOP/s|Bound of its low-precision arithmetic.|not measured
cpu_gb_s|GB/s|Measured bandwidth of the node: of the caches where the weights fit.|not measured
gpu_tflops|TFLOP/s|Peak of one device at the precision.|unknown device
gpu_gb_s|GB/s|Bandwidth of one device.|unknown device
kv_scale||Recipe's cache bytes over the checkpoint's.|never
probes_during|probes|Probes during load.|never
worst_share_lost|share|Worst loss of a kind's pass rate.|nothing to compare
after_file||The probes after load.|none
first_failed_line|line|The first that failed.|none
first_failed_why||Why it failed.|none
has_start||Whether run_start is readable.|never
model_path||Where the checkpoint lay.|not a path
gpu_ids|JSON|Devices by number.|not pinned
recipe_settings|JSON|The recipe as resolved, flat.|run_start is unreadable
lifecycle_start||Which restart of a lifecycle workload the run is.|not one
is_start_only||Whether the run ends after that start's cells.|run_start is unreadable
model_facts|JSON|What the checkpoint says of the model.|not read
campaign_sha256||Hash of the campaign file.|not recorded
weighbridge_version||This project's version at the run.|run_start is unreadable
importer|JSON|The tool and the file of an import.|not an import
price|JSON|Price, key, source and date.|run_start is unreadable
price_key||The price's key in the seed prices.|priced by hand
bring_up_state||served or failed.|unreadable
served_model||The name that the server answers to.|not served
prefix_caching||Prefix caching by the engine's word.|it did not say
max_model_len|tokens|Context ceiling by the engine's word.|it did not say
engine_facts|JSON|What else the engine said of itself.|nothing
end_state||How the run ended.|it has not
end_note||What was said of it.|nothing
node_facts|JSON|The machine as it was read.|unreadable
screen||The screen's name.|never
verdict||pass, fail, unknown or not_applicable.|never
part||The worst part, which decided.|never
measured||What was measured of that part.|not observed, or no number
required||What was required, in words.|no bound can be said
unit||The unit of measured.|never
evidence||Raw file, with the line where one shows it; of an import, what else it holds.|never
parts||All parts: part, verdict, measured, required, unit, reason.|never
standing_reason_strict||As standing_reason, under strict.|publishable under strict
invalid_reason||Why the measurement is broken.|it is not
record||The kind of record.|never
schema_version||The version of its shape.|never
command|JSON|Command lines of the server's processes.|never
endpoints|JSON|Base URLs that clients use.|never
phases_s|JSON|Seconds of each start-up phase.|never
facts|JSON|Facts as read.|never
server_started_at|UTC|When the first process started.|not started
ready_at|UTC|When it first served.|it never did
gap_mean_ms|ms|Mean gap between chunks.|no gaps
gap_zero_count|gaps|Gaps of 0.|never
gap_p50_ms|ms|Median gap between chunks.|no gaps
gap_p90_ms|ms|90th percentile.|no gaps
gap_p99_ms|ms|99th percentile.|no gaps
at||before, during or after the window.|never
at_ns|ns|Instant on the client's monotonic clock.|never
scraped_at|UTC|When it was scraped.|never
endpoint||Number of the endpoint.|never
role||What the endpoint is: server, replica, prefill or decode.|not recorded
requests_running|requests|Running, by gauge.|no such gauge
requests_waiting|requests|Waiting, by gauge.|no such gauge
kv_usage|share|KV cache in use, by gauge.|no such gauge
e2e_sum_s|s|Sum of latencies, by counter.|no such counter
server_rss_mb|MB|The server's resident memory.|not read
process_start_time_s|s|Start of the process, Unix time.|not stated
source_names|JSON|The engine's own names of these counters.|never
path||Path inside the run folder.|never
kind||Kind of record, or of probe.|an artefact or a stranger
sealed_lines|lines|Lines in the seal.|not sealed, or no JSONL
staged_lines|lines|Lines that became rows.|not read
bytes|bytes|Size on disk.|not read
sha256||Hash on disk.|not read
sealed_sha256||Hash in the seal.|not sealed
landed_at|UTC|When it landed.|not sealed
request_id||The request, unique within the run.|never
grader||Who graded.|never
is_correct||Right, strictly.|could not be graded
is_correct_lenient||Right, leniently.|no lenient reading
expected||The right answer.|free form
why||Why it was graded or judged so.|never
depth_pct|%|Depth of the needle.|no needle
turn||Turn of the conversation, from 0.|no conversation
user||User of the conversation.|no users
tool||The tool that wrote the file.|never
tool_version||Its version.|it does not say
source_file||The imported file.|never
source_sha256||Its hash.|never
row_in_file||Which row of the file.|never
headline|JSON|The tool's own figures.|never
recomputed|JSON|The same from requests.|never
differences|JSON|Where the two differ by more than 0.1 %.|never
missing|JSON|What the file cannot show.|never
notes|JSON|What the importer noticed.|never
read_at|UTC|When the node was read.|never
probe_id||The probe.|never
phase||warmup or timed; of a probe before, during or after.|never
is_passed||Whether it passed.|never
http_status||HTTP status.|no answer
latency_ms|ms|Latency of the probe.|no answer
sent_at|UTC|When it was sent.|never sent
output_text||The probe's answer.|none
tool_calls|JSON|Tool calls of the answer.|none
detail||What exactly was wrong.|never
index||Position in the plan.|never
session_id||The conversation.|none
process||Process of the client.|never
outcome||ok, failed, cancelled or unsent.|never
error_class||Class of the error.|no error
error_detail||What came back.|no error
retry_after_s|s|Retry-After of a 429 or 503.|none
planned_ns|ns|Planned send, monotonic clock.|never due
sent_ns|ns|Actual send.|never sent
first_byte_ns|ns|First byte of the answer.|none came
first_token_ns|ns|First token of any kind.|none came
last_token_ns|ns|Last token.|none came
end_ns|ns|End of the answer.|never sent
chunk_count|chunks|Chunks with a token.|never
event_count|events|SSE events.|never
output_token_source||usage or counted.|no tokens
finish_reason||How the answer ended.|not stated
expected_cached_tokens|tokens|Tokens that the plan expects from the cache.|no expectation
prompt_sha256||Hash of the prompt.|not recorded
first_block_sha256||Hash of its first 256 bytes.|not recorded
output_sha256||Hash of the answer.|none
gap_sum_ns|ns|Sum of the gaps, from the send.|never
gap_min_ns|ns|Least gap but the first.|fewer than two chunks
gap_max_ns|ns|Largest gap but the first.|fewer than two chunks
gap_negative_count|gaps|Gaps below 0.|never
user_gap_ns|ns|All gaps, kept where users share a window.|no user
note||What was said of the end.|nothing
teardown_note||What was left behind.|nothing
power_w|W|Power.|the device does not say
sm_clock_mhz|MHz|Clock of the cores.|the device does not say
mem_clock_mhz|MHz|Clock of the memory.|the device does not say
temperature_c|C|Temperature.|the device does not say
utilization_pct|%|Utilisation.|the device does not say
memory_used_mb|MB|Memory in use.|the device does not say
energy_mj|mJ|Energy counter.|the device does not say
opened_ns|ns|Opening of the timed phase.|never
closed_ns|ns|Its close.|never
processes||Processes of the client.|never
cpus|cores|Cores that the client may use.|not read
open_file_limit|files|Open-file limit.|not read
concurrency_ns|JSON|In flight over time: ns since opening, requests.|never
loop_lag_p50_ms|ms|Loop lag, median.|not measured
loop_lag_max_ms|ms|Loop lag, largest.|not measured
send_delay_p50_ms|ms|Send delay, median.|not measured
cpu_share|share|CPU time over wall time.|not measured
cpu_s|s|CPU time of the client.|not measured
gc_pauses||Garbage collections inside the window.|not measured
gc_pause_ms|ms|Their time.|not measured
peak_rss_mb|MB|Peak memory of the client.|not measured
planned|requests|Planned, by the client.|never
machine_load_before||Load of the machine before.|not read
machine_load_after||Load of the machine after.|not read
"""


def read() -> dict[str, str]:
    """Column name -> its description: meaning, unit, null."""
    found = {}
    for text in _TEXT.strip().splitlines():
        name, unit, meaning, null = text.split("|")
        of_unit = f" Unit: {unit}." if unit else ""
        of_null = "Never null." if null == "never" else f"Null: {null}."
        found[name] = f"{meaning}{of_unit} {of_null}"
    return found


INNER_COLUMNS: dict[str, str] = read()
