"""Ratings of the sandbox's keywords: bands in the order of human norms, and what they leave as it is."""

import os
from itertools import chain, pairwise
from pathlib import Path

import pytest

from hfcomp.data.negatives import with_concreteness
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.sandbox import choice_set, training_set
from hfcomp.sandbox.negatives import DRAWABILITY
from hfcomp.sandbox.ratings import BAND_RATINGS, BANDS, TABLES

from .tables import raw

NORMS = "concreteness/Concreteness_ratings_Brysbaert_et_al_BRM.txt"


def test_every_keyword_is_in_one_band_and_rated_by_each_table():
    assert sorted(chain(*BANDS.values())) == sorted(DRAWABILITY)
    assert all(set(table) == set(DRAWABILITY) for table in TABLES.values())
    assert list(BANDS) == list(BAND_RATINGS) and list(BAND_RATINGS.values()) == [4.6, 4.0, 3.4]


@pytest.mark.skipif("HFCOMP_REAL_DATA" not in os.environ, reason=f"needs {NORMS} in HFCOMP_REAL_DATA")
def test_people_rate_each_word_of_a_band_above_each_of_the_next():
    norms = ConcretenessRatings.from_file(Path(os.environ["HFCOMP_REAL_DATA"]) / NORMS)
    human = {band: {word: norms.lookup(word) for word in words} for band, words in BANDS.items()}
    for upper, lower in pairwise(human):
        lowest, highest = min(human[upper], key=human[upper].get), max(human[lower], key=human[lower].get)
        assert human[upper][lowest] > human[lower][highest], (upper, lowest, lower, highest)


def test_rows_have_the_bands_unless_the_made_up_table_is_asked_for():
    for rows, table in [
        (training_set(20, 0), "bands"),
        (training_set(20, 0, ratings="synthetic"), "synthetic"),
        (choice_set(2, 0), "bands"),
    ]:
        for row in rows.select_columns(["negative_keywords", "negative_concreteness"]):
            expected = [TABLES[table][word] for word in row["negative_keywords"]]
            assert row["negative_concreteness"] == pytest.approx(expected)


def test_other_ratings_change_no_image_and_no_noise():
    """What people say of a word does not decide whether an editor draws it."""
    bands, synthetic = (raw(training_set(40, 0, edit_noise=0.6, ratings=ratings)) for ratings in TABLES)
    assert bands.pop("negative_concreteness") != synthetic.pop("negative_concreteness")
    assert bands == synthetic
    assert any(bands["noise"])


@pytest.mark.follows("hfcomp/sandbox/ratings.py", "To add human ratings from ")
def test_human_ratings_are_joined_from_a_file(tmp_path):
    with pytest.raises(ValueError, match="'human',.* bands, synthetic.*hfcomp.data.negatives.with_concreteness"):
        training_set(20, 0, ratings="human")
    path, logged = tmp_path / "norms.txt", []
    path.write_text("Word\tConc.M\tDom_Pos\n" + "".join(f"{word}\t2.5\tNoun\n" for word in DRAWABILITY))
    rows = with_concreteness(training_set(20, 0), str(path), logged.append)
    assert set(chain(*rows["negative_concreteness"])) == {2.5}
