"""Texts of data in the page: each is escaped, by the sources and in a browser."""

from __future__ import annotations

import ast
import inspect
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import hfcomp.annotate.app
from hfcomp.annotate.app import markup
from hfcomp.annotate.app.server import serving
from hfcomp.data.annotations.entries import Item
from hfcomp.reporting.report import Lines, Report, Section, Table
from tests.annotate.app import stand_ins
from tests.annotate.app.browser import Visit
from tests.chromium import chromium

SOURCES = {path: ast.parse(path.read_text()) for path in Path(hfcomp.annotate.app.__file__).parent.glob("*.py")}
COMPONENTS = {
    *("BrowserState", "State", "Timer", "Blocks", "Column", "Row", "Tab", "Tabs", "HTML"),
    *("Button", "Checkbox", "Dropdown", "Image", "ImageEditor", "Number", "Radio", "Slider", "Textbox"),
}
"""Components whose texts Gradio does not take for HTML or Markdown, but for `HTML`."""
OTHERS = {"Brush", "Request", "mount_gradio_app", "themes", "update"}
PAYLOAD = (
    "\u202e![b](http://127.0.0.1:9/x.png) <img src=http://127.0.0.1:9/y.png onerror=alert(1)> "
    "<form>&{{7*7}}${alert(1)}"
)
ITEM = Item(PAYLOAD, "a.png", PAYLOAD, (PAYLOAD, f"red {PAYLOAD}"), (PAYLOAD, "red"))
TABLE = Table(PAYLOAD, [PAYLOAD], [[PAYLOAD]])
MADE = {
    "message": lambda: markup.message(PAYLOAD, "error"),
    "title": lambda: markup.title(ITEM, PAYLOAD),
    "share": lambda: markup.share(0.5),
    "captions": lambda: markup.captions(replace(ITEM, concept="color"), PAYLOAD),
    "mark_keyword": lambda: markup.mark_keyword(f"red {PAYLOAD}", "red", "color"),
    "difference": lambda: markup.difference(PAYLOAD, f"{PAYLOAD} <b>"),
    "two_captions": lambda: markup.two_captions(PAYLOAD, f"{PAYLOAD} <b>"),
    "status": lambda: markup.status(PAYLOAD, [PAYLOAD]),
    "shortcuts": lambda: markup.shortcuts("Review"),
    "report_html": lambda: markup.report_html(
        Report(PAYLOAD, [Section(PAYLOAD, [TABLE, Lines(PAYLOAD, [PAYLOAD])])], legend=[PAYLOAD])
    ),
}


def is_markup(node):
    """Whether an expression is a constant or comes of `markup`."""
    if isinstance(node, ast.IfExp):
        return is_markup(node.body) and is_markup(node.orelse)
    if isinstance(node, ast.BoolOp):
        return all(map(is_markup, node.values))
    return isinstance(node, ast.Constant) or ast.unparse(node).startswith("markup.")


def attribute(node):
    return node.attr if isinstance(node, ast.Attribute) else ""


def html_components():
    """Names of the components of `HTML`, as attributes or keys that they are assigned to."""
    names = set()
    for tree in SOURCES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "gr.HTML":
                names.add(node.target.id)
            elif isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("gr.HTML("):
                names.add(attribute(node.targets[0]) or node.targets[0].slice.value)
    return names


def test_every_component_is_one_that_shows_texts_as_texts():
    used = {
        node.attr
        for tree in SOURCES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "gr"
    }
    assert used <= COMPONENTS | OTHERS


def test_every_value_of_html_comes_of_markup():
    names, unsafe, values = html_components(), [], 0
    assert {"message", "title", "captions", "share", "difference", "status", "progress", "sign_in_message"} <= names
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            pairs = []
            if isinstance(node, ast.Dict):
                pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None]
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                pairs = [(node.targets[0].slice, node.value)]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "gr.HTML":
                pairs = [(ast.Attribute(node.func, "message"), value) for value in node.args]
            for key, value in pairs:
                if attribute(key) in names:
                    values += 1
                    unsafe += [] if is_markup(value) else [f"{path.name}:{node.lineno} {ast.unparse(value)}"]
    assert not unsafe
    assert values > 15


@pytest.mark.parametrize(
    "name", sorted(name for name, function in vars(markup).items() if inspect.isfunction(function))
)
def test_no_text_gets_into_html_as_it_is(name):
    if inspect.getmodule(getattr(markup, name)) is not markup:
        return  # of reporting.pages.page, which has its own test
    made = MADE[name]()
    assert not {"<img", "<form", "\u202e", "&{"} & {part for part in ("<img", "<form", "\u202e", "&{") if part in made}


def test_items_with_markup_in_their_ids_and_captions_are_shown_as_texts(tmp_path):
    project = stand_ins.project(tmp_path / "boxes", 0)
    image = project.save(stand_ins.picture("red"))
    captions = (f"A red box {PAYLOAD}", "A red box.")
    project.decisions.add_items(
        [Item(f"{PAYLOAD}{place}", image, "color", captions, ("red", "red")) for place in "01"]
    )
    service = stand_ins.service(project)
    with closing(service), chromium() as browser, serving(service, title=f"</title>{PAYLOAD}") as address:
        ann = Visit(browser, address).sign_in("Ann")
        shown = PAYLOAD.replace("\u202e", "\\u202e")
        ann.page.wait_for_function("document.querySelector('#title').innerText.includes('x.png')")
        assert f"item {shown}0" in ann.page.locator("#title").inner_text()
        assert ann.page.locator("ol.captions li").first.inner_text() == f"A red box {shown}"
        assert ann.page.locator("#title img, #title form, #title a, .captions img, #status img").count() == 0
        ann.field("reason").fill("no")
        ann.page.keyboard.press("Enter")
        ann.page.click("#skip")
        ann.says(f"{shown}0 was skipped")
        assert ann.errors == [] and not [url for url in ann.requests if ":9/" in url]
        # the policy is the second wall: what got into the page after all would load nothing
        ann.page.evaluate("new Image().src = 'http://127.0.0.1:9/z.png'")
        assert ann.page.evaluate(
            "new Promise((done) => { document.addEventListener('securitypolicyviolation', (e) => done(e.blockedURI));"
            " new Image().src = 'http://127.0.0.1:9/w.png'; })"
        ).startswith("http://127.0.0.1:9")
        ann.leave()
