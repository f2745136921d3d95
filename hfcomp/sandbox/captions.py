"""Closed grammar of the sandbox: captions that are true of their scenes, and paraphrases of them."""

from dataclasses import dataclass, replace

import numpy as np

from hfcomp.sandbox.hierarchy import FIGURE_WORDS, generalized_words
from hfcomp.sandbox.scenes import BACKGROUNDS, CELLS, COLORS, NOVEL_COMBINATIONS, SHAPES, Cell, Scene, Thing

PREFIXES = ("", "a photo of", "a picture of", "an image of", "there is")
CONJUNCTIONS = ("and", "with")
# Wordings at the same position in each tuple have the same style; an edit keeps the style.
RELATIONS = {
    "left": ("left of", "to the left of"),
    "right": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
}
OPPOSITES = {"left": "right", "right": "left", "above": "below", "below": "above"}
SIZE_WORDS = {"small": ("small", "little"), "large": ("large", "big")}
COUNT_WORDS = {1: "a", 2: "two", 3: "three"}
PLURALS = {shape: f"{shape}es" if shape == "cross" else f"{shape}s" for shape in SHAPES}
BACKGROUND_PHRASES = ("on a {} background", "against a {} backdrop")
_ROWS, _COLUMNS = ("top", "", "bottom"), ("left", "", "right")
_RELATION_BY_PHRASE = {phrase: relation for relation, phrases in RELATIONS.items() for phrase in phrases}


@dataclass(frozen=True, slots=True)
class Caption:
    """Structure of a caption, without the words for the objects themselves.

    On an edited scene, the same caption describes the edited scene and keeps all other words.

    Attributes:
        prefix: One of `PREFIXES`.
        mentioned: Indices into `Scene.things` in the order of mention: one, two in either order, or three.
        links: Connection of each mention after the first: one of `CONJUNCTIONS`, or a phrase from `RELATIONS` that
            locates the first mention relative to it ("A left of B and above C").
        sized: Indices of things whose size is mentioned.
        textured: Indices of things whose texture is mentioned.
        wording: Which of the two words for each size to use, 0 or 1.
        says_place: Whether a single mention includes its place in the image.
        background_phrase: One of `BACKGROUND_PHRASES`, or empty.
    """

    prefix: str
    mentioned: tuple[int, ...]
    links: tuple[str, ...] = ()
    sized: tuple[int, ...] = ()
    textured: tuple[int, ...] = ()
    wording: int = 0
    says_place: bool = False
    background_phrase: str = ""

    @property
    def relations(self) -> tuple[str, ...]:
        """The keys of `RELATIONS` that the links express; empty for conjunctions and single mentions."""
        return tuple(_RELATION_BY_PHRASE[link] for link in self.links if link in _RELATION_BY_PHRASE)

    def text(self, scene: Scene) -> str:
        """Renders the caption in lowercase, with the words for things, sizes and background taken from the scene."""
        return "".join(part for part, _ in self._parts(scene, self._phrase))

    def concepts(self, scene: Scene) -> tuple[list[str], list[list[list[int]]]]:
        """Returns the noun phrases of the caption in order, and for each a list with one `[start, end)` in `text`."""
        phrases, spans, place = [], [], 0
        for part, is_thing in self._parts(scene, self._phrase):
            if is_thing:
                phrases.append(part)
                spans.append([[place, place + len(part)]])
            place += len(part)
        return phrases, spans

    def generalized_text(self, scene: Scene) -> str:
        """Renders the caption with shapes and colors replaced by their family: "a warm round figure above ..."."""
        return "".join(part for part, _ in self._parts(scene, self._general_phrase))

    def _parts(self, scene: Scene, phrase) -> list[tuple[str, bool]]:
        """Returns the text in pieces, each with a flag for the noun phrase of a thing."""
        is_plural = scene.things[self.mentioned[0]].count > 1
        prefix = "there are" if is_plural and self.prefix == "there is" else self.prefix
        parts = [(f"{prefix} ", False)] if prefix else []
        for position, index in enumerate(self.mentioned):
            if position:
                link = self.links[position - 1]
                joined = link if position == 1 or link in CONJUNCTIONS else f"and {link}"
                parts.append((f" {joined} ", False))
            parts.append((phrase(scene.things[index], index), True))
        if self.says_place:
            parts.append((f" {place_phrase(scene.things[self.mentioned[0]].cell)}", False))
        if self.background_phrase:
            parts.append((f" {self.background_phrase.format(scene.background)}", False))
        return parts

    def _phrase(self, thing: Thing, index: int) -> str:
        noun = thing.shape if thing.count == 1 else PLURALS[thing.shape]
        return self._with_adjectives(thing, index, [thing.color, noun])

    def _general_phrase(self, thing: Thing, index: int) -> str:
        return self._with_adjectives(thing, index, generalized_words(thing))

    def _with_adjectives(self, thing: Thing, index: int, words: list[str]) -> str:
        if index in self.textured:
            words = [thing.texture, *words]
        if index in self.sized:
            words = [SIZE_WORDS[thing.size][self.wording], *words]
        return with_article(words, thing.count)


