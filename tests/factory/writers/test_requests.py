"""What is believed of an answer."""

from __future__ import annotations

import json
import time

import pytest

from hfcomp.factory.writers.requests import Refused, Reply, answered_edit, answered_text, read_completion


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


@pytest.mark.parametrize(
    "text",
    [
        'The user wants a cat.</think>{"caption": "a dog"}',  # the opening tag was in the prompt
        '<think>Is it {"caption": "a cow"}?</think> no <think>hm</think>\n{"caption": "a dog"}',
        '<thinking>hm</thinking>{"caption": "a dog"}',
        '[THINK]hm[/THINK]{"caption": "a dog"}',
        '<|channel|>analysis<|message|>We need {"caption": "x"}<|end|><|start|>assistant<|channel|>final'
        '<|message|>{"caption": "a dog"}<|return|>',
        '<|channel|>final <|constrain|>json<|message|>{"caption": "a dog"}',
        'analysisWe need a dog.assistantfinal{"caption": "a dog"}',  # the same without its special tokens
        'Sure! Here is the new caption:\n\n{"caption": "a dog"}',
        'Here it is:\n```json\n{"caption": "a dog"}\n```\nI hope that this helps.',
        '```\n{\n  "caption": "a dog"\n}\n```',
        '{"caption": "a dog"} {"caption": "a dog"}',
        '<think>All of it is here: {"caption": "a dog"}',  # a server that takes the whole answer for reasoning
    ],
)
def test_json_is_found_after_reasoning_and_prose(text):
    assert read(text, plain=False) == "a dog"


@pytest.mark.parametrize(
    "text",
    [
        "Let me see.</think>\n\na dog",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>a dog<|return|>",
        "analysisWe need a dog.assistantfinala dog",
        "```\na dog\n```",
    ],
)
def test_a_plain_caption_is_found_after_reasoning(text):
    assert read(text) == "a dog"


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    "text",
    ["<think>a dog", "<think>so a dog.</think>", "<|channel|>analysis<|message|>We need a dog.", "hm [/THINK] \n"],
)
def test_reasoning_without_an_answer_is_no_caption(text, plain):
    with pytest.raises(Refused, match="only reasoning"):
        read(text, plain=plain)


@pytest.mark.parametrize(
    "text",
    [
        'Maybe {"caption": "a dog"}, or rather {"caption": "a cat"}',
        '<think>A draft is {"caption": "a dog"}, but then again',
    ],
)
def test_which_of_several_objects_is_meant_is_not_guessed(text):
    with pytest.raises(Refused, match="not the JSON|only reasoning"):
        read(text, plain=False)


def test_a_megabyte_of_braces_is_read_at_once():
    start = time.monotonic()
    for text in ("{" * 10**6, "{}" * 500_000, '{"caption": ' * 80_000, "</think>" * 100_000, "<think>" * 100_000):
        with pytest.raises(Refused):
            read(text, plain=False)
    assert time.monotonic() - start < 5


JSON = '{"caption": "a dog"}'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": None, "reasoning_content": JSON}, "a dog"),  # servers that take all of it for reasoning
        ({"content": "\n", "reasoning": f"The keyword is clear.\n{JSON}"}, "a dog"),
        ({"content": "", "reasoning_content": f"hm</think>{JSON}"}, "a dog"),
        ({"content": JSON, "reasoning": '{"caption": "a draft"}'}, "a dog"),
        ({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": JSON}]}, "a dog"),
        ({"content": None, "reasoning": "We need a dog."}, "only reasoning, no answer"),
        ({"content": None, "reasoning": None}, "empty answer"),
    ],
)
def test_reasoning_beside_an_answer_or_instead_of_one(message, expected):
    body = {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}
    reply = read_completion(json.dumps(body).encode())
    try:
        assert answered_text(reply, plain=False) == expected
    except Refused as reason:
        assert str(reason) == expected
