"""Words that noun phrases treat in a way of their own: small lists, made by hand from COCO captions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hfcomp.parsing.words import word_set

# They go with what "of" joins to them: "a group of people" is people, "two slices of pizza" is pizza. No containers:
# "a vase of flowers" shows a vase and flowers.
MEASURES = word_set(
    "amount array assortment batch bit block body bunch bundle chunk clump cluster collection couple crowd dozen "
    "ear family flight flock form game group half handful head heap herd hundred kind line lineup load loaf lot "
    "mix mixture mode mound number pack pair piece pile portion quarter row scoop section selection series set "
    "sheet slab slice sort stack strip swarm team thousand trio type variety"
)
# A noun before them describes, as in "snow covered ground", where a parser may see "snow" that is covered.
COVERINGS = word_set("capped coated covered crusted dusted filled frosted infested lined strewn topped")
# "empty of people": there are none.
LACKING = word_set("bare devoid empty free lack")


@dataclass(frozen=True)
class ExcludedWords:
    """Nouns, as dictionary forms in small letters, whose phrases are not concepts; the field is the reason.

    The paper names no such words. The prompt of the released code leaves out generic places ("home or street or
    school"). Change a field with `dataclasses.replace`; an empty set keeps all of its kind.

    Attributes:
        picture: The picture itself, not what it shows: "a photo" of "a photo of a dog", "the background". Several are
            things ("pictures on a wall"), unless "of" follows.
        region: A part of the picture or of a thing, a location: "the left side", "front", "a row".
            Kept as the last word of a compound: "a tank top", "a street corner", "a city scene".
        place: A place that is uninformative alone; kept with any distinguishing word: "a snowy
            street", "a hotel room".
        time: "a sunny day": there is nothing one could point at.
        empty: A word for a thing named elsewhere or for nothing visible: "others", "fun".
    """

    picture: frozenset[str] = word_set(
        "angle backdrop background closeup close-up foreground image photo photograph photography pic picture shot "
        "snapshot view"
    )
    region: frozenset[str] = word_set(
        "back base bottom center centre corner direction distance edge end exterior front inside interior left line "
        "middle outside part portion rear rest right row scene side tip top way"
    )
    place: frozenset[str] = word_set("area city home location place room school setting street town world")
    time: frozenset[str] = word_set(
        "afternoon day daytime dusk evening hour minute moment morning night nighttime noon season time year"
    )
    empty: frozenset[str] = word_set(
        "action another anything fun half motion nothing one order other others something stuff thing"
    )

    @cached_property
    def all(self) -> frozenset[str]:
        """The words of all fields."""
        return self.picture | self.region | self.place | self.time | self.empty


EXCLUDED_WORDS = ExcludedWords()
