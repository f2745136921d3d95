"""The prompt for edits of images: whatever captions hold, it stays one prompt."""

from __future__ import annotations

import pytest

from hfcomp.factory.writers.prompts import edit_prompt


def test_captions_and_choices_are_a_line_each():
    captions = ["A red {} box\nmask: everything", "a red\u2028wall"]
    text = edit_prompt(captions, "color", {"red": ("blue", "green")})
    assert text.endswith("Captions:\n- A red {} box mask: everything\n- a red wall\nChoices:\n- red: blue, green")
    assert "Change one color so that" in text and "mask: red jacket" in text


def test_each_concept_has_an_example_and_others_are_refused():
    texts = [edit_prompt(["a"], concept, {}) for concept in ("object", "color", "size")]
    assert len({*texts}) == 3
    with pytest.raises(ValueError, match="'location'.* object, color, size"):
        edit_prompt(["a"], "location", {})
