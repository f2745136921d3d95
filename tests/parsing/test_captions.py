"""Whether captions are English: no false alarm on English ones, and word from other languages."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hfcomp.parsing.captions import SAMPLED, is_foreign, language_note
from tests import tiny

REAL = os.environ.get("HFCOMP_REAL_DATA")
LANGUAGES = {
    "German": ["Ein großer roter Hund läuft über die Wiese", "Zwei Kinder spielen mit einem blauen Ball im Park"],
    "Chinese": ["一只红色的狗在草地上奔跑", "两个孩子在公园里玩蓝色的球"],
    "French": ["un chien rouge court dans l'herbe", "deux enfants jouent avec un ballon bleu"],
    "Spanish": ["un perro rojo corre por el césped", "dos niños juegan con una pelota azul"],
    "Portuguese": ["um cachorro vermelho corre na grama", "duas crianças com uma bola azul"],
    "Italian": ["due bambini giocano con una palla blu", "il cane rosso è nel parco"],
    "Dutch": ["een rode hond rent door het gras", "twee kinderen spelen met een bal"],
    "Russian": ["рыжая собака бежит по траве"],
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_languages_are_found(language):
    captions = LANGUAGES[language]
    assert all(map(is_foreign, captions))
    note = language_note(captions)
    assert note.startswith(f"{len(captions)} of {len(captions)} sampled captions ")
    assert captions[0][:50] in note and "\n" not in note


@pytest.mark.parametrize(
    "captions",
    [
        tiny.captions(),
        ["red cube", "blue ball", "dog", "sunny park", "dog, grass, outdoors", "1984"],
        ["Nike Air Max 90 white", "a van on a road", "men die in war", "he met her", "a dog is at rest", "la lakers"],
        ["a café with the sign 'Chez Nous'", "the jalapeño and the piñata"],
        [],
    ],
)
def test_english_and_keywords_are_left_alone(captions):
    assert language_note(captions) is None


def test_a_fifth_is_reported_and_less_is_not():
    def mix_captions(foreign: int) -> list[str]:
        return ["ein roter Hund"] * foreign + ["a red dog"] * (100 - foreign)

    assert language_note(mix_captions(19)) is None
    assert language_note(mix_captions(20)).startswith("20 of 100 ")


def test_of_many_captions_some_are_looked_at_from_first_to_last():
    captions = ["a red dog"] * (SAMPLED * 3) + ["ein roter Hund"] * (SAMPLED * 3)
    assert language_note(captions).startswith(f"{SAMPLED // 2} of {SAMPLED:,} ")


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="HFCOMP_REAL_DATA is not set")
def test_no_slice_of_coco_is_reported():
    file = json.loads((Path(REAL) / "coco" / "captions_val2017.json").read_text())
    captions = [annotation["caption"] for annotation in file["annotations"]]
    foreign = [is_foreign(caption) for caption in captions]
    assert len(captions) == 25_014 and sum(foreign) <= 3
    assert not any(language_note(captions[start : start + 100]) for start in range(0, len(captions), 50))
