# ruff: noqa: SIM905  (a list of words reads better as words)
"""Generated prose of even information: seeded sentences that do not repeat, without a digit in them.

A haystack of repeated blocks is easier to skip than to read, and digits in it would be taken for the fact that was
planted. `broad` draws on several hundred words and a dozen forms; `plain` keeps to the phrasing that the small test
model was trained on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

Filler = Literal["broad", "plain"]

_PLAIN_ADJECTIVES = (
    "big small old new red green blue quiet bright cold warm long slow plain wide calm".split()
)
_PLAIN_NOUNS = (
    "river house garden train market bridge window table letter road village library harbor forest mountain station "
    "kitchen school ship clock"
).split()
_PLAIN_VERBS = (
    "watched crossed painted found kept moved left reached saw built cleaned opened passed followed carried"
).split()
_PLAIN_TIMES = (
    "yesterday,today,in the morning,at noon,near the hill,by the sea,after lunch,before dark,in spring,every week"
).split(",")

_ADJECTIVES = (
    "amber ancient ashen blunt brisk brittle broken careful cautious central clear clever coarse common copper cracked "
    "crooked curious damp dense distant double dusty eager earnest eastern elder empty faded faint famous fierce "
    "firm fragile frozen gentle giant glad golden graceful grand granite green heavy hidden hollow honest humble "
    "idle inner iron ivory keen lasting late lean level lively lonely loose lost loyal marble mellow mild "
    "modest muddy narrow neat noble northern oaken odd open outer pale patient polished proud quick rapid rare "
    "restless ripe rough rural rustic scarlet secluded serious shallow sharp silent silver simple sleepy slender "
    "smooth sober solid southern sparse spare stately steady steep stern stray sturdy subtle sudden sunny tall "
    "tame tender thin tidy timid tired tranquil twin upper urban vague vast velvet violet vivid wandering weary "
    "western whole wild wooden young"
).split()
_NOUNS = (
    "anchor apple apron archive arch attic autumn baker balcony barge barn barrel basin basket bay beacon bell bench "
    "blanket blossom boat bottle boulder branch brick brook broom bucket builder cabin cable camel candle canyon "
    "captain carpet cart castle cattle cavern cedar cellar chapel chimney cliff cloak cloud coast cobbler collar "
    "column compass cottage courier crane cricket curtain dairy dancer deer desert diary dock donkey driver drum dune "
    "eagle editor elm engine falcon farmer feather fence ferry fiddle field fisher flag flame flute fountain fox "
    "furnace gallery gardener gate geese glacier glove goat grain grove guard guest guitar hammer hamlet hawk hedge "
    "hen herald heron hill horn horse inn island ivy jacket jar jeweler journal judge kettle kiln kite ladder lagoon "
    "lake lamp lantern lark lawn lemon lens lever lighthouse linen locksmith loft loom mantle maple mason mast meadow "
    "melon merchant mill miner mirror moss moth museum needlewoman neighbor nephew nest oak oar orchard otter oven owl "
    "oxen painter palace paper parcel park parrot pasture path peach pebble pelican pepper piano pier pigeon pilot "
    "pine pipe pitcher plain plaster plow pocket poet pond poplar porch porter potter prairie printer quarry quilt "
    "rabbit raft railing ranch raven reed ribbon ridge robin roof rope rower saddle sailor salmon scholar sculptor "
    "shed shelf shepherd shore shovel singer slope smith spade sparrow spoon spring stable stair statue steamer stone "
    "stork stove stream street surveyor swan tailor tavern teacher temple thistle thread tide timber tinker tower "
    "tractor trader trail trellis trumpet tunnel turtle valley vase vendor viaduct vine violin wagon waiter walnut "
    "warden waterfall weaver well whale wharf wheel willow winter wolf workshop wren yard"
).split()
_VERBS = (
    "admired adorned answered approached arranged avoided balanced borrowed brushed called chased circled claimed "
    "collected colored compared copied counted covered crossed decorated delivered described dragged drew emptied "
    "entered escorted examined faced fetched filled fixed followed forgot framed gathered greeted guarded guided "
    "hauled heard helped hoisted honored ignored inspected joined lifted located loaded loved measured mended missed "
    "mixed moved noticed obeyed offered ordered outlasted overlooked packed painted passed patched photographed "
    "planted polished praised pulled pushed questioned raised reached recalled remembered repaired replaced rescued "
    "restored rolled sketched sheltered shook sold sorted spared steered stored studied surprised surrounded "
    "swept tested thanked tied toured traced trimmed trusted turned visited walked warned washed watched weighed "
    "welcomed wrapped"
).split()
_TIMES = (
    "after the harvest,after the long rain,all afternoon,all through the night,as the fog lifted,at first light,"
    "at the edge of town,at the turn of the season,before breakfast,before the storm,behind the old wall,"
    "below the terrace,beside the canal,between two showers,beyond the last farm,by candlelight,by the northern gate,"
    "during the fair,during the parade,early in the week,for a whole season,from the far bank,in a single day,"
    "in complete silence,in the cool evening,in the low sun,in the narrow lane,in the upper town,just after dawn,"
    "late in the summer,near the crossroads,near the water,on a windy morning,on market day,on the hillside,"
    "on the longest day,once more,out in the open,over the weekend,past the orchard,soon after the thaw,"
    "through the side door,to the sound of bells,toward evening,under a pale moon,under the bridge,until nightfall,"
    "until the lamps were lit,while it snowed,while the others rested,with great care,with little effort,"
    "without a word,without any hurry"
).split(",")
_LINKS = "and,while,because,although,after,before,just as,even though".split(",")


def sentences(rng: random.Random, filler: Filler = "broad") -> Iterator[str]:
    """Sentences without end, none given twice, drawn from `rng`; each ends with a full stop and has no digit."""
    make = _plain if filler == "plain" else _broad
    seen: set[int] = set()
    while True:
        text = make(rng)
        key = hash(text)
        if key not in seen:
            seen.add(key)
            yield text


def letters(rng: random.Random, count: int = 12) -> str:
    """A nonce of `count` letters a to p (four bits each): no digit that could be taken for a planted code."""
    return "".join(chr(97 + (rng.getrandbits(4))) for _ in range(count))


def _plain(rng: random.Random) -> str:
    pick = rng.choice
    return (
        f"The {pick(_PLAIN_ADJECTIVES)} {pick(_PLAIN_NOUNS)} {pick(_PLAIN_VERBS)} "
        f"the {pick(_PLAIN_ADJECTIVES)} {pick(_PLAIN_NOUNS)} {pick(_PLAIN_TIMES)}."
    )


def _broad(rng: random.Random) -> str:
    pick = rng.choice
    one, two = pick(_ADJECTIVES), pick(_ADJECTIVES)
    subject, thing, verb, when = pick(_NOUNS), pick(_NOUNS), pick(_VERBS), pick(_TIMES)
    form = rng.randrange(8)
    if form == 0:
        return f"The {one} {subject} {verb} the {two} {thing} {when}."
    if form == 1:
        return f"{when[0].upper()}{when[1:]} the {subject} {verb} the {one} {thing}."
    if form == 2:
        return f"The {subject} {verb} the {one} {thing} {pick(_LINKS)} the {pick(_NOUNS)} {pick(_VERBS)} the {two} {pick(_NOUNS)}."
    if form == 3:
        return f"Nobody {verb} the {one} {thing} of the {two} {subject} {when}."
    if form == 4:
        return f"Every {one} {subject} near the {thing} {verb} the {pick(_NOUNS)} {when}."
    if form == 5:
        return f"The {subject}, {one} and {two}, {verb} the {thing} {when}."
    if form == 6:
        return f"Someone {verb} the {thing} beside the {one} {subject} {pick(_LINKS)} the {two} {pick(_NOUNS)} {pick(_VERBS)} it."
    return f"The {subject} and the {one} {thing} {verb} the {two} {pick(_NOUNS)} {when}."
