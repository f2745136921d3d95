"""What the page answers to events, without a browser: the tabs' handlers, and which fields each event reads."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import pytest

from hfcomp.annotate.app.page import Page
from hfcomp.annotate.app.tabs import Session
from hfcomp.annotate.app.uploads import Uploads
from tests.annotate.app import stand_ins


class Visitor:
    """A person at a page of their own; answers are by the id of the component."""

    def __init__(self, page, name=None, username=None):
        self.page, self.session, self.request = page, Session(), SimpleNamespace(username=username)
        self.start = {} if name is None else self.call(page.sign_in, name)

    def call(self, handler, *values):
        output = handler(self.session, self.request, *values)
        return values_by_id(output if isinstance(output, dict) else list(output)[-1])

    def fields(self, **changes):
        """What is submitted, in the page's order."""
        values = {
            **{"item": self.session.item, "mask_prompt": "red box", "threshold": 0.4, "x": 0, "y": 0},
            **{"prompt": "blue box", "base": "1", "caption": "A blue box on a grey wall."},
            **{"chosen": "1", "quality": "okay", **changes},
        }
        return list(values.values())


def values_by_id(updates):
    return {component.elem_id or type(component).__name__: value for component, value in updates.items()}


@pytest.fixture
def painter():
    return stand_ins.ExactPainter()


@pytest.fixture
def page(tmp_path, painter):
    project = stand_ins.project(tmp_path / "boxes", 3)
    with closing(stand_ins.service(project, painter)) as service:
        yield Page(
            service, title="Boxes", has_password=False, lease_seconds=900.0, uploads=Uploads(tmp_path / "uploads")
        )


def test_an_item_is_shown_painted_submitted_and_reviewed(page):
    ann = Visitor(page, "Ann")
    assert (ann.start["item"], ann.start["mask-prompt"]) == ("0/color", "red box")
    assert ann.start["tabs"]["visible"] and not ann.start["sign-in"]["visible"]
    assert "<mark>red</mark>" in ann.start["captions"] and 'class="base"' in ann.start["captions"]
    assert "0 of 3 items decided" in ann.start["status"]
    painted = ann.call(page.annotate.paint, *ann.fields()[:6])
    assert [painted[f"candidate-{number}"]["visible"] for number in (1, 2, 3)] == [True] * 3
    done = ann.call(page.submit, *ann.fields())
    assert "0/color was submitted." in done["message"] and done["item"] == "1/color"
    assert "Ann: 1 submitted" in done["status"] and "1 to review" in done["status"]
    assert "The reason is missing" in ann.call(page.skip, "1/color", " ")["message"]
    assert "1/color was skipped." in ann.call(page.skip, "1/color", "too small")["message"]
    ben = Visitor(page, "Ben")
    shown = ben.call(page.review.show_next)
    assert shown["review-item"] == "0/color" and "<ins>blue</ins>" in shown["review-captions"]
    assert "The quality is missing" in ben.call(page.accept, "0/color", None)["review-message"]
    outlined = ben.call(page.review.outline, True)
    assert outlined["review-edited"].endswith(".png")
    assert "The reason is missing" in ben.call(page.send_back, "0/color", "")["review-message"]
    assert "nothing for you to review" in ben.call(page.send_back, "0/color", "unnatural")["review-message"]
    undone = ben.call(page.undo)
    assert undone["tabs"]["selected"] == "review" and "0/color was undone" in undone["review-message"]
    accepted = ben.call(page.accept, "0/color", "very good")
    assert "1 accepted" in accepted["status"] and not accepted["review-work"]["visible"]
    assert "Ben" in ben.call(page.show_progress)["progress"]


def test_an_event_keeps_its_own_field_only(page):
    ann = Visitor(page, "Ann")
    assert ann.call(page.annotate.keep_prompt, "0/color", "blue box")["caption"] == "A blue box on a grey wall."
    ann.call(page.annotate.keep_caption, "0/color", "A blue crate.")
    assert ann.call(page.annotate.choose_word, "0/color", "green")["prompt"] == "green box"
    assert page.service.draft("Ann", page.service.project.decisions.item("0/color")).caption == "A blue crate."
    assert ann.call(page.annotate.choose_base, "0/color", "3")["caption"] == "There is a green box."
    ann.call(page.annotate.keep_choice, "0/color", "2", "okay")
    draft = page.service.draft("Ann", page.service.project.decisions.item("0/color"))
    assert (draft.chosen, draft.quality, draft.prompt) == (1, "okay", "green box")
    assert ann.call(page.annotate.keep_caption, "9/color", "late") == {"State": ann.session}
    assert "% of the image" in ann.call(page.annotate.segment, *ann.fields()[:5])["share"]
    assert "no strokes" in ann.call(page.annotate.add_strokes, "0/color", None)["message"]
    assert ann.call(page.annotate.open_brush, "0/color", False)["editor"]["layers"] == []
    assert ann.call(page.annotate.clear_strokes, "0/color")["image"].endswith(".jpeg")
    assert "another item" in ann.call(page.annotate.segment, "9/color", *ann.fields()[1:5])["message"]


def test_a_failure_is_shown_and_repeated_by_the_button(page, painter):
    ann = Visitor(page, "Ann")
    painter.failures = 2
    failed = ann.call(page.annotate.paint, *ann.fields()[:6])
    assert "failed 2 times: the device went away &lt;b&gt;" in failed["message"] and failed["retry"]["visible"]
    again = ann.call(page.retry, None, *ann.fields())
    assert again["candidate-1"]["visible"] and not again["retry"]["visible"]
    for failed, reason, said in (("submit", None, "0/color was submitted"), ("skip", "small", "1/color was skipped")):
        ann.session.failed = failed
        assert said in ann.call(page.retry, reason, *ann.fields())["message"]
    ann.session.failed = "mask"
    assert "share" in ann.call(page.retry, None, *ann.fields())
    assert ann.call(page.undo)["tabs"]["selected"] == "annotate"


def test_a_page_acts_for_nobody_before_they_sign_in(page):
    nobody = Visitor(page)
    assert "Enter your name" in nobody.call(page.annotate.show_next)["message"]
    assert "Enter your name" in nobody.call(page.review.show_next)["review-message"]
    assert "Enter your name" in nobody.call(page.show_progress)["progress"]
    assert values_by_id(page.tick(nobody.session, nobody.request)).keys() == {"status"}
    assert "sign-in-message" in nobody.call(page.sign_in, " ")
    ann = Visitor(page, "Ann")
    assert ann.call(lambda session, request: page.sign_out(session))["sign-in"]["visible"]
    assert not ann.session.person
    assert Visitor(page, "Ann").call(page.load, "Ann")["item"] == "0/color"


def test_a_lost_lease_is_said(page, monkeypatch):
    ann = Visitor(page, "Ann")
    assert ann.call(page.tick).keys() == {"status"}
    monkeypatch.setattr(page.service.project.decisions, "renew", lambda person, item: False)
    assert "0/color was assigned" in ann.call(page.tick)["message"]
