"""The frame of a page, its pieces of HTML, in which no text of data becomes an element, and its pictures."""

import base64
import io
import json
import re

import jinja2
import numpy as np
import pytest
from PIL import Image

from hfcomp.reporting.pages.page import (
    difference_html,
    fill,
    mask_overlay,
    render_page,
    table_html,
    text_html,
    thumbnail,
)
from hfcomp.reporting.report import Table


def page(tmp_path, data, body=""):
    style, script = tmp_path / "own.css", tmp_path / "own.js"
    style.write_text("b { color: red; }")
    script.write_text("const a = 1;")
    return render_page("A <title>", body, styles=[style], scripts=[script], data=data)


def test_data_come_back_whatever_they_hold(tmp_path):
    value = {"text": '</script><img src=x onerror="alert(1)"><!-- $title \u2028 ä'}
    text = page(tmp_path, {"rows": value})
    match = re.search(r'<script type="application/json" id="rows">(.*?)</script>', text)
    assert json.loads(match[1]) == value
    assert "<img" not in text and "A &lt;title&gt;" in text


def test_the_policy_allows_the_page_s_own_parts_alone(tmp_path):
    text = page(tmp_path, {})
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
    assert "src=" not in text.replace("img-src", "").replace("style-src", "").replace("script-src", "")


def test_the_same_arguments_give_the_same_page(tmp_path):
    assert page(tmp_path, {"a": [1]}, "<p>b</p>") == page(tmp_path, {"a": [1]}, "<p>b</p>")


def test_a_template_escapes_every_text(tmp_path):
    path = tmp_path / "a.html"
    path.write_text(
        '<p>{{ text }}</p><i title="{{ text | attribute }}">{{ table | table }}{{ text | difference("a b") }}</i>'
    )
    markup = fill(path, text="<b>\u202eä", table=Table("", ["<u>"], [["<s>"]]))
    assert not re.search(r"<[bus]>|\u202e", markup) and "<del>a b</del>" in markup
    assert '<p><bdi>&lt;b&gt;\\u202eä</bdi></p><i title="&lt;b&gt;\\u202eä">' in markup
    with pytest.raises(jinja2.UndefinedError):
        fill(path, text="a")


def test_a_difference_marks_words_and_escapes_them():
    markup = difference_html("A <b>red</b> car & a dog", "A blue car & a big dog")
    assert markup == "A <del>&lt;b&gt;red&lt;/b&gt;</del> <ins>blue</ins> car &amp; a <ins>big</ins> dog"
    assert difference_html("A car", "A car") == "A car"
    assert difference_html("", "new") == "<ins>new</ins>"


def test_a_table_tells_names_from_numbers_and_escapes_all():
    markup = table_html(Table("<i>", ["of", "n"], [["a & b", "1"]]))
    assert "<caption>&lt;i&gt;</caption>" in markup
    assert '<td class="name">a &amp; b</td><td class="number">1</td>' in markup


def test_a_text_of_another_direction_turns_no_word_around_it():
    assert text_html("a & b") == "a &amp; b"
    assert text_html("שלום") == "<bdi>שלום</bdi>"
    assert text_html("a \u202eb") == "<bdi>a \\u202eb</bdi>"
    assert text_html("\u2067a\x1b[2Jb\tc\n") == "<bdi>\\u2067a\\x1b[2Jb\tc\n</bdi>"
    markup = table_html(Table("\u202et", ["\u202eh"], [["\u202ec"]])) + difference_html("a", "\u202ea b")
    assert "\u202e" not in markup and markup.count("<bdi>") == 4


def open_picture(picture):
    return Image.open(io.BytesIO(base64.b64decode(picture.uri.partition(",")[2])))


def test_a_photograph_is_shrunk_to_a_jpeg_and_its_shape_is_kept():
    picture = thumbnail(Image.effect_noise((640, 480), 50).convert("RGB"), 224)
    assert picture.uri.startswith("data:image/jpeg;base64,")
    assert (picture.width, picture.height) == open_picture(picture).size == (224, 168)


def test_a_small_drawing_keeps_its_size_and_every_pixel():
    image = Image.new("RGB", (36, 36), "white")
    image.paste((200, 10, 10), (5, 5, 20, 20))
    picture = thumbnail(image, 224)
    assert picture.uri.startswith("data:image/png") and picture[1:] == (36, 36)
    assert np.array_equal(np.asarray(open_picture(picture).convert("RGB")), np.asarray(image))


def test_a_mask_covers_its_area_alone():
    mask = Image.new("L", (100, 50))
    mask.paste(255, (20, 10, 60, 40))
    overlay = open_picture(mask_overlay(mask, (200, 100))).convert("RGBA")
    alpha = np.asarray(overlay)[..., 3]
    assert overlay.size == (200, 100)
    assert (alpha[30:70, 50:110] == 38).all() and not alpha[:, :30].any()
    assert alpha[19, 60] == 255  # the line
