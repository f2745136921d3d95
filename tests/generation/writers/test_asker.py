"""A language model from settings."""

from __future__ import annotations

import pytest

from hfcomp.generation.options import WriterOptions
from hfcomp.generation.writers.asker import make_asker


@pytest.mark.parametrize("writer", ["substitute", "vllm"])
def test_a_writer_that_is_no_language_model_is_refused(writer, tmp_path):
    settings = WriterOptions(writer=writer, answer_cache=str(tmp_path)).writer_settings()
    with pytest.raises(ValueError, match=f"writer '{writer}' is no language model"):
        make_asker(**settings)
