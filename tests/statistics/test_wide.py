"""Means and differences of tables whose items may differ, over draws of images that they share."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.statistics.resampling import Median
from hfcomp.statistics.wide import WideTables

NUMBER = 80


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(3, 0.5, NUMBER).clip(1, 5)


def tables(images=None, seed=0, **columns):
    """Tables with one column, whose items are images of their own unless `images` names them."""
    named = {
        name: [f"image {image}" for image in (images or {}).get(name, range(len(own)))]
        for name, own in columns.items()
    }
    return WideTables({name: {"x": np.asarray(own, dtype=float)} for name, own in columns.items()}, named, seed=seed)


def difference(wide_table):
    (only,) = wide_table.differences(["x"])["x"]
    return only


def test_pairing_is_a_quicker_way_to_the_same_interval(values):
    """Items in another order, and several of an image, have the interval of the two tables resampled together."""
    generator = np.random.default_rng(3)
    images, order = np.repeat(np.arange(NUMBER // 2), 2), generator.permutation(NUMBER)
    others = (2 + 0.5 * values + generator.normal(size=NUMBER) / 9)[order]
    both = tables({"a": images, "b": images[order]}, a=values, b=others)
    halves = [(values, both.images["a"]), (-others, both.images["b"])]
    low, high = both.bootstrap.macro_interval(halves, bounds=None, difference=True)
    estimate = difference(both)
    assert [estimate["low"], estimate["high"]] == pytest.approx([2 * low, 2 * high])


def test_of_other_images_the_difference_is_unsure(values):
    """The interval is that of two independent means."""
    estimate = difference(tables({"b": range(NUMBER, 2 * NUMBER)}, a=values, b=values - 0.25))
    half = 1.96 * np.sqrt(2 * values.var(ddof=1) / NUMBER)
    assert estimate["shared_images"] == 0 and estimate["value"] == pytest.approx(0.25)
    assert estimate["high"] - estimate["value"] == pytest.approx(half, rel=0.15)
    assert estimate["high"] - estimate["value"] == pytest.approx(estimate["value"] - estimate["low"])


@pytest.mark.slow
def test_intervals_of_differences_cover():
    """Half of the images are shared: in 200 simulations about 95% of the intervals hold the difference."""
    generator, held = np.random.default_rng(1), 0
    images = {name: [*range(20), *range(start, start + 20)] for name, start in (("a", 20), ("b", 40))}
    for seed in range(200):
        shared = generator.normal(size=20)
        drawn = {
            name: np.r_[shared + 0.5 * generator.normal(size=20), generator.normal(size=20)] for name in ("a", "b")
        }
        estimate = difference(tables(images, seed=seed, **drawn))
        held += estimate["low"] <= 0 <= estimate["high"]
    assert 180 <= held <= 198


def test_columns_that_other_items_have_are_means_of_these(values):
    some = np.where(np.arange(NUMBER) % 4 == 0, np.nan, values)
    both = WideTables({"a": {"x": values, "y": some}, "b": {"x": values}}, dict.fromkeys("ab", range(NUMBER)))
    means = both.means({"x": None, "y": (1.0, 5.0)})
    assert means["a", "y"]["value"] == np.nanmean(some) and means["a", "y"]["items"] == 60
    assert means["a", "x"] == means["b", "x"] and ("b", "y") not in means
    assert both.differences(["y"]) == {} and difference(both)["value"] == 0
    half = both.mean("a", "y", np.arange(NUMBER) < 40)
    assert (half["items"], half["value"]) == (30, np.nanmean(some[:40]))
    with pytest.raises(ValueError, match="values, item"):
        both.means({"x": (0.0, 1.0)})


def test_statistics_see_the_draws_of_all_tables(values):
    both = tables({"b": range(NUMBER, 2 * NUMBER)}, a=values, b=values)
    medians = both.resample({name: Median(values, both.images[name]) for name in ("a", "b")})
    assert medians["a"].value == medians["b"].value == np.median(values)
    assert (medians["a"] - medians["b"]).bounds()["low"] < 0 < (medians["a"] - medians["b"]).bounds()["high"]
