"""Web-like captions for pretraining: true and short, mostly without saying which attribute belongs to which thing.

A model trained on them learns words and the places of things, but has little reason to learn binding: with two things,
a list of tags or the mention of one thing is enough to distinguish an image from the rest of the batch.
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
    """Relative frequencies of caption forms, tuned by trial and error.

    Attributes:
        single: Frequencies for images with one kind of thing.
        several: Frequencies for images with several kinds.
        place_among_several: Probability that the mention of one of several things includes its place.
    """

    single: Mapping[str, float]
    several: Mapping[str, float]
    place_among_several: float


_SINGLE = {"caption": 0.50, "generalized": 0.10, "figure": 0.20, "shape": 0.12, "color": 0.08}
WORDS = AltText(
    _SINGLE,
    {"caption": 0.30, "generalized": 0.10, "tags": 0.30, "whole": 0.15, "shapes": 0.10, "colors": 0.05},
    place_among_several=0.7,
)
# Mostly "a circle at the left" for one of two or three things. Without it, minutes of fine-tuning teach no relations.
PLACES = AltText(_SINGLE, {"caption": 0.15, "shape": 0.51, "color": 0.34}, place_among_several=1.0)
# Probabilities of mentions. "A figure at the top left" has no other cue than its place, so it teaches places.
P_PLACE = 0.7
P_ADJECTIVE = 0.25
P_BACKGROUND = 0.2
P_MORE_TAGS = 0.3


def draw_alt_text(generator: np.random.Generator, scene: Scene, caption: Caption, shares: AltText) -> str:
    """Draws a text that is true of the scene. `caption`, whose texts two of the forms return, must be true as well."""
    is_single = len(scene.things) == 1
    form = _pick_form(generator, shares.single if is_single else shares.several)
    if form == "caption":
        return caption.text(scene)
    if form == "generalized":
        return caption.generalized_text(scene)
    if form == "tags":
        return _tags(generator, scene)
    if form == "shapes":
        body = " and ".join(with_article([thing.shape], 1) for thing in scene.things[:2])
    elif form == "colors":
        body = f"{scene.things[0].color} and {scene.things[1].color} figures"
    else:
        body = _describe_thing(generator, scene, form, P_PLACE if is_single else shares.place_among_several)
    return _add_prefix_and_background(generator, scene, body)


def _pick_form(generator: np.random.Generator, shares: Mapping[str, float]) -> str:
    return str(generator.choice(list(shares), p=np.array(list(shares.values())) / sum(shares.values())))


def _tags(generator: np.random.Generator, scene: Scene) -> str:
    # Random order: tags show which words belong to an image, but not which belong together.
    words = [thing.color for thing in scene.things] + [thing.shape for thing in scene.things]
    if generator.random() < P_MORE_TAGS:
        words += [thing.texture for thing in scene.things]
    if generator.random() < P_MORE_TAGS:
        words.append(scene.background)
    return " ".join(generator.permutation(words).tolist())


def _describe_thing(generator: np.random.Generator, scene: Scene, form: str, place: float) -> str:
    """Describes one thing in few words: "a figure at the top left", "a striped circle", "two red figures"."""
    thing = scene.things[int(generator.random() * min(2, len(scene.things)))]
    draws = generator.random(4).tolist()
    words = [SIZE_WORDS[thing.size][int(draws[0] * 2)]] if draws[1] < P_ADJECTIVE else []
    words += [thing.texture] if draws[2] < P_ADJECTIVE else []
    words += [thing.color] if form in ("color", "whole") else []
    if form in ("figure", "color"):
        words.append("figure" if thing.count == 1 else "figures")
    else:
        words.append(thing.shape if thing.count == 1 else PLURALS[thing.shape])
    where = [place_phrase(thing.cell)] if thing.count == 1 and draws[3] < place else []
    return " ".join([with_article(words, thing.count), *where])


def _add_prefix_and_background(generator: np.random.Generator, scene: Scene, body: str) -> str:
    draws = generator.random(3).tolist()
    prefix = PREFIXES[int(draws[0] * len(PREFIXES))]
    if prefix == "there is" and body.split()[0] not in (COUNT_WORDS[1], "an"):
        prefix = "there are"
    ending = BACKGROUND_PHRASES[int(draws[1] * 2)].format(scene.background) if draws[2] < P_BACKGROUND else ""
    return " ".join(filter(None, (prefix, body, ending)))
