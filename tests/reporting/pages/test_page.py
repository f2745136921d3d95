"""The frame of a page and its pieces of HTML, in which no text of data becomes an element."""

import json
import re

from hfcomp.reporting.pages.page import difference_html, render_page, table_html, text_html
from hfcomp.reporting.report import Table


def page(tmp_path, data, body=""):
    style, script = tmp_path / "own.css", tmp_path / "own.js"
    style.write_text("b { color: red; }")
    script.write_text("const a = 1;")
    return render_page("A <title>", body, styles=[style], scripts=[script], data=data)


def test_data_come_back_whatever_they_hold(tmp_path):
    value = {"text": '</script><img src=x onerror="alert(1)"><!-- $title \u2028 ä'}
    text = page(tmp_path, {"rows": value})
    found = re.search(r'<script type="application/json" id="rows">(.*?)</script>', text)
    assert json.loads(found[1]) == value
    assert "<img" not in text and "A &lt;title&gt;" in text


def test_the_policy_allows_the_page_s_own_parts_alone(tmp_path):
    text = page(tmp_path, {})
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
    assert "src=" not in text.replace("img-src", "").replace("style-src", "").replace("script-src", "")


def test_the_same_arguments_give_the_same_page(tmp_path):
    assert page(tmp_path, {"a": [1]}, "<p>b</p>") == page(tmp_path, {"a": [1]}, "<p>b</p>")


def test_a_difference_marks_words_and_escapes_them():
    found = difference_html("A <b>red</b> car & a dog", "A blue car & a big dog")
    assert found == "A <del>&lt;b&gt;red&lt;/b&gt;</del> <ins>blue</ins> car &amp; a <ins>big</ins> dog"
    assert difference_html("A car", "A car") == "A car"
    assert difference_html("", "new") == "<ins>new</ins>"


def test_a_table_tells_names_from_numbers_and_escapes_all():
    found = table_html(Table("<i>", ["of", "n"], [["a & b", "1"]]))
    assert "<caption>&lt;i&gt;</caption>" in found
    assert '<td class="name">a &amp; b</td><td class="number">1</td>' in found


def test_a_text_of_another_direction_turns_no_word_around_it():
    assert text_html("a & b") == "a &amp; b"
    assert text_html("שלום") == "<bdi>שלום</bdi>"
    assert text_html("a \u202eb") == "<bdi>a \\u202eb</bdi>"
    assert text_html("\u2067a\x1b[2Jb\tc\n") == "<bdi>\\u2067a\\x1b[2Jb\tc\n</bdi>"
    found = table_html(Table("\u202et", ["\u202eh"], [["\u202ec"]])) + difference_html("a", "\u202ea b")
    assert "\u202e" not in found and found.count("<bdi>") == 4
