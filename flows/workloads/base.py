"""What every workload file gives: its parameters, its cells, and its grades."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from contracts.records import Grade, Request
from flows.load.plan import Deadlines, PlannedRequest, Shape
from flows.recipe import Strict


@dataclass(frozen=True)
class TokenCounter:
    """Counts tokens of the served model. source: tokenizer, engine_tokenize, measured or estimated."""

    count: Callable[[str], int]
    source: str


@dataclass(frozen=True)
class PlanContext:
    """What a plan may know of the server: its name, limits and token counter; never which engine it is.

    server_nonce: unique to this bring-up, mixed into every prompt's first block, so that no two runs or cells
    share a prefix by accident. chat_overhead_tokens: what the chat template adds to one user message;
    exchange_overhead_tokens: what it adds to one earlier exchange (a user message and its answer); null where nobody
    could tell (flows.workloads.overhead measures both). entry: the name of the campaign's entry that is planned.
    """

    campaign: str
    run_id: str
    seed: int
    model: str
    server_nonce: str
    tokens: TokenCounter
    max_context_tokens: int | None = None
    chat_overhead_tokens: int | None = None
    exchange_overhead_tokens: int | None = None
    entry: str | None = None


@dataclass
class CellPlan:
    """One cell: how it is keyed, what it declares, and its requests (made lazily, before the window opens).

    Field meanings are those of contracts.records.Cell. `requests` yields warm-up requests too (phase warmup).
    expected: per request_id, what the grader needs; stays in the flow's process, never on the wire.
    total_prompt_tokens, total_output_tokens: of all requests, warm-up included, before anything is built (answers at
    their limit); planned_s: how long the window lasts where that is planned (a soak, an open loop). For `--plan`.
    """

    cell_id: str
    workload: str
    concurrency: int
    shape: Shape
    requests: Callable[[], Iterable[PlannedRequest]]
    seed: int
    variant: str = ""
    context_tokens: int | None = None
    repeat: int = 0
    users: int | None = None
    asked_prompt_tokens: int | None = None
    asked_output_tokens: int | None = None
    is_fixed_length: bool = False
    planned_requests: int = 0
    warmup_requests: int = 0
    planned_finish_reason: str | None = None
    cache_budget_min: float | None = None
    cache_budget_max: float | None = None
    declares_sharing: bool = False
    is_cold_expected: bool = True
    needle_depths_pct: list[float] | None = None
    objectives: dict[str, float] | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    keep_text: bool = True
    params: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, dict[str, Any]] = field(default_factory=dict)
    probe_during: bool = False
    total_prompt_tokens: int | None = None
    total_output_tokens: int | None = None
    planned_s: float | None = None


class Workload(Protocol):
    """One workload. `Params` is the pydantic model that the campaign file's `workloads:` entry is read by.

    Two kinds of workload give more, and say so by a class attribute:

    is_adaptive: the next cell depends on the last (`Adaptive.next_cell`); `cells()` gives only the first.
    is_lifecycle: the flow itself restarts the recipe between cells (`flows.workloads.cold_start`).
    """

    name: ClassVar[str]
    Params: ClassVar[type[Strict]]

    def cells(self, params: Any, context: PlanContext) -> list[CellPlan]:
        """Plan every cell from the context's seed. Same seed, same plan, byte for byte."""
        ...

    def grade(self, plan: CellPlan, records: list[Request], context: PlanContext) -> list[Grade]:
        """Grade the timed requests; code that says why. A failed request gets is_correct null."""
        ...


@dataclass(frozen=True)
class CellOutcome:
    """A cell that was measured: its plan and the records of its window, as an adaptive workload is told of it."""

    plan: CellPlan
    records: list[Request]


class Adaptive(Protocol):
    """A workload whose next cell depends on those before it. The flow asks until the answer is None.

    outcomes = []
    while (plan := workload.next_cell(params, context, outcomes)) is not None:
        measure, land and grade `plan` as any other cell
        outcomes.append(CellOutcome(plan, records))
    """

    is_adaptive: ClassVar[bool]

    def next_cell(self, params: Any, context: PlanContext, outcomes: list[CellOutcome]) -> CellPlan | None:
        """The next cell, planned from the seed and the outcomes alone; None: the search is over."""
        ...
