"""One spelling for each name, and what is no name."""

from __future__ import annotations

import pytest

from hfcomp.factory.magic.source import (
    CONTROL,
    EMPTY,
    LIST,
    LONG,
    MARKUP,
    NO_LETTERS,
    NO_NAME,
    SENTENCE,
    canonical_name,
    name_problem,
)

# Names that the prompts of CLEAR GLASS give as examples.
AUTHORS = ["Breakfast", "Business Attire", "Education", "Wildlife", "Home Design", "Defense", "Business", "Commerce"]
AUTHORS += ["Urban Regulation", "Social Gathering", "Urban Nightlife", "Human Growth", "Cultural Heritage", "Life"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        *((text, "birthday party") for text in ("Birthday party", "birthday parties", ' "The Birthday  Party." ')),
        ("Glasses", "glass"),
        ("a bus", "bus"),
        ("Buses", "bus"),
        ("tennis", "tennis"),
        ("Skateboarding", "skateboarding"),
        ("Men", "man"),
        ("誕生日会", "誕生日会"),
        ("CAFÉ", "café"),
        ("cafe\u0301", "café"),
        ("ｆｕｌｌ width", "full width"),
        ("the", "the"),
        *((name, name.casefold()) for name in AUTHORS),
    ],
)
def test_names_have_one_spelling(text, name):
    assert name_problem(text) is None
    assert canonical_name(text) == name
    assert canonical_name(name) == name


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((text, EMPTY) for text in ("", "  ", '""', "...")),
        *((text, LIST) for text in ("dog, cat", "dog\ncat", "1. dog", "dogs or cats", "dog/cat", "- dog")),
        ("a party that people give for a birthday", LONG),
        *((text, MARKUP) for text in ("<b>dog</b>".replace("/", ""), "Concept: dog", "[dog]x", "party (indoor)")),
        ("123", NO_LETTERS),
        *((text, NO_NAME) for text in ("None", "unknown.", "N/A".replace("/", ""), "Other")),
        *((text, SENTENCE) for text in ("This is a dog", "The image shows dogs", "I can't", "dogs are running")),
        ("dog\u202ecat", CONTROL),
        ("dog\x1b[31m", CONTROL),
    ],
)
def test_what_is_no_name_has_a_reason(text, problem):
    assert (name_problem(text) or "").partition(":")[0] == problem
