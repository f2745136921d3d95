"""Names of people, and which are one person."""

from __future__ import annotations

from contextlib import closing

import pytest

from hfcomp.data.annotations import decisions
from hfcomp.data.annotations.chain import Rows
from hfcomp.data.annotations.decisions import Decisions
from hfcomp.data.annotations.entries import (
    AUTOMATIC,
    decider,
    first_spellings,
    is_same_person,
    person_key,
    person_name,
)
from tests.data.annotations.making import edit, items

CYRILLIC_A = "\N{CYRILLIC SMALL LETTER A}"
SAME = [
    "anna",
    "ANNA",
    " Anna ",
    "\N{FULLWIDTH LATIN CAPITAL LETTER A}nna",
    "\N{MATHEMATICAL BOLD SMALL A}nna",
    f"{CYRILLIC_A}nn{CYRILLIC_A}",
]
"""Spellings of Anna; the last one is refused where somebody types it, and may stand in an old log."""


@pytest.mark.parametrize(
    "name", ["Ann", "Zoë Müller-Łęcki", "王小明", "عمر", "A", "x" * 60, "Ann 👩‍🔬".replace("\u200d", "")]
)
def test_names_of_all_scripts(name):
    assert person_name(f"  {name}\n") == name


def test_composed_and_decomposed_letters_are_one_name():
    assert person_name("Jose\N{COMBINING ACUTE ACCENT}") == person_name("José") == "José"


@pytest.mark.parametrize("name", ["", " \n", "x" * 61, "Ann\nBob", "Ann\0", "Ann\u200b", "\ud800", "\u202eAnn"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="found .*1 to 60 printable"):
        person_name(name)


@pytest.mark.parametrize("name", [AUTOMATIC, "Automatic", " automatic "])
def test_nobody_is_named_as_the_automatic_mode(name):
    with pytest.raises(ValueError, match="reserved .*automatic"):
        person_name(name)


def test_the_code_may_name_the_automatic_mode():
    assert decider(AUTOMATIC) == AUTOMATIC
    assert decider(" Ann ") == "Ann"


@pytest.mark.parametrize("name", SAME)
def test_spellings_of_a_name_are_one_person(name):
    assert is_same_person(name, "Anna")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("сосо", "coco"),  # noqa: RUF001
        ("КАТЯ", "катя"),  # noqa: RUF001
        ("Straße", "STRASSE"),
        ("Ann  Lee", "ann lee"),
        ("Jose\N{COMBINING ACUTE ACCENT}", "JOSÉ"),
        ("ΝΙΚΟ", "NIKO"),  # noqa: RUF001
    ],
)
def test_letters_that_look_alike_are_one_person(first, second):
    assert is_same_person(first, second) and first_spellings([first, second]) == dict.fromkeys([first, second], first)


@pytest.mark.parametrize("other", ["Anne", "Anna B", "Änna", "王小明", "Катя", "", None])  # noqa: RUF001
def test_other_names_are_other_people(other):
    assert not is_same_person("Anna", other)


@pytest.mark.follows("hfcomp/data/annotations/entries.py", "Write the word in one alphabet.")
@pytest.mark.parametrize("name", [f"{CYRILLIC_A}nna", f"Lee {CYRILLIC_A}nna", "Ann\N{GREEK SMALL LETTER ALPHA}"])
def test_a_word_of_two_alphabets_is_refused(name):
    with pytest.raises(ValueError, match=r"Latin and \w+"):
        person_name(name)
    assert person_name("Anna Иванова 王") == "Anna Иванова 王"


@pytest.mark.parametrize("letter", ["\u3164", "\u115f", "\ufe0f", "\u034f", "\u2800", "\u200d", "\u202e"])
def test_letters_that_nobody_sees_are_refused(letter):
    with pytest.raises(ValueError, match="printable characters"):
        person_name(f"Ann{letter}a")


@pytest.mark.parametrize("name", ["AUTOMATIC", "\uff41utomatic", "аutomatic"])  # noqa: RUF001
def test_no_spelling_of_the_automatic_mode_is_a_name(name):
    with pytest.raises(ValueError, match="reserved|alphabet"):
        person_name(name)
    assert person_key(name) == AUTOMATIC


def test_nobody_reviews_their_own_edit_under_another_spelling(tmp_path):
    with closing(Decisions(tmp_path / "a.sqlite")) as store:
        store.add_items(items(3))
        assert store.next_item("Anna").id == "0/color"
        store.save_draft("Anna", "0/color", {"caption": "so far"})
        assert store.next_item("anna").id == "0/color" and store.draft("ANNA", "0/color") == {"caption": "so far"}
        store.submit("Anna", "0/color", edit())
        assert store.next_review("anna") is None
        for call in (
            lambda: store.accept("anna", "0/color", "okay"),
            lambda: store.send_back("ANNA", "0/color", "no"),
        ):
            with pytest.raises(ValueError, match="annotated 0/color"):
                call()
        store.submit("ANNA", "1/color", edit(1))
        assert store.by_person()["Anna"]["submit"] == 2 and {entry.person for entry in store.log()} == {"Anna"}
        assert store.undo("anna").id == "1/color"
        assert store.next_review("Ben")[0].id == "0/color"


def test_a_log_with_several_spellings_of_a_person_is_read(tmp_path, monkeypatch):
    with closing(Decisions(tmp_path / "a.sqlite")) as store, monkeypatch.context() as older:
        older.setattr(Rows, "spelling", lambda self, person: person)  # as 8f0e31c wrote names
        older.setattr(decisions, "decider", lambda name: name)
        store.add_items(items(3))
        for place, name in enumerate(("Anna", "anna", SAME[-1])):
            store.submit(name, f"{place}/color", edit(place))
    with closing(Decisions(tmp_path / "a.sqlite")) as store:
        assert [entry.person for entry in store.log()] == ["Anna", "anna", SAME[-1]]
        assert store.next_review("Anna") is None and store.next_review("ANNA") is None
        assert store.by_person()["Anna"]["submit"] == 3
        assert store.next_review("Ben")[0].id == "0/color"
        store.accept("Ben", "0/color", "okay")
        assert [record.annotator for record in store.accepted()] == ["Anna"]
        assert store.rebuild() == 0
