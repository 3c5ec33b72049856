"""What a campaign would run: cells, requests, tokens, hours and cost, computed without starting anything.

Cells, requests and tokens come from the same plans that a run uses. Hours are reckoned from stated assumptions (the
campaign's `assume`, else a guess by engine) and are printed as such; cost is hours x devices x price.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from contracts.errors import BadInput
from flows import workloads
from flows.campaign_file import Assumptions, Campaign, WorkloadEntry
from flows.engines.registry import get_engine
from flows.recipe import Recipe
from flows.workloads import probes
from flows.workloads.base import CellPlan, PlanContext, TokenCounter

# Orders of magnitude only: (prefill tokens/s of the server, decode tokens/s of a stream, streams at that rate, start).
# CPU: SmolLM2-135M under llama.cpp on two cores. GPU: vLLM 0.26 with an 8B model on one H200, 184 tokens/s alone and
# 6,029 at 128 streams, ready after 234 s.
_CPU = (180.0, 40.0, 2.0, 3.0)
_GPU = (20_000.0, 180.0, 33.0, 240.0)


@dataclass(frozen=True)
class PlanRow:
    """One entry of a recipe. cells and requests of an adaptive workload are its first cell's, times its limit."""

    recipe: str
    entry: str
    workload: str
    cells: int
    requests: int
    warmup_requests: int
    prompt_tokens: int
    output_tokens: int
    hours: float
    cost_usd: float
    note: str = ""


@dataclass(frozen=True)
class PlanTable:
    """The rows, and what their hours and cost were reckoned with. bring_ups are in the rows named `(bring-up)`."""

    campaign: str
    policy: str
    price_usd_per_gpu_hour: float
    price_source: str
    price_as_of: str
    rows: list[PlanRow]
    assumptions: dict[str, dict[str, Any]]

    def total(self, name: str) -> float:
        """The sum of one numeric field over all rows."""
        return sum(getattr(row, name) for row in self.rows)


def plan_campaign(campaign: Campaign) -> PlanTable:
    """Every recipe x entry of the campaign, planned and reckoned. Starts nothing and asks no server."""
    rows: list[PlanRow] = []
    assumptions: dict[str, dict[str, Any]] = {}
    for recipe in campaign.recipes:
        rates, source = _rates(campaign.assume, recipe)
        assumptions[recipe.name] = {**asdict(rates), "source": source}
        rows.append(_bring_up(campaign, recipe, rates, 1, "(bring-up)", _objection(recipe)))
        for phase in ("before", "after"):
            plan = probes.plan(campaign.probes, _context(campaign, recipe, None), phase)  # type: ignore[arg-type]
            if plan is not None:
                rows.append(_row(campaign, recipe, f"(probes {phase})", "probes", [plan], rates))
        for entry in campaign.entries_of(recipe):
            rows.append(_entry(campaign, recipe, entry, rates))
    price = campaign.price
    return PlanTable(
        campaign=campaign.name,
        policy=campaign.policy,
        price_usd_per_gpu_hour=price.usd_per_gpu_hour,
        price_source=price.source,
        price_as_of=price.as_of.isoformat(),
        rows=rows,
        assumptions=assumptions,
    )


def print_plan(campaign: Campaign, as_json: bool = False) -> None:
    """Print the plan to the terminal, or as one JSON object."""
    table = plan_campaign(campaign)
    # A pipe has no width; the table is wider than the 80 columns that would be taken for it.
    console = Console() if Console().is_terminal else Console(width=150)
    if as_json:
        names = (
            "cells",
            "requests",
            "warmup_requests",
            "prompt_tokens",
            "output_tokens",
            "hours",
            "cost_usd",
        )
        body = asdict(table) | {"total": {name: round(table.total(name), 4) for name in names}}
        console.print_json(json.dumps(body))
        return
    console.print(_rich_table(table))
    for recipe, rates in table.assumptions.items():
        console.print(
            f"{recipe}: hours reckoned with {rates['prefill_tokens_per_s']:g} prefill tokens/s, "
            f"{rates['decode_tokens_per_s']:g} decode tokens/s a stream, {rates['bring_up_s']:g} s to ready "
            f"({rates['source']})",
            highlight=False,
        )
    console.print(
        f"price {table.price_usd_per_gpu_hour:.2f} USD per GPU-hour, {table.price_source}, as of {table.price_as_of}; "
        f"policy {table.policy}; nothing was started",
        highlight=False,
    )


