"""declared_config: the server ran as the recipe says, by its own word."""

from __future__ import annotations

from contracts.screens.base import Screen, Threshold
from contracts.verdicts import Part, Row, Verdict, at_most

THROTTLED = Threshold(
    "max_throttled_share",
    0.05,
    "share of samples",
    "clocks are as declared when power and heat leave them alone; one sample in twenty may be a spike",
    "docs/screens.md",
)
PROMPT_SHARE = Threshold(
    "max_prompt_off_share",
    0.05,
    "share of asked",
    "the label of a cell is its prompt length",
    "public reports vllm-project/vllm PR #20083 (half of the prompt sent) and h200-benchmarks (509 for 1024)",
)
PROMPT_TOKENS = Threshold(
    "prompt_off_floor_tokens",
    64.0,
    "tokens",
    "a chat template may add as much to every prompt",
    "flows/workloads/overhead.py",
)
THINKING = Threshold(
    "max_reasoned_share",
    0.0,
    "share of answers",
    "thinking that was switched off must be seen to be off",
    "public report vllm-project/vllm#40816",
)


def judge(row: Row) -> list[Part]:
    """Nine parts. What nobody declared is not_applicable; what was declared and not observed is unknown."""
    throttled = row["throttled_share"]
    clocks: Verdict = at_most(throttled, THROTTLED.value)
    if row["node_gpus"] == 0:
        clocks = "not_applicable"
    return [
        Part("engine_version", "unknown" if row["engine_version"] is None else "pass"),
        _same("prefix_caching", row["declared_prefix_caching"], row["observed_prefix_caching"]),
        _same(
            "max_running_requests", row["declared_max_running_requests"], row["observed_max_running_requests"]
        ),
        _precision(row),
        _gpus(row),
        Part("clocks", clocks, throttled),
        _prompt(row),
        _thinking(row),
        _draft_prompts(row),
    ]


def _same(name: str, declared: object, observed: object) -> Part:
    if declared is None:
        return Part(name, "not_applicable")
    if observed is None:
        return Part(name, "unknown")
    return Part(name, "pass" if declared == observed else "fail")


def _precision(row: Row) -> Part:
    claimed, true = row["claimed_precision"], row["true_precision"]
    kernel = row["kernel_precision"]
    if claimed is None:
        return Part("precision", "not_applicable")
    if kernel is not None and kernel != claimed:
        return Part("precision", "fail")
    if true is None:
        return Part("precision", "unknown")
    return Part("precision", "pass" if claimed.lower() == true.lower() else "fail")


def _gpus(row: Row) -> Part:
    gpus, present = row["gpus"], row["node_gpus"]
    if gpus is None or present is None:
        return Part("gpus", "unknown")
    # A CPU node is priced as one device and has no GPU.
    is_right = gpus <= present or (present == 0 and gpus <= 1)
    return Part("gpus", "pass" if is_right else "fail", gpus)


def _prompt(row: Row) -> Part:
    off, asked = row["prompt_tokens_off_mean"], row["asked_prompt_tokens_mean"]
    if asked is None:
        return Part("prompt_length", "not_applicable")
    limit = max(PROMPT_TOKENS.value, PROMPT_SHARE.value * asked)
    return Part("prompt_length", at_most(None if off is None else abs(off), limit), off)


def _thinking(row: Row) -> Part:
    share = row["reasoned_share"]
    if row["declared_thinking"] is not False:
        return Part("thinking", "not_applicable")
    return Part("thinking", at_most(share, THINKING.value), share)


def _draft_prompts(row: Row) -> Part:
    """Random tokens are accepted at about 11 % where text is at 72 to 81 %: they say nothing of a drafter.

    Public report canada-quant dsv4: the same server, random and real prompts.
    """
    if not (row["draft_tokens"] or row["drafts"]) or row["prompt_dataset"] is None:
        return Part("draft_prompts", "not_applicable")
    return Part("draft_prompts", "fail" if row["prompt_dataset"].startswith("random") else "pass")


SCREEN = Screen(
    name="declared_config",
    question="Did the server run as declared, by its own word?",
    passes_when="engine version observed; prefix caching, max running requests, precision, GPU count, clocks, prompt "
    "lengths and thinking as declared; speculation is not measured on random tokens",
    unknown_when="a declared setting was not observed",
    not_applicable_when="a part that nobody declared; clocks: a node without GPUs",
    next_step="declare what the engine does, or make it do what is declared; read its start-up log for what it chose",
    thresholds=(THROTTLED, PROMPT_SHARE, PROMPT_TOKENS, THINKING),
    judge=judge,
)