def with_article(words: list[str], count: int) -> str:
    """Puts "a", "an", "two" or "three" before the words of a noun phrase."""
    first = COUNT_WORDS[count]
    if first == "a" and words[0][0] in "aeiou":
        first = "an"
    return " ".join([first, *words])


def place_phrase(cell: Cell) -> str:
    """Describes the place of a cell in the image: "at the top left", "at the right", "in the middle"."""
    row, column = cell
    words = " ".join(filter(None, (_ROWS[row], _COLUMNS[column])))
    return f"at the {words}" if words else "in the middle"


def relation_between(first: Thing, second: Thing) -> str | None:
    """Returns where the first of two things is relative to the second, as a key of `RELATIONS`.

    Returns None if they share neither row nor column, or if one of them occurs more than once.
    """
    if first.twins or second.twins:
        return None
    (row, column), (other_row, other_column) = first.cell, second.cell
    if row == other_row:
        return "left" if column < other_column else "right"
    if column == other_column:
        return "above" if row < other_row else "below"
    return None


def _relations(scene: Scene, mentioned: tuple[int, ...]) -> list[str | None]:
    return [relation_between(scene.things[mentioned[0]], scene.things[other]) for other in mentioned[1:]]


def draw_caption(
    generator: np.random.Generator,
    scene: Scene,
    *,
    relation: float = 0.0,
    size: float = 0.0,
    texture: float = 0.0,
    background: float = 0.0,
    place: float = 0.0,
    three: float = 0.0,
) -> Caption:
    """Draws a true caption.

    Args:
        generator: Random generator.
        scene: Scene to describe. If it has two or more things, the first two are mentioned in random order.
        relation: Probability, 0 to 1, of joining them by their relation instead of a conjunction.
        size: Probability of mentioning sizes.
        texture: Probability of mentioning textures.
        background: Probability of mentioning the background.
        place: Probability of mentioning the place of a single object.
        three: Probability of mentioning a third thing if its relation to the first has a name.

    Returns:
        A caption that is true of the scene.
    """
    # Draw all numbers in one call, used or not, because single calls would take most of the time.
    draws = generator.random(11).tolist()
    prefix = PREFIXES[int(draws[0] * len(PREFIXES))]
    phrase = BACKGROUND_PHRASES[int(draws[1] * 2)] if draws[2] < background else ""
    style, use_relation = int(draws[3] * 2), draws[4] < relation
    mentioned = (0,)
    links: tuple[str, ...] = ()
    if len(scene.things) > 1:
        mentioned = (0, 1) if draws[5] < 0.5 else (1, 0)
        if len(scene.things) == 3 and use_relation and draws[6] < three:
            mentioned = (0, 1, 2) if draws[5] < 0.5 else (0, 2, 1)
        names = _relations(scene, mentioned)
        if None in names:
            mentioned = (0, 1) if draws[5] < 0.5 else (1, 0)
            names = _relations(scene, mentioned)
        if use_relation and None not in names:
            links = tuple(RELATIONS[name][style] for name in names)
        else:
            links = (CONJUNCTIONS[style],)
    return Caption(
        prefix,
        mentioned,
        links,
        mentioned if draws[7] < size else (),
        mentioned if draws[8] < texture else (),
        int(draws[9] * 2),
        len(mentioned) == 1 and scene.things[0].count == 1 and draws[10] < place,
        phrase,
    )


