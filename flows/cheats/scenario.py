"""A scenario: one fault or one clean run, composed of primitives. Read from YAML or JSON, refused with file and line."""

from __future__ import annotations

import datetime
import difflib
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from contracts.errors import BadInput
from flows.campaign_file import Document
from flows.cheats.edits import Edit
from flows.cheats.matrix import FAMILIES
from flows.engines.reference_scenario import build_scenario
from flows.recipe import Recipe, Strict

# What the bench itself fills in of a recipe; everything else may be claimed.
RECIPE = {"name": "cheat", "engine": "reference", "model": "default"}
CLAIMS = sorted(
    set(Recipe.model_fields) - {*RECIPE, "args", "url", "api_key_env", "rescues", "workloads", "launcher"}
)


class Prompts(Strict):
    """Which prompts are sent. Every mode but `fresh` is a way to meet a warm prefix cache.

    fresh: each its own. same: one prompt for all timed requests. pool: `size` prompts, in turn. warmup: the timed
    requests send the warm-up's prompts again. earlier: an earlier window on the same server sent the same prompts.
    prefix: each its own after `tokens` shared tokens.
    """

    mode: Literal["fresh", "same", "pool", "warmup", "earlier", "prefix"] = "fresh"
    size: int = Field(default=4, ge=1)
    tokens: int = Field(default=64, ge=1)


class Deadlines(Strict):
    """Deadlines of the client in seconds; null leaves that one out."""

    connect_s: float | None = 10.0
    first_token_s: float | None = 20.0
    between_chunks_s: float | None = 10.0
    total_s: float | None = 30.0
    window_s: float | None = None


class Load(Strict):
    """What the client sends: a cell of the workload `sweep`, and what it declares.

    requests: timed ones. warmup: requests before the window (null: twice the concurrency). shape `closed` keeps
    `concurrency` in flight; `constant`, `poisson`, `gamma` release `rate_rps`. max_tokens: what is put on the wire
    when it is not `output_tokens`, the length that the row claims. declares_sharing, cache_budget: what the cell
    declares of its prompts. body: merged into every request's JSON body. ignores_eos: the engine is asked to go on.
    """

    concurrency: int = Field(default=4, ge=1, le=1024)
    requests: int = Field(default=64, ge=1, le=20000)
    prompt_tokens: int = Field(default=96, ge=16)
    output_tokens: int = Field(default=12, ge=1)
    warmup: int | None = Field(default=None, ge=0)
    shape: Literal["closed", "constant", "poisson", "gamma"] = "closed"
    rate_rps: float | None = Field(default=None, gt=0)
    burstiness: float = Field(default=1.0, gt=0)
    max_in_flight: int | None = Field(default=None, gt=0)
    ramp_up_s: float = Field(default=0.0, ge=0)
    stop_after_s: float | None = Field(default=None, gt=0)
    prompts: Prompts = Prompts()
    max_tokens: int | None = Field(default=None, ge=1)
    is_fixed_length: bool = True
    ignores_eos: bool = True
    is_streamed: bool = True
    asks_usage: bool = True
    declares_sharing: bool = False
    cache_budget: list[float] = Field(default=[0.0, 0.01], min_length=2, max_length=2)
    api: Literal["chat", "completions", "responses"] = "chat"
    deadlines: Deadlines = Deadlines()
    thinking: bool | None = None
    body: dict[str, Any] = Field(default={})

    @model_validator(mode="after")
    def _check(self) -> Load:
        if (self.shape == "closed") != (self.rate_rps is None):
            raise ValueError("rate_rps is given for an open shape (constant, poisson, gamma), and only there")
        if self.prompts.mode == "warmup" and self.warmup == 0:
            raise ValueError("prompts of the warm-up need a warm-up")
        return self


class PriceClaim(Strict):
    """Parts of the campaign's price that a scenario states otherwise; what is left out is the bench's own."""

    usd_per_gpu_hour: float | None = Field(default=None, gt=0)
    key: str | None = Field(default=None, min_length=1)
    source: str | None = Field(default=None, min_length=1)
    as_of: datetime.date | None = None


class Disturbance(Strict):
    """Stops a process for `pause_ms`, every `every_ms`, while the window is open.

    target `client`: the process that sends and stamps, so that its own clock suffers; `server`: the engine's.
    """

    target: Literal["client", "server"]
    pause_ms: float = Field(gt=0, le=5000)
    every_ms: float = Field(gt=0, le=60000)


