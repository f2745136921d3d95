"""Average precision: known scorers, ties, scikit-learn, and images' shares against a real bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.metrics.average_precision import average_precision, map_influence
from hfcomp.statistics import ImageBootstrap, sign_flip_test


def draw(images, classes, *, seed, signal=1.0, steps=None):
    """Scores `[n, C]` and labels of unequal rates; with `steps`, scores on a coarse grid, so that many are tied."""
    generator = np.random.default_rng(seed)
    labels = generator.random((images, classes)) < np.linspace(0.05, 0.6, classes)
    scores = generator.normal(size=(images, classes)) + signal * labels
    return (np.round(scores * steps) / steps if steps else scores), labels


def weighted_precision(scores, labels, weights):
    """AP of one class by plain loops, an image counted `weight` times."""
    total = 0.0
    for i in np.flatnonzero(labels):
        above = [j for j in range(len(scores)) if scores[j] >= scores[i]]
        if not any(scores[j] == scores[i] and not labels[j] for j in above):
            total += weights[i] * sum(weights[j] for j in above if labels[j]) / sum(weights[j] for j in above)
    return total / sum(weights[i] for i in np.flatnonzero(labels))


def test_a_perfect_and_an_inverted_scorer():
    labels = np.array([[True], [True], [False], [False]])
    assert average_precision(labels.astype(float), labels).mean == 1.0
    scores = np.array([[1.0], [2.0], [3.0], [4.0]])
    assert average_precision(scores, labels).mean == pytest.approx((1 / 3 + 2 / 4) / 2)


@pytest.mark.parametrize("rate", [0.02, 0.5, 0.98])
def test_a_constant_scorer_gets_0_whatever_the_rate_and_the_order(rate):
    labels = np.random.default_rng(0).random((300, 4)) < rate
    for order in (slice(None), np.argsort(labels[:, 0]), np.argsort(~labels[:, 0])):
        precision = average_precision(np.full((300, 4), 0.5), labels[order])
        assert precision.mean == 0.0
        assert precision.tied.tolist() == [1.0] * 4
        assert map_influence(np.full((300, 4), 0.5), labels[order]).tolist() == [0.0] * 300


def test_a_random_scorer_is_at_chance():
    labels = np.zeros((40, 3), dtype=bool)
    labels[:2, 0] = labels[:10, 1] = labels[:39, 2] = True
    generator = np.random.default_rng(1)
    means = np.mean([average_precision(generator.random((40, 3)), labels).per_class for _ in range(2000)], axis=0)
    chance = average_precision(generator.random((40, 3)), labels).chance
    np.testing.assert_allclose(means, chance, atol=0.01)
    assert chance[0] > 2 / 40 and chance[1] > 10 / 40
    column = np.array([[True], [False], [False]])  # first, second or third place: 1, 1/2, 1/3
    assert average_precision(np.arange(3.0)[:, None], column).mean_chance == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_a_positive_tied_with_a_negative_adds_nothing_and_stays_in_others_way():
    scores = np.array([[4.0], [3.0], [3.0], [2.0], [2.0], [1.0]])
    labels = np.array([[True], [True], [False], [True], [True], [False]])
    precision = average_precision(scores, labels)
    assert precision.mean == pytest.approx((1 + 0 + 4 / 5 + 4 / 5) / 4)
    assert precision.tied.tolist() == [1 / 4]


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_without_ties_it_equals_scikit_learn(chunk):
    from sklearn.metrics import average_precision_score

    scores, labels = draw(200, 7, seed=2)
    precision = average_precision(scores, labels, chunk=chunk)
    np.testing.assert_allclose(precision.per_class, average_precision_score(labels, scores, average=None), rtol=1e-12)
    assert precision.mean == pytest.approx(average_precision_score(labels, scores))
    assert not precision.tied.any()


def test_positives_tied_with_each_other_equal_scikit_learn_too():
    from sklearn.metrics import average_precision_score

    scores, labels = draw(200, 3, seed=3, steps=3)
    scores = scores + 1e-3 * labels  # ties inside each kind only
    precision = average_precision(scores, labels)
    np.testing.assert_allclose(precision.per_class, average_precision_score(labels, scores, average=None), rtol=1e-12)


def test_classes_without_positives_or_negatives_are_left_out_and_counted():
    scores, labels = draw(50, 4, seed=4)
    labels[:, 1], labels[:, 2] = False, True
    precision = average_precision(scores, labels)
    assert precision.left_out == 2
    assert np.isnan(precision.per_class).tolist() == [False, True, True, False]
    assert precision.mean == pytest.approx(average_precision(scores[:, [0, 3]], labels[:, [0, 3]]).mean)
    np.testing.assert_allclose(map_influence(scores, labels), map_influence(scores[:, [0, 3]], labels[:, [0, 3]]))
    assert np.isnan(average_precision(scores[:, 1:3], labels[:, 1:3]).mean)


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_the_plain_mean_of_the_shares_is_the_map(steps, chunk):
    scores, labels = draw(300, 5, seed=5, steps=steps)
    precision = average_precision(scores, labels)
    assert (precision.tied > 0).any() == (steps is not None)
    assert map_influence(scores, labels, chunk=chunk).mean() == pytest.approx(precision.mean, abs=1e-12)


@pytest.mark.parametrize("steps", [None, 2])
def test_the_shares_are_the_derivative_of_a_weighted_map(steps):
    scores, labels = draw(25, 3, seed=6, steps=steps)
    influence, small = map_influence(scores, labels), 1e-5
    for k in range(25):
        up, down = np.ones(25), np.ones(25)
        up[k], down[k] = 1 + small, 1 - small
        change = [
            weighted_precision(scores[:, c], labels[:, c], up) - weighted_precision(scores[:, c], labels[:, c], down)
            for c in range(3)
        ]
        expected = average_precision(scores, labels).mean + 25 * np.mean(change) / (2 * small)
        assert influence[k] == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("steps", [None, 1024])
def test_the_interval_is_as_wide_as_that_of_maps_of_drawn_images(steps):
    scores, labels = draw(400, 6, seed=7, steps=steps)
    generator, maps = np.random.default_rng(8), []
    for _ in range(1000):
        rows = generator.integers(400, size=400)
        maps.append(average_precision(scores[rows], labels[rows]).mean)
    expected = np.subtract(*np.quantile(maps, [0.975, 0.025]))
    values, images = map_influence(scores, labels), np.arange(400)
    low, high = ImageBootstrap(images).interval(values, images, bounds=None)
    assert high - low == pytest.approx(expected, rel=0.15)
    assert 4 * values.std() / 20 == pytest.approx(expected, rel=0.15)


def test_a_paired_difference_has_the_spread_of_differences_of_drawn_images():
    scores, labels = draw(400, 6, seed=9)
    other = scores + np.random.default_rng(10).normal(size=scores.shape)
    difference = map_influence(scores, labels) - map_influence(other, labels)
    generator, drawn = np.random.default_rng(11), []
    for _ in range(500):
        rows = generator.integers(400, size=400)
        drawn.append(
            average_precision(scores[rows], labels[rows]).mean - average_precision(other[rows], labels[rows]).mean
        )
    assert difference.std() / 20 == pytest.approx(np.std(drawn), rel=0.15)
    assert difference.mean() / np.std(drawn) > 3
    assert sign_flip_test(difference, np.arange(400), permutations=500) < 0.01


def test_the_sign_flip_test_keeps_its_level_for_equal_models():
    p = []
    for seed in range(200):
        scores, labels = draw(150, 4, seed=seed)
        other = np.random.default_rng(1000 + seed).normal(size=scores.shape) + labels  # as good, with other errors
        p.append(map_influence(scores, labels) - map_influence(other, labels))
    p_values = sign_flip_test(np.stack(p, axis=1), np.arange(150), permutations=500)
    assert 0.01 <= np.mean(p_values < 0.05) <= 0.1


def test_errors_name_what_was_found():
    scores, labels = np.zeros((3, 2)), np.ones((3, 2), dtype=bool)
    with pytest.raises(ValueError, match=r"scores \(3, 2\) and labels \(2, 2\)"):
        average_precision(scores, labels[:2])
    with pytest.raises(ValueError, match="labels: found int64.* bool"):
        average_precision(scores, labels.astype(int))
    scores[2, 1] = np.nan
    with pytest.raises(ValueError, match="image 2, class 1: found nan"):
        map_influence(scores, labels)
    with pytest.raises(ValueError, match="none of the 2 classes"):
        map_influence(np.zeros((3, 2)), labels)
