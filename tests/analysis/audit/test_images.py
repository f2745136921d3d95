"""Copies of images within a set, and images that benchmarks score."""

from __future__ import annotations

import pytest

from hfcomp.analysis.audit.images import ONLY_EQUAL_PIXELS, duplicate_images, overlap
from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.audit.reading import audit_set, read_audit_set
from hfcomp.sandbox import training_set
from tests import tiny
from tests.analysis.audit import sets
from tests.analysis.gallery.pages import encode
from tests.evaluation import small_sugarcrepe


def test_a_copy_under_another_id_is_a_duplicate_and_one_under_its_own_is_not(tmp_path):
    copy = encode(tiny.image(3))
    data = sets.data(12, image={7: copy, 8: copy}, image_id={8: "tiny-3"})
    check = duplicate_images(data, 5, folder=tmp_path)
    assert check.of == 11 and check.facts["equal_pixels"] == 2
    assert check.examples[0].row == 3 and check.examples[0].other_row == 7
    assert check.facts["unreadable"] == 0


def test_an_image_that_cannot_be_read_is_counted(tmp_path):
    data = sets.data(4, image={1: {"bytes": b"no image", "path": None}})
    check = duplicate_images(data, folder=tmp_path)
    assert check.facts["unreadable"] == 1 and check.of == 3
    assert "row 1" in check.facts["first_unreadable"]


def test_scenes_of_the_sandbox_are_compared_by_pixels_alone(tmp_path):
    rows = training_set(40, 0)
    check = duplicate_images(audit_set("sandbox", rows, {"image": rows["image"]}), folder=tmp_path)
    assert check.value == 0 and check.reason == ONLY_EQUAL_PIXELS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_sugarcrepe.write(tmp_path_factory.mktemp("data"))


def test_images_of_a_benchmark_are_found_in_a_training_set(folder, tmp_path):
    shared = (folder / "val2017" / "4.png").read_bytes()
    data = sets.data(
        12, image={row: encode(tiny.image(200 + row)) for row in range(12)} | {5: {"bytes": shared, "path": None}}
    )
    check = overlap(data, (), folder, 3, folder=tmp_path)
    assert check.value == pytest.approx(100 / 12) and check.facts["compared"] == ["SugarCrepe"]
    assert check.tables[0].rows[0][:3] == ["SugarCrepe", "1", "1 of 20"]
    assert check.examples[0].row == 5


def test_a_row_without_its_image_is_not_said_to_be_clean(folder, tmp_path):
    shared = (folder / "val2017" / "4.png").read_bytes()
    data = sets.data(12, image={5: {"bytes": shared, "path": None}, 6: None, 7: None})
    check = overlap(data, ("sugarcrepe",), folder, folder=tmp_path)
    assert check.of == 10 and check.value == 100
    assert check.reason.startswith("compared with SugarCrepe; 2 of 12 rows")


def test_a_benchmark_is_not_compared_with_itself_and_none_at_all_is_said(folder, tmp_path):
    data = read_audit_set("sugarcrepe", AuditOptions(data_dir=folder))
    assert len(data.pairs) == 35 and len(data.first_rows) == 20
    check = overlap(data, (), folder, folder=tmp_path)
    assert check.value is None and "--benchmarks A,B" in check.reason
    assert duplicate_images(data, folder=tmp_path).of == 20
