"""Averages over subsets: by hand, with chance, tests and intervals of their own; what a tie counts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hfcomp.statistics import ImageBootstrap, bootstrap, clusters
from hfcomp.statistics.average import Average
from hfcomp.statistics.clusters import Aligned
from hfcomp.statistics.measures import mean_of_lines, missing_averages
from hfcomp.statistics.significance import adjust, false_discovery_rate, holm
from hfcomp.statistics.summary import correct, summarize

PLAIN = {"a": [1, 0, 0, 0], "b": [1, 1], "c": [1, 0]}  # means 1/4, 1, 1/2
TUNED = {"a": [1, 1, 1, 0], "b": [1, 0], "c": [1, 1]}  # means 3/4, 1/2, 1
IMAGES = {"a": [0, 1, 2, 3], "b": [0, 1], "c": [2, 4]}
CHANCE = {"a": 0.5, "b": 0.25, "c": 1 / 3}
GROUPED = Average("grouped", (("a", "b"), ("c",)))
MACRO = Average("macro")
MICRO = Average("micro", pooled=True)
PART = Average("micro of a and c", (("a",), ("c",)), pooled=True)


def rows(model, values, *, benchmark="crepe", metric="choice", tie=None, chance=CHANCE, images=IMAGES):
    tables = []
    for subset, own in values.items():
        columns = {
            "item": [f"{subset}/{index}" for index in range(len(own))],
            "image_id": [f"{number:03}.jpg" for number in images[subset]],
            "value": np.asarray(own, float),
            "tie": np.zeros(len(own), bool) if tie is None else np.asarray(tie[subset], bool),
            "chance": np.broadcast_to(chance[subset], len(own)),
        }
        tables.append(pd.DataFrame(columns).assign(subset=subset))
    facts = {"benchmark": benchmark, "metric": metric, "aspect": "composition", "arm": model}
    return pd.concat(tables).assign(**facts)


def lines_of(*tables, averages, **changes):
    arguments = {"models": ["plain", "tuned"], "references": ["plain"], "averages": {"crepe": averages}, **changes}
    return {line["subset"]: line for line in summarize(pd.concat(tables, ignore_index=True), **arguments)}


@pytest.fixture
def lines():
    return lines_of(rows("plain", PLAIN), rows("tuned", TUNED), averages=[GROUPED, MACRO, MICRO, PART])


@pytest.mark.parametrize(
    ("name", "plain", "tuned", "chance", "items", "images"),
    [
        ("grouped", ((1 / 4 + 1) / 2 + 1 / 2) / 2, ((3 / 4 + 1 / 2) / 2 + 1) / 2, (0.375 + 1 / 3) / 2, 8, 5),
        ("macro", (1 / 4 + 1 + 1 / 2) / 3, (3 / 4 + 1 / 2 + 1) / 3, (0.5 + 0.25 + 1 / 3) / 3, 8, 5),
        ("micro", 4 / 8, 6 / 8, (4 * 0.5 + 2 * 0.25 + 2 / 3) / 8, 8, 5),
        ("micro of a and c", 2 / 6, 5 / 6, (4 * 0.5 + 2 / 3) / 6, 6, 5),
    ],
)
def test_averages_are_those_by_hand(lines, name, plain, tuned, chance, items, images):
    line = lines[name]
    assert line["average"] and (line["items"], line["images"]) == (items, images)
    assert line["chance"] == pytest.approx(chance)
    values = {model: share["value"] for model, share in line["models"].items()}
    assert values == pytest.approx({"plain": plain, "tuned": tuned})
    assert line["differences"]["tuned"]["plain"]["value"] == pytest.approx(tuned - plain)


def test_averages_stand_before_their_benchmark_and_say_what_they_are_of(lines):
    assert list(lines) == ["grouped", "macro", "micro", "micro of a and c", "a", "b", "c"]
    assert [line["average"] for line in lines.values()] == [True] * 4 + [False] * 3
    assert (lines["grouped"]["groups"], lines["grouped"]["pooled"]) == ((("a", "b"), ("c",)), False)
    assert (lines["micro"]["groups"], lines["micro"]["pooled"]) == ((("a",), ("b",), ("c",)), True)
    assert "groups" not in lines["a"]


def test_p_of_an_average_flips_an_image_in_all_subsets_at_once(lines):
    weight = {"a": 1 / 16, "b": 1 / 8, "c": 1 / 4}  # 1 / (groups * subsets of the group * items)
    sums = np.zeros(5)
    for subset, images in IMAGES.items():
        np.add.at(sums, images, weight[subset] * np.subtract(TUNED[subset], PLAIN[subset]))
    assert np.count_nonzero(sums) == 3  # image 1: +1/16 - 1/8, image 2: +1/16, image 4: +1/4
    flips = np.abs(np.array(list(itertools.product([-1, 1], repeat=5))) @ sums)
    reached = abs(sums.sum())
    expected = np.mean(flips > reached + 1e-12) + np.mean(np.abs(flips - reached) < 1e-12) / 2  # mid-p
    assert 0 < expected < 1
    assert lines["grouped"]["differences"]["tuned"]["plain"]["p"] == pytest.approx(expected)


def test_the_smallest_difference_of_an_average_is_of_its_residuals():
    generator = np.random.default_rng(5)
    images = {name: generator.integers(0, 90, size=size) for name, size in (("a", 160), ("b", 120), ("c", 130))}
    values = [{name: generator.random(len(own)) < 0.6 for name, own in images.items()} for _ in range(2)]
    tables = [rows(name, own, images=images) for name, own in zip(("plain", "tuned"), values, strict=True)]
    residual = np.zeros(90)
    for subset, share in {"a": 1 / 4, "b": 1 / 4, "c": 1 / 2}.items():
        gain = np.subtract(values[1][subset], values[0][subset], dtype=float)
        np.add.at(residual, images[subset], share * (gain - gain.mean()) / len(gain))
    number = len(np.unique(np.concatenate(list(images.values()))))
    error = math.sqrt(number / (number - 1) * (residual**2).sum())
    smallest = lines_of(*tables, averages=[GROUPED])["grouped"]["differences"]["tuned"]["plain"]["smallest"]
    assert smallest == pytest.approx((1.959964 + 0.841621) * error, rel=1e-5)


def test_intervals_of_averages_draw_images_once_for_all_subsets():
    generator = np.random.default_rng(0)
    images = {subset: generator.integers(0, 40, size=size) for subset, size in (("a", 60), ("b", 20), ("c", 30))}
    values = [{name: generator.random(len(own)) < 0.7 for name, own in images.items()} for _ in range(2)]
    lines = lines_of(
        *(rows(model, own, images=images) for model, own in zip(("plain", "tuned"), values, strict=True)),
        averages=[GROUPED, MICRO],
    )
    named = {subset: np.array([f"{number:03}.jpg" for number in own]) for subset, own in images.items()}
    bootstrap = ImageBootstrap(np.concatenate(list(named.values())))
    subsets = [(values[1][name].astype(float), named[name]) for name in "abc"]
    low, high = bootstrap.macro_interval(subsets, weights=[0.25, 0.25, 0.5])
    share = lines["grouped"]["models"]["tuned"]
    assert (share["low"], share["high"]) == pytest.approx((low, high))
    together = [np.concatenate(part) for part in zip(*subsets, strict=True)]
    share = lines["micro"]["models"]["tuned"]
    assert (share["low"], share["high"]) == pytest.approx(bootstrap.interval(*together))


def test_an_average_of_a_subset_that_is_not_there_is_left_out_and_listed():
    plain = {subset: own for subset, own in PLAIN.items() if subset != "b"}
    tables = [rows("plain", plain), rows("tuned", plain)]
    averages = [GROUPED, PART, Average("b alone", (("b",),))]
    assert list(lines_of(*tables, averages=averages)) == ["micro of a and c", "a", "c"]
    assert missing_averages(pd.concat(tables), {"crepe": averages, "elsewhere": averages}) == [
        {"benchmark": "crepe", "metric": "choice", "average": "grouped", "absent": ["b"]},
        {"benchmark": "crepe", "metric": "choice", "average": "b alone", "absent": ["b"]},
    ]


def test_each_metric_gets_its_averages_and_a_mean_of_one_subset_is_none():
    tables = [rows(model, PLAIN) for model in ("plain", "tuned")]
    tables += [rows(model, {"a": PLAIN["a"]}, metric="group") for model in ("plain", "tuned")]
    items = pd.concat(tables, ignore_index=True)
    arguments = {"models": ["plain", "tuned"], "references": ["plain"]}
    subsets = [
        (line["metric"], line["subset"])
        for line in summarize(items, averages={"crepe": [MACRO], ("crepe", "choice"): [PART]}, **arguments)
        if line["average"]
    ]
    assert subsets == [("choice", "macro"), ("choice", "micro of a and c")]


def test_chance_may_differ_by_item_and_be_unknown():
    chance = {"a": [0.5, 0.25, 0.25, 0.2], "b": 0.25, "c": [0.5, np.nan]}
    tables = [rows(model, PLAIN, chance=chance) for model in ("plain", "tuned")]
    lines = lines_of(*tables, averages=[GROUPED, Average("a and b", (("a", "b"),))])
    assert lines["a"]["chance"] == pytest.approx(0.3)
    assert lines["a and b"]["chance"] == pytest.approx(0.275)
    assert lines["c"]["chance"] is lines["grouped"]["chance"] is None


@pytest.mark.parametrize(
    ("rule", "a", "average"), [("wrong", 1 / 4, 0.5625), ("half", 1 / 2, 0.625), ("win", 3 / 4, 0.6875)]
)
def test_a_tie_counts_what_the_rule_says(rule, a, average):
    tie = {"a": [0, 1, 1, 0], "b": [0, 0], "c": [0, 0]}
    tables = [rows("plain", PLAIN, tie=tie), rows("tuned", TUNED)]
    lines = lines_of(*tables, averages=[GROUPED], tie=rule)
    plain, grouped = lines["a"]["models"]["plain"], lines["grouped"]["models"]["plain"]
    assert (plain["value"], grouped["value"]) == pytest.approx((a, average))
    assert (plain["ties"], plain["tie_rate"], grouped["ties"]) == (2, 0.5, 2)
    assert grouped["tie_rate"] == pytest.approx(0.125)  # so that half of it is what half adds
    assert lines["a"]["differences"]["tuned"]["plain"]["value"] == pytest.approx(3 / 4 - a)
    with pytest.raises(ValueError, match="'lose'.* wrong, half, win"):
        lines_of(*tables, averages=[], tie="lose")


def test_a_tie_adds_nothing_to_fractions():
    values = {"a": [0.5, 0.25, 0.0, 1.0], "b": [1.0, 0.0], "c": [1, 0]}
    tie = {"a": [1, 1, 1, 1], "b": [1, 1], "c": [0, 1]}
    whole = rows("plain", PLAIN, tie={"a": [1, 1, 0, 0], "b": [0, 0], "c": [0, 0]})
    tables = [rows("plain", values, tie=tie, metric="precision"), whole]
    items = pd.concat(tables, ignore_index=True)
    by_rule = {
        rule: summarize(items, models=["plain"], references=[], averages={"crepe": [MICRO]}, tie=rule)
        for rule in ("wrong", "win")
    }
    for wrong, win in zip(by_rule["wrong"], by_rule["win"], strict=True):
        if wrong["metric"] == "precision":
            assert win == wrong  # its subsets b and c too: the rule is of the metric, not of chance in a subset
    ties = {
        line["subset"]: line["models"]["plain"]["tie_rate"] for line in by_rule["win"] if line["metric"] != "choice"
    }
    assert ties == pytest.approx({"micro": 7 / 8, "a": 1.0, "b": 1.0, "c": 0.5})
    choice = {
        line["subset"]: line["models"]["plain"]["value"] for line in by_rule["win"] if line["metric"] == "choice"
    }
    assert choice == pytest.approx({"micro": 5 / 8, "a": 2 / 4, "b": 1.0, "c": 1 / 2})  # a right item is right once


@pytest.mark.parametrize("metric", ["rank correlation", "Kendall's tau"])
def test_a_correlation_may_be_below_0_where_no_item_is(metric):
    generator = np.random.default_rng(4)
    images = {"a": np.arange(8)}
    tables = [
        rows(model, {"a": generator.choice([0, 0, 0.1, 1], size=8)}, metric=metric, images=images, chance={"a": 0})
        for model in ("plain", "tuned")
    ]
    (line,) = lines_of(*tables, averages=[]).values()
    values = tables[0]["value"].to_numpy()
    low, high = ImageBootstrap(images["a"]).interval(values, images["a"], bounds=(-1.0, 1.0))
    assert low < 0
    share = line["models"]["plain"]
    assert (share["low"], share["high"]) == pytest.approx((low, high))
    perfect = rows("plain", {"a": np.ones(8)}, metric=metric, images=images, chance={"a": 0})
    (line,) = summarize(perfect, models=["plain"], references=[])
    assert line["models"]["plain"]["low"] == pytest.approx(
        1 - 2 * (1 - 0.025 ** (1 / 8))
    )  # what is not seen may be -1


def test_values_that_are_no_shares_get_intervals_without_bounds():
    generator = np.random.default_rng(1)
    images = {"a": np.arange(30), "b": np.arange(30)}
    values = {subset: generator.normal(0.95, 0.5, size=30) for subset in images}
    tables = [rows(model, values, images=images) for model in ("plain", "tuned")]
    lines = lines_of(*tables, averages=[MACRO])
    assert lines["macro"]["models"]["plain"]["high"] > 1


def test_relations_that_share_images_get_one_interval_as_narrow_as_their_items_allow():
    generator = np.random.default_rng(2)
    images = {f"relation {number}": generator.integers(0, 1500, size=100) for number in range(20)}
    tables = []
    for model in ("plain", "tuned"):
        values = {subset: generator.random(100) < 0.6 for subset in images}
        tables.append(rows(model, values, images=images, chance=dict.fromkeys(images, 0.5)))
    lines = lines_of(*tables, averages=[MACRO])
    assert len(lines) == 21
    share = lines["macro"]["models"]["plain"]
    assert share["high"] - share["low"] == pytest.approx(2 * 1.96 * math.sqrt(0.24 / 2000), rel=0.15)


def with_classes(model, correct, classes):
    """One subset whose items have classes of unequal sizes as strata."""
    names = [f"{number:03}" for number in range(len(correct))]
    columns = {"item": names, "image_id": names, "value": np.asarray(correct, float), "tie": False, "chance": 0.2}
    facts = {"benchmark": "pets", "metric": "mean per class", "aspect": "general", "arm": model, "subset": "all"}
    return pd.DataFrame(columns).assign(stratum=[str(label) for label in classes], **facts)


def test_a_line_of_strata_is_the_mean_of_their_means():
    classes, plain, tuned = [0] * 6 + [1] * 3 + [2] * 2, [1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0], [1] * 6 + [1, 1, 0, 0, 0]
    tables = [with_classes("plain", plain, classes), with_classes("tuned", tuned, classes)]
    (line,) = summarize(pd.concat(tables), models=["plain", "tuned"], references=["plain"], subject=["tuned"])
    assert line["models"]["plain"]["value"] == pytest.approx((1 / 2 + 2 / 3 + 0) / 3)
    assert line["items"] == 11 and line["chance"] == pytest.approx(0.2)
    difference = line["differences"]["tuned"]["plain"]
    assert difference["value"] == pytest.approx(1 / 2 / 3)
    assert difference["p"] == 1 / 2**3  # three images differ, all in the same direction: no mid-p can be lower
    for table, mean in zip(tables, (7 / 18, 5 / 9), strict=True):
        (line,) = summarize(table, intervals=False)
        (share,) = line["models"].values()
        assert share == {"value": pytest.approx(mean), "ties": 0, "tie_rate": 0}


def test_an_average_of_subsets_with_strata_counts_every_subset_the_same():
    parts = []
    for subset, classes, right in (("a", [0, 0, 1], [1, 1, 0]), ("b", [0, 1, 2, 3] * 2, [1, 0, 0, 0] * 2)):
        part = with_classes("plain", right, classes)
        parts.append(part.assign(subset=subset, image_id=subset + part["image_id"]))
    lines = summarize(pd.concat(parts), models=["plain"], references=[], averages={"pets": [MACRO]})
    values = {line["subset"]: line["models"]["plain"]["value"] for line in lines}
    assert values == pytest.approx({"a": 1 / 2, "b": 1 / 4, "macro": 3 / 8})


def test_the_interval_of_strata_is_the_spread_of_means_over_drawn_images():
    generator = np.random.default_rng(3)
    classes = generator.choice(5, size=600, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    correct = generator.random(600) < np.array([0.95, 0.9, 0.8, 0.9, 0.7])[classes]
    draws = generator.integers(600, size=(1500, 600))
    means = [np.mean([correct[draw][classes[draw] == label].mean() for label in range(5)]) for draw in draws]
    (line,) = summarize(with_classes("plain", correct, classes), models=["plain"], references=[])
    share = line["models"]["plain"]
    assert share["high"] - share["low"] == pytest.approx(np.subtract(*np.quantile(means, [0.975, 0.025])), rel=0.15)
    (line,) = summarize(with_classes("plain", np.ones(600), classes), models=["plain"], references=[])
    assert line["models"]["plain"]["high"] == 1 and 0.8 < line["models"]["plain"]["low"] < 1


def test_subsets_without_a_common_image_are_drawn_as_in_a_table_of_all_images():
    generator = np.random.default_rng(0)
    subsets = [(generator.random((30, 2)), generator.integers(9, size=30) + 10 * number) for number in range(4)]
    bootstrap = ImageBootstrap(np.concatenate([images for _, images in subsets]))
    apart = bootstrap.macro_interval(subsets, weights=[1, 2, 3, 4])
    clusters_of_all = Aligned.__init__

    def as_if_shared(self, parts, position, share):
        clusters_of_all(self, [*parts, parts[0]], position, np.append(share * 1.0, 1e-300))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Aligned, "__init__", as_if_shared)
        shared = bootstrap.macro_interval(subsets, weights=[1, 2, 3, 4])
    np.testing.assert_allclose(apart, shared)


def test_few_subsets_with_common_images_are_drawn_as_many_in_any_number_at_a_time(monkeypatch):
    generator = np.random.default_rng(1)
    subsets = [(generator.random((60, 2)), generator.integers(40, size=60)) for _ in range(2)]
    subsets.append((-subsets[0][0], subsets[0][1]))
    drawn = ImageBootstrap(np.arange(40))
    few = drawn.macro_interval(subsets, weights=[1, 2, 3], bounds=None)
    monkeypatch.setattr(clusters, "FEW", 0)
    monkeypatch.setattr(bootstrap, "CELLS", 100)
    np.testing.assert_allclose(few, drawn.macro_interval(subsets, weights=[1, 2, 3], bounds=None), rtol=1e-9)


def test_differences_are_corrected_for_their_number():
    """Equal models on 40 lines: p below 0.05 is expected on two of them, a q below 0.05 on none."""
    generator = np.random.default_rng(6)
    images = {f"kind {number}": np.arange(150) for number in range(40)}
    tables = [
        rows(
            model, {name: generator.random(150) < 0.5 for name in images}, images=images, chance=dict.fromkeys(images)
        )
        for model in ("base", "plain", "tuned")
    ]
    models = ["base", "plain", "tuned"]
    lines = summarize(pd.concat(tables), models=models, references=["base", "plain"])
    shares = [line["differences"]["tuned"]["plain"] for line in lines]
    assert sum(share["p"] < 0.05 for share in shares) and not any(share["q"] < 0.05 for share in shares)
    each = [(line["differences"]["plain"]["base"], *line["differences"]["tuned"].values()) for line in lines]
    flat = [share for part in each for share in part]
    expected = stats.false_discovery_control([share["p"] for share in flat])
    np.testing.assert_allclose([share["q"] for share in flat], expected)


def test_a_pair_of_models_counts_once_and_the_primary_comparison_by_itself():
    pair = [{"a": {"b": {"p": 0.02}}, "b": {"a": {"p": 0.02}, "c": {"p": 0.04}}}, {"a": {"b": {"p": 0.9}}}]
    lines = [{"differences": pair[0]}, {"differences": pair[1], "primary": "it"}]
    correct(lines)
    assert pair[0]["a"]["b"]["q"] == pair[0]["b"]["a"]["q"] == pytest.approx(0.06)
    correct(lines, [("a", "b")])
    assert pair[1]["a"]["b"] == {"p": 0.9, "p_holm": 0.9}
    assert pair[0]["a"]["b"]["q"] == pytest.approx(0.04)
    np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.2]), [0.09, 0.04, 0.09, 0.2])
    untested = [{"p": p} for p in (0.04, float("nan"), 0.01)]  # two seeds have no p, and count for nothing
    adjust(untested, [dict(line) for line in untested])
    np.testing.assert_allclose([line["p_holm"] for line in untested], [0.04, np.nan, 0.02])
    assert holm([]).tolist() == false_discovery_rate([]).tolist() == []


def test_a_mean_of_lines_of_several_benchmarks_draws_their_images_together():
    generator = np.random.default_rng(7)
    rates, values = generator.beta(3, 1, size=80), {}
    for number in range(4):
        values[f"b {number}"] = [(generator.random(80) < rates).astype(float) for _ in range(2)]
    tables = [
        rows(model, {"a": own[index]}, images={"a": np.arange(80)}, benchmark=name)
        for name, own in values.items()
        for index, model in enumerate(("plain", "tuned"))
    ]
    keys = [(name, "a", "choice") for name in values]
    items = pd.concat(tables, ignore_index=True)
    measures = [mean_of_lines("all", keys)]
    (line,) = summarize(items, measures=measures, models=["plain", "tuned"], references=["plain"], images="measure")
    names = np.arange(80)
    expected = ImageBootstrap(names).macro_interval([(own[0], names) for own in values.values()])
    share = line["models"]["plain"]
    assert (share["low"], share["high"]) == pytest.approx(expected)
    assert share["value"] == pytest.approx(np.mean([own[0].mean() for own in values.values()]))
    change = line["differences"]["tuned"]["plain"]
    assert change["value"] == pytest.approx(line["models"]["tuned"]["value"] - share["value"])
    assert (change["p"] < 0.05) == (change["low"] > 0 or change["high"] < 0)
    assert (line["items"], line["images"], len(line["lines"])) == (320, 80, 4)
