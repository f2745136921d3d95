"""The page of a gallery in a browser: filters, order, keys, marks that are saved, and its size (about 40 s)."""

from __future__ import annotations

import base64
import io
import json

import pytest
from PIL import Image
from playwright.sync_api import expect

from hfcomp.analysis.gallery.marks import apply_marks
from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.analysis.gallery.page import Pictures, gallery_page
from hfcomp.analysis.gallery.rows import ShownRows, row_record
from hfcomp.analysis.gallery.scores import ModelScores
from hfcomp.data.loading import load_training_set
from hfcomp.reporting.pages.page import Thumbnail
from tests import tiny
from tests.analysis.gallery.pages import HOSTILE, dataset, encode, held, page, save_rows
from tests.chromium import chromium, overflow, watch

OPENS_WITHIN = 2_000
"""Milliseconds, with 1,000 pairs."""


@pytest.fixture(scope="module")
def browser():
    with chromium() as instance:
        yield instance


@pytest.fixture
def open_file(browser):
    """Opens a file in a context of its own; what a page must not do is empty at the end."""
    pages = []

    def open_page(file, width=1280, context=None, scheme="light"):
        context = context or browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        shown = context.new_page()
        seen = watch(shown)
        shown.goto(file.as_uri())
        pages.append((shown, seen, file))
        return shown

    yield open_page
    for _, seen, file in pages:
        assert not seen.messages
        assert {url for url in seen.requests if not url.startswith("blob:")} == {file.as_uri()}
    for context in {shown.context for shown, *_ in pages}:
        context.close()


@pytest.fixture(scope="module")
def scored_page(clip, siglip, tmp_path_factory):
    """A set of eight rows, and its page with two models."""
    folder = tmp_path_factory.mktemp("scored")
    source = save_rows(folder)
    return source, page(source, folder, models=(f"before={clip}", f"after={siglip}"))


def numbers(shown) -> list[int]:
    return shown.locator("article").evaluate_all("all => all.map((one) => Number(one.dataset.row))")


def test_rows_show_images_changed_words_and_masks_that_can_be_hidden(open_file, scored_page):
    shown = open_file(scored_page[1])
    row = shown.locator("article").first
    negative = held(scored_page[1], "data")[0]["negatives"][0]
    expect(row.locator("del")).to_have_text(negative["changes"][1][1])
    expect(row.locator("ins")).to_have_text(negative["changes"][2][1])
    sizes = row.locator("img:not(.mask)").evaluate_all(
        "all => Promise.all(all.map((one) => one.decode().then(() => [one.naturalWidth, one.width])))"
    )
    assert sizes == [[32, 224], [32, 224]]  # small images are enlarged
    mask = row.locator(".mask").first
    assert mask.is_visible()
    shown.keyboard.press("m")
    assert not mask.is_visible()
    expect(shown.locator("article").nth(2).locator(".absent")).to_have_text("none")


def test_rows_are_found_by_text_kind_verdict_change_and_mark(open_file, scored_page):
    shown = open_file(scored_page[1])
    rows = held(scored_page[1], "data")

    def right(row, model):
        return row["scores"][model][4] == 1

    def expect_rows(wanted):
        expect(shown.locator("#count")).to_contain_text(f"{len(wanted)} of 8 rows")
        assert numbers(shown) == wanted

    shown.fill("#search", "GROUP 1")
    expect_rows([1, 3, 5, 7])
    shown.press("#search", "Escape")
    shown.select_option("#kind", "swap_att")
    expect_rows([0, 2, 4, 6])
    shown.select_option("#kind", "")
    for model, value in ((0, "1"), (1, "0")):
        choice = shown.locator("#verdicts select").nth(model)
        choice.select_option(value)
        expect_rows([row["row"] for row in rows if row["scores"][model][4] == int(value)])
        choice.select_option("")
    changed = [row["row"] for row in rows if right(row, 0) != right(row, 1)]
    assert changed  # of the two random models
    shown.select_option("#changed", "any")
    expect_rows(changed)
    shown.select_option("#changed", "won")
    expect_rows([row["row"] for row in rows if right(row, 1) and not right(row, 0)])
    shown.select_option("#changed", "")
    shown.locator("[data-row='3'] [data-mark=drop]").click()
    shown.select_option("#marked", "drop")
    expect_rows([3])
    shown.select_option("#marked", "none")
    expect_rows([0, 1, 2, 4, 5, 6, 7])
    shown.fill("#search", "nothing of this name")
    expect(shown.locator("#none")).to_be_visible()