def _rich_table(table: PlanTable) -> Table:
    shown = Table(title=f"{table.campaign}: what would run", title_justify="left")
    for name in ("recipe", "entry"):
        shown.add_column(name, no_wrap=True)
    for name in ("cells", "requests", "warm-up", "prompt tokens", "output tokens", "hours", "USD"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("note")
    last = None
    for row in table.rows:
        shown.add_row(row.recipe if row.recipe != last else "", row.entry, *_figures(row), row.note)
        last = row.recipe
    shown.add_section()
    shown.add_row(
        "total",
        "",
        *(
            f"{table.total(name):,.0f}"
            for name in ("cells", "requests", "warmup_requests", "prompt_tokens", "output_tokens")
        ),
        f"{table.total('hours'):.2f}",
        f"{table.total('cost_usd'):.2f}",
        "",
    )
    return shown


def _figures(row: PlanRow) -> list[str]:
    whole = (row.cells, row.requests, row.warmup_requests, row.prompt_tokens, row.output_tokens)
    return [*(f"{value:,}" for value in whole), f"{row.hours:.3f}", f"{row.cost_usd:.3f}"]


@dataclass(frozen=True)
class _Rates:
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    streams_at_full_rate: float
    bring_up_s: float


def _rates(assume: Assumptions, recipe: Recipe) -> tuple[_Rates, str]:
    prefill, decode, streams, start = _GPU if recipe.gpu_count else _CPU
    given = assume.model_dump()
    rates = _Rates(
        given["prefill_tokens_per_s"] or prefill,
        given["decode_tokens_per_s"] or decode,
        given["streams_at_full_rate"] or streams,
        given["bring_up_s"] or start,
    )
    stated = [name for name, value in given.items() if value is not None]
    guess = "a guess for a GPU" if recipe.gpu_count else "a guess for a CPU"
    if len(stated) == len(given):
        return rates, "assumed by the campaign"
    return rates, f"{', '.join(stated)} assumed by the campaign, the rest {guess}" if stated else guess


def _context(campaign: Campaign, recipe: Recipe, entry: str | None) -> PlanContext:
    # Four characters a token: only lengths that a plan does not state itself are counted with it.
    counter = TokenCounter(count=lambda text: max(1, len(text) // 4), source="estimated")
    return PlanContext(
        campaign=campaign.name,
        run_id="plan",
        seed=campaign.seed,
        model=recipe.served_name or recipe.model,
        server_nonce="plan",
        tokens=counter,
        max_context_tokens=recipe.context_tokens,
        entry=entry,
    )


def _entry(campaign: Campaign, recipe: Recipe, entry: WorkloadEntry, rates: _Rates) -> PlanRow:
    workload = workloads.get(entry.workload)
    plans = workloads.plan_cells(
        entry.name, entry.workload, entry.params, _context(campaign, recipe, entry.name)
    )
    note, times = "", 1
    if getattr(workload, "is_adaptive", False):
        times = entry.params.max_cells
        note = f"adaptive: at most {times} cells, each counted as the first"
    row = _row(campaign, recipe, entry.name, entry.workload, plans * times, rates, note)
    if getattr(workload, "is_lifecycle", False):
        starts = len(workload.starts(entry.params))
        more = _bring_up(campaign, recipe, rates, starts, entry.name)
        return PlanRow(
            **{
                **asdict(row),
                "cells": row.cells * starts,
                "requests": row.requests * starts,
                "prompt_tokens": row.prompt_tokens * starts,
                "output_tokens": row.output_tokens * starts,
                "hours": row.hours * starts + more.hours,
                "cost_usd": row.cost_usd * starts + more.cost_usd,
                "note": f"{starts} restarts",
            }
        )
    return _noted(row, recipe, plans)


def _noted(row: PlanRow, recipe: Recipe, plans: list[CellPlan]) -> PlanRow:
    largest = max((plan.context_tokens or 0 for plan in plans), default=0)
    if recipe.context_tokens is not None and largest > recipe.context_tokens:
        note = f"asks for {largest:,} tokens where the recipe's ceiling is {recipe.context_tokens:,}"
        return PlanRow(**{**asdict(row), "note": note})
    return row


def _objection(recipe: Recipe) -> str:
    """What the engine itself says against the recipe (a layout that does not multiply out), before anything starts."""
    try:
        get_engine(recipe.engine).processes(recipe, Path())
    except BadInput as error:
        return f"cannot be started: {error.what}" + (f" ({error.measured})" if error.measured else "")
    return f"rescues {recipe.rescues}" if recipe.rescues else ""


def _bring_up(
    campaign: Campaign, recipe: Recipe, rates: _Rates, times: int, entry: str, note: str = ""
) -> PlanRow:
    hours = times * rates.bring_up_s / 3600
    cost = _cost(campaign, recipe, hours)
    return PlanRow(recipe.name, entry, "bring_up", 0, 0, 0, 0, 0, hours, cost, note)


def _row(
    campaign: Campaign,
    recipe: Recipe,
    entry: str,
    workload: str,
    plans: list[CellPlan],
    rates: _Rates,
    note: str = "",
) -> PlanRow:
    hours = sum(_seconds(plan, rates) for plan in plans) / 3600
    return PlanRow(
        recipe=recipe.name,
        entry=entry,
        workload=workload,
        cells=len(plans),
        requests=sum(plan.planned_requests for plan in plans),
        warmup_requests=sum(plan.warmup_requests for plan in plans),
        prompt_tokens=sum(plan.total_prompt_tokens or 0 for plan in plans),
        output_tokens=sum(plan.total_output_tokens or 0 for plan in plans),
        hours=hours,
        cost_usd=_cost(campaign, recipe, hours),
        note=note,
    )


def _seconds(plan: CellPlan, rates: _Rates) -> float:
    """Prefill in turn, decode on as many streams as keep their rate; a planned duration is a floor, a soak's is all."""
    if plan.planned_s is not None and plan.shape.kind == "closed":
        return plan.planned_s
    streams = max(1.0, min(float(plan.concurrency), rates.streams_at_full_rate))
    prompt_tokens = plan.total_prompt_tokens or 0
    if plan.declares_sharing and plan.cache_budget_min is not None:
        prompt_tokens = round(prompt_tokens * (1 - plan.cache_budget_min))
    work = prompt_tokens / rates.prefill_tokens_per_s
    work += (plan.total_output_tokens or 0) / (rates.decode_tokens_per_s * streams)
    return max(work, plan.planned_s or 0.0)


def _cost(campaign: Campaign, recipe: Recipe, hours: float) -> float:
    """A CPU node counts as one device, priced as one CPU hour."""
    return hours * max(1, recipe.gpu_count) * campaign.price.usd_per_gpu_hour
