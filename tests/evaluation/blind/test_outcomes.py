"""Blind rules and priors on the items of each kind of protocol."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from datasets import Dataset

from hfcomp.evaluation.blind.outcomes import BlindRules, prior_outcomes, text_choice_of
from hfcomp.evaluation.blind.rules import BIGRAM, BIGRAM_SENTENCE, CONSTANT, FULL_STOP, SHORTER
from hfcomp.evaluation.encoding.embed import Indexed
from hfcomp.evaluation.engine import embed, run_benchmark, validate
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice, KeywordRanking, TwoPositiveChoice
from hfcomp.evaluation.protocols.group_match import GroupAndCaption, GroupMatch
from hfcomp.evaluation.protocols.retrieval import PairsAndNegatives, Retrieval
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark, BenchmarkData, Folders, Origin
from tests import tiny

RULES = (CONSTANT, SHORTER, FULL_STOP)
ROWS = {
    "caption": ["a dog", "a cat sits", "two birds", "a red car"],
    "negative_captions": [["a dog sits."], ["a cat"], ["two fish."], ["a blue car", "a car."]],
    "positive_captions": [["one dog"], ["one cat"], ["two small birds."], ["a car"]],
    "image_id": ["0", "0", "1", "2"],
}


def benchmark(protocol) -> Benchmark:
    how = {"paper": "", "license": "", "obtain": "", "data": ()}
    return Benchmark(name="own", title="Own", suite=COMPOSITIONAL, protocol=protocol, **how)


def data(protocol, **more) -> BenchmarkData:
    rows = Dataset.from_dict({**ROWS, **more})
    images = {name: [tiny.image(row) for row in (0, 0, 1, 2)] for name in ("image", "negative_image")}
    return validate(benchmark(protocol), BenchmarkData(rows, Origin("here"), images=images))


def with_title(entry: Benchmark, items: BenchmarkData) -> tuple[str, Benchmark, BenchmarkData]:
    return entry.title, entry, items


def outcomes(protocol, **more) -> dict[tuple[str, str], tuple[list[float], list[bool]]]:
    rules = BlindRules(None, Folders())
    tables = rules.score([with_title(benchmark(protocol), data(protocol, **more))])
    return {
        (table["arm"].iloc[0], metric): (part["value"].tolist(), part["tie"].tolist())
        for table in tables
        for metric, part in table.groupby("metric")
    }


def test_caption_choice_is_made_by_the_texts_and_ties_lose():
    by_rule = outcomes(CaptionChoice())
    assert set(by_rule) == {(rule, "caption choice") for rule in RULES}
    assert by_rule[CONSTANT, "caption choice"] == ([0, 0, 0, 0], [True] * 4)
    # a negative of fewer characters than the caption wins; "two fish." has as many as "two birds"
    assert by_rule[SHORTER, "caption choice"] == ([1, 0, 0, 0], [False, False, True, False])
    # the last item's first negative has no full stop either
    assert by_rule[FULL_STOP, "caption choice"] == ([1, 0, 1, 0], [False, True, False, True])


def test_two_positives_have_to_beat_the_negative_both():
    by_rule = outcomes(TwoPositiveChoice())
    assert set(by_rule) == {(rule, "image-to-text") for rule in RULES}
    assert by_rule[SHORTER, "image-to-text"][0] == [1, 0, 0, 1]
    assert by_rule[FULL_STOP, "image-to-text"][0] == [1, 0, 0, 0]


def test_no_blind_rule_solves_a_group():
    by_rule = outcomes(GroupMatch())
    assert set(by_rule) == {(rule, "text") for rule in RULES}
    assert not any(sum(values) for values, _ in by_rule.values())
    assert set(outcomes(GroupAndCaption(), one_answer=[True] * 4)) == {(rule, "caption choice") for rule in RULES}


def test_keywords_and_rows_with_some_negatives():
    assert set(outcomes(KeywordRanking())) == {(rule, "top-1") for rule in RULES}
    some = {"negative_captions": [["a dog sits."], [], [], ["a car"]]}
    by_rule = outcomes(PairsAndNegatives(), **some)
    assert {name: len(values) for name, (values, _) in by_rule.items()} == {
        (rule, "caption choice"): 2 for rule in RULES
    }
    assert by_rule[SHORTER, "caption choice"][0] == [1, 0]


def test_a_benchmark_without_a_choice_among_texts_is_named():
    rules = BlindRules(None, Folders())
    items = data(Retrieval(), captions=[["a"], ["b"], ["c"], ["d"]])
    assert rules.score([with_title(benchmark(Retrieval()), items)]) == []
    assert rules.not_applicable == ["Own"] and not rules.skipped  # no captions are looked for


def test_bigrams_are_skipped_by_name_without_captions_and_scored_with_them(tmp_path):
    without = BlindRules(None, Folders())
    without.score([with_title(benchmark(CaptionChoice()), data(CaptionChoice()))])
    assert set(without.skipped) == {BIGRAM, BIGRAM_SENTENCE}
    assert all("--blind_captions FILE" in reason for reason in without.skipped.values())
    (tmp_path / "captions.txt").write_text("a dog runs\na cat sits here\ntwo birds fly\na dog\n")
    rules = BlindRules(tmp_path / "captions.txt", Folders())
    tables = rules.score([with_title(benchmark(CaptionChoice()), data(CaptionChoice()))])
    assert {table["arm"].iloc[0] for table in tables} == {*RULES, BIGRAM, BIGRAM_SENTENCE}
    counts = rules.captions["Own"]["own"]
    assert (counts["captions"], counts["of_its_images"], counts["equal_texts"]) == (3, 0, 1)
    (tmp_path / "captions.txt").write_text("a dog\n")
    rules = BlindRules(tmp_path / "captions.txt", Folders())
    assert len(rules.score([with_title(benchmark(CaptionChoice()), data(CaptionChoice()))])) == len(RULES)
    assert str(tmp_path / "captions.txt") in rules.skipped[BIGRAM]


def test_items_that_cannot_be_scored_cost_their_benchmark_alone():
    rules = BlindRules(None, Folders())
    good = with_title(benchmark(KeywordRanking()), data(KeywordRanking()))
    rows = Dataset.from_dict({**ROWS, "negative_captions": [["a"], [], ["b"], ["c"]], "item": list("0123")})
    items = BenchmarkData(rows, Origin("here"), images={"image": [tiny.image(0)] * 4})
    bad = with_title(replace(benchmark(CaptionChoice()), title="Bad"), items)
    tables = rules.score([bad, good])
    assert "no other candidate" in rules.skipped["Bad"] and len(tables) == len(RULES)


class Points:
    """An encoder whose images and texts are points of a circle."""

    def __init__(self, images: list[float], texts: dict[str, float]) -> None:
        self._images, self._texts = images, texts

    def index_images(self, images, *, column="image", progress=False) -> Indexed:
        return self._at(self._images)

    def index_texts(self, texts, *, progress=False) -> Indexed:
        return self._at([self._texts.get(text, 3.0) for text in texts])

    def _at(self, angles) -> Indexed:
        vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
        return Indexed(vectors, np.arange(len(angles)), 0, 0)


def test_a_models_prior_is_its_text_against_the_mean_image():
    # images lie around angle 0: the text nearer to 0 is chosen, whatever its own image
    texts = {"a dog": 0.1, "a cat sits": 0.5, "two birds": 0.2, "a red car": 0.3, "a cat": 0.4, "a blue car": 0.3}
    choice = benchmark(CaptionChoice())
    encoder = Points([-0.4, -0.4, 0.4, 0.4], texts)
    table = prior_outcomes(choice, embed(choice, data(CaptionChoice()), encoder))
    assert table["value"].tolist() == [1, 0, 1, 0]
    assert table["tie"].tolist() == [False, False, False, True]
    report = run_benchmark(choice, data(CaptionChoice()), encoder, prior=prior_outcomes)
    assert report.prior.equals(table) and run_benchmark(choice, data(CaptionChoice()), encoder).prior is None
    retrieval = benchmark(Retrieval())
    items = data(Retrieval(), captions=[["a"], ["b"], ["c"], ["d"]])
    assert prior_outcomes(retrieval, embed(retrieval, items, encoder)) is None


@pytest.mark.parametrize("protocol", [CaptionChoice(), TwoPositiveChoice()])
def test_items_without_any_image_are_not_judged(protocol):
    rows = Dataset.from_dict(ROWS)
    items = BenchmarkData(rows, Origin("here"), images={"image": [None] * 4}, texts_alone=4)
    assert text_choice_of(benchmark(protocol), items) is None