def test_rows_are_sorted_by_margin_of_captions_or_images(open_file, scored_page):
    shown = open_file(scored_page[1])
    rows = held(scored_page[1], "data")

    def margin(row, model=0):
        own, others = row["scores"][model][:2]
        return own - max(others)

    shown.select_option("#sort", "margin 0 up")
    assert numbers(shown) == sorted(range(8), key=lambda row: margin(rows[row]))
    shown.select_option("#sort", "margin 1 down")
    assert numbers(shown) == sorted(range(8), key=lambda row: -margin(rows[row], 1))
    shown.select_option("#judge", "images")
    by_images = {
        row["row"]: row["scores"][1][0] - row["scores"][1][2] for row in rows if row["scores"][1][2] is not None
    }
    assert numbers(shown) == [*sorted(by_images, key=lambda row: -by_images[row]), 2, 5]  # those without come last
    first = shown.locator("article").first
    expect(first.locator(".verdict").nth(1)).to_contain_text("right" if max(by_images.values()) > 0 else "wrong")
    shown.select_option("#unit", "logit")
    about, row = held(scored_page[1], "about"), numbers(shown)[0]
    expected = about["models"][1]["scale"] * rows[row]["scores"][1][0] + about["models"][1]["bias"]
    expect(first.locator("tbody tr").first.locator("td").nth(2)).to_have_text(f"{expected:.2f}")


def test_marks_are_set_by_keys_stay_and_are_applied(open_file, scored_page, browser, tmp_path):
    source, file = scored_page
    context = browser.new_context(accept_downloads=True)
    shown = open_file(file, context=context)
    for key in ("j", "d", "a", "d", "u", "k"):  # row 0 dropped, 1 kept, 2 dropped, 3 not marked
        shown.keyboard.press(key)
    expect(shown.locator("#count")).to_contain_text("1 kept, 2 dropped")
    expect(shown.locator("article.current")).to_have_attribute("data-row", "2")
    shown.keyboard.press("/")
    shown.keyboard.type("ad")  # typing marks nothing
    shown.press("#search", "Escape")
    shown.reload()
    expect(shown.locator("#count")).to_contain_text("1 kept, 2 dropped")
    expect(shown.locator("[data-row='2'] [data-mark=drop]")).to_have_attribute("aria-pressed", "true")
    with shown.expect_download() as saving:
        shown.click("#json")
    marks = tmp_path / "marks.json"
    saving.value.save_as(marks)
    assert saving.value.suggested_filename == "marks.json"
    with shown.expect_download() as saving:
        shown.click("#csv")
    saving.value.save_as(tmp_path / "marks.csv")
    ids = [row["id"] for row in held(file, "data")]
    lines = (tmp_path / "marks.csv").read_text().split()
    assert lines == ["row,id,mark", f"0,{ids[0]},drop", f"1,{ids[1]},keep", f"2,{ids[2]},drop"]
    done = apply_marks(source, marks, tmp_path / "out", {}, log=[].append)
    assert (done.dropped, done.written) == (2, 6)
    assert load_training_set(str(tmp_path / "out"))["image_id"][:] == [f"tiny-{row}" for row in (1, 3, 4, 5, 6, 7)]


def test_a_file_of_marks_is_opened_and_one_of_another_set_is_not(open_file, scored_page, tmp_path):
    file = scored_page[1]
    about, rows = held(file, "about"), held(file, "data")
    marks = [{"row": 4, "id": rows[4]["id"], "mark": "keep"}, {"row": 5, "id": rows[5]["id"], "mark": "<b>"}]
    (tmp_path / "own.json").write_text(json.dumps(about["set"] | {"marks": marks}))
    (tmp_path / "other.json").write_text(json.dumps(about["set"] | {"fingerprint": "sha256:0", "marks": marks}))
    shown = open_file(file)
    shown.set_input_files("#open", tmp_path / "other.json")
    expect(shown.locator("#message")).to_contain_text("other.json contains no marks")
    shown.set_input_files("#open", tmp_path / "own.json")
    expect(shown.locator("#message")).to_contain_text("1 marks from own.json")
    expect(shown.locator("#count")).to_contain_text("1 kept, 0 dropped")


