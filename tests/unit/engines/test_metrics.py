"""Counters out of /metrics bodies of our own, one trait each; values worked by hand."""

from __future__ import annotations

from flows.engines.metrics import FIELDS, parse_metrics, read_counters, read_metrics_facts


def test_engines_add_up_and_gauges_of_usage_do_not() -> None:
    text = """
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 50.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:request_success_total{engine="0",finished_reason="stop"} 3
vllm:request_success_total{engine="0",finished_reason="length"} 4
vllm:request_success_total{engine="0",finished_reason="abort"} 5
"""
    counters = read_counters(text)
    assert counters["prompt_tokens"] == 150.0
    assert counters["kv_usage"] == 0.75
    assert counters["requests_ok"] == 7.0


def test_tensor_parallel_ranks_say_the_same_and_count_once() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {5 + dp}\n'
        for dp in (0, 1)
        for tp in (0, 1)
    )
    assert read_counters(text)["requests_running"] == 11.0


def test_labels_may_hold_braces_commas_and_escaped_quotes() -> None:
    text = r'vllm:prompt_tokens_total{model_name="a{b},\"c\" \\ d",engine="0"} 7 1700000000000' + "\n"
    sample = parse_metrics(text).samples["vllm:prompt_tokens_total"][0]
    assert sample.labels == {"model_name": 'a{b},"c" \\ d', "engine": "0"}
    assert sample.value == 7.0


def test_nan_infinity_and_garbage_are_absent() -> None:
    text = "vllm:prompt_tokens_total NaN\nvllm:generation_tokens_total +Inf\nvllm:num_requests_running\n<html>\n{}{} 5\n"
    assert all(read_counters(text)[name] is None for name in FIELDS)


def test_a_new_name_is_used_alone_where_the_old_one_is_there_too() -> None:
    text = """
vllm:gpu_prefix_cache_hits_total 10
vllm:prefix_cache_hits_total 10
vllm:gpu_prefix_cache_queries_total 20
vllm:prefix_cache_queries_total 20
"""
    counters = read_counters(text)
    assert (counters["cached_prompt_tokens"], counters["prefix_queries"]) == (10.0, 20.0)


def test_the_unit_of_the_old_name_is_read_from_its_help() -> None:
    blocks = "# HELP vllm:gpu_prefix_cache_hits_total hits, in terms of number of cached blocks.\nvllm:gpu_prefix_cache_hits_total 5\n"
    counters = read_counters(blocks)
    assert counters["cached_prompt_tokens"] is None
    assert counters["blocks"] == {"cached_prompt_tokens": 5.0}
    tokens = blocks.replace("cached blocks", "cached tokens")
    assert read_counters(tokens)["cached_prompt_tokens"] == 5.0
    silent = "vllm:gpu_prefix_cache_hits_total 5\n"
    assert read_counters(silent)["cached_prompt_tokens"] is None


def test_llama_cpp_prompts_are_computed_plus_cached() -> None:
    text = "llamacpp:prompt_tokens_total 86\nllamacpp:prompt_tokens_cached_total 156\nllamacpp:tokens_predicted_total 9\n"
    counters = read_counters(text)
    assert (counters["prompt_tokens"], counters["cached_prompt_tokens"]) == (242.0, 156.0)
    old = read_counters("llamacpp:prompt_tokens_total 86\n")
    assert (old["prompt_tokens"], old["cached_prompt_tokens"]) == (86.0, None)


def test_another_engines_names_are_not_read_when_one_is_named() -> None:
    assert read_counters("vllm:prompt_tokens_total 5\n", engine="llamacpp")["prompt_tokens"] is None


def test_created_stamps_are_no_counters() -> None:
    assert read_counters("vllm:prompt_tokens_created 1.7e9\n")["prompt_tokens"] is None


def test_the_json_subset_reads_as_text_does() -> None:
    text = '{"metrics": [{"series": "vllm:spec_decode_num_drafts_total{engine=\\"0\\"}", "value": 12}, {"series": 5}]}'
    assert read_counters(text)["drafts"] == 12.0


def test_facts_stand_in_labels() -> None:
    text = 'vllm:cache_config_info{block_size="16",enable_prefix_caching="True",kv_cache_size_tokens="400448",num_gpu_blocks="None"} 1.0\n'
    facts = read_metrics_facts(text)
    assert (facts.kv_tokens, facts.prefix_caching) == (400_448, True)
    assert facts.extra["cache_config"]["block_size"] == "16"
