"""An independent reader of sandbox captions: it knows the language, and nothing of how the library makes captions."""

import re

_THING = r"a (?:(?P<size{0}>small|large) )?(?P<colour{0}>\w+) (?P<shape{0}>\w+)"
_PATTERN = re.compile(
    r"(?:(?:an? (?:photo|picture|image) of|there is) )?"
    + _THING.format(1)
    + r"(?: (?P<link>and|with|(?:to the )?left of|(?:to the )?right of|above|over|below|under) "
    + _THING.format(2)
    + r")?(?: (?:on|against) a (?P<background>\w+) (?:background|backdrop))?"
)


def is_true(caption, scene):
    """Whether the scene shows what the caption says."""
    match = _PATTERN.fullmatch(caption)
    assert match, f"not in the grammar: {caption!r}"
    said = match.groupdict()
    if said["background"] not in (None, scene.background):
        return False
    firsts, seconds = (_described(scene, said, i) for i in "12")
    if said["link"] is None:
        return bool(firsts)
    return any(_linked(said["link"], a, b) for a in firsts for b in seconds if a is not b)


def _described(scene, said, i):
    return [
        thing
        for thing in scene.things
        if (thing.colour, thing.shape) == (said["colour" + i], said["shape" + i])
        and said["size" + i] in (None, thing.size)
    ]


def _linked(link, a, b):
    down, right = b.row - a.row, b.column - a.column
    if link in ("and", "with"):
        return True
    if "left" in link or "right" in link:
        return down == 0 and (right > 0) == ("left" in link)
    return right == 0 and (down > 0) == (link in ("above", "over"))
