"""Screenshots of the page: with HFCOMP_WRITE_SCREENSHOTS=1 they become those of docs/annotate.md."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hfcomp.annotate.app.server import serving
from hfcomp.annotate.candidates import CandidateOptions, add_candidates
from hfcomp.annotate.service import AnnotationService
from hfcomp.data.annotations.project import Project
from hfcomp.factory.images.editor import Edit
from tests.annotate.app import stand_ins
from tests.annotate.app.browser import Visit
from tests.chromium import chromium

DATA = os.environ.get("HFCOMP_REAL_DATA")
DOCS = Path(__file__).parents[3] / "docs"
IMAGE, LIMIT = 785, 400_000
pytestmark = pytest.mark.slow


class RedSegmenter:
    """Finds what is red."""

    def probability_map(self, image, prompt):
        """The lead of red over green and blue in each pixel."""
        red, green, blue = np.moveaxis(np.asarray(image, dtype=np.float32), -1, 0)
        return np.clip((red - np.maximum(green, blue)) / 90, 0, 1)


class HuePainter:
    """Turns red into yellow, a little different for each seed."""

    def paint(self, image, mask, prompt, seeds):
        """The image in other hues."""
        edits = []
        for seed in seeds:
            hue = np.asarray(image.convert("HSV")).copy()
            hue[..., 0] = 34 + 3 * (seed % 3)
            hue[..., 2] = np.clip(hue[..., 2].astype(int) + 50 + 15 * (seed % 3), 0, 255)
            edits.append(Edit(Image.fromarray(hue, "HSV").convert("RGB"), is_blanked=False))
        return edits


def keep(visit, name, folder):
    target = (DOCS if os.environ.get("HFCOMP_WRITE_SCREENSHOTS") else folder) / name
    visit.page.mouse.move(2, 2)
    visit.page.wait_for_timeout(500)
    content = visit.page.screenshot(full_page=True)
    image = Image.open(io.BytesIO(content)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    image.save(target, optimize=True)
    assert target.stat().st_size < LIMIT


@pytest.mark.skipif(DATA is None, reason="HFCOMP_REAL_DATA names no folder")
def test_annotating(tmp_path):
    lines = (Path(DATA) / "coco_open_256.jsonl").read_text(encoding="utf-8").splitlines()
    (row,) = [record for record in map(json.loads, lines) if record["image_id"] == IMAGE]
    row = {name: row[name] for name in ("image", "image_id", "captions", "license")}
    source = tmp_path / "source.jsonl"
    source.write_text(json.dumps(row | {"image": str(Path(DATA) / row["image"])}) + "\n", encoding="utf-8")
    project = Project(tmp_path / "winter")
    options = CandidateOptions(
        source=str(source), concepts=("color",), allow_outside_files=True, column_names="caption=captions"
    )
    add_candidates(project, options, log=lambda line: None)
    service = AnnotationService(project, RedSegmenter, HuePainter)
    with chromium() as browser, serving(service, title="Challenge set") as address:
        ann = Visit(browser, address).sign_in("Ann")
        ann.page.locator("#share", has_text="The mask is").wait_for()
        ann.choose("word", "yellow")
        ann.page.wait_for_function("document.querySelector('#difference ins')?.innerText == 'yellow'")
        ann.paint()
        ann.press("2")
        ann.press("v")
        ann.page.wait_for_function("document.querySelector('#quality input:checked')")
        ann.page.wait_for_timeout(500)
        keep(ann, "annotate.png", tmp_path)
        assert ann.problems() == []
    service.close()


def test_reviewing(tmp_path):
    project = stand_ins.project(tmp_path / "boxes", 6)
    service = stand_ins.service(project)
    with chromium() as browser, serving(service, title="Boxes (synthetic)") as address:
        ann = Visit(browser, address).sign_in("Ann")
        ann.choose("word", "green")
        ann.page.wait_for_function("document.querySelector('#difference ins')?.innerText == 'green'")
        ann.annotate()
        ben = Visit(browser, address).sign_in("Ben")
        ben.tab("Review")
        ben.page.locator("#review-edited img").wait_for()
        ben.press("m")
        ben.press("v")
        ben.page.wait_for_timeout(1000)
        keep(ben, "annotate_review.png", tmp_path)
        assert ben.problems() == []
    service.close()
