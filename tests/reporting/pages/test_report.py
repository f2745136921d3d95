"""A report as a page: everything that `report.md` has, escaped, with its figures, and items where there are some."""

import base64
import json
import re

import pytest

from hfcomp.reporting.pages.items import CAPTION, NEGATIVE, ItemBrowser, ItemOutcome, ItemText, PageOptions, ShownItem
from hfcomp.reporting.pages.report import report_page
from hfcomp.reporting.report import Lines, Picture, Report, Section, Table
from hfcomp.reporting.saving import save_report

HOSTILE = "<img src=x onerror=alert(1)></script>\"'&"


def report():
    table = Table("values of " + HOSTILE, ["", "a"], [["b", "1.0"], [HOSTILE, "-"]])
    parts = [table, Picture("p.png", "a picture", b"PNG"), Picture("q.png", "not drawn", b"PNG")]
    return Report(HOSTILE, HOSTILE, [HOSTILE], [Section("One", parts), Section("Two", [])], [HOSTILE], [HOSTILE])


def test_no_text_of_a_report_turns_the_words_around_it():
    turning = "a \u202eb \N{HEBREW LETTER ALEF}"
    parts = [Table(turning, [turning, turning], [[turning, turning]]), Lines([turning], turning)]
    shown = Report(turning, turning, [turning], [Section(turning, parts)], [turning], [turning])
    text = report_page(shown, {}, browser([item(0, 0.0, 1.0, item=turning)], notes=[turning]))
    assert "\u202e" not in text and "<title>a \\u202eb" in text and text.count("<bdi>") >= 14
    assert held(text, "item-data")[0]["item"] == turning.replace("\u202e", "\\u202e")


def item(number, before, after, **changes):
    outcomes = {"choice": {"a": ItemOutcome(before), "b": ItemOutcome(after)}}
    texts = [
        ItemText(CAPTION, f"a cat {number}", {"a": [0.3], "b": [0.4]}),
        ItemText(NEGATIVE, f"a dog {number} {HOSTILE}", {"a": [0.31], "b": [0.2]}),
    ]
    values = {"benchmark": "B", "subset": "s", "item": str(number), "image_id": f"{number}.jpg", "outcomes": outcomes}
    return ShownItem(**{**values, "pictures": [("image", None)], "texts": texts, **changes})


def browser(items, **changes):
    return ItemBrowser(["a", "b"], ("a", "b"), {"B": ["choice"]}, items, "All items.", **changes)


def held(text, name):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_has_all_parts_escaped_and_nothing_from_elsewhere():
    text = report_page(report(), {"p.png": b"PNG"})
    assert text.count('<table class="sorted">') == 1 and "values of &lt;img" in text
    assert f'src="data:image/png;base64,{base64.b64encode(b"PNG").decode()}" alt="a picture"' in text
    assert "not drawn" not in text and ">Two<" not in text
    assert "<img src=x" not in text and text.count("</script>") == 1
    for place, title in (("s0", "One"), ("s1", "Notes")):
        assert f'<li><a href="#{place}">{title}</a></li>' in text and f'<h2 id="{place}">{title}</h2>' in text
    assert 'id="item-data"' not in text and 'id="items"' not in text


def test_items_have_values_by_metric_scores_by_model_and_changed_words():
    text = report_page(report(), {}, browser([item(0, 0.0, 1.0), item(1, 0.25, 0.5)]))
    rows, about = held(text, "item-data"), held(text, "about")
    assert rows[0]["values"] == {"0": [0.0, 1.0]} and rows[0]["ties"] == {}
    assert rows[0]["texts"][1]["scores"] == [[0.31], [0.2]]
    assert rows[0]["texts"][1]["changes"][1] == ["removed", "cat"]
    assert about["benchmarks"] == [{"title": "B", "metrics": ["choice"], "graded": [True], "subsets": ["s"]}]
    assert (about["left"], about["right"], about["thumbnails"]) == (0, 1, False)
    assert "<img src=x" not in text


def test_a_tie_and_a_model_without_the_item_are_kept():
    outcomes = {"choice": {"b": ItemOutcome(0.0, tie=True)}}
    (row,) = browser([item(0, 0, 0, outcomes=outcomes)]).data()["item-data"]
    assert row["values"] == {0: [None, 0.0]} and row["ties"] == {0: [False, True]}


def test_without_items_the_section_says_why():
    text = report_page(report(), {}, browser([], notes=["none were kept"]))
    assert "none were kept" in text and 'id="item-data"' not in text


def test_the_page_can_be_left_out_and_goes_with_it(tmp_path):
    save_report(report(), tmp_path)
    assert (tmp_path / "report.html").is_file()
    save_report(report(), tmp_path, page=False)
    assert not (tmp_path / "report.html").exists() and (tmp_path / "report.md").is_file()


def test_options_out_of_range_are_refused():
    with pytest.raises(ValueError, match="items: found -1,.* 0 "):
        PageOptions(items=-1)
