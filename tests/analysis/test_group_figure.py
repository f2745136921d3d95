"""Joint embeddings: values by hand, known scorers, and the picture of groups (2 s)."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image

from hfcomp.analysis.group_figure import draw_groups, joint_embeddings, nearest_own_centroid, principal_plane
from tests.analysis.figures import texts_of


def test_products_have_length_1_and_zero_stays_zero():
    image = np.float32([[0.6, 0.8], [1, 0]])
    text = np.float32([[0.8, 0.6], [0, 1]])
    assert joint_embeddings(image, text) == pytest.approx(np.array([[0.5**0.5, 0.5**0.5], [0, 0]]))
    with pytest.raises(ValueError, match=r"image \(2, 2\) and text \(1, 2\): expected \[n, D\] for both"):
        joint_embeddings(image, text[:1])


def test_the_plane_of_points_in_a_plane_is_theirs():
    """An ellipse of half-axes 3 and 1 in three dimensions, off the origin."""
    angle = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    points = np.stack([np.full(12, 5.0), 3 * np.cos(angle), np.sin(angle)], axis=1)
    places, shares = principal_plane(points)
    assert places == pytest.approx(points[:, 1:], abs=1e-9)
    assert shares == pytest.approx([0.9, 0.1])
    assert principal_plane(-points)[0] == pytest.approx(-points[:, 1:], abs=1e-9)  # axes are not turned with the data
    assert principal_plane(np.ones((3, 4)))[1].tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"vectors \(1, 3\): expected"):
        principal_plane(points[:1])


def test_the_nearest_centroid_is_without_the_vector_itself():
    """Two groups of two at right angles: with itself in the mean, each vector would be nearest to its own."""
    vectors = np.array([[1, 0], [0, 1], [0.9, 0.1], [0.1, 0.9]])
    assert nearest_own_centroid(vectors, ["a", "b", "a", "b"]).tolist() == [True] * 4
    assert nearest_own_centroid(vectors, ["a", "a", "b", "b"]).tolist() == [False] * 4


def test_random_constant_and_inverted_groups():
    generator = np.random.default_rng(0)
    group = [str(number % 5) for number in range(1000)]
    random = nearest_own_centroid(generator.standard_normal((1000, 16)), group)
    assert random.mean() == pytest.approx(1 / 5, abs=0.05)
    assert not nearest_own_centroid(np.ones((1000, 3)), group).any()
    centers = np.eye(5)[np.arange(1000) % 5]
    assert nearest_own_centroid(centers, group).all()
    for groups, message in ((["a"] * 4, "1 groups.* 4 "), (["a", "a", "a", "b"], "smallest .* 1 ")):
        with pytest.raises(ValueError, match=message):
            nearest_own_centroid(np.eye(4), groups)


def test_the_picture_names_models_groups_and_shares(tmp_path, monkeypatch):
    written = texts_of(monkeypatch)
    group = [f"$group_{number % 9}" for number in range(36)]
    centers = np.eye(9)[np.arange(36) % 9] + 0.01 * np.random.default_rng(0).standard_normal((36, 9))
    path = draw_groups(tmp_path / "new" / "g.png", {"before": centers[::-1], "a$_b$": centers}, group)
    with Image.open(path) as picture:
        assert picture.format == "PNG" and picture.width > picture.height
    assert {"$group_0", "$group_8"} <= {text.replace("\\", "") for text in written}
    assert "a$_b$: nearest to own group 100.0%" in written and "before: nearest to own group 100.0%" in written
    assert "chance 11.1%" in " ".join(" ".join(written).split())
    with pytest.raises(ValueError, match=r"found \{'a': 9\} for 36 pairs"):
        draw_groups(path, {"a": centers[:9]}, group)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="g.png.*matplotlib.*pip install"):
        draw_groups(path, {"a": centers}, group)