class Scenario(Strict):
    """One scenario. times: a clean scenario is measured so often, each a cell of its own.

    expect: screens of which at least one must fail; `screen=unknown` for one that must say unknown; `raw` where the
    build must refuse or quarantine the evidence, or call the row invalid. needle_context_tokens: where the needles are
    planted (null: at the row's own context). server: primitives of the reference server (docs/reference-server.md).
    recipe: what the run claims of its server, settings of flows.recipe.Recipe. price: of the campaign.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=60)
    family: str
    kind: Literal["fault", "clean"]
    source: str = Field(min_length=3)
    about: str = ""
    expect: list[str] = Field(default=[])
    times: int = Field(default=1, ge=1, le=1000)
    server: dict[str, Any] = Field(default={})
    recipe: dict[str, Any] = Field(default={})
    price: PriceClaim = PriceClaim()
    load: Load = Load()
    disturb: Disturbance | None = None
    edit: list[Edit] = Field(default=[])
    probes_before: int = Field(default=1, ge=0, le=8)
    probes_after: int = Field(default=1, ge=0, le=8)
    has_needle: bool = True
    needle_context_tokens: int | None = Field(default=None, ge=100)

    @field_validator("family")
    @classmethod
    def _is_known(cls, family: str) -> str:
        if family not in FAMILIES:
            near = difflib.get_close_matches(family, FAMILIES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(FAMILIES)}"
            raise ValueError(f"no family is called {family!r}; {hint}")
        return family

    @field_validator("expect")
    @classmethod
    def _are_screens(cls, expect: list[str]) -> list[str]:
        for expected in expect:
            _check_expected(expected)
        return expect

    @field_validator("recipe")
    @classmethod
    def _is_claimed(cls, claims: dict[str, Any]) -> dict[str, Any]:
        for name in claims:
            if name not in CLAIMS:
                near = difflib.get_close_matches(name, CLAIMS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(CLAIMS)}"
                raise ValueError(f"a recipe of the bench has no {name!r}; {hint}")
        try:
            Recipe.model_validate({**RECIPE, **claims})
        except ValidationError as error:
            problem = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
        return claims

    @field_validator("server")
    @classmethod
    def _is_served(cls, server: dict[str, Any]) -> dict[str, Any]:
        try:
            build_scenario(server)
        except BadInput as error:
            raise ValueError(f"{error.what}; {error.next_step}") from None
        return server

    @property
    def needle_tokens(self) -> int:
        """The context at which needles are planted: at least what the row's prompts have."""
        longest = self.load.prompt_tokens + (
            self.load.prompts.tokens * 2 if self.load.prompts.mode == "prefix" else 0
        )
        return self.needle_context_tokens or max(256, longest + 64)

    @property
    def planned_window_s(self) -> float:
        """How long its window lasts when every answer takes the time that the server is told to take."""
        timing, load = build_scenario(self.server).timing, self.load
        if load.rate_rps is not None:
            return load.requests / load.rate_rps
        answer_s = (timing.ttft_ms + (load.output_tokens - 1) * timing.itl_ms) / 1000
        return load.requests / load.concurrency * answer_s

    @model_validator(mode="after")
    def _check(self) -> Scenario:
        if (self.kind == "fault") != bool(self.expect):
            raise ValueError("a fault names the screens that must catch it (expect), a clean run names none")
        if self.kind == "fault" and self.times != 1:
            raise ValueError("times is for clean runs; a fault is measured once")
        return self


def load_scenarios(folder: Path) -> list[Scenario]:
    """Every scenario in a folder's *.yaml, *.yml and *.json files, or in one file, in order of their names.

    A file is one scenario, or a mapping with `scenarios:` and, optionally, `defaults:` that each of them starts from.
    Raises BadInput with file and line for an unknown key (with the nearest known one), a wrong value or an id twice.
    """
    if not folder.exists():
        raise BadInput(f"no scenarios at {folder}", evidence=str(folder))
    paths = [folder] if folder.is_file() else sorted(
        path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml", ".json")
    )  # fmt: skip
    found: list[Scenario] = []
    places: dict[str, str] = {}
    for path in paths:
        for scenario, where in _read(path):
            if scenario.id in places:
                raise BadInput(
                    f"two scenarios are called {scenario.id}",
                    evidence=where,
                    next_step=f"the other: {places[scenario.id]}",
                )
            places[scenario.id] = where
            found.append(scenario)
    if not found:
        raise BadInput("no scenario in this folder", evidence=str(folder), required="*.yaml, *.yml or *.json")
    return found


def _read(path: Path) -> list[tuple[Scenario, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the scenario file cannot be read: {error}", evidence=str(path)) from None
    document = Document(path, text, kind="scenario")
    data = document.data
    if "scenarios" not in data:
        return [(_validate(document, data, ()), document.at(()))]
    head = document.validate(_Head, data, ())
    found = []
    for place, entry in enumerate(head.scenarios):
        where = ("scenarios", place)
        merged = _merge(head.defaults, entry)
        found.append((_validate(document, merged, where), document.at(where)))
    return found


def _validate(document: Document, data: dict[str, Any], where: tuple[Any, ...]) -> Scenario:
    try:
        scenario: Scenario = document.validate(Scenario, data, where)
    except BadInput as error:
        # The server's own keys are checked by the server's own reader, which names the place in words.
        found = re.search(r"unknown field `([^`]+)` - at `\$\.?([^`]*)`|at `\$\.()([^`]+)`", error.what)
        if found:
            key, place = found[1] or found[3], found[2] or found[4] or ""
            path = [int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", place) if part]
            error.evidence = document.at((*where, "server", *path, *([key] if key else [])))
        raise
    return scenario


class _Head(Strict):
    scenarios: list[dict[str, Any]] = Field(min_length=1)
    defaults: dict[str, Any] = Field(default={})


def _merge(defaults: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    merged = dict(defaults)
    for key, value in entry.items():
        base = merged.get(key)
        merged[key] = _merge(base, value) if isinstance(base, dict) and isinstance(value, dict) else value
    return merged


def _check_expected(expected: str) -> None:
    from contracts.screens import SCREENS

    name, _, verdict = expected.partition("=")
    known = [*SCREENS, "raw"]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise ValueError(
            f"no screen is called {name!r}; "
            + (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")
        )
    if verdict not in ("", "fail", "unknown"):
        raise ValueError(f"{expected!r}: a screen is expected to fail or to be unknown")
