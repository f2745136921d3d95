"""The frame of pages: nothing from outside, and data that cannot end its element."""

import json
import re

import jinja2
import pytest

from hfcomp.reporting.pages.page import fill, render_page
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


def test_a_template_escapes_every_text(tmp_path):
    path = tmp_path / "a.html"
    path.write_text(
        '<p>{{ text }}</p><i title="{{ text | attribute }}">{{ table | table }}{{ text | difference("a b") }}</i>'
    )
    found = fill(path, text="<b>\u202eä", table=Table("", ["<u>"], [["<s>"]]))
    assert not re.search(r"<[bus]>|\u202e", found) and "<del>a b</del>" in found
    assert '<p><bdi>&lt;b&gt;\\u202eä</bdi></p><i title="&lt;b&gt;\\u202eä">' in found
    with pytest.raises(jinja2.UndefinedError):
        fill(path, text="a")
