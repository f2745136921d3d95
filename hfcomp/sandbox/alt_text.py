"""Web-like captions for pretraining: true, short, and mostly without attribute binding.

A model that is trained on them knows the words and where things are, and has had little reason to bind: of two
things, a list of tags or the mention of one is enough to tell an image from the others of a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hfcomp.sandbox.captions import (
    BACKGROUND_PHRASES,
    COUNT_WORDS,
    PLURALS,
    PREFIXES,
    SIZE_WORDS,
    Caption,
    place_phrase,
    with_article,
)
from hfcomp.sandbox.scenes import Scene


@dataclass(frozen=True)
class AltText:
    """Relative frequencies of the forms of captions; found by trial.

    Attributes:
        of_one: for images of one kind of thing.
        of_several: for images of several.
        place_among_several: how often the mention of one of several includes its place.
    """

    of_one: Mapping[str, float]
    of_several: Mapping[str, float]
    place_among_several: float


_OF_ONE = {"caption": 0.50, "generalized": 0.10, "figure": 0.20, "shape": 0.12, "color": 0.08}
WORDS = AltText(
    _OF_ONE,
    {"caption": 0.30, "generalized": 0.10, "tags": 0.30, "whole": 0.15, "shapes": 0.10, "colors": 0.05},
    place_among_several=0.7,
)
# Mostly "a circle at the left" for one of two or three things: otherwise no fine-tuning in minutes learns relations.
PLACES = AltText(_OF_ONE, {"caption": 0.15, "shape": 0.51, "color": 0.34}, place_among_several=1.0)
# How often a single thing's place is mentioned. "A figure at the top left" has no other cue, and so teaches places.
PLACE = 0.7
ADJECTIVE = 0.25
BACKGROUND = 0.2
MORE_TAGS = 0.3


def draw_alt_text(generator: np.random.Generator, scene: Scene, caption: Caption, shares: AltText) -> str:
    """Draws a text that is true of the scene; the caption is a true one, for the forms that say everything."""
    alone = len(scene.things) == 1
    form = _pick_form(generator, shares.of_one if alone else shares.of_several)
    if form == "caption":
        return caption.text(scene)
    if form == "generalized":
        return caption.generalized(scene)
    if form == "tags":
        return _tags(generator, scene)
    if form == "shapes":
        body = " and ".join(with_article([thing.shape], 1) for thing in scene.things[:2])
    elif form == "colors":
        body = f"{scene.things[0].color} and {scene.things[1].color} figures"
    else:
        body = _one_thing(generator, scene, form, PLACE if alone else shares.place_among_several)
    return _frame(generator, scene, body)


def _pick_form(generator: np.random.Generator, shares: Mapping[str, float]) -> str:
    return str(generator.choice(list(shares), p=np.array(list(shares.values())) / sum(shares.values())))


def _tags(generator: np.random.Generator, scene: Scene) -> str:
    # In random order: tags say which words belong to an image, not to each other.
    words = [thing.color for thing in scene.things] + [thing.shape for thing in scene.things]
    if generator.random() < MORE_TAGS:
        words += [thing.texture for thing in scene.things]
    if generator.random() < MORE_TAGS:
        words.append(scene.background)
    return " ".join(generator.permutation(words).tolist())


def _one_thing(generator: np.random.Generator, scene: Scene, form: str, place: float) -> str:
    """One thing in few words: "a figure at the top left", "a striped circle", "two red figures"."""
    thing = scene.things[int(generator.random() * min(2, len(scene.things)))]
    draws = generator.random(4).tolist()
    words = [SIZE_WORDS[thing.size][int(draws[0] * 2)]] if draws[1] < ADJECTIVE else []
    words += [thing.texture] if draws[2] < ADJECTIVE else []
    words += [thing.color] if form in ("color", "whole") else []
    if form in ("figure", "color"):
        words.append("figure" if thing.count == 1 else "figures")
    else:
        words.append(thing.shape if thing.count == 1 else PLURALS[thing.shape])
    where = [place_phrase(thing.cell)] if thing.count == 1 and draws[3] < place else []
    return " ".join([with_article(words, thing.count), *where])


def _frame(generator: np.random.Generator, scene: Scene, body: str) -> str:
    draws = generator.random(3).tolist()
    prefix = PREFIXES[int(draws[0] * len(PREFIXES))]
    if prefix == "there is" and body.split()[0] not in (COUNT_WORDS[1], "an"):
        prefix = "there are"
    behind = BACKGROUND_PHRASES[int(draws[1] * 2)].format(scene.background) if draws[2] < BACKGROUND else ""
    return " ".join(filter(None, (prefix, body, behind)))
