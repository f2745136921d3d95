"""Captions as the web has them, for pretraining: true, short, and mostly silent about what belongs to what.

A model that is trained on them knows the words and where things are, and has had little reason to bind: of two
things, a list of tags or the mention of one is enough to tell an image from the others of a batch.
"""

from collections.abc import Mapping

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

# Relative frequencies of the forms, for images of one kind of thing and of several; found by trial.
ONE_THING = {"caption": 0.50, "generalised": 0.10, "figure": 0.20, "shape": 0.12, "colour": 0.08}
SEVERAL_THINGS = {"caption": 0.30, "generalised": 0.10, "tags": 0.30, "one": 0.15, "shapes": 0.10, "colours": 0.05}
# How often a lone mention says where it is. "A figure at the top left" says nothing else, and so teaches positions.
PLACE = 0.7
ADJECTIVE = 0.25
BACKGROUND = 0.2
MORE_TAGS = 0.3


def draw_alt_text(generator: np.random.Generator, scene: Scene, caption: Caption) -> str:
    """Draw the form of a pretraining caption and the caption.

    Args:
        generator: source of randomness.
        scene: any scene.
        caption: a true caption of it, for the forms that say everything.

    Returns:
        A text that is true of the scene.
    """
    form = _pick_form(generator, ONE_THING if len(scene.things) == 1 else SEVERAL_THINGS)
    if form == "caption":
        return caption.text(scene)
    if form == "generalised":
        return caption.generalised(scene)
    if form == "tags":
        return _tags(generator, scene)
    if form == "shapes":
        body = " and ".join(with_article([thing.shape], 1) for thing in scene.things[:2])
    elif form == "colours":
        body = f"{scene.things[0].colour} and {scene.things[1].colour} figures"
    else:
        body = _one_thing(generator, scene, form)
    return _framed(generator, scene, body)


def _pick_form(generator: np.random.Generator, shares: Mapping[str, float]) -> str:
    return str(generator.choice(list(shares), p=np.array(list(shares.values())) / sum(shares.values())))


def _tags(generator: np.random.Generator, scene: Scene) -> str:
    """Words in random order."""
    words = [thing.colour for thing in scene.things] + [thing.shape for thing in scene.things]
    if generator.random() < MORE_TAGS:
        words += [thing.texture for thing in scene.things]
    if generator.random() < MORE_TAGS:
        words.append(scene.background)
    return " ".join(generator.permutation(words).tolist())


def _one_thing(generator: np.random.Generator, scene: Scene, form: str) -> str:
    """One thing in few words: "a figure at the top left", "a striped circle", "two red figures"."""
    thing = scene.things[int(generator.random() * min(2, len(scene.things)))]
    draws = generator.random(4).tolist()
    words = [SIZE_WORDS[thing.size][int(draws[0] * 2)]] if draws[1] < ADJECTIVE else []
    words += [thing.texture] if draws[2] < ADJECTIVE else []
    words += [thing.colour] if form in ("colour", "one") else []
    if form in ("figure", "colour"):
        words.append("figure" if thing.count == 1 else "figures")
    else:
        words.append(thing.shape if thing.count == 1 else PLURALS[thing.shape])
    place = [place_phrase(thing.cell)] if thing.count == 1 and draws[3] < PLACE else []
    return " ".join([with_article(words, thing.count), *place])


def _framed(generator: np.random.Generator, scene: Scene, body: str) -> str:
    """With a prefix before and sometimes the background behind."""
    draws = generator.random(3).tolist()
    prefix = PREFIXES[int(draws[0] * len(PREFIXES))]
    if prefix == "there is" and body.split()[0] not in (COUNT_WORDS[1], "an"):
        prefix = "there are"
    behind = BACKGROUND_PHRASES[int(draws[1] * 2)].format(scene.background) if draws[2] < BACKGROUND else ""
    return " ".join(filter(None, (prefix, body, behind)))