def paraphrase(generator: np.random.Generator, caption: Caption) -> Caption:
    """Draws another wording of a caption: same content, true of the same scenes, with another prefix.

    Mentions joined by a conjunction or a relation may change their order; a relation then becomes its opposite.

    Args:
        generator: Random generator.
        caption: Caption to reword.

    Returns:
        A caption whose text differs from that of `caption` on every scene.
    """
    draws = generator.random(3).tolist()
    others = [prefix for prefix in PREFIXES if prefix != caption.prefix]
    mentioned, links = caption.mentioned, caption.links
    if caption.relations:
        style = 1 - RELATIONS[caption.relations[0]].index(links[0])
        names = caption.relations
        if len(mentioned) == 3:
            # "A left of B and above C" remains about A: only the order of B and C changes.
            mentioned, names = (mentioned[0], *mentioned[:0:-1]), names[::-1]
        elif draws[1] < 0.5:
            mentioned, names = mentioned[::-1], tuple(OPPOSITES[name] for name in names)
        links = tuple(RELATIONS[name][style] for name in names)
    elif len(mentioned) > 1:
        links = tuple(CONJUNCTIONS[1 - CONJUNCTIONS.index(link)] for link in links)
        mentioned = mentioned[::-1] if draws[1] < 0.5 else mentioned
    phrase = caption.background_phrase
    if phrase:
        phrase = BACKGROUND_PHRASES[1 - BACKGROUND_PHRASES.index(phrase)]
    return replace(
        caption,
        prefix=others[int(draws[0] * len(others))],
        mentioned=mentioned,
        links=links,
        wording=1 - caption.wording,
        background_phrase=phrase,
    )


def zero_shot_prompts() -> dict[str, dict[str, list[str]]]:
    """Returns the prompts for each color, shape and place of a single object, by attribute and class.

    The mean embedding of a class's prompts represents the class.
    """
    # Prompts for a color use all shapes that training shows in this color, and vice versa: a prompt with a novel
    # combination would contain a phrase that the model has never read.
    known = [(c, s) for c in COLORS for s in SHAPES if (c, s) not in NOVEL_COMBINATIONS]
    prompts = [(c, s, f"a photo of {with_article([c, s], 1)}") for c, s in known]
    return {
        "color": {color: [text for c, _, text in prompts if c == color] for color in COLORS},
        "shape": {shape: [text for _, s, text in prompts if s == shape] for shape in SHAPES},
        "place": {phrase: [f"a figure {phrase}"] for phrase in map(place_phrase, CELLS)},
    }


def words() -> list[str]:
    """Returns every word of the grammar, sorted."""
    phrases = [*PREFIXES, *CONJUNCTIONS, *BACKGROUND_PHRASES, *SHAPES, *PLURALS.values(), *COLORS, *BACKGROUNDS]
    phrases += [phrase for wordings in (*RELATIONS.values(), *SIZE_WORDS.values()) for phrase in wordings]
    phrases += [place_phrase(cell) for cell in CELLS]
    phrases += ["there are", "plain striped an", *COUNT_WORDS.values(), *FIGURE_WORDS]
    return sorted({word for phrase in phrases for word in phrase.split()} - {"{}"})
