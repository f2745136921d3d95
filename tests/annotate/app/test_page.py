"""The page in a browser: what annotators and reviewers do, with models that stand in for the real ones."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager

import numpy as np
import pytest

from hfcomp.annotate.app.server import serving
from hfcomp.annotate.models import Inpainter, Segmenter
from hfcomp.annotate.people_file import SharedPassword
from hfcomp.annotate.service import AnnotationService
from hfcomp.data.annotations.masks import changed_outside, read_mask
from tests.annotate import models
from tests.annotate.app import stand_ins
from tests.annotate.app.browser import Visit
from tests.chromium import chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as instance:
        yield instance


class Site:
    """A served project, and the people who visit it."""

    def __init__(self, browser, project, painter, service, address):
        self.browser, self.project, self.painter, self.service = browser, project, painter, service
        self.address, self.decisions = address, project.decisions
        self.visits = []

    def visit(self, name=None, width=1280):
        visit = Visit(self.browser, self.address, width)
        self.visits.append(visit)
        return visit if name is None else visit.sign_in(name)


@contextmanager
def site_of(folder, browser, number=8, **settings):
    project, painter = stand_ins.project(folder, number, lease_seconds=900), stand_ins.ExactPainter()
    service = stand_ins.service(project, painter)
    with serving(service, title="Boxes", **settings) as address:
        site = Site(browser, project, painter, service, address)
        yield site
        assert [error for visit in site.visits for error in visit.errors] == []
        asked = [url for visit in site.visits for url in visit.requests]
        assert asked and all(url.startswith((address, "data:", "blob:")) for url in asked)  # no other machine
        for visit in site.visits:
            visit.leave()
    painter.released.set()
    service.close()


@pytest.fixture
def site(tmp_path, browser):
    with site_of(tmp_path / "boxes", browser) as running_site:
        yield running_site


def test_a_whole_annotation(site):
    ann = site.visit("Ann")
    assert ann.item() == "0/color"
    assert ann.page.locator("ol.captions mark").all_inner_texts() == ["red"] * 3
    assert ann.page.locator("ol.captions li").nth(1).inner_text() == "The box is red & big <i>here</i>."
    assert ann.value("mask-prompt") == "red box"
    ann.choose("word", "blue")
    ann.page.wait_for_function("document.querySelector('#difference ins')?.innerText == 'blue'")
    assert ann.value("prompt") == "blue box" and ann.value("caption") == "A blue box on a grey wall."
    ann.paint()
    ann.page.locator("#candidate-3 img").click()  # a click chooses, as the keys do
    ann.page.wait_for_function("document.querySelector('#chosen input:checked').value == '3'")
    ann.choose("quality", "okay")
    ann.field("caption").fill("A blue box on a bare wall.")
    ann.page.click("#submit")
    ann.is_at("1/color")
    ann.says("0/color was submitted")
    assert "Ann: 1 submitted" in ann.page.locator("#status").inner_text()
    edit = site.decisions.edit("0/color")
    assert (edit.caption, edit.quality, edit.inpaint_prompt) == ("A blue box on a bare wall.", "okay", "blue box")
    assert (edit.seed, edit.mask_prompt, edit.threshold) == (2, "red box", 0.4)
    original, edited = (site.project.read(name) for name in (site.decisions.item("0/color").image, edit.image))
    mask = read_mask(site.project.read(edit.mask))
    assert changed_outside(original, edited, mask) == 0
    assert np.asarray(edited)[mask][:, 2].min() > 150  # blue


@pytest.mark.slow
def test_keys_annotate_and_do_nothing_while_typing(site):
    ann = site.visit("Ann")
    ann.field("caption").fill("")
    ann.field("caption").type("ppv1u A pink box")
    assert ann.value("caption") == "ppv1u A pink box" and site.painter.painted == 0
    ann.paint()
    for key in "3o":
        ann.press(key)
    ann.page.wait_for_function("document.querySelector('#quality input:checked')?.value == 'okay'")
    assert ann.chosen("chosen") == "3"
    ann.press("c")
    ann.page.keyboard.press("End")
    ann.page.keyboard.type(".")
    ann.page.keyboard.press("Control+Enter")
    ann.is_at("1/color")
    assert site.decisions.edit("0/color").caption == "ppv1u A pink box."
    ann.press("u")
    ann.is_at("0/color")
    assert ann.chosen("quality") == "okay" and ann.value("caption") == "ppv1u A pink box."  # as it was submitted
    assert site.decisions.counts()["annotated"] == 0


@pytest.mark.slow
def test_a_skip_needs_a_reason(site):
    ann = site.visit("Ann")
    ann.page.click("#skip")
    ann.says("The reason is missing")
    assert ann.item() == "0/color"
    ann.press("s")
    ann.page.keyboard.type("A hand is in front of it")
    ann.page.keyboard.press("Enter")
    ann.page.click("#skip")
    ann.is_at("1/color")
    (entry,) = site.decisions.log()
    assert (entry.action, entry.item, entry.content["reason"]) == ("skip", "0/color", "A hand is in front of it")
    assert ann.value("reason") == ""


@pytest.mark.slow
def test_a_reload_continues_with_what_was_made(site):
    ann = site.visit("Ann")
    ann.field("mask-prompt").fill("box")
    ann.field("mask-prompt").press("Enter")
    ann.field("enlarge-x").fill("7")
    ann.choose("word", "green")
    ann.page.wait_for_function("document.querySelector('#difference ins')?.innerText == 'green'")
    ann.paint()
    ann.press("1")
    ann.press("v")
    ann.field("caption").fill("One green box on a grey wall.")
    ann.page.wait_for_function("document.querySelector('#difference').innerText.includes('One')")
    shown = ann.page.locator("#candidate-1 img").get_attribute("src")
    ann.reload()
    assert ann.item() == "0/color"
    assert ann.value("mask-prompt") == "box" and ann.value("enlarge-x") == "7" and ann.value("prompt") == "green box"
    assert ann.value("caption") == "One green box on a grey wall."
    assert (ann.chosen("chosen"), ann.chosen("quality")) == ("1", "very good")
    assert ann.page.locator("#candidate-1 img").get_attribute("src").rpartition("/")[2] == shown.rpartition("/")[2]
    ann.page.keyboard.press("Control+Enter")
    ann.is_at("1/color")
    assert site.decisions.edit("0/color").enlarge == (7, 0)


@pytest.mark.slow
def test_two_people_get_different_items_and_a_model_blocks_nobody(site):
    ann, ben = site.visit("Ann"), site.visit("Ben")
    assert (ann.item(), ben.item()) == ("0/color", "1/color")
    site.painter.released.clear()
    ann.press("p")
    ann.says("Painting 3 candidates")
    ben.press("p")
    ben.says("yours: 1")
    ann.field("caption").fill("Typed while the model works.")
    ben.tab("Progress")
    ben.page.locator("#progress td", has_text="color").first.wait_for()
    ben.tab("Annotate")
    ben.choose("base", "3")
    ben.page.wait_for_function("document.querySelector('li.base').innerText.startsWith('There')")
    site.painter.released.set()
    for person in (ann, ben):
        person.page.locator("#candidate-3 img").wait_for()
    assert ann.value("caption") == "Typed while the model works."
    for person in (ann, ben):
        person.press("2")
        person.press("v")
        person.page.keyboard.press("Control+Enter")
    ann.is_at("2/color")
    ben.is_at("3/color")
    assert site.decisions.edit("0/color").caption == "Typed while the model works."
    assert site.decisions.edit("1/color").original == "There is a blue box."


def test_a_review_is_blind_and_accepts_or_sends_back(site):
    ann = site.visit("Ann")
    first, second = ann.annotate("v"), ann.annotate("o")
    ann.tab("Review")
    ann.says("nothing for you to review", "review-message")  # own edits are for others
    ben = site.visit("Ben")
    ben.tab("Review")
    ben.page.locator("#review-edited img").wait_for()
    text = ben.page.locator("#tab-review, #review-work").first.inner_text()
    assert "Ann" not in ben.page.locator("#review-work").inner_text() and ben.chosen("review-quality") is None, text
    plain = ben.page.locator("#review-edited img").get_attribute("src")
    ben.press("m")
    ben.page.wait_for_function(f"document.querySelector('#review-edited img').src != '{plain}'")
    ben.press("a")
    ben.says("The quality is missing", "review-message")
    ben.press("o")
    ben.press("a")
    ben.says(f"{first} was accepted", "review-message")
    ben.page.wait_for_function(f"document.querySelector('#review-item :is(input, textarea)').value == '{second}'")
    assert not ben.page.locator("#review-item").is_visible()  # the page's own field, not for people
    (accepted,) = site.decisions.accepted()
    assert (accepted.annotator, accepted.reviewer) == ("Ann", "Ben")
    assert (accepted.edit.quality, accepted.reviewed_quality) == ("very good", "okay")
    ben.page.click("#back")
    ben.says("The reason is missing", "review-message")
    ben.press("r")
    ben.page.keyboard.type("The box <looks> odd")
    ben.page.keyboard.press("Enter")
    ben.page.click("#back")
    ben.says("nothing for you to review", "review-message")
    ann.tab("Annotate")
    held = ann.item()
    ann.page.locator("#reason input").fill("Nothing in the image can be replaced")
    ann.page.keyboard.press("Enter")
    ann.page.click("#skip")
    ann.is_at(second)  # back, with the reason and what was made
    ann.says("A reviewer sent this back: The box <looks> odd")
    assert ann.chosen("quality") == "okay" and held != second
    ben.tab("Annotate")
    ben.press("u")  # of the decision to send back: Ann works on it now
    ben.says("Ann has started")


@pytest.mark.slow
def test_undo_of_a_review_shows_it_again(site):
    first = site.visit("Ann").annotate()
    ben = site.visit("Ben")
    ben.tab("Review")
    ben.page.locator("#review-edited img").wait_for()
    ben.press("v")
    ben.press("a")
    ben.says("nothing for you to review", "review-message")
    ben.tab("Annotate")
    ben.press("u")
    ben.says(f"{first} was undone", "review-message")
    ben.page.locator("#review-edited img").wait_for()
    assert site.decisions.state(first) == "annotated"


@pytest.mark.slow
def test_the_brush_corrects_a_mask(site):
    ann = site.visit("Ann")
    ann.press("b")
    canvas = ann.page.locator("#editor canvas").first
    canvas.wait_for()
    ann.page.wait_for_timeout(1500)  # the editor fits its image to its size
    ann.page.click("#add")
    ann.says("no strokes")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    across, down = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    ann.page.mouse.move(across - 20, down + 120)
    ann.page.mouse.down()
    ann.page.mouse.move(across + 20, down + 120, steps=5)
    ann.page.mouse.up()
    share = "/The mask is [0-9.]+ %/.exec(document.querySelector('#share').innerText)?.[0]"
    before = ann.page.evaluate(share)
    ann.page.click("#add")
    ann.page.wait_for_function(f"before => {share} && {share} != before", arg=before)
    ann.press("b")
    ann.annotate()
    edit = site.decisions.edit("0/color")
    mask = read_mask(site.project.read(edit.mask))
    assert edit.is_corrected
    left, top, right, bottom = stand_ins.BOX
    drawn = mask.copy()
    drawn[top - 10 : bottom + 11, left - 10 : right + 11] = False
    assert 200 < drawn.sum() < 6000 and drawn[bottom + 11 :].any()


def test_a_model_that_fails_is_shown_and_tried_again(site):
    ann = site.visit("Ann")
    ann.field("caption").fill("A teal box.")
    site.painter.failures = 2
    ann.press("p")
    ann.says("The inpainting model failed 2 times: the device went away <b>")
    assert ann.value("caption") == "A teal box." and ann.item() == "0/color"
    ann.field("caption").fill("A teal box!")  # which leaves the message and the button
    ann.page.wait_for_function("document.querySelector('#difference').innerText.includes('box!')")
    ann.says("The inpainting model failed 2 times")
    ann.page.click("#retry")
    ann.page.locator("#candidate-3 img").wait_for()
    assert ann.value("caption") == "A teal box!"
    assert not ann.page.locator("#retry").is_visible()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        pytest.param("prompt", "", "The inpainting prompt is empty", marks=pytest.mark.slow),
        pytest.param("mask-prompt", "", "The mask prompt is empty", marks=pytest.mark.slow),
        pytest.param("mask-prompt", "nothing", "The mask is empty", marks=pytest.mark.slow),
        ("mask-prompt", "everything", "The mask covers the whole image"),
    ],
)
def test_what_cannot_be_painted_is_explained(site, field, value, message):
    ann = site.visit("Ann")
    ann.field(field).fill(value)
    ann.press("p")
    ann.says(message)
    assert ann.value(field) == value and site.painter.painted == 0


@pytest.mark.slow
def test_what_cannot_be_submitted_is_explained_and_kept(site, monkeypatch):
    ann = site.visit("Ann")
    for prepare, message in (
        (lambda: None, "There is no edited image yet"),
        (ann.paint, "No image is chosen"),
        (lambda: ann.press("2"), "The quality is missing"),
        (lambda: (ann.press("v"), ann.field("caption").fill("A red box on a grey wall")), "same as the original"),
        (lambda: ann.field("caption").fill(" "), "The new caption is empty"),
    ):
        prepare()
        ann.page.click("#submit")
        ann.says(message)
    ann.field("caption").fill("A blue box.")

    def full(*values):
        raise OSError(28, "No space left on device", str(site.decisions.path))

    monkeypatch.setattr(site.decisions, "submit", full)
    ann.page.click("#submit")
    ann.says("No space left on device")
    assert (ann.item(), ann.value("caption"), ann.chosen("chosen")) == ("0/color", "A blue box.", "2")
    monkeypatch.undo()
    ann.page.click("#retry")
    ann.is_at("1/color")
    assert site.decisions.edit("0/color").caption == "A blue box."


@pytest.mark.slow
def test_a_locked_database_is_explained_and_the_decision_can_be_repeated(site):
    ann = site.visit("Ann")
    ann.paint()
    for key in "2v":
        ann.press(key)
    while site.decisions.draft("Ann", "0/color")["quality"] is None:  # kept, so that the lock meets the decision alone
        ann.page.wait_for_timeout(100)
    with closing(sqlite3.connect(site.decisions.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        ann.page.click("#submit")
        ann.says("locked by another program")
        other.execute("ROLLBACK")
    assert ann.item() == "0/color" and ann.chosen("quality") == "very good"
    ann.page.click("#retry")
    ann.is_at("1/color")
    assert site.decisions.counts()["annotated"] == 1


def test_tiny_models_of_the_real_kinds_segment_and_paint(tmp_path, browser):
    segmenter, inpainter = models.clipseg(tmp_path / "clipseg"), models.inpainting(tmp_path / "inpainting")
    project = stand_ins.project(tmp_path / "boxes", 2)
    service = AnnotationService(
        project, lambda: Segmenter(str(segmenter)), lambda: Inpainter(str(inpainter), steps=2, size=64)
    )
    item = project.decisions.item("0/color")
    heat = Segmenter(str(segmenter)).probability_map(project.read(item.image), "box")
    with serving(service, title="Boxes") as address:
        ann = Visit(browser, address)
        ann.field("name").fill("Ann")
        ann.page.click("#begin")
        ann.field("mask-prompt").wait_for()
        ann.field("mask-prompt").fill("box")
        threshold = round(float(np.quantile(heat, 0.6)), 2)  # a random model is unsure everywhere
        ann.page.locator("#threshold input[type=number]").fill(f"{threshold}")
        ann.page.locator("#threshold input[type=number]").press("Enter")
        ann.annotate()
        edit = project.decisions.edit("0/color")
        assert ann.errors == []
        ann.leave()
    assert (edit.mask_prompt, edit.threshold) == ("box", threshold)
    mask = read_mask(project.read(edit.mask))
    assert (mask == (heat >= threshold)).all()
    assert changed_outside(project.read(item.image), project.read(edit.image), mask) == 0
    service.close()


@pytest.mark.slow
def test_a_password_is_asked_and_the_name_is_the_one_signed_in_with(tmp_path, browser):
    with site_of(tmp_path / "boxes", browser, passwords=SharedPassword("correct horse")) as site:
        ann = site.visit()
        name, word = ann.page.locator("input").nth(0), ann.page.locator('input[type="password"]')
        name.wait_for()
        ann.page.screenshot(path=str(tmp_path / "sign_in.png"))
        for given in ("wrong horse", "correct horse"):
            name.fill("  Ann ")
            word.fill(given)
            ann.page.get_by_role("button", name="Sign in").click()
            if given.startswith("wrong"):
                ann.page.get_by_text("The name or the password is wrong").first.wait_for()
        ann.field("caption").wait_for()
        assert not ann.page.locator("#name").is_visible() and not ann.page.locator("#other-person").is_visible()
        ann.annotate()
        (entry,) = site.decisions.log()
        assert entry.person == "Ann"


@pytest.mark.slow
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 800])
def test_nothing_overlaps_or_is_cut_off(tmp_path, browser, width):
    with site_of(tmp_path / "boxes", browser) as site:
        site.visit("Ben").annotate()
        ann = site.visit(width=width)
        ann.field("name").wait_for()
        assert ann.problems() == []
        ann.sign_in("Ann, who has a rather long name for a person")
        assert ann.problems() == []
        ann.paint()
        ann.press("1")
        ann.page.click("#submit")
        ann.says("The quality is missing")
        assert ann.problems() == []
        ann.press("b")
        ann.page.locator("#editor canvas").first.wait_for()
        assert ann.problems() == []
        ann.tab("Review")
        ann.page.locator("#review-edited img").wait_for()
        assert ann.problems() == []
        ann.tab("Progress")
        ann.page.locator("#progress td").first.wait_for()
        assert ann.problems() == []
