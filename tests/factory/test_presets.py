"""Presets: a paper's values where hfcomp's own defaults improve on them, and what they are on real captions."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hfcomp import cli
from hfcomp.data.built_sets.files import MANIFEST
from hfcomp.factory.builder import builders
from hfcomp.factory.concretebatch.targets import draw_targets
from hfcomp.factory.options import NegativeOptions, PresetOptions
from hfcomp.factory.targets.candidates import find_candidates
from hfcomp.factory.targets.choice import Choice, balanced_categories, summarize_targets
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.negatives.swaps import swap_negatives
from hfcomp.parsing import cached_parser
from hfcomp.parsing.tokens import longest_text
from tests.real_models import pipeline as pipeline

REAL = os.environ.get("HFCOMP_REAL_DATA")
RATINGS = "concreteness/Concreteness_ratings_Brysbaert_et_al_BRM.txt"
PLACE = {"source": "x", "output": "y"}
KINDS = [builder.options for builder in builders().values() if issubclass(builder.options, PresetOptions)]


def build(folder: Path, *more: str) -> tuple[str, str, list[list[str]]]:
    """The manifest, the card and the negatives of two captions."""
    captions = folder / "captions.csv"
    captions.write_text('caption\n"a cat and a dog"\n"a man and a horse"\n')
    words = ["--source", str(captions), "--output", str(folder / "out"), "--kinds", "swap:nouns", "--parser", "rules"]
    cli.main(["build", "negatives", *words, *more])
    text = (folder / "out" / MANIFEST).read_text()
    (file,) = (folder / "out" / "data").glob("*.parquet")
    return text, (folder / "out" / "README.md").read_text(), pq.read_table(file)["negative_captions"].to_pylist()


def test_the_preset_is_printed_and_recorded(tmp_path, capsys):
    manifest, card, negatives = build(tmp_path, "--preset", "paper")
    assert negatives == [["a dog and a cat"], ["a horse and a man"]]
    assert "--preset paper sets --swap_rule plain\n" in capsys.readouterr().out
    assert '"swap_rule": "plain"' in manifest and "swap_rule: plain" in card and "--swap_rule plain" in card


def test_without_it_the_default_and_the_manifest_stay(tmp_path, capsys):
    manifest, card, negatives = build(tmp_path, "--max_without_negative", "1")
    assert negatives == [[""], [""]] and "preset" not in capsys.readouterr().out
    assert "swap_rule" not in manifest and "swap_rule" not in card


def test_a_given_value_wins_even_if_it_is_the_default(tmp_path, capsys):
    given = "--preset", "paper", "--swap_rule", "guarded", "--max_without_negative", "1"
    _, card, negatives = build(tmp_path, *given)
    assert negatives == [[""], [""]] and "--swap_rule" not in card
    assert "--preset paper sets nothing: the command sets all its options" in capsys.readouterr().out
    options = NegativeOptions(**PLACE, kinds=("swap",), preset="paper", swap_rule="guarded")
    assert options.swap_rule == replace(options, seed=1).swap_rule == "guarded"


@pytest.mark.parametrize("kind", KINDS)
def test_help_lists_what_a_preset_sets_and_each_value_differs_from_its_default(kind, capsys):
    with pytest.raises(SystemExit):
        cli.main(["build", kind.what, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    given = {"kinds": ("swap",)} if kind is NegativeOptions else {"until": "targets", "concreteness_ratings": "r"}
    plain, paper = kind(**PLACE, **given), kind(**PLACE, **given, preset="paper")
    assert kind.paper
    for name, value in kind.paper.items():
        assert f"--{name} {value}" in text and getattr(paper, name) == value != getattr(plain, name)


@pytest.mark.follows("hfcomp/factory/options.py", "needs --kinds to include swap. Remove it, or add swap to --kinds.")
@pytest.mark.parametrize("given", [{"preset": "paper"}, {"swap_rule": "plain"}])
def test_a_preset_without_effect_is_an_error(given):
    with pytest.raises(ValueError, match="^--(preset paper|swap_rule) needs --kinds to include swap"):
        NegativeOptions(**PLACE, **given)
    NegativeOptions(**PLACE, **given, kinds=("keyword", "swap"))
    NegativeOptions(**PLACE)


@pytest.fixture(scope="module")
def captions() -> list[list[str]]:
    """The captions of each image of COCO val2017."""
    if REAL is None:
        pytest.skip("HFCOMP_REAL_DATA is not set")
    by_image: dict[int, list[str]] = {}
    for row in json.loads((Path(REAL) / "coco" / "captions_val2017.json").read_text())["annotations"]:
        by_image.setdefault(row["image_id"], []).append(row["caption"])
    return [texts for _, texts in sorted(by_image.items())]


@pytest.mark.slow
def test_captions_with_a_noun_swap(captions, pipeline):
    docs = list(cached_parser(f"spacy:{pipeline}").parse([texts[0] for texts in captions[:2000]]))
    swaps = {
        rule: [bool(swap_negatives(doc, swaps=["nouns"], guarded=rule)) for doc in docs] for rule in (True, False)
    }
    assert sum(swaps[True]) / len(docs) == pytest.approx(0.63, abs=0.03)
    assert sum(swaps[False]) / len(docs) == pytest.approx(0.99, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "mean"), [("filtered", 4.68), ("all", 4.73)])
def test_concreteness_of_keywords(words, mean, captions, pipeline):
    ratings = ConcretenessRatings.from_file(Path(REAL) / RATINGS)
    texts = [longest_text(own) for own in captions]
    rows = []
    for text, doc in zip(texts, cached_parser(f"spacy:{pipeline}").parse(texts), strict=True):
        drawn = draw_targets(Choice.of("high"), text, find_candidates(doc, ratings, words=words), seed=0)
        rows.append({target.category: target.rated_word for target in drawn})
    pairs = zip(balanced_categories(map(list, rows)), rows, strict=True)
    assert summarize_targets([(name, row[name]) for name, row in pairs if row], ratings).mean == pytest.approx(
        mean, abs=0.02
    )
