"""What the page asks of the service, without a browser."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace

import numpy as np
import pytest
from PIL import Image

from hfcomp.annotate.page_draft import PageDraft, Segmentation
from hfcomp.annotate.service import ModelError, ModelQueue
from hfcomp.data.annotations.entries import Item
from hfcomp.data.annotations.masks import read_mask
from hfcomp.data.annotations.project import Project
from tests.annotate.app import stand_ins


@pytest.fixture
def service(tmp_path):
    instance = stand_ins.service(stand_ins.project(tmp_path / "boxes", 3))
    yield instance
    instance.close()


def finish(service, person, **changes):
    item = service.next_item(person)
    painting = service.paint(item, service.draft(person, item))
    changes = {"painting": painting, "chosen": 0, "quality": "okay"} | changes
    return item, service.update(person, item, lambda draft: replace(draft, **changes))


def test_a_draft_is_read_back_as_it_was_kept(service):
    item, draft = finish(service, "Ann", caption="A blue box.")
    assert service.draft("Ann", item) == draft
    assert PageDraft.from_json(asdict(draft), "draft") == draft
    with pytest.raises(ValueError, match="draft 7: "):
        PageDraft.from_json({"caption": 3}, "draft 7")


def test_what_was_submitted_comes_back_after_undo_and_after_a_review(service):
    item, draft = finish(service, "Ann", caption="A blue box.")
    strokes = np.zeros((stand_ins.HEIGHT, stand_ins.WIDTH), dtype=bool)
    strokes[:20, :20] = True
    made = service.brush(item, draft.segmentation, strokes, erases=False)
    draft = replace(draft, segmentation=made)
    draft = service.update("Ann", item, lambda _: replace(draft, painting=service.paint(item, draft)))
    service.submit("Ann", item, draft)
    service.project.decisions.undo("Ann")
    again = service.draft("Ann", item)
    assert (again.caption, again.quality, again.chosen) == ("A blue box.", "okay", 0)
    assert np.array_equal(service.mask(item, again.segmentation), read_mask(service.image(draft.painting.mask)))
    service.submit("Ann", item, again)
    service.project.decisions.next_review("Ben")
    service.project.decisions.send_back("Ben", item.id, "odd")
    assert service.draft("Ann", item).note == "A reviewer sent this back: odd"


def test_the_next_item_is_segmented_meanwhile(tmp_path):
    asked = []

    class Segmenter(stand_ins.ExactSegmenter):
        def probability_map(self, image, prompt):
            asked.append(prompt)
            return super().probability_map(image, prompt)

    project = stand_ins.project(tmp_path / "boxes", 3)
    service = stand_ins.AnnotationService(project, Segmenter, stand_ins.ExactPainter)
    first = service.next_item("Ann")
    coming = project.decisions.peek_item("Ann")
    service.queue.probability_map(coming.image, "blue box", lambda: service.image(coming.image)).result(5)
    assert sorted(asked) == ["blue box", "red box"] and first.id == "0/color"
    service.close()


def test_the_brush_adds_and_erases_and_the_last_stroke_wins(service):
    item = service.next_item("Ann")
    made = service.draft("Ann", item).segmentation
    strokes = np.zeros((stand_ins.HEIGHT, stand_ins.WIDTH), dtype=bool)
    strokes[:5, :5] = True
    added = service.brush(item, made, strokes, erases=False)
    assert added.is_corrected and service.mask(item, added)[strokes].all()
    erased = service.brush(item, added, strokes, erases=True)
    assert not service.mask(item, erased)[strokes].any()
    alone = Segmentation("", added=added.added)
    assert np.array_equal(service.mask(item, alone), strokes)
    with pytest.raises(ValueError, match="4 x 3 .* 320 x 240"):
        service.brush(item, made, np.ones((3, 4), dtype=bool), erases=False)


@pytest.mark.parametrize("enlarge", [(-1, 0), (0, 5000)])
def test_an_enlargement_out_of_range_is_refused(service, enlarge):
    with pytest.raises(ValueError, match="enlargement: found"):
        service.mask(service.next_item("Ann"), Segmentation("box", enlarge=enlarge))


def test_nothing_is_painted_where_nothing_would_change(tmp_path):
    class Same(stand_ins.ExactPainter):
        def paint(self, image, mask, prompt, seeds):
            return [stand_ins.Edit(image, is_blanked=seed == 0) for seed in seeds]

    service = stand_ins.service(stand_ins.project(tmp_path / "boxes", 1), Same())
    item = service.next_item("Ann")
    with pytest.raises(ValueError, match="blanked 1,.* 2 "):
        service.paint(item, service.draft("Ann", item))
    service.close()


def test_a_small_image_and_one_in_cmyk_are_annotated(tmp_path):
    project = Project(tmp_path / "boxes")
    small = stand_ins.picture("red").resize((24, 18)).convert("CMYK")
    small.save(tmp_path / "small.jpg")
    file = project.save_bytes((tmp_path / "small.jpg").read_bytes(), "jpg")
    project.decisions.add_items([Item("1/color", file, "color", ("A red box.",), ("red",))])
    service = stand_ins.service(project)
    item = service.next_item("Ann")
    draft = replace(service.draft("Ann", item), segmentation=Segmentation("box", threshold=0.6))
    painting = service.paint(item, draft)
    assert service.image(painting.candidates[0].file).size == (24, 18)
    service.close()


def test_a_model_is_tried_again_and_loaded_again(tmp_path):
    loaded = []

    def make():
        loaded.append(True)
        if len(loaded) < 2:
            raise OSError("the file is busy")
        return stand_ins.ExactSegmenter()

    queue = ModelQueue(make, stand_ins.ExactPainter)
    image = Image.new("RGB", (320, 240))
    assert queue.probability_map("a", "box", lambda: image).result(5).max() > 0.8
    queue.close()

    def broken():
        raise OSError("the file is gone")

    queue = ModelQueue(broken, stand_ins.ExactPainter)
    with pytest.raises(ModelError, match="failed 2 times: the file is gone"):
        queue.probability_map("a", "box", lambda: image).result(5)
    assert queue.waiting() == 0
    queue.close()


@pytest.mark.follows("hfcomp/annotate/service.py", "Wait until one is done.")
def test_a_person_waits_for_few_candidates_at_a_time(tmp_path):
    service = stand_ins.service(stand_ins.project(tmp_path / "boxes", 1))
    with ExitStack() as turns:
        for name in ("Ann", "ann", " ANN"):
            turns.enter_context(service.turn(name))
        with pytest.raises(ValueError, match="^3 .* 3 of them yours"), service.turn("Ann"):
            pass
        with service.turn("Ben"):
            pass
    with service.turn("Ann"):
        pass
    service.close()
