"""Linear probes: what they learn, what they follow, what they refuse (about 6 s)."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch

from hfcomp.evaluation.probes import fits
from hfcomp.evaluation.probes.fits import fit_adamw10, fit_lbfgs
from hfcomp.evaluation.probes.linear import LinearProbe, hold_out, vtab_1k
from hfcomp.metrics.average_precision import average_precision
from hfcomp.metrics.classification import top_k
from tests import tolerances
from tests.metrics.scorers import unit

FITS = pytest.mark.parametrize("fit", [fit_adamw10, fit_lbfgs])


def narrow_cone(images, classes, *, seed, width=24, noise=1.0):
    """Features `[n, D]` around one common direction, as those of image encoders, and labels `[n]`."""
    centers = np.random.default_rng(0).normal(size=(classes, width))
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.arange(images) % classes)
    features = 6 + centers[labels] + noise * generator.normal(size=(images, width))
    return features.astype(np.float32), labels


def many_labels(images, classes, *, seed, width=24):
    directions = np.random.default_rng(0).normal(size=(classes, width))
    features = np.random.default_rng(seed).normal(size=(images, width)).astype(np.float32)
    return features, features @ directions.T > 0.7 * np.sqrt(width)


def length_one(features):
    return features / np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)


@FITS
def test_separable_classes_are_learned(fit):
    features, labels = narrow_cone(300, 5, seed=1, noise=0.4)
    other, expected = narrow_cone(300, 5, seed=2, noise=0.4)
    probe = fit(features, labels, classes=5)
    assert top_k(probe.scores(other), expected).accuracy > 0.97
    assert top_k(-probe.scores(other), expected).accuracy < 0.02
    assert (probe.weight.shape, probe.bias.shape) == ((5, 24), (5,))
    assert probe.weight.dtype == probe.bias.dtype == probe.scores(other).dtype == np.float32


@FITS
def test_many_labels_are_learned(fit):
    features, labels = many_labels(400, 4, seed=1)
    other, expected = many_labels(400, 4, seed=2)
    probe = fit(features, labels, classes=4)
    precision = average_precision(probe.scores(other), expected)
    assert precision.mean > 0.9
    assert precision.mean_chance < 0.4


@FITS
def test_shuffled_labels_teach_nothing(fit):
    features, labels = narrow_cone(600, 5, seed=1)
    probe = fit(features, np.random.default_rng(3).permutation(labels), classes=5)
    other, expected = narrow_cone(1000, 5, seed=2)
    assert abs(top_k(probe.scores(other), expected).accuracy - 0.2) < 0.1


@FITS
@pytest.mark.parametrize("many", [False, True])
def test_constant_features_find_no_image(fit, many):
    features = np.repeat(unit(1, 19, seed=0), 230, axis=0)
    labels = np.random.default_rng(1).random((230, 3)) < 0.3
    if many:
        assert average_precision(fit(features, labels, classes=3).scores(features), labels).mean == 0.0
    else:
        probe = fit(features, np.arange(230) % 3, classes=3)
        assert len(np.unique(probe.scores(features), axis=0)) == 1


@FITS
def test_the_length_of_features_and_half_precision_have_no_say(fit):
    features, labels = narrow_cone(120, 3, seed=1)
    first, second = fit(features, labels, classes=3), fit(1000 * features, labels, classes=3)
    np.testing.assert_allclose(second.weight, first.weight, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(first.scores(7 * features), first.scores(features), rtol=1e-4, atol=1e-4)
    half = fit(features.astype(np.float16), labels, classes=3)
    assert top_k(half.scores(features), labels).accuracy == pytest.approx(
        top_k(first.scores(features), labels).accuracy, abs=0.03
    )


@FITS
@pytest.mark.parametrize("many", [False, True])
def test_the_same_seed_gives_the_same_bits(fit, many):
    features, labels = many_labels(150, 3, seed=1) if many else narrow_cone(150, 3, seed=1)
    torch.manual_seed(0)
    first = fit(features, labels, classes=3, seed=4)
    state = torch.get_rng_state()
    torch.rand(3)
    with torch.no_grad():
        again = fit(features, labels, classes=3, seed=4)
    torch.manual_seed(0)
    assert torch.equal(state, torch.get_rng_state())  # the global random numbers are left alone
    assert first.weight.tobytes() == again.weight.tobytes() and first.bias.tobytes() == again.bias.tobytes()
    assert first.held_out == again.held_out


def test_scores_are_made_in_parts_that_change_nothing(monkeypatch):
    probe = LinearProbe(unit(3, 8, seed=0), np.array([0.1, 0.2, 0.3], dtype=np.float32), chosen=1.0)
    features = 5 * unit(50, 8, seed=1)
    whole = probe.scores(features)
    np.testing.assert_allclose(
        whole, unit(50, 8, seed=1) @ probe.weight.T + probe.bias, atol=2 * tolerances.rounding(2 * 8 + 1)
    )
    monkeypatch.setattr("hfcomp.evaluation.probes.linear._ROWS", 7)
    assert (probe.scores(features) == whole).all()


class Watched(torch.optim.AdamW):
    runs: list[dict] = []

    def __init__(self, parameters, **settings):
        super().__init__(parameters, **settings)
        self.seen = {"rates": [], "settings": self.defaults, "first": [p.detach().clone() for p in parameters]}
        Watched.runs.append(self.seen)

    def step(self, closure=None):
        self.seen["rates"].append(self.param_groups[0]["lr"])
        return super().step(closure)


def test_adamw10_follows_its_protocol(monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", Watched)
    monkeypatch.setattr(Watched, "runs", [])
    features, labels = narrow_cone(150, 3, seed=1)
    fit_adamw10(features, labels, classes=3)
    (run,) = Watched.runs
    steps = 10 * 3  # 150 images are batches of 64, 64 and 22
    expected = [0.1 * (1 + math.cos(math.pi * step / steps)) / 2 for step in range(steps)]
    np.testing.assert_allclose(run["rates"], expected, rtol=1e-12)
    assert run["rates"][0] == 0.1
    assert run["settings"]["betas"] == (0.9, 0.999) and run["settings"]["weight_decay"] == 0.0
    weight, bias = run["first"]
    assert weight.abs().max() <= 24**-0.5 and bias.abs().max() <= 24**-0.5
    assert weight.std() == pytest.approx(24**-0.5 / math.sqrt(3), rel=0.2)


def test_adamw10_chooses_a_decay_on_the_held_out_part_and_fits_to_all(monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", Watched)
    monkeypatch.setattr(Watched, "runs", [])
    features, labels = narrow_cone(150, 3, seed=1, noise=3.0)
    out = hold_out(labels, 5)
    probe = fit_adamw10(features, labels, classes=3, weight_decay=[9.0, 0.01], seed=5)
    assert [run["settings"]["weight_decay"] for run in Watched.runs] == [9.0, 0.01, 0.01]
    assert [len(run["rates"]) for run in Watched.runs] == [20, 20, 30]  # 120 images, 120, 150
    assert probe.chosen == 0.01 and probe.held_out[0.01] > probe.held_out[9.0]
    trial = fit_adamw10(features[~out], labels[~out], classes=3, weight_decay=0.01, seed=5)
    assert probe.held_out[0.01] == top_k(trial.scores(features[out]), labels[out]).accuracy
    assert (
        probe.weight.tobytes() == fit_adamw10(features, labels, classes=3, weight_decay=0.01, seed=5).weight.tobytes()
    )


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("strength", [1.0, 1000.0])
@pytest.mark.parametrize("kind", ["single", "two", "many"])
def test_lbfgs_ends_where_the_gradient_is_zero(kind, strength):
    """Of `C * summed loss + |w|^2 / 2`: the penalty is on the weights, not on the bias."""
    classes = 2 if kind == "two" else 4
    features, labels = (many_labels if kind == "many" else narrow_cone)(300, classes, seed=1)
    probe = fit_lbfgs(features, labels, classes=classes, strength=strength)
    units, scores = length_one(features), probe.scores(features).astype(np.float64)
    truth = labels if kind == "many" else np.eye(classes)[labels]
    if kind == "single":
        error, weight = softmax(scores) - truth, probe.weight
    elif kind == "many":
        error, weight = 1 / (1 + np.exp(-scores)) - truth, probe.weight
    else:
        error = (1 / (1 + np.exp(scores[:, 0] - scores[:, 1])) - truth[:, 1])[:, None]
        weight = (probe.weight[1] - probe.weight[0])[None]
        np.testing.assert_allclose(probe.weight[0], -probe.weight[1])
    scale = np.abs(weight).max()
    assert np.abs(strength * error.T @ units + weight).max() < 0.02 * scale
    assert np.abs(error.sum(axis=0)).max() < 0.02
    assert probe.unconverged == 0 and probe.solver_runs == (4 if kind == "many" else 1)


@pytest.mark.parametrize("many", [False, True])
def test_lbfgs_chooses_on_the_held_out_part_and_fits_to_all(many):
    features, labels = many_labels(200, 3, seed=1) if many else narrow_cone(200, 3, seed=1, noise=2.0)
    out = np.arange(200) % 4 == 0
    probe = fit_lbfgs(features, labels, classes=3, held_out=out, strength=[1e4, 1.0, 100.0])
    expected = {}
    for strength in (1.0, 100.0, 1e4):
        scores = fit_lbfgs(features[~out], labels[~out], classes=3, strength=strength).scores(features[out])
        expected[strength] = (
            average_precision(scores, labels[out]).mean if many else top_k(scores, labels[out]).accuracy
        )
    assert probe.held_out == pytest.approx(expected, abs=0.021)
    assert probe.chosen == max(probe.held_out, key=probe.held_out.get)
    final = fit_lbfgs(features, labels, classes=3, strength=probe.chosen)
    np.testing.assert_allclose(probe.weight, final.weight)
    assert probe.solver_runs == (3 * (3 + 1) if many else 3 + 1)


def test_runs_that_do_not_converge_are_counted_and_told(monkeypatch, caplog):
    monkeypatch.setattr(fits, "STEPS", 2)
    monkeypatch.setattr(fits.logger, "propagate", True)
    monkeypatch.setattr(fits.logger.parent, "propagate", True, raising=False)
    features, labels = narrow_cone(100, 3, seed=1)
    with caplog.at_level(logging.WARNING):
        probe = fit_lbfgs(features, labels, classes=3, strength=[100.0, 1000.0])
    assert (probe.unconverged, probe.solver_runs) == (3, 3)
    assert "3 of 3 solver runs did not converge within 2 steps, 1 of them of the final fit" in caplog.text


def test_the_held_out_part_is_a_seeded_fifth_of_each_class():
    labels = np.repeat([0, 1, 2, 3], [50, 11, 3, 1])
    out = hold_out(labels, 0)
    assert np.bincount(labels[out], minlength=4).tolist() == [10, 2, 1, 0]
    assert (hold_out(labels, 0) == out).all() and (hold_out(labels, 1) != out).any()
    assert hold_out(np.zeros((40, 3), dtype=bool), 0).sum() == 8


def test_vtab_1k_is_a_seeded_sample_with_200_held_out():
    rows, out = vtab_1k(5000, seed=1)
    assert len(set(rows.tolist())) == 1000 and 4900 < rows.max() < 5000
    assert out.sum() == 200
    again, _ = vtab_1k(5000, seed=1)
    assert (again == rows).all()
    assert (vtab_1k(5000, seed=2)[0] != rows).any()
    assert sorted(vtab_1k(1000)[0].tolist()) == list(range(1000))
    with pytest.raises(ValueError, match="count: found 999 .* 1,000"):
        vtab_1k(999)


@FITS
def test_a_class_that_training_lacks_is_refused_or_never_right(fit):
    features, labels = narrow_cone(90, 3, seed=1)
    labels = np.where(labels == 1, 4, labels)
    with pytest.raises(ValueError, match=r"2 of 5 classes .*: \[1, 3\]"):
        fit(features, labels, classes=5)
    probe = fit(features, labels, classes=5, allow_missing=True)
    assert not top_k(probe.scores(features), np.full(90, 3)).correct.any()
    assert top_k(probe.scores(features), labels).accuracy > 0.5
    features, labels = many_labels(90, 3, seed=1)
    labels[:, 0] = False
    with pytest.raises(ValueError, match=r"1 of 3 classes .*counterexample .*: \[0\]"):
        fit(features, labels, classes=3)
    scores = fit(features, labels, classes=3, allow_missing=True).scores(features)
    assert np.isneginf(scores[:, 0]).all() and np.isfinite(scores[:, 1:]).all()


@FITS
def test_a_label_that_training_always_or_never_has_finds_no_image(fit):
    features, labels = many_labels(90, 3, seed=1)
    labels[:, 0], labels[:, 1] = False, True
    scores = fit(features, labels, classes=3, allow_missing=True).scores(features)
    assert np.isneginf(scores[:, 0]).all() and np.isposinf(scores[:, 1]).all() and np.isfinite(scores[:, 2]).all()
    anything = np.arange(90) % 2 == 0
    assert average_precision(scores[:, :2], np.stack([anything, anything], axis=1)).mean == 0.0


@FITS
def test_errors_name_what_was_found(fit):
    features, labels = narrow_cone(30, 3, seed=1)
    with pytest.raises(ValueError, match=r"labels: .*only .*2"):
        fit(features, np.full(30, 2), classes=3)
    with pytest.raises(ValueError, match=r"features \(30, 24\) and labels \(29,\)"):
        fit(features, labels[1:], classes=3)
    with pytest.raises(ValueError, match="labels, row 7: found 3, expected 0 to 2"):
        fit(features, np.where(np.arange(30) == 7, 3, labels), classes=3)
    with pytest.raises(ValueError, match="labels: found float64"):
        fit(features, labels.astype(float), classes=3)
    with pytest.raises(ValueError, match=r"labels: found bool \(30, 2\), .*\[n, 3\]"):
        fit(features, np.ones((30, 2), dtype=bool), classes=3)
    with pytest.raises(ValueError, match="none of the 2 classes"):
        fit(features, np.ones((30, 2), dtype=bool), classes=2)
    for value, shown in ((np.nan, "nan"), (np.inf, "inf"), (0.0, "0")):
        broken = features.copy()
        broken[5] = value
        with pytest.raises(ValueError, match=f"row 5: found length {shown}"):
            fit(broken, labels, classes=3)
        with pytest.raises(ValueError, match=f"row 5: found length {shown}"):
            fit(features, labels, classes=3).scores(broken)
    with pytest.raises(ValueError, match=r"features \(30, 23\): expected \[n, 24\]"):
        fit(features, labels, classes=3).scores(features[:, 1:])


def test_strengths_and_held_out_parts_that_do_not_fit_are_refused():
    features, labels = narrow_cone(30, 3, seed=1)
    with pytest.raises(ValueError, match=r"weight_decay: found \[11.0\], .* 0 to 10"):
        fit_adamw10(features, labels, classes=3, weight_decay=11)
    with pytest.raises(ValueError, match=r"strength: found \[1.0, 1.0\]"):
        fit_lbfgs(features, labels, classes=3, strength=[1, 1])
    with pytest.raises(ValueError, match=r"strength: found \[\]"):
        fit_lbfgs(features, labels, classes=3, strength=[])
    with pytest.raises(ValueError, match="batch_size: found 0"):
        fit_adamw10(features, labels, classes=3, batch_size=0)
    with pytest.raises(ValueError, match=r"held_out: found int64 \(30,\), .*bool \[30\]"):
        fit_lbfgs(features, labels, classes=3, held_out=labels)
    with pytest.raises(ValueError, match="0 of 30 images held out"):
        fit_lbfgs(features, labels, classes=3, held_out=np.zeros(30, dtype=bool))
    with pytest.raises(ValueError, match="only one class"):
        fit_adamw10(features, labels, classes=3, held_out=labels > 0, weight_decay=fits.DECAYS)
    with pytest.raises(ValueError, match="no class .*positives and negatives"):
        fit_lbfgs(*many_labels(30, 2, seed=1), classes=2, held_out=np.arange(30) == 3)
