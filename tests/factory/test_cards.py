"""The card of a built set: numbers and names as they are, and nothing of the source that a reader's page would run."""

from __future__ import annotations

import json

from huggingface_hub import DatasetCard

from hfcomp.factory.cards import Source, write_card
from hfcomp.factory.kinds import NEGATIVES
from hfcomp.reporting.report import Table
from tests.hub.built import write_build

WORD = "<b>[x](http://a.b) _y_ `z` | w_w, 6.7% off (it's)"


def test_numbers_and_names_are_readable_and_texts_of_the_source_are_no_markup(tmp_path):
    folder = write_build(tmp_path, word=WORD, rows=1)
    text, _, _ = (folder / "README.md").read_text().partition("## How it was made")  # settings are a block of code
    assert "w_w, 6.7% off (it's) on a large table" in text
    for markup in ("<b>", "[x]", "http://a", " _y_", "`z`", "a.b"):
        assert markup not in text
    manifest = json.loads((folder / "manifest.json").read_text())
    facts = [Table("Shares", ["configuration", "mean", "share"], [["high_concreteness", "4.77", "6.7%"]])]
    source = Source("photos", None, False)
    write_card(folder, {"default": [manifest]}, source, NEGATIVES.card, "hfcomp", facts)
    assert "| high_concreteness | 4.77 | 6.7% |" in (folder / "README.md").read_text()


def test_the_license_in_the_metadata_is_that_of_the_text(tmp_path):
    rows = DatasetCard.load(write_build(tmp_path / "rows", rows=1) / "README.md").data
    assert (rows.license, rows.license_name) == ("other", "per-row")
    unknown = DatasetCard.load(write_build(tmp_path / "none", rows=1, licenses=None) / "README.md").data
    assert unknown.license == "unknown" and "license_name" not in unknown.to_dict()
    stated = DatasetCard.load(
        write_build(tmp_path / "stated", rows=1, licenses=None, card="cc-by-4.0") / "README.md"
    ).data
    assert stated.license == "cc-by-4.0"
