"""Builds text of an exact length in the served model's own tokens.

Words are counted once each and summed, which is exact for byte-level BPE and close for the rest; then the whole text
is counted, and its end is changed until the whole has the length that was asked for. Two or three whole counts are
usual, so a document of a million tokens costs seconds.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.workloads.base import TokenCounter

# More rounds than any tokenizer tried has needed (3); after them the closest text is taken, and its real length said.
_ROUNDS = 12
_SHORT_WORDS = ("so", "now", "then", "too", "as", "it", "was", "and", "all", "well", "on", "far")


class Ruler:
    """Counts text with one server's token counter; remembers the words it has counted."""

    def __init__(self, counter: TokenCounter) -> None:
        self._count = counter.count
        self._words: dict[str, int] = {}
        self._shorts: list[str] | None = None

    def whole(self, text: str) -> int:
        """Tokens of `text`, counted as a whole."""
        return self._count(text)

    def word(self, word: str) -> int:
        """Tokens of a word that follows a space."""
        found = self._words.get(word)
        if found is None:
            # Counted behind another word, since some tokenizers mark the start of a text.
            found = max(1, self._count("of " + word) - self._count("of"))
            self._words[word] = found
        return found

    def sentence(self, text: str) -> int:
        """Tokens of a sentence that follows a space, as the sum of its words."""
        words = self._words
        return sum(words[word] if word in words else self.word(word) for word in text.split(" "))

    def one_token_words(self) -> list[str]:
        """Short words of one token each behind a space; may be empty."""
        if self._shorts is None:
            self._shorts = [word for word in _SHORT_WORDS if self.word(word) == 1]
        return self._shorts


_rulers: weakref.WeakKeyDictionary[TokenCounter, Ruler] = weakref.WeakKeyDictionary()


def ruler_of(counter: TokenCounter) -> Ruler:
    """The ruler that belongs to `counter`, made on first use."""
    ruler = _rulers.get(counter)
    if ruler is None:
        ruler = _rulers[counter] = Ruler(counter)
    return ruler


@dataclass(frozen=True)
class Fitted:
    """Text and its length. tokens: as counted on the whole text. depths_pct: where each plant really lies."""

    text: str
    tokens: int
    depths_pct: tuple[float, ...] = ()


def fit(
    ruler: Ruler,
    target_tokens: int,
    source: Iterator[str],
    *,
    front: str = "",
    back: str = "",
    plants: Sequence[tuple[float, str]] = (),
    is_verified: bool = True,
) -> Fitted:
    """`front`, then sentences from `source` with each plant at its depth, then `back`: `target_tokens` in all.

    plants: (depth in percent of the sentences' tokens, sentence). A target smaller than front, plants and back
    together gives those alone; the tokens of what was built are in the answer, so nothing is claimed that is not so.
    is_verified: the whole is counted, and mended until it fits; else the sum of its words stands, which is for plans of
    so many requests that counting each twice would take hours.
    """
    body: list[str] = []
    sizes: list[int] = []
    fixed = ruler.whole(front + back) if front or back else 0
    fixed += sum(ruler.sentence(sentence) for _, sentence in plants)
    budget = target_tokens - fixed
    total = 0
    while total < budget:
        sentence = next(source)
        body.append(sentence)
        sizes.append(ruler.sentence(sentence))
        total += sizes[-1]
    best: Fitted | None = None
    tried: set[int] = set()
    for _ in range(_ROUNDS):
        if budget in tried:
            break
        tried.add(budget)
        while total < budget:
            sentence = next(source)
            body.append(sentence)
            sizes.append(ruler.sentence(sentence))
            total += sizes[-1]
        parts, part_sizes = _cut(ruler, body, sizes, total, max(0, budget))
        text, depths = _assemble(parts, part_sizes, front, back, plants)
        if not is_verified:
            return Fitted(text, fixed + sum(part_sizes), depths)
        tokens = ruler.whole(text)
        if best is None or abs(tokens - target_tokens) < abs(best.tokens - target_tokens):
            best = Fitted(text, tokens, depths)
        if tokens == target_tokens or budget <= 0:
            break
        budget += target_tokens - tokens
    assert best is not None
    return best


def _cut(
    ruler: Ruler, body: list[str], sizes: list[int], total: int, budget: int
) -> tuple[list[str], list[int]]:
    """As many sentences as fit in `budget` tokens, the last one shortened or filled to the token."""
    count = len(body)
    while count and total > budget:
        count -= 1
        total -= sizes[count]
    parts, part_sizes = body[:count], sizes[:count]
    gap = budget - total
    if gap <= 0:
        return parts, part_sizes
    tail: list[str] = []
    words = body[count].rstrip(".").split(" ") if count < len(body) else []
    for word in words:
        if ruler.word(word) > gap:
            break
        tail.append(word)
        gap -= ruler.word(word)
    shorts = ruler.one_token_words()
    if shorts:
        tail.extend(shorts[place % len(shorts)] for place in range(gap))
        gap = 0
    if tail:
        parts = [*parts, " ".join(tail)]
        part_sizes = [*part_sizes, budget - total - gap]
    return parts, part_sizes


def _assemble(
    parts: list[str], sizes: list[int], front: str, back: str, plants: Sequence[tuple[float, str]]
) -> tuple[str, tuple[float, ...]]:
    body = sum(sizes)
    places: list[tuple[int, str]] = []
    depths: list[float] = []
    for depth, sentence in plants:
        index, before = 0, 0
        wanted = body * depth / 100
        # A plant goes to the sentence boundary nearest to its depth; the last, cut sentence stays behind it.
        while index < len(sizes) and before + sizes[index] / 2 < wanted:
            before += sizes[index]
            index += 1
        places.append((index, sentence))
        depths.append(round(100 * before / body, 2) if body else 0.0)
    pieces: list[str] = []
    start = 0
    for index, sentence in sorted(places):
        pieces.extend(parts[start:index])
        pieces.append(sentence)
        start = index
    pieces.extend(parts[start:])
    return front + " ".join(pieces) + back, tuple(depths)
