"""Nearest neighbors against a plain loop, whatever the batch size and the method; about 1 second."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from hfcomp.negatives import neighbors
from hfcomp.negatives.neighbors import default_method, nearest_neighbors, neighbor_columns

pytest.importorskip("faiss")
RNG = np.random.default_rng(0)


def plain(vectors: np.ndarray, number: int, groups) -> list[list[int]]:
    """Neighbors by a loop; equal similarities are decided by the index."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = []
    for row, unit in enumerate(units):
        others = [other for other in range(len(units)) if groups[other] != groups[row]]
        order = sorted(others, key=lambda other: (-round(float(unit @ units[other]), 6), other))
        rows.append((order + [-1] * number)[:number])
    return rows


def test_known_neighbors_on_a_circle():
    angles = np.radians([0, 10, 25, 90, 200])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.array([[1], [5], [0.1], [3], [2]])
    indices = nearest_neighbors(vectors, number=2)
    assert indices.tolist() == [[1, 2], [0, 2], [1, 0], [2, 1], [3, 0]]
    assert indices.dtype == np.int64


@pytest.mark.parametrize("method", ["exact", "faiss"])
def test_as_a_plain_loop_with_groups_and_many_equal_rows(method):
    vectors = RNG.normal(size=(150, 8))
    vectors[40:80] = vectors[3]  # more of them than FAISS is asked for
    vectors[100] = 7 * vectors[99]
    groups = np.arange(150) // 5
    expected = plain(vectors, 3, groups)
    for batch_size in (1, 7, 64, 1000):
        indices = nearest_neighbors(vectors, number=3, groups=groups, method=method, batch_size=batch_size)
        assert indices.tolist() == expected


def test_blocks_of_columns_do_not_change_the_result(monkeypatch):
    vectors = RNG.normal(size=(20, 5))[RNG.integers(20, size=90)]  # few directions, many ties
    whole = nearest_neighbors(vectors, number=4)
    monkeypatch.setattr(neighbors, "_BLOCK_COLUMNS", 13)
    assert (nearest_neighbors(vectors, number=4) == whole).all()
    assert whole.tolist() == plain(vectors, 4, range(90))


def test_similarities_are_exact_so_that_no_order_of_adding_matters():
    """Two rows of one direction, the widest common embedding, against whole numbers of Python."""
    vectors = RNG.normal(size=(6, 1280)).astype(np.float32)
    vectors[5] = 4 * vectors[4]
    units = neighbors._units(vectors)
    whole = [[int(value) for value in row] for row in units.tolist()]
    expected = [[sum(a * b for a, b in zip(row, other, strict=True)) for other in whole] for row in whole]
    assert [[int(value) for value in row] for row in (units @ units.T).tolist()] == expected
    assert (units[4] == units[5]).all()


@pytest.mark.parametrize("method", ["exact", "faiss"])
def test_fewer_rows_than_asked_for_are_filled_up(method):
    vectors = np.eye(3)
    assert nearest_neighbors(vectors, number=4, method=method).tolist() == [
        [1, 2, -1, -1],
        [0, 2, -1, -1],
        [0, 1, -1, -1],
    ]
    indices = nearest_neighbors(vectors, number=2, groups=["a", "a", "b"], method=method)
    assert indices.tolist() == [[2, -1], [2, -1], [0, 1]]
    assert (nearest_neighbors(vectors, number=2, groups=[1, 1, 1], method=method) == -1).all()
    assert nearest_neighbors(np.empty((0, 4)), number=2).shape == (0, 2)


@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "row 2: NaN"), (np.inf, "row 2: NaN or inf"), (0.0, "row 2: all 0")]
)
def test_rows_without_direction_are_named(value, said):
    vectors = np.ones((4, 3))
    vectors[2] = value
    with pytest.raises(ValueError, match=said):
        nearest_neighbors(vectors, number=1)


def test_other_wrong_input_is_refused():
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \[n, D\]"):
        nearest_neighbors(np.ones(3), number=1)
    with pytest.raises(ValueError, match="groups: found .*shape"):
        nearest_neighbors(np.ones((3, 2)), number=1, groups=[1, 2])
    with pytest.raises(ValueError, match="number: found 0,.* 1"):
        nearest_neighbors(np.ones((3, 2)), number=0)
    with pytest.raises(ValueError, match="method: found 'ivf'.* exact, faiss"):
        nearest_neighbors(np.ones((3, 2)), number=1, method="ivf")


def test_faiss_is_used_for_many_rows_where_it_is_installed(monkeypatch):
    assert [default_method(rows) for rows in (100, 20_000, 20_001)] == ["exact", "exact", "faiss"]
    monkeypatch.setattr(neighbors.importlib.util, "find_spec", lambda name: None)
    assert default_method(20_001) == "exact"
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "hfcomp\[neighbors\]"'):
        nearest_neighbors(np.eye(3), number=1, method="faiss")


def test_columns_are_of_images_not_of_rows():
    """Image a has two captions; b and c are near to their mean, c to one of them only."""
    vectors = np.array([[1.0, 0.2], [0.2, 1.0], [1.0, 0.9], [0.0, 1.0]])
    columns = neighbor_columns(vectors, ["a", "a", "b", "c"], number=2)
    assert columns == {
        "image_id": ["a", "a", "b", "c"],
        "neighbor_ids": [["b", "c"], ["b", "c"], ["a", "c"], ["a", "b"]],
    }


def test_copies_under_other_ids_are_no_neighbors():
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    columns = neighbor_columns(vectors, ["a", "copy", "c"], number=2, groups=[0, 0, 1])
    assert columns["neighbor_ids"] == [["c"], ["c"], ["a", "copy"]]
    with pytest.raises(ValueError, match="image_ids: found 2,.* 3"):
        neighbor_columns(vectors, ["a", "b"], number=1)
