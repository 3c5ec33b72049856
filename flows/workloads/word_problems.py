# ruff: noqa: SIM905  (a list of words reads better as words)
"""Arithmetic word problems with known answers, generated from forms of their own: hundreds of them, all different.

A form is a story (who has what, one of 24) and a chain of two to four steps (give, buy packs, share, double, ...);
their products are more than a thousand distinct forms before a name or a number is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_NAMES = (
    "Ada Ben Clara Dario Elif Farid Greta Hugo Ines Jonas Kaya Lars Mina Noor Otto Paula Quinn Rosa Sami Tessa Uma "
    "Viktor Wanda Yara"
).split()

# (what is counted, its container, who gives more of it, where it goes)
_STORIES = tuple(
    tuple(story.split("/"))
    for story in (
        "apples/crates/a farmer/the market",
        "books/boxes/a library/a school",
        "candles/packs/a shop/the church",
        "stamps/sheets/an uncle/a collector",
        "marbles/bags/a cousin/a friend",
        "bricks/pallets/a builder/the yard",
        "roses/bunches/a gardener/the hospital",
        "tickets/rolls/a theatre/the visitors",
        "cups/cartons/a cafe/the guests",
        "pencils/tins/a teacher/the class",
        "shells/buckets/a diver/the museum",
        "loaves/baskets/a baker/the kitchen",
        "coins/jars/an aunt/the bank",
        "photos/albums/a reporter/the archive",
        "tiles/stacks/a mason/the bathhouse",
        "lamps/cases/an electrician/the hall",
        "maps/tubes/a surveyor/the office",
        "eggs/trays/a neighbor/the inn",
        "ropes/coils/a sailor/the ship",
        "badges/drawers/a scout/the camp",
        "screws/packets/a joiner/the workshop",
        "plants/boxes/a nursery/the park",
        "letters/sacks/a postman/the village",
        "chairs/rows/a carpenter/the tavern",
    )
)


@dataclass(frozen=True)
class Problem:
    """question: the text. answer: the known whole number. form: which story and steps it was made from."""

    question: str
    answer: int
    form: str


Step = Callable[[random.Random, int, tuple[str, ...], str], tuple[str, int] | None]


def _gains(rng: random.Random, have: int, story: tuple[str, ...], name: str) -> tuple[str, int]:
    more = rng.randint(3, 40)
    return f"Then {story[2]} gives {name} {more} more {story[0]}.", have + more


def _loses(rng: random.Random, have: int, story: tuple[str, ...], name: str) -> tuple[str, int] | None:
    if have < 6:
        return None
    fewer = rng.randint(2, have - 2)
    return f"{name} takes {fewer} of them to {story[3]}.", have - fewer


def _packs(rng: random.Random, have: int, story: tuple[str, ...], name: str) -> tuple[str, int]:
    packs, each = rng.randint(2, 9), rng.randint(3, 12)
    return f"{name} buys {packs} {story[1]} with {each} {story[0]} in each.", have + packs * each


def _halves(rng: random.Random, have: int, story: tuple[str, ...], name: str) -> tuple[str, int] | None:
    if have % 2 or have < 4:
        return None
    return f"Half of the {story[0]} go to {story[3]}.", have // 2


def _doubles(rng: random.Random, have: int, story: tuple[str, ...], name: str) -> tuple[str, int] | None:
    if have > 400:
        return None
    return f"The next week, {name} has twice as many {story[0]} as before.", have * 2


def _shares(rng: random.Random, have: int, story: tuple[str, ...], name: str) -> tuple[str, int] | None:
    fits = [count for count in range(2, 10) if have % count == 0 and have // count > 1]
    if not fits:
        return None
    count = rng.choice(fits)
    return f"{name} and {count - 1} friends share them equally, and {name} keeps one share.", have // count


def _loses_part(rng: random.Random, have: int, story: tuple[str, ...], name: str) -> tuple[str, int] | None:
    fits = [share for share in (10, 20, 25, 40, 50, 75) if have * share % 100 == 0 and have > 3]
    if not fits:
        return None
    share = rng.choice(fits)
    return (
        f"{share}% of the {story[0]} turn out to be broken and are thrown away.",
        have - have * share // 100,
    )


def _daily(rng: random.Random, have: int, story: tuple[str, ...], name: str) -> tuple[str, int]:
    days, each = rng.randint(2, 7), rng.randint(2, 15)
    return f"Every day for {days} days, {name} gets {each} more {story[0]}.", have + days * each


_STEPS: dict[str, Step] = {
    "gains": _gains,
    "loses": _loses,
    "packs": _packs,
    "halves": _halves,
    "doubles": _doubles,
    "shares": _shares,
    "part": _loses_part,
    "daily": _daily,
}


def _asks(name: str, story: tuple[str, ...], rng: random.Random) -> str:
    return rng.choice(
        [
            f"How many {story[0]} does {name} have now?",
            f"How many {story[0]} are left for {name} in the end?",
            f"What is the number of {story[0]} that {name} has at last?",
        ]
    )


def problem(rng: random.Random) -> Problem:
    """One problem of two to four steps; every number between is whole and positive."""
    while True:
        place = rng.randrange(len(_STORIES))
        story, name = _STORIES[place], rng.choice(_NAMES)
        have = rng.randint(4, 60)
        lines = [f"{name} has {have} {story[0]}."]
        names: list[str] = []
        for _ in range(rng.randint(2, 4)):
            kind = rng.choice([step for step in _STEPS if not names or step != names[-1]])
            made = _STEPS[kind](rng, have, story, name)
            if made is None:
                continue
            lines.append(made[0])
            have = made[1]
            names.append(kind)
        if len(names) < 2:
            continue
        lines.append(_asks(name, story, rng))
        return Problem(" ".join(lines), have, f"{place}:{'-'.join(names)}")


def problems(rng: random.Random, count: int) -> list[Problem]:
    """`count` problems of distinct texts, and of distinct forms while there are any left."""
    found: list[Problem] = []
    forms: set[str] = set()
    texts: set[str] = set()
    tries = 0
    while len(found) < count:
        made = problem(rng)
        tries += 1
        if made.question in texts or (made.form in forms and tries < 50 * count):
            continue
        texts.add(made.question)
        forms.add(made.form)
        found.append(made)
    return found
