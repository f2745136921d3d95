"""What a name or a pattern stands for: of a search's measure and of a primary endpoint."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hfcomp.statistics import Outcomes
from hfcomp.statistics.average import Average
from hfcomp.statistics.measures import headline_measures, missing_averages, primary_measure, search_measure
from hfcomp.statistics.run import score, summarize_run
from hfcomp.statistics.summary import summarize

TWO_SETS = Average("mean", ((("one", "all items", "caption choice"),), (("two", "all", "caption choice"),)))
DECLARED = {"one": [Average("all items", pooled=True)], "two": [], "a paper": [TWO_SETS]}


def outcomes(values: list[float], *, benchmark: str = "drawn", subset: str = "all", **other: str) -> pd.DataFrame:
    """One item an image, of one model."""
    names = [f"{subset}/{index}" for index in range(len(values))]
    columns = {"item": names, "image_id": names, "value": np.asarray(values, float), "tie": False, "chance": 0.5}
    facts = {"benchmark": benchmark, "subset": subset, "metric": "caption choice", "aspect": "composition", **other}
    return pd.DataFrame(columns).assign(**facts, arm="m")


def test_a_measure_is_a_name_or_all_that_a_pattern_fits():
    """Two lines of unequal size count alike."""
    levels = [outcomes([1, 0, 1, 1], benchmark="levels", subset="level 1", aspect="general")]
    levels.append(outcomes([0, 0], benchmark="levels", subset="level 2", aspect="general"))
    items = pd.concat([*levels, outcomes([1, 1], benchmark="other")])
    assert score(items, "levels: *").value == pytest.approx((0.75 + 0) / 2)
    assert score(items, "levels: level 1 caption choice").value == pytest.approx(0.75)
    estimate = score(items, "levels: level 1 caption choice")
    assert 0 <= estimate.low < 0.75 < estimate.high <= 1
    with pytest.raises(ValueError, match="'levels: level 3' .*: other: caption"):
        score(items, "levels: level 3")


def test_the_mean_of_the_composition_lines_is_in_no_pattern():
    items = pd.concat([outcomes([1, 0], subset=subset) for subset in ("add", "swap")])
    assert [len(search_measure(Outcomes(items), name).lines) for name in ("mean", "*")] == [2, 2]


def test_a_pattern_over_metrics_of_different_units_is_no_primary_endpoint():
    names = ("choice", "kendall tau")
    items = pd.concat([outcomes([0, 1], metric=name) for name in names])
    with pytest.raises(ValueError, match=r"units.*: choice; kendall tau \(-1 to 1\)"):
        primary_measure(items, "drawn: *", {})
    assert primary_measure(items, "drawn: ken*", {}).lines == [("drawn", "all", "kendall tau")]


def two_sets(arm: str, first: list[list[float]], second: list[float], images: str = "other") -> pd.DataFrame:
    """Two subsets of `one`, and `two`, whose images are those of the first subset or others."""
    tables = [outcomes(values, benchmark="one", subset=name) for name, values in zip("ab", first, strict=True)]
    last = outcomes(second, benchmark="two")
    last = last.assign(image_id=tables[0]["image_id"].array if images == "shared" else last["image_id"])
    return pd.concat([*tables, last]).assign(arm=arm)


def test_a_mean_over_benchmarks_counts_each_as_its_own_average_does():
    """`one` is pooled over its subsets: 1 of 1 and 1 of 3 are 2 of 4."""
    lines = summarize(two_sets("m", [[1], [1, 0, 0]], [1, 1, 1, 0]), averages=DECLARED)
    assert [line["benchmark"] for line in lines] == ["a paper", "one", "one", "one", "two"]
    assert lines[0]["models"]["m"]["value"] == pytest.approx((2 / 4 + 3 / 4) / 2)
    assert lines[0]["chance"] == 0.5 and lines[0]["items"] == 8
    assert lines[0]["average"] and [line[0] for line in lines[0]["lines"]] == ["one", "one", "two"]


def test_an_image_of_two_benchmarks_is_drawn_for_both():
    """Where both have the same images and outcomes, their mean is as uncertain as one of them, else less."""
    values = [1.0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1] * 5
    single = Average("mean", ((("one", "a", "caption choice"),), (("two", "all", "caption choice"),)))
    widths = {}
    for images in ("shared", "other"):
        items = two_sets("m", [values, [1.0]], values, images)
        mean, line = summarize(items[items["subset"] != "b"], averages={"a paper": [single]}, images="all")[:2]
        assert mean["models"]["m"]["value"] == pytest.approx(line["models"]["m"]["value"])
        widths[images] = [entry["models"]["m"]["high"] - entry["models"]["m"]["low"] for entry in (mean, line)]
    assert widths["shared"][0] == pytest.approx(widths["shared"][1])
    assert widths["other"][0] == pytest.approx(widths["other"][1] / 2**0.5, rel=0.1)


def test_a_mean_over_benchmarks_is_a_primary_endpoint_or_says_what_it_lacks():
    base, tuned = two_sets("base", [[1], [0, 0, 0]], [0] * 4), two_sets("tuned", [[1], [1, 0, 0]], [1, 1, 0, 0])
    both = Outcomes(pd.concat([base, tuned]))
    how = {"primary": "a paper: mean", "declared": DECLARED, "planned": [("tuned", "base")]}
    lines, _ = summarize_run(both, ["base", "tuned"], **how)
    (line,) = [line for line in lines if line.get("primary")]
    assert line["primary"] == "a paper: mean" and line["benchmark"] == "a paper"
    change = line["differences"]["tuned"]["base"]
    assert change["value"] == pytest.approx((1 / 4 + 1 / 2) / 2) and "p_holm" in change
    with pytest.raises(ValueError, match=r"'a paper: mean' .*: two: caption ch"):
        primary_measure(both.select(benchmark="one"), "a paper: mean", DECLARED)


def test_a_mean_over_benchmarks_may_be_of_several_units_as_its_authors_have_it():
    items = pd.concat([outcomes([0, 1]), outcomes([0, 1], metric="mAP")])
    mean = Average("mean", tuple((("drawn", "all", metric),) for metric in ("caption choice", "mAP")))
    assert len(primary_measure(items, "a paper: mean", {"a paper": [mean]}).lines) == 2


def test_a_mean_of_three_benchmarks_is_missed_where_two_are_there():
    three = Average("mean", (*TWO_SETS.groups, (("three", "all", "group"), ("three", "all", "text"))))
    declared = {**DECLARED, "a paper": [three]}
    items = two_sets("m", [[1], [0]], [1])
    (entry,) = missing_averages(items, declared)
    assert entry["benchmark"] == "a paper" and entry["absent"] == ["three: group", "three: text"]
    assert missing_averages(items[items["benchmark"] == "one"], declared) == []
    # where the same table has a mean that is whole, the other is not missed
    assert missing_averages(items, {**DECLARED, "a paper": [three, TWO_SETS]}) == []


def test_a_mean_of_four_benchmarks_is_not_missed_where_two_are_there():
    four = Average("mean", (*TWO_SETS.groups, (("three", "all", "group"),), (("four", "all", "group"),)))
    assert missing_averages(two_sets("m", [[1], [0]], [1]), {**DECLARED, "a paper": [four]}) == []


def test_a_plan_may_name_benchmarks_by_their_role():
    """The primary endpoint's lines, one line for each other compositional benchmark, and all general lines."""
    parts = [outcomes([1, 0], benchmark="own", subset=subset) for subset in ("color", "size")]
    parts += [outcomes([1, 0], benchmark="other", subset=subset) for subset in ("swap", "add")]
    parts += [
        outcomes([1], benchmark="retrieval", aspect="general"),
        outcomes([1], benchmark="levels", aspect="general"),
    ]
    scored = Outcomes.of(pd.concat(parts))
    primary = primary_measure(scored, "own: caption choice", {})

    def names(*benchmarks):
        return [measure.name for measure in headline_measures(scored, benchmarks, primary)]

    own = ["own: average caption choice", "own: color caption choice", "own: size caption choice"]
    general = ["retrieval: caption choice", "levels: caption choice"]
    assert names("primary") == own
    assert names("primary", "composition", "general") == [*own, "other: average caption choice", *general]
    assert names("composition") == [own[0], "other: average caption choice"]
    assert names("primary", "levels") == [*own, "levels: caption choice"]
    with pytest.raises(ValueError, match="'generl' was not evaluated. Known: primary, composition, general, own"):
        names("generl")


def test_a_plan_may_name_the_place_of_a_mean_and_patterns_and_a_fallback_stands_in():
    parts = {"one": ("one", "all", "caption choice"), "two": ("two", "all", "caption choice")}
    whole = Average("mean", ((parts["one"],), (parts["two"],)))
    without = Average("mean without two", ((parts["one"],),), fallback=True)
    declared = {"Paper, Table 1": (whole, without)}
    both = Outcomes.of(pd.concat([outcomes([1, 0], benchmark="one"), outcomes([1], benchmark="two")]))
    alone = Outcomes.of(outcomes([1, 0], benchmark="one"))
    for scored, name in ((both, "mean"), (alone, "mean without two")):
        primary = primary_measure(scored, "Paper, Table 1: mean", declared)
        assert primary.name == f"Paper, Table 1: {name}"
        shown = headline_measures(scored, ["Paper*", "on*"], None, declared)
        assert [measure.name for measure in shown][:2] == ["one: caption choice", f"Paper, Table 1: {name}"]
    with pytest.raises(ValueError, match="'Other\\*' was not evaluated. Known: .*, two, Paper, Table 1"):
        headline_measures(both, ["Other*"], None, declared)
