"""Negatives of other rows: no row keeps its own."""

from __future__ import annotations

import numpy as np
import pytest

from hfcomp.data.negatives import derangement


@pytest.mark.parametrize("number", [2, 3, 50])
def test_a_derangement_leaves_nothing_in_its_place(number):
    for seed in range(20):
        partners = derangement(range(number), seed)
        assert sorted(partners) == list(range(number))
        assert not (partners == np.arange(number)).any()
        assert (derangement(range(number), seed) == partners).all()
