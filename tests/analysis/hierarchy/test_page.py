"""The page of a hierarchy: everything is in it once, links lead somewhere, and names are inert (about 5 s)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from hfcomp import cli
from hfcomp.analysis.hierarchy.page import Members, read_members
from hfcomp.factory.magic.hierarchy import read_hierarchy
from tests.analysis.hierarchy.pages import HOSTILE, page
from tests.factory.magic.sets import WORDS, build_magic


class Page(HTMLParser):
    """The tags, ids and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.levels: list[str] = []
        self.texts: list[str] = []
        self.content: dict[str, str] = {}
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        own = dict(attributes)
        self.tags.append(tag)
        self.ids += [own["id"]] if tag == "details" and "id" in own else []
        self.levels += [own["data-level"]] if tag == "details" else []
        self.targets += [own["href"]] if "href" in own else []
        assert not any(name.startswith("on") for name in own) and not own.get("src")
        self.policy = own["content"] if own.get("http-equiv") == "Content-Security-Policy" else self.policy

    def handle_data(self, data):
        self.texts.append(data)
        self.content[self.tags[-1] if self.tags else ""] = data


def test_every_concept_is_there_once_and_links_lead_to_it():
    text = page(dog=Members({"train": 3, "test": 1}, ["a dog & a cat"], ["data:image/jpeg;base64,AA=="]))
    document = Page(text)
    assert sorted(document.levels) == ["1", "1", "2", "2", "3", "3", "4"]
    assert document.ids == ["c0", "c1"] and {*document.targets} == {"#c0", "#c1"}
    said = " ".join(document.texts)
    for words in ("1,234 images, 3 train and 1 test rows", "2 concepts, 1,241 images", "Merged: kitten", "Also: "):
        assert words in said
    assert said.count("unseen by concept") == 1 and "a dog & a cat" in said
    assert 'data-names="cat kitten"' in text


def test_names_of_a_language_model_are_inert():
    text = page(HOSTILE, **{HOSTILE: Members(captions=[HOSTILE], pictures=["data:image/jpeg;base64,AA=="])})
    document = Page(text)
    assert "img" not in document.tags and document.tags.count("script") == 2
    assert json.loads(re.search(r'id="pictures">(.*?)</script>', text)[1]) == {
        HOSTILE: ["data:image/jpeg;base64,AA=="]
    }


def test_only_the_pages_own_script_and_style_may_run():
    text = page()
    style, script = (
        re.search(r"<style>(.*)</style>", text, re.S)[1],
        re.findall(r"<script>(.*?)</script>", text, re.S)[0],
    )
    hashes = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in (style, script)]
    expected = "default-src 'none'; img-src data:; style-src 'sha256-{}'; script-src 'sha256-{}'".format(*hashes)
    assert Page(text).policy == f"{expected}; base-uri 'none'; form-action 'none'"
    assert "http:" not in text and "https:" not in text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_magic(tmp_path_factory.mktemp("page")).folder


def test_a_set_from_the_command_line(folder, tmp_path, capsys):
    words = ["analyze", "magic", str(folder), "--output_dir", str(tmp_path / "out"), "--thumbnails", "3"]
    cli.main(words)
    first = (tmp_path / "out" / "concepts.html").read_bytes()
    out = capsys.readouterr().out
    assert "concepts of level 1" in out and "concepts.html" in out
    document = Page(first.decode())
    assert len(document.ids) == len(WORDS) and first.count(b"data:image/png;base64,") == 3 * len(WORDS)
    report = (tmp_path / "out" / "report.md").read_text()
    assert "| train | 32 |" in report and "| image-caption pairs | 40 | 81,602 |" in report
    with pytest.raises(SystemExit, match=r"concepts\.html.*--overwrite"):
        run(words)
    cli.main([*words, "--overwrite"])
    assert (tmp_path / "out" / "concepts.html").read_bytes() == first
    with pytest.raises(SystemExit, match=r"has no hierarchy\.json"):
        run(["analyze", "magic", str(tmp_path), "--output_dir", str(tmp_path / "other")])


def run(words):
    from hfcomp.errors import one_line_errors

    with one_line_errors():
        cli.main(words)


def test_thumbnails_are_small_and_the_first_ones(folder):
    members = read_members(folder, thumbnails=2)
    assert {*members.concepts} == {concept.name for concept in read_hierarchy(folder).concepts}
    assert all(
        len(entry.pictures) == 2 and entry.rows == {"train": 8, "test": 2} for entry in members.concepts.values()
    )