def test_a_browser_that_keeps_nothing_says_so(browser, scored_page):
    context = browser.new_context()
    context.add_init_script("Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })")
    shown = context.new_page()
    shown.goto(scored_page[1].as_uri())
    expect(shown.locator("#message")).to_contain_text("Save the marks")
    shown.keyboard.press("j")
    shown.keyboard.press("d")
    expect(shown.locator("#count")).to_contain_text("0 kept, 1 dropped")
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (800, "light")])
def test_it_fits_its_window_and_hostile_texts_are_texts(open_file, tmp_path, width, scheme):
    long = "a-caption-without-any-space-" * 20
    rows = dataset(
        caption={0: HOSTILE, 1: long},
        negative_captions={0: [HOSTILE, long], 1: [long + "b", "word " * 200]},
        group={0: HOSTILE, 1: long},
        image={2: {"bytes": b"no image", "path": None}, 3: encode(tiny.image(3, (1200, 90)))},
        image_id={0: HOSTILE, 1: long},
    )
    shown = open_file(page(save_rows(tmp_path, rows), tmp_path), width, scheme=scheme)
    assert overflow(shown) == 0
    expect(shown.locator("article").first).to_contain_text(HOSTILE)
    assert not shown.locator("img[src=x]").count()
    expect(shown.locator("article").nth(2).locator(".absent").first).to_have_text("cannot be read")
    lightness = shown.evaluate("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)[0]")
    assert (lightness > 127) == (scheme == "dark")


def test_all_rows_are_reached_by_scrolling(open_file, tmp_path):
    shown = open_file(many(tmp_path / "many.html", 150))
    assert len(numbers(shown)) < 150
    for _ in range(60):
        shown.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        if len(numbers(shown)) == 150:
            break
        shown.wait_for_timeout(50)
    assert numbers(shown) == list(range(150))


def many(file, number: int):
    """A page of pairs whose pictures are all different, each of about the bytes of a photograph."""

    def picture() -> Thumbnail:
        stream = io.BytesIO()
        Image.effect_noise((224, 168), 12).save(stream, "JPEG", quality=75)
        return Thumbnail(f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}", 224, 168)

    row = dataset(1)[0]
    whole = dataset(1)
    pictures = Pictures([picture() for _ in range(2 * number)])
    pictures.rows = [{"image": 2 * place, "negative_image": 2 * place + 1, "mask": None} for place in range(number)]
    pictures.ids = [f"{place:016x}" for place in range(number)]
    scores = [(0.3, [0.2 + place % 7 / 40], 0.25, 0.1, int(place % 7 < 4), 1) for place in range(number)]
    models = [ModelScores(name, name, 100.0, 0.0, scores, 0) for name in ("before", "after")]
    shown = ShownRows(whole, "sha256:0", whole, list(range(number)))
    records = [row_record(row, place) for place in range(number)]
    file.write_text(gallery_page("many", shown, records, pictures, models, GalleryOptions(), []))
    return file


@pytest.mark.slow
def test_a_thousand_pairs_open_at_once(browser, tmp_path):
    """About 20 s, most of it to make pictures; the best of three openings, as other processes share the machine."""
    file = many(tmp_path / "many.html", 1_000)
    assert 10e6 < file.stat().st_size < 40e6
    times = []
    for _ in range(3):
        shown = browser.new_page()
        shown.goto(file.as_uri())
        times.append(shown.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
        expect(shown.locator("#count")).to_contain_text("1,000 of 1,000 rows")
        shown.fill("#search", "row 77")
        expect(shown.locator("#count")).to_contain_text("11 of 1,000 rows")
        shown.close()
    assert 0 < min(times) < OPENS_WITHIN
