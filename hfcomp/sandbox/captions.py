"""The sandbox's closed grammar: captions that are true of their scenes."""

from dataclasses import dataclass

import numpy as np

from hfcomp.sandbox.scenes import BACKGROUNDS, COLOURS, SHAPES, SIZES, Scene, Thing

PREFIXES = ("", "a photo of", "a picture of", "an image of", "there is")
CONJUNCTIONS = ("and", "with")
# Paraphrases at the same place in each tuple are of the same style; an edit keeps the style.
RELATIONS = {
    "left": ("left of", "to the left of"),
    "right": ("right of", "to the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
}
BACKGROUND_PHRASES = ("on a {} background", "against a {} backdrop")
_RELATION_OF = {phrase: relation for relation, phrases in RELATIONS.items() for phrase in phrases}


@dataclass(frozen=True, slots=True)
class Caption:
    """What a caption says about a scene, without the words for the things themselves.

    Rendered on an edited scene, the same caption describes the edited scene in the same words otherwise.

    Attributes:
        prefix: one of `PREFIXES`.
        mentioned: indices into `Scene.things`, in the order of mention: one, or the first two in either order.
        link: between two mentions: one of `CONJUNCTIONS` or a phrase of `RELATIONS`; empty for one mention.
        says_size: whether the things' sizes are said.
        background_phrase: one of `BACKGROUND_PHRASES`, or empty.
    """

    prefix: str
    mentioned: tuple[int, ...]
    link: str = ""
    says_size: bool = False
    background_phrase: str = ""

    @property
    def relation(self) -> str | None:
        """The key of `RELATIONS` that the link says, None for conjunctions and single mentions."""
        return _RELATION_OF.get(self.link)

    def text(self, scene: Scene) -> str:
        """The caption in words.

        Args:
            scene: the scene to describe; the words for things, sizes and background are read from it.

        Returns:
            Lower-case words separated by single spaces.
        """
        phrases = [self._phrase(scene.things[i]) for i in self.mentioned]
        described = f" {self.link} ".join(phrases)
        return " ".join(filter(None, [self.prefix, described, self.background_phrase.format(scene.background)]))

    def _phrase(self, thing: Thing) -> str:
        size = f"{thing.size} " if self.says_size else ""
        return f"a {size}{thing.colour} {thing.shape}"


def relation_between(first: Thing, second: Thing) -> str | None:
    """The relation of two things that share a row or a column.

    Args:
        first: the thing that is left of, right of, above or below the other.
        second: the other thing.

    Returns:
        A key of `RELATIONS`, or None where they share neither row nor column.
    """
    if first.row == second.row:
        return "left" if first.column < second.column else "right"
    if first.column == second.column:
        return "above" if first.row < second.row else "below"
    return None


def draw_caption(
    generator: np.random.Generator, scene: Scene, *, relation: float, size: float, background: float
) -> Caption:
    """Draw a true caption.

    Args:
        generator: source of randomness.
        scene: a scene; with two or more things the first two are mentioned, in random order, a third never is.
        relation: probability, 0 to 1, that two things are joined by their relation instead of a conjunction.
        size: probability, 0 to 1, that sizes are said.
        background: probability, 0 to 1, that the background is said.

    Returns:
        A caption that is true of the scene.
    """
    draws = generator.random(7).tolist()
    prefix = PREFIXES[int(draws[0] * len(PREFIXES))]
    phrase = BACKGROUND_PHRASES[int(draws[1] * len(BACKGROUND_PHRASES))] if draws[2] < background else ""
    mentioned, link = (0,), ""
    if len(scene.things) > 1:
        mentioned = (0, 1) if draws[3] < 0.5 else (1, 0)
        name = relation_between(*(scene.things[i] for i in mentioned))
        link = (RELATIONS[name] if draws[4] < relation else CONJUNCTIONS)[int(draws[5] * 2)]
    return Caption(prefix, mentioned, link, draws[6] < size, phrase)


def words() -> list[str]:
    """Every word of the grammar, sorted."""
    phrases = [*PREFIXES, *CONJUNCTIONS, *BACKGROUND_PHRASES, *SHAPES, *COLOURS, *SIZES, *BACKGROUNDS, "a"]
    phrases += [phrase for wordings in RELATIONS.values() for phrase in wordings]
    return sorted({word for phrase in phrases for word in phrase.split()} - {"{}"})
