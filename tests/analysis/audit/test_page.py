"""The page of an audit, as text and in a browser."""

from __future__ import annotations

import pytest

from hfcomp.analysis.audit.audit import audit
from hfcomp.analysis.audit.checks import parse_limits
from hfcomp.analysis.audit.options import AuditOptions
from hfcomp.analysis.audit.report import audit_page
from tests.analysis.audit import sets
from tests.analysis.gallery.pages import HOSTILE
from tests.chromium import chromium, overflow, watch


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    hostile = {0: [f"{HOSTILE} photo"], 5: ["photo 5 of a bird and a cat on the grass"]}
    rows = sets.rows(
        24, negative_captions=hostile, caption={0: f"photo \u202e {HOSTILE}"}, image={7: sets.rows(4)[3]["image"]}
    )
    rows.save_to_disk(str(folder / "set"))
    return audit(str(folder / "set"), AuditOptions(), hashes=folder / "hashes")


def test_texts_of_a_data_set_are_escaped_and_the_page_is_the_same_twice(result):
    page = audit_page(result, "own", parse_limits(["blind>60"]))
    assert "<img src=x" not in page and "&lt;img src=x" in page
    assert "\u202e" not in page and "<bdi>photo \\u202e" in page
    assert page == audit_page(result, "own", parse_limits(["blind>60"]))
    assert "failed" in page and "blind is 9" in page
    assert 'id="duplicate_images"' in page and page.count("<img") == 2


@pytest.fixture(scope="module")
def browser():
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 800])
def test_it_opens_without_a_message_or_a_request_and_fits(result, browser, tmp_path, width, scheme):
    file = tmp_path / "audit.html"
    file.write_text(audit_page(result, "own", []), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    seen = watch(page)
    page.goto(file.as_uri())
    assert seen.messages == [] and seen.requests == [file.as_uri()]
    assert overflow(page) == 0
    assert page.locator("section").count() > 5
    assert page.locator("img").first.evaluate("image => image.naturalWidth") > 0
