"""An independent reader of sandbox captions: it knows the language, and nothing of how the library makes captions."""

import re
from dataclasses import dataclass
from functools import cache
from itertools import permutations

SIZES = {"small": "small", "little": "small", "large": "large", "big": "large"}
COUNTS = {"a": 1, "an": 1, "two": 2, "three": 3}
# What general words stand for, in plain sight of the scene.
COLORS_OF = {"warm": {"red", "orange", "yellow", "pink"}, "cool": {"green", "cyan", "blue", "purple"}}
SHAPES_OF = {
    "round": {"circle", "ring"},
    "lobed": {"heart"},
    "cornered": {"square", "triangle", "diamond"},
    "spiky": {"cross", "star"},
}
COLORS = COLORS_OF["warm"] | COLORS_OF["cool"]
SHAPES = set().union(*SHAPES_OF.values())
BACKGROUNDS = {"black", "navy", "brown", "mossy", "plum", "slate"}
TEXTURES = {"plain", "striped"}
_COLOR, _SHAPE = "|".join(sorted(COLORS)), "|".join(sorted(SHAPES))
_LINK = r"and|with|(?:and )?(?:(?:to the )?left of|(?:to the )?right of|above|over|below|under)"
_MENTION = re.compile(
    r"(?P<count>an?|two|three)(?: (?P<size>small|little|large|big))?(?: (?P<texture>plain|striped))?"
    rf"(?: (?P<color>{_COLOR})|(?: (?P<warmth>warm|cool) (?P<family>round|lobed|cornered|spiky))(?= figure))?"
    rf" (?P<noun>{_SHAPE}|figure)(?P<plural>e?s)?"
)
_CAPTION = re.compile(
    r"(?:(?P<prefix>an? (?:photo|picture|image) of|there is|there are) )?"
    rf"(?P<content>(?:an?|two|three) .*?|(?:{_COLOR}) and (?:{_COLOR}) figures)"
    r"(?: (?P<place>at the (?:top|bottom)(?: left| right)?|at the (?:left|right)|in the middle))?"
    r"(?: (?:on|against) a (?P<background>\w+) (?:background|backdrop))?"
)


@dataclass(frozen=True)
class Mention:
    """What one noun phrase says; None, or all that there is, for what it leaves open."""

    count: int | None
    colors: frozenset[str]
    shapes: frozenset[str]
    size: str | None
    texture: str | None

    def fits(self, thing):
        """Whether it describes a thing of a scene, all of the equal ones together."""
        return (
            self.count in (None, thing.count)
            and thing.color in self.colors
            and thing.shape in self.shapes
            and self.size in (None, thing.size)
            and self.texture in (None, thing.texture)
        )


@dataclass(frozen=True)
class Reading:
    """What a caption says; `links[i]` joins mention `i + 1` to the first."""

    mentions: tuple[Mention, ...]
    links: tuple[str, ...]
    place: str | None
    background: str | None


def is_tags(caption):
    """Whether it is a list of words without grammar: "cyan heart red ring plum"."""
    return set(caption.split()) <= COLORS | SHAPES | TEXTURES | BACKGROUNDS


def is_true(caption, scene):
    """Whether the scene shows what the caption or the list of tags says."""
    if is_tags(caption):
        shown = {word for thing in scene.things for word in (thing.color, thing.shape, thing.texture)}
        return set(caption.split()) <= shown | {scene.background}
    reading = read(caption)
    if reading.background not in (None, scene.background):
        return False
    return any(
        all(mention.fits(thing) for mention, thing in zip(reading.mentions, things, strict=True))
        and all(_is_linked(link, things[0], thing) for link, thing in zip(reading.links, things[1:], strict=True))
        and _is_at(reading.place, things[0])
        for things in permutations(scene.things, len(reading.mentions))
    )


@cache
def read(caption):
    """The caption's reading; an `AssertionError` where it is not English of this world."""
    match = _CAPTION.fullmatch(caption)
    assert match, f"not in the grammar: {caption!r}"
    content = match["content"]
    if content.split()[0] in COLORS:
        assert match["prefix"] != "there is", f"is or are in {caption!r}"
        colors = [word for word in content.split() if word in COLORS]
        mentions = tuple(Mention(None, frozenset({color}), frozenset(SHAPES), None, None) for color in colors)
        return Reading(mentions, ("and",), match["place"], match["background"])
    places = [(match.start(), match.end()) for match in _MENTION.finditer(content)]
    between = [content[end + 1 : start - 1] for (_, end), (start, _) in zip(places, places[1:], strict=False)]
    assert places and places[0][0] == 0 and places[-1][1] == len(content), f"not in the grammar: {caption!r}"
    for position, link in enumerate(between):
        # "A left of B and above C": what is joined later says "and" before its relation.
        assert re.fullmatch(_LINK, link), f"{link!r} joins nothing in {caption!r}"
        is_related = link not in ("and", "with")
        assert is_related == (between[0] not in ("and", "with")), f"a list and relations in {caption!r}"
        assert not is_related or link.startswith("and ") == (position > 0), f"{link!r} in {caption!r}"
    mentions = tuple(_mention(content[start:end]) for start, end in places)
    several = mentions[0].count > 1
    assert match["prefix"] != ("there is" if several else "there are"), f"is or are in {caption!r}"
    return Reading(mentions, tuple(link.removeprefix("and ") for link in between), match["place"], match["background"])


def _mention(phrase):
    match = _MENTION.fullmatch(phrase)
    count, following = COUNTS[match["count"]], phrase.split()[1]
    if count == 1:
        assert match["count"] == ("an" if following[0] in "aeiou" else "a"), f"the article of {phrase!r}"
    expected = None if count == 1 else "es" if match["noun"] == "cross" else "s"
    assert match["plural"] == expected, f"the ending of {phrase!r}"
    shapes = {match["noun"]} & SHAPES or SHAPES_OF.get(match["family"], SHAPES)
    colors = {match["color"]} & COLORS or COLORS_OF.get(match["warmth"], COLORS)
    return Mention(count, frozenset(colors), frozenset(shapes), SIZES.get(match["size"]), match["texture"])


def _is_at(place, thing):
    if place is None:
        return True
    row, column = thing.cell
    expected = [word for word, is_said in (("top", row == 0), ("bottom", row == 2)) if is_said]
    expected += [word for word, is_said in (("left", column == 0), ("right", column == 2)) if is_said]
    return thing.count == 1 and place.split()[2:] == (expected or ["middle"])


def _is_linked(link, first, other):
    if link in ("and", "with"):
        return True
    if first.count > 1 or other.count > 1:
        return False
    down, right = other.cell[0] - first.cell[0], other.cell[1] - first.cell[1]
    if "left" in link or "right" in link:
        return down == 0 and (right > 0) == ("left" in link)
    return right == 0 and (down > 0) == (link in ("above", "over"))
