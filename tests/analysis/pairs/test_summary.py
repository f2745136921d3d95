"""Numbers of sets: means, medians, differences and correlations with their intervals."""

from __future__ import annotations

import datasets
import numpy as np
import pandas as pd
import pytest

from hfcomp.analysis.pairs.items import PairSet
from hfcomp.analysis.pairs.similarity import Scores
from hfcomp.analysis.pairs.summary import ScoredSet, Summary

NUMBER = 80


def scored_set(name, values, images=None, *, model="clip", ties=(), **columns):
    """A set whose pairs have these numbers."""
    number = len(next(iter(values.values())))
    ids = [f"image {image}" for image in (range(number) if images is None else images)]
    items = pd.DataFrame({"image_id": ids, "row": range(number), "place": 0})
    items = items.assign(**dict.fromkeys(("keyword", "category", "kind")) | columns)
    pairs = PairSet(name, name, None, datasets.Dataset.from_dict({"row": range(number)}), items)
    own = {measure: np.asarray(part, dtype=float) for measure, part in values.items()}
    free = {
        measure: part
        for measure, part in own.items()
        if measure in ("concreteness", "BERTScore", "words of the keyword")
    }
    rest = Scores({measure: part for measure, part in own.items() if measure not in free}, dict(ties))
    return ScoredSet(pairs, {"": Scores(free), **({model: rest} if rest.values else {})})


def line(summary, row, model=""):
    (match,) = [entry for entry in summary.lines() if (entry["row"], entry["model"]) == (row, model)]
    return match


def difference(summary, row, model=""):
    (match,) = line(summary, row, model)["differences"]
    return match


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(3, 0.5, NUMBER).clip(1, 5)


def test_the_difference_of_a_set_to_itself_moved_is_sure(values):
    moved = Summary(
        {"a": scored_set("a", {"concreteness": values}), "b": scored_set("b", {"concreteness": values - 0.25})}
    )
    for row in ("mean concreteness", "median concreteness"):
        estimate = difference(moved, row)
        assert (estimate["first"], estimate["second"], estimate["shared_images"]) == ("a", "b", NUMBER)
        assert [estimate[key] for key in ("value", "low", "high")] == pytest.approx([0.25] * 3, abs=1e-9)


def test_means_are_of_the_pairs_that_have_the_number(values):
    some = np.where(np.arange(NUMBER) % 4 == 0, np.nan, values)
    tie = np.arange(NUMBER) % 8 == 1
    right = np.where(np.isnan(some), np.nan, (values > 3) & ~tie)
    sets = {"a": scored_set("a", {"concreteness": some, "I2T accuracy": right}, ties={"I2T accuracy": tie})}
    summary = Summary(sets)
    mean = line(summary, "mean concreteness")["sets"]["a"]
    assert (mean["items"], mean["images"]) == (60, 60) and mean["value"] == np.nanmean(some)
    assert line(summary, "median concreteness")["sets"]["a"]["value"] == np.nanmedian(some)
    accuracy = line(summary, "I2T accuracy", "clip")
    assert accuracy["sets"]["a"]["ties"] == 10 and accuracy["sets"]["a"]["tie_rate"] == 10 / 60
    assert accuracy["chance"] == 0.5 and not accuracy["differences"]
    assert [entry["row"] for entry in summary.lines()] == ["mean concreteness", "median concreteness", "I2T accuracy"]


def test_pairs_of_an_image_are_one_draw(values):
    once = Summary({"a": scored_set("a", {"concreteness": values})})
    often = Summary({"a": scored_set("a", {"concreteness": np.repeat(values, 5)}, np.repeat(np.arange(NUMBER), 5))})
    for row in ("mean concreteness", "median concreteness"):
        single, many = (line(summary, row)["sets"]["a"] for summary in (once, often))
        assert [single[key] for key in ("low", "high")] == pytest.approx([many[key] for key in ("low", "high")])
        assert (many["items"], many["images"]) == (5 * NUMBER, NUMBER)


def test_correlations_are_of_each_set_and_model(values):
    generator = np.random.default_rng(2)
    gap = values + 0.2 * generator.normal(size=NUMBER)
    sets = {
        "a": scored_set("a", {"concreteness": values, "T2I logit gap": gap, "BERTScore": -values, "CLIP-L": gap**3})
    }
    sets["a"].scores["second"] = Scores({"CLIP-L": gap[::-1]})
    correlations = {
        (correlation["model"], correlation["first"], correlation["second"]): correlation
        for correlation in Summary(sets).correlations()
    }
    assert set(correlations) == {
        ("clip", "CLIP-L", "BERTScore"),
        ("clip", "T2I logit gap", "concreteness"),
        ("second", "CLIP-L", "BERTScore"),
        ("", "BERTScore", "concreteness"),
    }
    whole = correlations["", "BERTScore", "concreteness"]
    assert [whole["spearman"][key] for key in ("value", "low", "high")] == pytest.approx([-1] * 3)
    pearson = correlations["clip", "T2I logit gap", "concreteness"]["pearson"]
    assert (
        pearson["value"] == pytest.approx(np.corrcoef(values, gap)[0, 1]) and 0.8 < pearson["low"] < pearson["value"]
    )
    assert correlations["second", "CLIP-L", "BERTScore"]["pearson"]["high"] < 0.5


def test_one_pair_has_values_without_intervals():
    summary = Summary(
        {"a": scored_set("a", {"concreteness": [4.0], "I2T accuracy": [1.0], "CLIP-L": [0.5]}, keyword="dog")}
    )
    lines = {entry["row"]: entry["sets"]["a"] for entry in summary.lines()}
    assert lines["mean concreteness"]["value"] == lines["median concreteness"]["value"] == 4
    assert all(np.isnan(lines[row][key]) for row in lines if row != "unique keywords" for key in ("low", "high"))
    assert lines["unique keywords"] == {"value": 1, "items": 1}
    assert summary.correlations() == []


def test_keywords_and_categories_are_counted(values):
    keywords = np.array(["Dog", "dog ", "fire  hydrant", "in front of", ""] * 16)
    words = np.array([1, 1, 2, 3, np.nan] * 16)
    numbers = {"words of the keyword": words, "BERTScore": words / 10 + 0.5}
    scores = scored_set("a", numbers, keyword=keywords, category=["object", "object", "object", "relation", None] * 16)
    summary = Summary({"a": scores})
    assert line(summary, "unique keywords")["sets"]["a"] == {"value": 3, "items": 64}
    assert [(entry["words"], entry["share"]) for entry in summary.by_keyword()] == [
        ("1", 0.5),
        ("2", 0.25),
        ("3 or more", 0.25),
    ]
    assert summary.by_keyword()[1]["BERTScore"]["value"] == pytest.approx(0.7)
    shares = {entry["category"]: entry["share"] for entry in summary.categories()}
    assert shares == pytest.approx({"object": 0.6, "none": 0.2, "relation": 0.2})


def test_classes_hold_every_pair_once():
    rating = np.array([1, 1.49, 1.5, 4.5, 5, np.nan])
    scores = scored_set("a", {"concreteness": rating, "T2I logit gap": np.arange(6)})
    (entry,) = Summary({"a": scores}).by_class(["T2I logit gap"], "concreteness")
    assert [(part["from"], part["to"], part["items"], part["value"]) for part in entry["classes"]] == [
        (1, 1.5, 2, 0.5),
        (1.5, 2, 1, 2),
        (4.5, 5, 2, 3.5),
    ]
