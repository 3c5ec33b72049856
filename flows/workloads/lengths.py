"""Lengths of prompts and answers in tokens: fixed, a range, a distribution, or a trace from a file."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import BeforeValidator, Field, model_validator

from contracts.errors import BadInput
from flows.recipe import Strict


class FixedLength(Strict):
    """Every length the same."""

    tokens: int = Field(gt=0)

    def draw(self, rng: random.Random, index: int) -> int:
        return self.tokens

    @property
    def fixed_tokens(self) -> int | None:
        return self.tokens

    @property
    def mean_tokens(self) -> float:
        return self.tokens


class LengthRange(Strict):
    """Uniform over whole numbers, both ends included."""

    min_tokens: int = Field(gt=0)
    max_tokens: int = Field(gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> LengthRange:
        if self.max_tokens < self.min_tokens:
            raise ValueError(f"max_tokens {self.max_tokens} is below min_tokens {self.min_tokens}")
        return self

    def draw(self, rng: random.Random, index: int) -> int:
        return rng.randint(self.min_tokens, self.max_tokens)

    @property
    def fixed_tokens(self) -> int | None:
        return self.min_tokens if self.min_tokens == self.max_tokens else None

    @property
    def mean_tokens(self) -> float:
        return (self.min_tokens + self.max_tokens) / 2


class LengthDistribution(Strict):
    """Normal or lognormal with the mean and standard deviation of the lengths themselves, cut to the bounds."""

    distribution: Literal["normal", "lognormal"]
    mean_tokens: float = Field(gt=0)
    sd_tokens: float = Field(ge=0)
    min_tokens: int = Field(default=1, gt=0)
    max_tokens: int = Field(gt=0)

    def draw(self, rng: random.Random, index: int) -> int:
        if self.distribution == "normal":
            value = rng.gauss(self.mean_tokens, self.sd_tokens)
        else:
            spread = math.log1p((self.sd_tokens / self.mean_tokens) ** 2)
            value = rng.lognormvariate(math.log(self.mean_tokens) - spread / 2, math.sqrt(spread))
        return min(self.max_tokens, max(self.min_tokens, round(value)))

    @property
    def fixed_tokens(self) -> int | None:
        return None


class LengthChoices(Strict):
    """One of the stated lengths, by weight (equal where none are given)."""

    choices_tokens: list[Annotated[int, Field(gt=0)]] = Field(min_length=1)
    weights: list[Annotated[float, Field(gt=0)]] | None = None

    @model_validator(mode="after")
    def _paired(self) -> LengthChoices:
        if self.weights is not None and len(self.weights) != len(self.choices_tokens):
            raise ValueError(f"{len(self.weights)} weights for {len(self.choices_tokens)} choices_tokens")
        return self

    def draw(self, rng: random.Random, index: int) -> int:
        return rng.choices(self.choices_tokens, self.weights)[0]

    @property
    def fixed_tokens(self) -> int | None:
        return self.choices_tokens[0] if len(set(self.choices_tokens)) == 1 else None

    @property
    def mean_tokens(self) -> float:
        weights = self.weights or [1.0] * len(self.choices_tokens)
        total = sum(c * w for c, w in zip(self.choices_tokens, weights, strict=True))
        return total / sum(weights)


class LengthTrace(Strict):
    """Lengths read in order from a column of a CSV or JSONL file, from the start again at its end."""

    trace_file: str
    column: str

    def draw(self, rng: random.Random, index: int) -> int:
        values = self.values()
        return values[index % len(values)]

    def values(self) -> list[int]:
        """Every length of the trace. Raises BadInput with file and line for a value that is no positive number."""
        return [int(value) for value in trace_column(self.trace_file, self.column, is_length=True)]

    @property
    def fixed_tokens(self) -> int | None:
        return None

    @property
    def mean_tokens(self) -> float:
        values = self.values()
        return sum(values) / len(values)


AnyLength = Union[FixedLength, LengthRange, LengthDistribution, LengthChoices, LengthTrace]  # noqa: UP007
_FORMS: tuple[tuple[str, type[Strict]], ...] = (
    ("trace_file", LengthTrace),
    ("distribution", LengthDistribution),
    ("choices_tokens", LengthChoices),
    ("min_tokens", LengthRange),
    ("max_tokens", LengthRange),
    ("tokens", FixedLength),
)


def _read(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, (str, list, float)):
        raise ValueError(
            f"{value!r} is no length: a whole number of tokens, or {{min_tokens, max_tokens}}, "
            "{distribution, mean_tokens, sd_tokens, max_tokens}, {choices_tokens}, or {trace_file, column}"
        )
    if isinstance(value, int):
        return FixedLength(tokens=value)
    if isinstance(value, dict):
        for key, form in _FORMS:
            if key in value:
                return form.model_validate(value)
        raise ValueError(
            f"keys {sorted(value)} name no kind of length; give min_tokens and max_tokens, distribution, "
            "choices_tokens, or trace_file"
        )
    return value


Lengths = Annotated[AnyLength, BeforeValidator(_read)]


_traces: dict[tuple[str, str], list[float]] = {}


def trace_column(path: str, column: str, *, is_length: bool = False) -> list[float]:
    """The numbers of one column of a CSV or JSONL file. Raises BadInput with the file and line of a bad one."""
    key = (str(Path(path).resolve()), column)
    if key not in _traces:
        _traces[key] = _read_trace(Path(path), column)
    values = _traces[key]
    if is_length:
        for place, value in enumerate(values):
            if value < 1 or value != int(value):
                raise BadInput(
                    f"entry {place + 1} of {column} is {value}",
                    required="a whole number of tokens, 1 or more",
                    evidence=path,
                )
    return values


def _read_trace(path: Path, column: str) -> list[float]:
    if not path.exists():
        raise BadInput("the trace file does not exist", evidence=str(path))
    rows: list[tuple[int, dict[str, Any]]] = []
    with path.open(newline="", encoding="utf-8") as stream:
        if path.suffix == ".csv":
            rows = [(line, row) for line, row in enumerate(csv.DictReader(stream), start=2)]
        else:
            for line, text in enumerate(stream, start=1):
                if text.strip():
                    rows.append((line, _parse(text, path, line)))
    values = []
    for line, row in rows:
        try:
            value = float(row[column])
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                f"column {column} has no number",
                measured=f"{sorted(map(str, row))}",
                evidence=f"{path}:{line}",
            ) from None
        if not math.isfinite(value):
            raise BadInput(f"column {column} is {value}", evidence=f"{path}:{line}")
        values.append(value)
    if not values:
        raise BadInput("the trace file has no rows", evidence=str(path))
    return values


def _parse(text: str, path: Path, line: int) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"not JSON: {error}", evidence=f"{path}:{line}") from None
    if not isinstance(row, dict):
        raise BadInput(
            "a line of a trace is an object", measured=type(row).__name__, evidence=f"{path}:{line}"
        )
    return row


Draw = Callable[[random.Random, int], int]
