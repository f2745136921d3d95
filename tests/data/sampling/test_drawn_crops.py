"""Random crops: which boxes are drawn, and that a draw depends on seed, epoch and row alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from hfcomp.data.loading import TrainingRows
from hfcomp.data.sampling.draws import (
    ASPECT,
    CROP_BOX,
    DrawnCrops,
    DrawnNegatives,
    EpochOrder,
    draw_box,
    without_crops,
)
from tests import tiny

ROWS, DRAWS = 12, 4000


@pytest.fixture(scope="module")
def rows():
    return TrainingRows(tiny.pairs(ROWS, negatives=3), ["caption", "negative_captions"])


def uniform(values: np.ndarray, low: float, high: float) -> bool:
    """Whether their distribution function is nowhere further from a uniform one's than that of 99.9% of samples."""
    shares = (np.sort(values) - low) / (high - low)
    return np.abs(shares - (np.arange(len(shares)) + 0.5) / len(shares)).max() < 1.95 / np.sqrt(len(shares))


@pytest.mark.parametrize("smallest", [0.9, 0.5, 0.08])
def test_area_ratio_and_place_are_uniform(smallest):
    numbers = random.Random(0)
    left, top, right, bottom = np.array([draw_box(smallest, numbers) for _ in range(DRAWS)]).T
    width, height = right - left, bottom - top
    assert min(left.min(), top.min()) >= 0 and max(right.max(), bottom.max()) <= 1 + 1e-12
    area, ratio = width * height, np.log(width / height)
    assert area.min() >= smallest - 1e-12 and uniform(area, smallest, 1)
    bound = np.minimum(np.log(ASPECT), -np.log(area))
    assert np.abs(ratio).max() <= np.log(ASPECT) + 1e-12 and uniform(ratio / bound, -1, 1)
    assert uniform(left / (1 - width), 0, 1) and uniform(top / (1 - height), 0, 1)


def test_the_whole_image_is_its_own_box():
    assert draw_box(1.0, random.Random(0)) == (0, 0, 1, 1)


def test_a_draw_depends_on_seed_epoch_and_row_alone(rows):
    drawn = DrawnCrops(rows, seed=0, smallest=0.5)
    assert drawn.__getitems__([(7, 9), (4, 9)])[1] == drawn[4, 9] and drawn[4] == drawn[4, 0]
    assert {key: value for key, value in drawn[4, 9].items() if key != CROP_BOX} == rows[4]
    boxes = {
        DrawnCrops(rows, seed=seed, smallest=0.5)[row, epoch][CROP_BOX] for seed, row, epoch in np.ndindex(3, 4, 5)
    }
    assert len(boxes) == 3 * 4 * 5


def test_other_draws_of_a_row_are_as_without_crops(rows):
    negatives = DrawnNegatives(rows, seed=0)
    both = DrawnCrops(negatives, seed=0, smallest=0.5)
    assert without_crops(both) is negatives and without_crops(negatives) is negatives
    for index in np.ndindex(ROWS, 3):
        assert both[index] == {**negatives[index], CROP_BOX: DrawnCrops(rows, seed=0, smallest=0.5)[index][CROP_BOX]}


def test_workers_draw_what_the_main_process_draws(rows):
    order = EpochOrder(range(ROWS))
    runs = []
    for workers in ({}, {"num_workers": 2, "persistent_workers": True}):
        dataset = DrawnCrops(rows, seed=0, smallest=0.5)
        loader = torch.utils.data.DataLoader(dataset, batch_size=2, sampler=order, collate_fn=list, **workers)
        epochs = []
        for epoch in range(2):
            order.set_epoch(epoch)
            epochs.append([row[CROP_BOX] for batch in loader for row in batch])
        runs.append(epochs)
    assert runs[0] == runs[1] and not set(runs[0][0]) & set(runs[0][1])
