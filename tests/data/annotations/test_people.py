"""Names of people."""

from __future__ import annotations

import pytest

from hfcomp.data.annotations.people import decider, person_name
from hfcomp.data.annotations.records import AUTOMATIC


@pytest.mark.parametrize(
    "name", ["Ann", "Zoë Müller-Łęcki", "王小明", "عمر", "A", "x" * 60, "Ann 👩‍🔬".replace("\u200d", "")]
)
def test_names_of_all_scripts(name):
    assert person_name(f"  {name}\n") == name


def test_composed_and_decomposed_letters_are_one_name():
    assert person_name("Jose\N{COMBINING ACUTE ACCENT}") == person_name("José") == "José"


@pytest.mark.parametrize("name", ["", " \n", "x" * 61, "Ann\nBob", "Ann\0", "Ann\u200b", "\ud800", "\u202eAnn"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="Name of a person: found .*, expected 1 to 60 printable characters"):
        person_name(name)


@pytest.mark.parametrize("name", [AUTOMATIC, "Automatic", " automatic "])
def test_nobody_is_named_as_the_automatic_mode(name):
    with pytest.raises(ValueError, match="reserved for the automatic mode"):
        person_name(name)


def test_the_code_may_name_the_automatic_mode():
    assert decider(AUTOMATIC) == AUTOMATIC
    assert decider(" Ann ") == "Ann"
