"""The page of a hierarchy in a browser: it opens alone, is searched, expands, and fits its window (about 10 s)."""

from __future__ import annotations

import base64
import io

import pytest
from PIL import Image
from playwright.sync_api import expect

from hfcomp.analysis.hierarchy.page import Members, SetMembers, concepts_page
from hfcomp.factory.magic.hierarchy import Concept, Hierarchy, Node
from tests.analysis.hierarchy.pages import HOSTILE, page
from tests.chromium import chromium, overflow, watch

OPENS_WITHIN = 2_000
"""Milliseconds, with 1,000 concepts."""


@pytest.fixture(scope="module")
def browser():
    with chromium() as instance:
        yield instance


def picture() -> str:
    """Of about 3 KB in the page, as a thumbnail of a photograph."""
    stream = io.BytesIO()
    Image.effect_noise((96, 96), 16).save(stream, "JPEG", quality=70)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


@pytest.fixture
def open_text(browser, tmp_path):
    """Opens a text as a file of its own; what the page must not do is empty at the end."""
    pages = []

    def open_page(text: str, width: int = 1280):
        file = tmp_path / f"page {len(pages)} ä.html"
        file.write_text(text, encoding="utf-8")
        shown = browser.new_page(viewport={"width": width, "height": 900})
        seen = watch(shown)
        shown.goto(file.as_uri())
        pages.append((shown, seen, file))
        return shown

    yield open_page
    for shown, seen, file in pages:
        assert not seen.messages
        assert [address.partition("#")[0] for address in seen.requests] == [file.as_uri()]
        shown.close()


def find(shown, words: str, number: str) -> None:
    shown.fill("#search", words)
    expect(shown.locator("#matches")).to_have_text(number)


def test_a_concept_is_found_and_opened_with_its_pictures(open_text):
    shown = open_text(page(cat=Members(captions=["a cat on a sofa"], pictures=[picture()])))
    cat, dog = (shown.locator(f"details[data-names^='{name}']") for name in ("cat", "dog"))
    assert not cat.is_visible() and not shown.locator("img").count()
    find(shown, "Kitten", "1 found")  # a name that was merged into the cat
    assert cat.locator("summary").is_visible() and not dog.is_visible()
    cat.locator("summary").click()
    image = cat.locator("img")
    image.wait_for()
    assert cat.get_by_text("a cat on a sofa").is_visible()
    assert image.evaluate("one => one.decode().then(() => one.naturalWidth)") == 96
    shown.press("#search", "Escape")
    expect(shown.locator("#matches")).to_have_text("")
    assert dog.locator("summary").is_visible()
    find(shown, "nothing of this name", "0 found")
    assert not shown.locator("summary:visible").count()


def test_a_hard_negative_leads_to_a_concept_that_is_hidden(open_text):
    shown = open_text(page())
    find(shown, "cat", "1 found")
    cat, dog = (shown.locator(f"details[data-names^='{name}']") for name in ("cat", "dog"))
    cat.locator("summary").click()
    cat.get_by_role("link", name="dog").click()
    dog.get_by_text("Hard negatives, nearest first:").wait_for()
    assert dog.evaluate("one => one.open")


@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("name", ["dog", "誕生日会", HOSTILE, "a-name-without-any-space-" * 12])
def test_it_fits_its_window_with_everything_open(open_text, width, name):
    members = Members(captions=["caption " * 40, "x" * 300], pictures=[picture()] * 12)
    shown = open_text(page(name, **{name: members}), width)
    assert overflow(shown) == 0
    shown.click("#open")
    expect(shown.locator("img")).to_have_count(12)
    assert overflow(shown) == 0
    assert all(shown.locator("details").evaluate_all("all => all.map((one) => one.open)"))
    shown.click("#close")
    assert shown.locator("summary:visible").count() == 1


def many(concepts: int) -> str:
    """A page with 8 pictures for each concept, all of them different."""
    chains = [
        (f"concept {n}", f"b {n % 280}", f"c {n % 280 % 110}", f"d {n % 280 % 110 % 80}") for n in range(concepts)
    ]
    all_concepts = tuple(
        Concept(chain[0], chain, 30, (), tuple(f"concept {(n + k) % concepts}" for k in range(1, 21)), (0.9,) * 20)
        for n, chain in enumerate(chains)
    )
    above = {(level, chain[level - 1]): chain[level : level + 1] for chain in chains for level in (2, 3, 4)}
    nodes = tuple(Node(level, name, parents) for (level, name), parents in sorted(above.items()))
    members = {concept.name: Members({"train": 24, "test": 6}, ["a caption"] * 4, []) for concept in all_concepts}
    for entry in members.values():
        entry.pictures += [picture() for _ in range(8)]
    hierarchy = Hierarchy(all_concepts, {chain[0]: chain[1:2] for chain in chains}, nodes)
    return concepts_page(hierarchy, SetMembers(members, 30_000, 0), [], title="Many concepts")


@pytest.mark.slow
def test_a_thousand_concepts_open_at_once(browser, tmp_path):
    """About 20 s, most of it to write the page; the best of three openings, as other processes share the machine."""
    file = tmp_path / "many.html"
    file.write_text(many(1_000))
    times = []
    for _ in range(3):
        shown = browser.new_page()
        shown.goto(file.as_uri())
        times.append(shown.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
        find(shown, "concept 77", "11 found")
        shown.close()
    assert 0 < min(times) < OPENS_WITHIN
