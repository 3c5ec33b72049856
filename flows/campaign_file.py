"""Reads a campaign file: validated, frozen, and refused with file, line and the nearest right key where it is wrong."""

from __future__ import annotations

import csv
import datetime
import difflib
import hashlib
import re
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import BaseModel, Field

from contracts.errors import BadInput
from flows import engines, workloads
from flows.recipe import Recipe, Strict
from flows.rehearsal import SUFFIX, Rehearsal
from flows.workloads.probes import Parameters as ProbeParameters

PRICES = Path(__file__).resolve().parent.parent / "dbt" / "seeds" / "prices.csv"
_NAME = r"^[a-z0-9][a-z0-9._-]*$"
# A deadline of more than two weeks is a number in another unit.
_LONGEST_S = 14 * 86400


class Price(Strict):
    """What one GPU-hour costs (a CPU node: one CPU hour), from where, and as of when."""

    usd_per_gpu_hour: float = Field(ge=0)
    key: str
    source: str = Field(min_length=1)
    as_of: datetime.date


class WorkloadEntry(Strict):
    """One entry of `workloads:`. params: the workload's own `Params`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    workload: str
    params: Any


class Assumptions(Strict):
    """What `--plan` reckons hours with; nothing measured ever uses them. null: a guess by engine, and said so.

    prefill_tokens_per_s: of the whole server. decode_tokens_per_s: of one stream; streams_at_full_rate: how many
    streams decode at that rate before they share it. bring_up_s: from start to ready.
    """

    prefill_tokens_per_s: float | None = Field(default=None, gt=0)
    decode_tokens_per_s: float | None = Field(default=None, gt=0)
    streams_at_full_rate: float | None = Field(default=None, gt=0)
    bring_up_s: float | None = Field(default=None, gt=0)


class Comparison(Strict):
    """Two recipes that are compared, and the setting under test; every other difference is a confounder."""

    a: str
    b: str
    under_test: str


class Campaign(Strict):
    """Recipes x workloads on one node, with a publication policy and a price.

    compare: pairs of recipes that are meant to be compared; the warehouse lists what else differs between them.
    measures_links: what GPUs' links carry is measured before anything starts. rehearsal: what plays node and engines,
    where the campaign is only rehearsed.
    """

    name: str = Field(pattern=_NAME)
    description: str = ""
    policy: Literal["original", "strict"] = "strict"
    seed: int = Field(default=1, ge=0)
    price: Price
    recipes: list[Recipe] = Field(min_length=1)
    workloads: list[WorkloadEntry] = Field(min_length=1)
    probes: ProbeParameters = ProbeParameters()
    compare: list[Comparison] = Field(default=[])
    assume: Assumptions = Assumptions()
    measures_links: bool = False
    rehearsal: Rehearsal | None = None
    path: Path
    sha256: str

    def entries_of(self, recipe: Recipe) -> list[WorkloadEntry]:
        """The workloads that a recipe runs, in the file's order."""
        return [
            entry for entry in self.workloads if recipe.workloads is None or entry.name in recipe.workloads
        ]


class _Head(Strict):
    """The file's own keys; the parts are validated one by one, so that an error knows its line."""

    name: Annotated[str, Field(pattern=_NAME)]
    description: str = ""
    policy: Literal["original", "strict"] = "strict"
    seed: int = Field(default=1, ge=0)
    price: Any
    recipes: list[dict[str, Any]] = Field(min_length=1)
    workloads: list[dict[str, Any]] = Field(min_length=1)
    probes: dict[str, Any] = Field(default={})
    assume: dict[str, Any] = Field(default={})
    compare: list[dict[str, Any]] = Field(default=[])
    measures_links: bool = False
    rehearsal: dict[str, Any] = Field(default={})


