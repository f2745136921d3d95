"""What is believed of an answer."""

from __future__ import annotations

import json

import pytest

from hfcomp.generation.writers.reading import Refused, answered_edit, answered_text
from hfcomp.generation.writers.requests import Reply


def read(text: str, plain: bool = True) -> str:
    return answered_text(Reply(text), plain=plain)


@pytest.mark.parametrize(
    ("text", "caption"),
    [
        ("a dog", "a dog"),
        (' "A dog on a mat." \n', "A dog on a mat."),
        ("“A dog”", "A dog"),
        ('a sign that reads "stop"', 'a sign that reads "stop"'),
        ("<think>\n\n</think>\n\na dog", "a dog"),
        ("un café, 日本の犬 👩‍👩‍👧", "un café, 日本の犬 👩‍👩‍👧"),
    ],
)
def test_a_plain_caption(text, caption):
    assert read(text) == caption


@pytest.mark.parametrize(
    "text", ['{"caption": "a dog"}', '```json\n{"caption": "a dog"}\n```', '<think>hm</think>{"caption": " a dog "}']
)
def test_a_caption_in_json(text):
    assert read(text, plain=False) == "a dog"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty answer"),
        (" \n\t", "empty answer"),
        ('""', "empty answer"),
        ("<think></think>", "empty answer"),
        ("a dog\nand why", "several lines"),
        ("a dog\u2028and why", "several lines"),
        ("a\x00dog", "control characters"),
        ("a \x1b[31mdog", "control characters"),
        ("a \u202edog", "control characters"),
        ("a <b>dog</b>", "markup"),
        ("<html><body>a dog</body></html>", "markup"),
        ("a **dog**", "markup"),
        ("Output: a dog", "repeats the prompt"),
        ("Input: a dog, Keyword: dog, Output: a cat", "repeats the prompt"),
        ("I'm sorry, but I can't do that.", "refuses in words"),
        ("I cannot help with this", "refuses in words"),
        ("As an AI language model, no", "refuses in words"),
        ("dog " * 5000, "longer than a caption"),
        ("d" * 5000, "longer than a caption"),
    ],
)
def test_what_is_refused(text, reason):
    with pytest.raises(Refused, match=reason):
        read(text)
    if text.strip() and not text.startswith("<think>"):
        with pytest.raises(Refused, match=reason):
            read(json.dumps({"caption": text}), plain=False)


@pytest.mark.parametrize(
    "text",
    [
        "a dog",
        "{",
        "[]",
        "null",
        '"a dog"',
        '{"caption": 1}',
        '{"caption": null}',
        '{"Caption": "a dog"}',
        '{"caption": "a dog", "why": "x"}',
        '{"caption": "\\ud800"}',
        "[" * 100_000,
        '{"caption": "a dog"} {"caption": "a cat"}',
        "<html></html>",
    ],
)
def test_what_is_not_the_json(text):
    with pytest.raises(Refused, match="not the JSON"):
        read(text, plain=False)


def test_a_refusal_instead_of_json_is_one():
    with pytest.raises(Refused, match="refuses in words"):
        read("I'm sorry, I can't.", plain=False)


def test_problems_of_a_reply_are_passed_on():
    with pytest.raises(Refused, match="model refused"):
        answered_text(Reply(problem="model refused"), plain=True)


EDIT = {"mask": "red box", "paint": "blue box", "caption": "A blue box."}


@pytest.mark.parametrize(
    "text, plain",
    [
        (json.dumps(EDIT), False),
        (f"<think>hm</think>\n```json\n{json.dumps(EDIT)}\n```", False),
        ("mask: red box\npaint: blue box\ncaption: A blue box.", True),
        ('\n\nCaption: "A blue box."\n\nPAINT: blue box\n mask : red box\n', True),
    ],
)
def test_an_edit_is_read_from_json_or_lines(text, plain):
    assert answered_edit(Reply(text), plain=plain).model_dump() == EDIT


@pytest.mark.parametrize(
    "text, plain, reason",
    [
        ("", True, "empty answer"),
        ("mask: red box\npaint: blue box", True, "not the lines"),
        ("mask: red box\nmask: red box\npaint: blue box\ncaption: A blue box.", True, "not the lines"),
        ("Here it is:\nmask: red box\npaint: blue box\ncaption: A blue box.", True, "not the lines"),
        ("mask:\npaint: blue box\ncaption: A blue box.", True, "empty answer"),
        ("I'm sorry, I can't.", True, "refuses in words"),
        (json.dumps(EDIT | {"paint": ""}), False, "empty answer"),
        (json.dumps(EDIT | {"paint": "blue\nbox"}), False, "several lines"),
        (json.dumps({"mask": "red box", "caption": "A blue box."}), False, "not the JSON"),
        (json.dumps(EDIT | {"paint": ["blue"]}), False, "not the JSON"),
    ],
)
def test_an_edit_that_is_refused(text, plain, reason):
    with pytest.raises(Refused, match=reason):
        answered_edit(Reply(text), plain=plain)
