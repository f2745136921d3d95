"""The items of an evaluation's page: which are chosen, what is shown of them, and what files keep for it."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hfcomp
from hfcomp.evaluation.evaluation_results import evaluation_items
from hfcomp.evaluation.item_scores import read_scores
from hfcomp.evaluation.items.item_browser import ItemImages, choose_items, item_browser
from hfcomp.reporting.pages.items import CAPTION, NEGATIVE, PageOptions
from tests import tiny
from tests.evaluation import small_sugarcrepe
from tests.evaluation.evaluations import outcomes

HOSTILE = "<script>alert(1)</script> a dog"


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return tiny.clip(tmp_path_factory.mktemp("models") / "other", seed=5)


@pytest.fixture(scope="module")
def results(clip, other, tmp_path_factory):
    folder = small_sugarcrepe.write(tmp_path_factory.mktemp("data"))
    file = folder / "sugarcrepe" / "add_att.json"
    rows = json.loads(file.read_text())
    rows["0"]["negative_caption"] = HOSTILE
    file.write_text(json.dumps(rows))
    tiny.pairs(6, ragged=False).to_parquet(folder / "pairs.parquet")
    with_blind = {"benchmarks": ["sugarcrepe", str(folder / "pairs.parquet")], "blind": ["shorter"]}
    return hfcomp.evaluate({"clip": clip, "other": other}, **with_blind, data_dir=folder, device="cpu", cache=False)


@pytest.fixture(scope="module")
def saved_page(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "out"
    results.save(folder)
    return folder


def find_item(browser, subset="add_att", item="0"):
    return next(entry for entry in browser.items if (entry.subset, entry.item) == (subset, item))


def held(text, name):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text, re.DOTALL)[1])


def right_of(item, model):
    """Whether the caption has a higher score than the false one, as the page shows them."""
    scores = {text.role: text.scores[model][0] for text in item.texts}
    return scores[CAPTION] > scores[NEGATIVE]


def test_scores_of_the_page_are_those_that_decided(results):
    browser = evaluation_items(results)
    own = [item for item in browser.items if item.benchmark == "SugarCrepe"]
    assert len(own) == 35 and browser.pair == ("clip", "other") and browser.about.startswith("All ")
    for item in own:
        for model in ("clip", "other"):
            assert right_of(item, model) == (item.outcomes["caption choice"][model].value == 1)
    assert all(picture.uri.startswith("data:image/") for item in own for _, picture in item.pictures)


def test_what_a_caption_of_retrieval_finds_is_shown_with_that_caption(results):
    own = [item for item in evaluation_items(results).items if item.benchmark == "pairs"]
    assert own and all("recall" in metric or metric == "caption choice" for item in own for metric in item.outcomes)
    assert all(item.texts and item.pictures[0][1] for item in own)


def test_texts_of_data_are_data_on_the_written_page(saved_page):
    text = (saved_page / "report.html").read_text(encoding="utf-8")
    assert "<script>alert" not in text
    texts = [text["text"] for row in held(text, "item-data") for text in row["texts"]]
    assert HOSTILE in texts


def test_what_was_stored_gives_the_same_page_but_for_pictures(results, saved_page):
    stored = evaluation_items(hfcomp.EvaluationResults.load(saved_page))
    known = evaluation_items(results)
    assert [item.texts for item in stored.items] == [item.texts for item in known.items]
    assert all(picture is None for item in stored.items for _, picture in item.pictures)
    assert any("hfcomp evaluate" in note for note in stored.notes)
    compared = evaluation_items(hfcomp.compare([f"{saved_page}:other", f"{saved_page}:clip"]))
    assert compared.pair == ("other", "clip")
    assert find_item(compared).texts[0].scores["clip"] == find_item(known).texts[0].scores["clip"]


def test_items_and_pictures_can_be_left_out(results, tmp_path):
    results.save(tmp_path, page=PageOptions(items=3, thumbnails=False))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(held(text, "item-data")) == 3 and held(text, "pictures") == []
    assert re.search(r"3 of \d+ items", text)
    assert evaluation_items(results, PageOptions(items=0)) is None
    results.save(tmp_path, page=None)
    assert not (tmp_path / "report.html").exists()


def test_outcomes_without_scores_are_shown_and_the_page_says_so(results):
    table = results.outcomes.table
    browser = item_browser(table, None, None, models=["clip", "other"], pair=("clip", "other"))
    assert find_item(browser).texts == [] and "Texts and scores were not stored with these outcomes." in browser.notes


def test_an_image_that_cannot_be_read_is_counted(results, monkeypatch):
    def cells(self, entry):
        return {"image": b"no image"}

    monkeypatch.setattr(ItemImages, "cells", cells)
    (note,) = evaluation_items(results).notes
    assert note.startswith("1 images are not shown; the first: image ")


def test_changed_items_come_first_then_as_many_of_each_subset():
    """Of 100 and 10 items, 12 changed between the pair and 3 more between others."""
    base = np.zeros(110)
    tuned, third = base.copy(), base.copy()
    tuned[:12], third[12:15] = 1, 1
    subsets = np.where(np.arange(110) < 100, "large", "small")
    tables = [
        outcomes(name, values).assign(subset=subsets) for name, values in (("a", base), ("b", tuned), ("c", third))
    ]
    table = pd.concat(tables, ignore_index=True)
    chosen, about = choose_items(table, ["a", "b", "c"], ("a", "b"), 25)
    numbers = {int(name.partition("/")[2]) for name in chosen["item"]}
    assert set(range(15)) <= numbers and chosen["subset"].value_counts().to_dict() == {"large": 20, "small": 5}
    assert re.match("25 of 110 items: 15 of the 15 .* 10 others", about)
    few, about = choose_items(table, ["a", "b", "c"], ("a", "b"), 5)
    assert {int(name.partition("/")[2]) for name in few["item"]} <= set(range(12)) and "5 of the 15" in about
    assert choose_items(table, ["a"], ("a", "a"), 5)[1].startswith("5 of 110 items")
    pd.testing.assert_frame_equal(few, choose_items(table, ["a", "b", "c"], ("a", "b"), 5)[0])


def test_scores_on_disk_have_texts_and_cosines_and_damage_is_named(saved_page, tmp_path):
    table = read_scores(saved_page / "scores.parquet").to_pandas()
    row = table[(table["arm"] == "clip") & (table["item"] == "0") & (table["subset"] == "add_att")]
    assert dict(zip(row["texts_of"], map(len, row["cosines"]), strict=True)) == {"caption": 1, "negative_captions": 1}
    assert row.iloc[1]["texts"].tolist() == [HOSTILE] and pq.read_schema(saved_page / "scores.parquet").field(
        "cosines"
    ).type == pa.list_(pa.float32())
    assert read_scores(tmp_path / "none.parquet") is None
    (tmp_path / "scores.parquet").write_bytes(b"none")
    with pytest.raises(ValueError, match=r"scores\.parquet: .*damaged"):
        read_scores(tmp_path / "scores.parquet")
