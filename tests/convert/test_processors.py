"""Tokenizers for checkpoints that have none."""

from __future__ import annotations

import pytest

from hfcomp.convert.processors import clip_tokenizer


def test_a_place_without_a_vocabulary_is_named_as_such_and_not_as_a_tokenizer_of_two_tokens(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ValueError, match="tokenizer .*loaded.*--processor"):
        clip_tokenizer(str(tmp_path), own_name=None, vocabulary=732, length=16)