def load_campaign(path: Path, prices: Path = PRICES, *, is_rehearsed: bool = False) -> Campaign:
    """The campaign in `path`. Raises BadInput naming file, line and what is wrong.

    is_rehearsed: with reference servers in the engines' place, as the file's `rehearsal:` says, and a name of its own.
    """
    text = _read(path)
    document = Document(path, text)
    head = document.validate(_Head, document.data, ())
    price = _price(document, head.price, prices)
    rehearsal = document.validate(Rehearsal, head.rehearsal, ("rehearsal",))
    recipes = [
        document.validate(Recipe, value, ("recipes", place)) for place, value in enumerate(head.recipes)
    ]
    entries = [_entry(document, value, ("workloads", place)) for place, value in enumerate(head.workloads)]
    asked = document.validate(ProbeParameters, head.probes, ("probes",))
    _check_rehearsal(document, rehearsal, recipes, entries)
    if is_rehearsed:
        recipes = [
            engines.played_recipe(recipe, rehearsal.server, rehearsal.recipes.get(recipe.name, {}))
            for recipe in recipes
        ]
        entries = [
            _entry(
                document,
                value | rehearsal.workloads.get(entry.name, {}),
                ("rehearsal", "workloads", entry.name),
            )
            for value, entry in zip(head.workloads, entries, strict=True)
        ]
        asked = document.validate(ProbeParameters, head.probes | rehearsal.probes, ("rehearsal", "probes"))
    pairs = [
        document.validate(Comparison, value, ("compare", place)) for place, value in enumerate(head.compare)
    ]
    assumed = document.validate(Assumptions, head.assume, ("assume",))
    _check_names(document, recipes, entries, pairs)
    return Campaign(
        name=head.name + (SUFFIX if is_rehearsed else ""),
        description=head.description,
        policy=head.policy,
        seed=head.seed,
        price=price,
        recipes=recipes,
        workloads=entries,
        probes=asked,
        compare=pairs,
        assume=assumed,
        measures_links=head.measures_links,
        rehearsal=rehearsal if is_rehearsed else None,
        path=path,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = sorted(path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, [other.name for other in near], n=1)
        raise BadInput(
            "the campaign file does not exist",
            evidence=str(path),
            next_step=f"did you mean {path.parent / close[0]}?" if close else None,
        ) from None
    except (UnicodeDecodeError, OSError) as error:
        raise BadInput(f"the campaign file cannot be read: {error}", evidence=str(path)) from None


class Document:
    """A YAML file with the line of every node. kind: what its errors call the file."""

    def __init__(self, path: Path, text: str, kind: str = "campaign") -> None:
        self.path = path
        self.kind = kind
        self.lines: dict[tuple[Any, ...], int] = {}
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            if node is None:
                raise BadInput(f"the {kind} file is empty", evidence=str(path))
            self._mark(node, ())
            self.data = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            mark = error.context_mark or error.problem_mark
            line = mark.line + 1 if mark else 1
            raise BadInput(f"not YAML: {error.problem or error.context}", evidence=f"{path}:{line}") from None
        except (yaml.YAMLError, ValueError) as error:
            raise BadInput(f"not YAML: {error}", evidence=str(path)) from None
        if not isinstance(self.data, dict):
            raise BadInput(
                f"a {kind} file is a mapping of keys",
                measured=type(self.data).__name__,
                evidence=f"{path}:1",
            )

    def _mark(self, node: yaml.Node, place: tuple[Any, ...]) -> None:
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                if name in seen and name != "<<":
                    raise BadInput(
                        f"the key {name!r} stands twice",
                        evidence=f"{self.path}:{key.start_mark.line + 1}",
                        next_step="keep one of the two",
                    )
                seen.add(name)
                self.lines[(*place, name)] = key.start_mark.line + 1
                self._mark(value, (*place, name))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self._mark(value, (*place, index))

    def at(self, place: tuple[Any, ...]) -> str:
        """`file:line` of the innermost part of `place` that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return f"{self.path}:{self.lines.get(place, 1)}"

    def validate(self, model: type[Any], value: Any, place: tuple[Any, ...]) -> Any:
        """`value` as `model`. Raises BadInput for the first error, naming how many more there are."""
        self._refuse_wrong_seconds(value, place)
        try:
            return model.model_validate(value)
        except pydantic.ValidationError as error:
            problems = error.errors()
            # An unknown key explains a missing one more often than the other way round.
            problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
            raise self._refusal(model, problems, value, place) from None

    def _refusal(self, model: type[Any], problems: list[Any], value: Any, place: tuple[Any, ...]) -> BadInput:
        problem = problems[0]
        inner = tuple(part for part in problem["loc"])
        where = (*place, *inner)
        name = ".".join(str(part) for part in inner) or _kind_of(place, self.kind)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        given = problem.get("input")
        if problem["type"] == "extra_forbidden":
            owner = _model_at(model, inner[:-1])
            fields = list(owner.model_fields) if owner else []
            near, hint = nearest_key(str(inner[-1]), fields)
            return BadInput(
                f"unknown key {name!r} in {_kind_of(place, self.kind)}{more}",
                required=f"one of {', '.join(fields)}" if near is None and fields else None,
                evidence=self.at(where),
                next_step=hint,
            )
        if problem["type"] == "missing":
            return BadInput(
                f"{_kind_of(place, self.kind)} lacks {name!r}{more}", evidence=self.at(where[:-1])
            )
        if problem["type"] in ("int_parsing", "int_type", "int_from_float", "float_parsing", "float_type"):
            return BadInput(
                f"{name} is {given!r}{more}",
                required=_wanted_number(str(inner[-1] if inner else name), problem["type"].startswith("int")),
                evidence=self.at(where),
                next_step=_number_hint(given),
            )
        text = re.sub(r"^(Value|Assertion) error, ", "", problem["msg"])
        return BadInput(f"{name}: {text}{more}", evidence=self.at(where), measured=_short(given))

    def _refuse_wrong_seconds(self, value: Any, place: tuple[Any, ...]) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                if (
                    isinstance(key, str)
                    and isinstance(inner, bool)
                    and re.search(r"_(s|tokens|gb|pct)$", key)
                ):
                    raise BadInput(
                        f"{key} is {inner!r}",
                        required=_wanted_number(key, False),
                        evidence=self.at((*place, key)),
                    )
                is_seconds = isinstance(key, str) and key.endswith("_s") and isinstance(inner, (int, float))
                if is_seconds and inner > _LONGEST_S:
                    raise BadInput(
                        f"{key} is {inner:g} seconds, which is {inner / 86400:.1f} days",
                        required=f"seconds, at most {_LONGEST_S}",
                        evidence=self.at((*place, key)),
                        next_step=f"if milliseconds were meant, write {inner / 1000:g}",
                    )
                self._refuse_wrong_seconds(inner, (*place, key))
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                self._refuse_wrong_seconds(inner, (*place, index))


_UNITS = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "sec": 1.0,
    "secs": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hours": 3600.0,
    "tokens": None,
    "k": None,
    "gb": None,
    "mb": None,
    "pct": None,
    "percent": None,
    "rps": None,
}
_UNIT_WORDS = {"s": "seconds", "ms": "milliseconds", "tokens": "tokens", "gb": "gigabytes", "pct": "percent", "rps": "requests per second"}  # fmt: skip


def nearest_key(key: str, fields: list[str]) -> tuple[str | None, str | None]:
    """(the field that was most likely meant, a sentence that says so); (None, None) when none is near."""
    stem, unit = _split_unit(key)
    for field in fields:
        field_stem, field_unit = _split_unit(field)
        if stem and stem in (field_stem, field) and field_unit != unit and (unit or field_unit):
            word = _UNIT_WORDS.get(field_unit or "")
            return field, f"write {field}" + (f", in {word}" if word else "")
    near = difflib.get_close_matches(key, fields, n=1, cutoff=0.6)
    if not near and stem:
        near = [field for field in fields if _split_unit(field)[0].endswith(f"_{stem}")][:1]
    if not near:
        return None, None
    word = _UNIT_WORDS.get(_split_unit(near[0])[1] or "")
    return near[0], f"did you mean {near[0]}" + (f" (in {word})?" if word else "?")


def _split_unit(key: str) -> tuple[str, str | None]:
    stem, _, unit = key.rpartition("_")
    return (stem, unit) if stem and unit in _UNITS else (key, None)


def _wanted_number(key: str, is_whole: bool) -> str:
    word = _UNIT_WORDS.get(_split_unit(key)[1] or "")
    kind = "a whole number" if is_whole else "a number"
    return kind + (f" of {word}" if word else "") + ", in digits, without a unit"


def _number_hint(given: Any) -> str | None:
    match = re.fullmatch(r"\s*([\d_.,]+)\s*([kKmM]?)i?\s*(?:tokens?|tok|s|sec|ms|gb)?\s*", str(given))
    if not match:
        return None
    try:
        number = float(match.group(1).replace(",", "").replace("_", ""))
    except ValueError:
        return None
    if not match.group(2):
        return f"write {number:g}"
    power = 1 if match.group(2).lower() == "k" else 2
    return f"write {int(number * 1000**power)} or {int(number * 1024**power)}"


def _short(value: Any) -> str | None:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _kind_of(place: tuple[Any, ...], file_kind: str) -> str:
    if not place:
        return f"the {file_kind}"
    kind = {
        "recipes": "recipe",
        "workloads": "workload",
        "compare": "comparison",
        "scenarios": "scenario",
    }.get(str(place[0]), str(place[0]))
    return f"{kind} {place[1] + 1}" if len(place) > 1 and isinstance(place[1], int) else kind


def _model_at(model: Any, place: tuple[Any, ...]) -> type[BaseModel] | None:
    """The pydantic model that `place` inside `model` is of, where there is one."""
    if not place:
        return model if isinstance(model, type) and issubclass(model, BaseModel) else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    field = model.model_fields.get(str(place[0]))
    if field is None:
        return None
    rest = place[1:]
    while rest and isinstance(rest[0], int):
        rest = rest[1:]
    for inner in _models_in(field.annotation):
        return _model_at(inner, rest)
    return None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [model for part in typing.get_args(annotation) for model in _models_in(part)]


def _price(document: Document, value: Any, prices: Path) -> Price:
    if isinstance(value, dict):
        price: Price = document.validate(Price, value, ("price",))
        return price
    known = read_prices(prices)
    if isinstance(value, str) and value in known:
        return known[value]
    near = difflib.get_close_matches(str(value), list(known), n=1)
    raise BadInput(
        f"price is {value!r}",
        required=f"a key of the prices seed ({', '.join(known) or 'which is empty'}), "
        "or usd_per_gpu_hour, key, source and as_of",
        evidence=document.at(("price",)),
        next_step=f"did you mean {near[0]}?" if near else None,
    )


def read_prices(path: Path = PRICES) -> dict[str, Price]:
    """The prices seed by `price_key`. An absent file is an empty seed."""
    if not path.exists():
        return {}
    found = {}
    with path.open(newline="", encoding="utf-8") as stream:
        for line, row in enumerate(csv.DictReader(stream), start=2):
            try:
                found[row["price_key"]] = Price(
                    usd_per_gpu_hour=float(row["usd_per_gpu_hour"]),
                    key=row["price_key"],
                    source=row["source"],
                    as_of=datetime.date.fromisoformat(row["as_of"]),
                )
            except (KeyError, ValueError) as error:
                raise BadInput(
                    f"a row of the prices seed is wrong: {error}", evidence=f"{path}:{line}"
                ) from None
    return found


def _entry(document: Document, value: dict[str, Any], place: tuple[Any, ...]) -> WorkloadEntry:
    given = dict(value)
    if "workload" not in given:
        raise BadInput(
            f"{_kind_of(place, document.kind)} lacks 'workload'",
            measured=f"keys {', '.join(map(str, given))}",
            required=f"workload: one of {', '.join(workloads.NAMES)}",
            evidence=document.at(place),
        )
    name = given.pop("workload")
    try:
        workload = workloads.get(str(name))
    except BadInput as error:
        error.evidence = document.at((*place, "workload"))
        raise
    label = given.pop("name", name)
    if not isinstance(label, str) or not re.fullmatch(_NAME, label):
        raise BadInput(
            f"the name {label!r} of {_kind_of(place, document.kind)} cannot be part of a cell id",
            required="small letters, digits, '.', '_' and '-'",
            evidence=document.at((*place, "name")),
        )
    for key, inner in given.items():
        if isinstance(inner, dict) and isinstance(inner.get("trace_file"), str):
            given[key] = {**inner, "trace_file": _beside(document.path, inner["trace_file"])}
        elif key.endswith("_file") and isinstance(inner, str):
            given[key] = _beside(document.path, inner)
    params = document.validate(workload.Params, given, place)
    return WorkloadEntry(name=label, workload=str(name), params=params)


def _beside(campaign: Path, name: str) -> str:
    """A file that a campaign names is looked for beside the campaign."""
    return str(campaign.parent / name)


def _check_rehearsal(
    document: Document, rehearsal: Rehearsal, recipes: list[Recipe], entries: list[WorkloadEntry]
) -> None:
    for key, known, wanted in (
        ("recipes", [recipe.name for recipe in recipes], "a recipe of this file"),
        ("workloads", [entry.name for entry in entries], "a workload of this file"),
    ):
        for name in getattr(rehearsal, key):
            if name not in known:
                _refuse_name(document, ("rehearsal", key, name), name, known, wanted)


def _check_names(
    document: Document, recipes: list[Recipe], entries: list[WorkloadEntry], pairs: list[Comparison]
) -> None:
    for part, names in (("recipes", [r.name for r in recipes]), ("workloads", [e.name for e in entries])):
        for place, name in enumerate(names):
            if name in names[:place]:
                raise BadInput(
                    f"two {part} are called {name!r}",
                    evidence=document.at((part, place)),
                    next_step="give one of them another name",
                )
    kinds = {recipe.engine for recipe in recipes}
    if "reference" in kinds and len(kinds) > 1:
        place = next(place for place, recipe in enumerate(recipes) if recipe.engine == "reference")
        raise BadInput(
            "the reference server stands beside an engine: synthetic rows and measured ones are never mixed",
            evidence=document.at(("recipes", place, "engine")),
            next_step="two campaigns; --rehearse puts reference servers in every engine's place",
        )
    known = [recipe.name for recipe in recipes]
    for place, recipe in enumerate(recipes):
        if recipe.rescues is not None and recipe.rescues not in known[:place]:
            _refuse_name(
                document, ("recipes", place, "rescues"), recipe.rescues, known[:place], "an earlier recipe"
            )
        for index, name in enumerate(recipe.workloads or []):
            labels = [entry.name for entry in entries]
            if name not in labels:
                _refuse_name(
                    document, ("recipes", place, "workloads", index), name, labels, "a workload of this file"
                )
    for place, pair in enumerate(pairs):
        for side in ("a", "b"):
            if getattr(pair, side) not in known:
                _refuse_name(
                    document, ("compare", place, side), getattr(pair, side), known, "a recipe of this file"
                )
        setting = pair.under_test
        settings = {name for recipe in recipes for name in recipe.settings()}
        if setting not in settings and not any(name.startswith(f"{setting}.") for name in settings):
            _refuse_name(
                document, ("compare", place, "under_test"), setting, sorted(settings), "a recipe setting"
            )


def _refuse_name(
    document: Document, place: tuple[Any, ...], given: str, known: list[str], wanted: str
) -> None:
    near = difflib.get_close_matches(given, known, n=1)
    raise BadInput(
        f"{place[-1] if isinstance(place[-1], str) else place[-2]}: {given!r} is not {wanted}",
        required=f"one of {', '.join(known)}" if known else wanted,
        evidence=document.at(place),
        next_step=f"did you mean {near[0]}?" if near else None,
    )
