"""The page of a report in a browser: tables sort, items are found, texts stay texts, 5,000 items are quick."""

from __future__ import annotations

import base64
import time

import pytest
from PIL import Image
from playwright.sync_api import expect

from hfcomp.reporting.pages.items import PageOptions
from hfcomp.reporting.pages.page import thumbnail
from hfcomp.reporting.pages.report import report_page
from hfcomp.reporting.report import Report, Section, Table
from tests.chromium import chromium, overflow, watch
from tests.reporting.pages.test_report import HOSTILE, browser, item, report

OPENS_WITHIN, FILTERS_WITHIN = 5.0, 1.0
"""Seconds, with 5,000 items with pictures, on a busy machine."""


@pytest.fixture(scope="module")
def program():
    with chromium() as instance:
        yield instance


@pytest.fixture
def open_page(program, tmp_path):
    """Opens the text of a page; nothing is logged or requested by the end."""
    seen, contexts = [], []

    def open_page(text, width=1280, scheme="light"):
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        contexts.append(program.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        seen.append((watch(page), file.as_uri()))
        page.goto(file.as_uri())
        return page

    yield open_page
    for visit, address in seen:
        assert not visit.messages and set(visit.requests) == {address}
    for context in contexts:
        context.close()


def four():
    """One item of each change, in two subsets."""
    values = [(1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0)]
    return [item(place, *pair, subset=f"s{place % 2}") for place, pair in enumerate(values)]


def items_of(page):
    return page.locator("article").evaluate_all("all => all.map((one) => Number(one.dataset.item))")


def test_a_text_of_another_direction_is_isolated(open_page):
    page = open_page(report_page(report(), {}, browser([item(0, 0.0, 1.0, item="\N{HEBREW LETTER ALEF} \u202ex")])))
    expect(page.locator("article header bdi")).to_have_text("B, s, \N{HEBREW LETTER ALEF} \\u202ex")


def test_a_table_sorts_by_numbers_then_the_other_way_then_as_it_was(open_page):
    rows = [["b", "9.5 [1.0, 20.0]"], ["c", "-"], ["a", "10.1"], ["d", "<0.001"]]
    page = open_page(report_page(Report("t", sections=[Section("", [Table("", ["n", "v"], rows)])]), {}))

    def column():
        return page.locator("tbody tr td:first-child").all_text_contents()

    heads = page.locator("th button")
    orders = []
    for _ in range(3):
        heads.nth(1).click()
        orders.append("".join(column()))
    assert orders == ["abdc", "dbac", "bcad"]
    heads.nth(0).click()
    assert "".join(column()) == "abcd" and page.locator("th").nth(0).get_attribute("aria-sort") == "ascending"


def test_items_are_found_by_change_subset_text_and_models(open_page):
    page = open_page(report_page(report(), {}, browser(four())))
    expect(page.locator("#count")).to_have_text("4 of 4 items; 1 both right, 1 fixed, 1 broken, 1 both wrong")
    for change, wanted in (("fixed", [1]), ("broken", [2]), ("changed", [1, 2]), ("right", [0]), ("wrong", [3])):
        page.select_option("#change", change)
        assert items_of(page) == wanted
    page.select_option("#change", "")
    page.select_option("#subset", "s1")
    assert items_of(page) == [1, 3]
    page.select_option("#left", "1")
    page.select_option("#right", "0")
    page.select_option("#change", "broken")
    assert items_of(page) == [1]
    page.select_option("#change", "")
    page.fill("#search", "DOG 3")
    expect(page.locator("article")).to_have_count(1)
    page.fill("#search", "no such text")
    expect(page.locator("#none")).to_be_visible()
    page.press("#search", "Escape")
    expect(page.locator("article")).to_have_count(2)


def test_texts_of_data_stay_texts_and_a_rival_that_wins_is_marked(open_page):
    page = open_page(report_page(report(), {}, browser(four())))
    article = page.locator("article").first
    assert HOSTILE in article.text_content() and page.locator("article img").count() == 0
    marked = article.locator("td.wrong")
    assert marked.all_text_contents() == ["0.310"]  # of the first model alone
    assert article.locator("ins").first.text_content().startswith("dog")


def test_one_model_is_filtered_by_right_and_wrong(open_page):
    alone = browser(four())
    page = open_page(report_page(report(), {}, type(alone)(["a"], ("a", "a"), alone.metrics, alone.items, "")))
    assert not page.locator("#models").is_visible() and not page.locator("#change").is_visible()
    page.select_option("#verdict", "wrong")
    assert items_of(page) == [1, 3]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (800, "light")])
def test_the_page_fits_its_window(open_page, width, scheme):
    wide = Table("", ["", *(f"model {place}" for place in range(20))], [["x", *["50.0 [1.0, 2.0]"] * 20]] * 2)
    two = [item(0, 1, 0, pictures=[("image", thumbnail(Image.new("RGB", (160, 120)), 160))] * 2)]
    page = open_page(report_page(Report("t", sections=[Section("", [wide])]), {}, browser(two)), width, scheme)
    assert overflow(page) == 0


@pytest.mark.slow
def test_five_thousand_items_open_and_filter_quickly(open_page):
    noise = thumbnail(Image.effect_noise((160, 120), 60).convert("RGB"), 160)
    content = base64.b64decode(noise.uri.partition(",")[2])
    items = []
    for place in range(5000):  # bytes behind the end of a JPEG make it another one
        uri = f"data:image/jpeg;base64,{base64.b64encode(content + b'%d' % place).decode()}"
        pictures = [("image", noise._replace(uri=uri))]
        items.append(item(place, place % 2, place // 2 % 2, pictures=pictures))
    text = report_page(report(), {}, browser(items, options=PageOptions(items=5000)))
    assert len(text) > 25e6  # each item has a picture of its own
    start = time.perf_counter()
    page = open_page(text)
    expect(page.locator("article").first).to_be_visible()
    assert time.perf_counter() - start < OPENS_WITHIN
    took = page.evaluate("""() => {
        const times = [];
        for (const change of ["fixed", "wrong", ""]) {
            const start = performance.now();
            document.getElementById("change").value = change;
            document.getElementById("change").dispatchEvent(new Event("change"));
            document.body.getBoundingClientRect();
            times.push((performance.now() - start) / 1000);
        }
        return times;
    }""")
    assert max(took) < FILTERS_WITHIN
