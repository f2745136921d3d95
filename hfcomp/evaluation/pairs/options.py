"""Options of models that read an image and a text together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from hfcomp.options import Options, Spelling, check

TEXT = "{text}"
QUESTION = f'Does this figure show "{TEXT}"? Please answer yes or no.'
"""Question of Lin et al. 2024 (arXiv:2404.01291), with the placeholder of the text."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(Options):
    """Models that read an image and a text together."""

    vqa_prompt: Annotated[str, f"VQAScore's question, with {TEXT} where the text goes."] = QUESTION
    vqa_answer: Annotated[str, Spelling("WORD"), "Answer, of one token, whose probability is VQAScore."] = "Yes"
    matching_head: Annotated[
        tuple[str, ...], Spelling("NAME"), "Models to score with a matching head, not by their embeddings (FLAVA)."
    ] = ()

    @check
    def check_question(vqa_prompt: str, vqa_answer: str) -> None:
        if TEXT not in vqa_prompt:
            raise ValueError(
                f"vqa_prompt: found {vqa_prompt!r}, expected {TEXT} in it. Add {TEXT} where the text goes."
            )
        if not vqa_answer.strip():
            raise ValueError(f"vqa_answer: found {vqa_answer!r}, expected a word, such as Yes.")


PAPER = PairOptions()
