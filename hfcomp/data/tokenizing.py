"""Texts, cleaned as CLIP cleans them, as the token ids that a dual encoder expects."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any

import ftfy
import torch

from hfcomp.data.concepts.spans import TokenPlaces, word_places
from hfcomp.parsing.captions import Span

_WORD = re.compile(r"\S+")


def clean(text: str) -> str:
    """A text after `basic_clean` and `whitespace_clean` of OpenAI's `simple_tokenizer.py`.

    ftfy repairs wrongly decoded text and makes curly quotes straight, HTML entities become characters (twice, as
    `&amp;amp;` occurs), and every run of white space becomes one space. Lower case is left to the tokenizer.
    """
    # Nothing else changes printable ASCII, and ftfy takes twenty times as long to find that out.
    if not (text.isascii() and text.isprintable() and "&" not in text):
        text = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(text.split())


def places_before(text: str, cleaned: str, tokens: Sequence[Span]) -> list[Span]:
    """Where tokens of a cleaned text, `[start, end)` each, stand in the text as it was before `clean`."""
    # Cleaning reports no positions, so words are aligned by a diff. Unchanged words are followed character by
    # character. Tokens of a changed word take the whole word that it was made from, or all words between if their
    # number differs.
    before = [match.span() for match in _WORD.finditer(text)]
    after = [match.span() for match in _WORD.finditer(cleaned)]
    starts, ends = [0] * len(cleaned), [0] * len(cleaned)
    words = [text[slice(*span)] for span in before], [cleaned[slice(*span)] for span in after]
    for kind, first, last, begin, stop in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        paired = last - first == stop - begin
        for offset, (start, end) in enumerate(after[begin:stop]):
            # A word without a counterpart, such as one made of an added character, is placed where the next one
            # begins.
            whole = (before[first][0], before[last - 1][1]) if first < last else (_start(before, first, text),) * 2
            own = before[first + offset] if paired else whole
            for place in range(start, end):
                starts[place] = own[0] + (place - start if kind == "equal" else 0)
                ends[place] = starts[place] + 1 if kind == "equal" else own[1]
    return [(starts[start], ends[end - 1]) if start < end else (0, 0) for start, end in _trim(cleaned, tokens)]


def _start(spans: Sequence[Span], number: int, text: str) -> int:
    return spans[number][0] if number < len(spans) else len(text)


def _trim(text: str, tokens: Sequence[Span]) -> list[Span]:
    found = []
    for start, end in tokens:
        part = text[start:end]
        start += len(part) - len(part.lstrip())
        found.append((start, max(start, start + len(part.strip()))))
    return found


class TextTokenizer:
    """Token ids as a dual encoder expects them, padded on the right, with the number of truncated texts.

    CLIP is causal and pools at the end-of-text token, so that padding to the longest text of the batch is exact.
    SigLIP attends to its padding and was trained at full length: it is always padded to `max_length`. Texts are
    prepared as their model saw them in its own training, which the tokenizers of transformers do not do: CLIP's are
    cleaned by [`clean`], SigLIP 2's are lower-cased. MetaCLIP 2 was trained with its tokenizer as it is. The
    end-of-text token survives truncation.

    Args:
        tokenizer: the processor's tokenizer.
        model_type: `clip`, `metaclip_2` or `siglip`.
        max_length: positions of the text tower.
        eos_token_id: the text tower's; 2 is the legacy value that pools at the highest token id.
        multiple: the length of a padded batch is one of this, as far as there are positions.

    Raises:
        ValueError: when tokenizer and text tower disagree about the end-of-text token, so that CLIP would pool a
            wrong position.
    """

    def __init__(
        self, tokenizer: Any, *, model_type: str, max_length: int, eos_token_id: int | None = None, multiple: int = 1
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.multiple = multiple
        self.pad_to_full = model_type == "siglip"
        self.lower = self.pad_to_full and _is_case_sensitive(tokenizer)
        self.clean = model_type == "clip"
        if not self.pad_to_full:
            _check_end_of_text(tokenizer, eos_token_id, legacy=model_type == "clip" and eos_token_id == 2)

    @classmethod
    def from_processor(cls, processor: Any, config: Any, *, multiple: int = 1) -> TextTokenizer:
        """The tokenizer of a model."""
        text_config = config.text_config
        return cls(
            processor.tokenizer,
            model_type=config.model_type,
            max_length=text_config.max_position_embeddings,
            eos_token_id=getattr(text_config, "eos_token_id", None),
            multiple=multiple,
        )

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Token ids of each text, unpadded, and whether it was truncated."""
        if not texts:
            return [], []
        texts = self._prepare(texts)
        ids = self.tokenizer(texts, padding=False, truncation=False, verbose=False)["input_ids"]
        # Truncated in a second call: the first one shows which texts are too long, and the tokenizer itself keeps the
        # end-of-text token.
        truncated = [len(row) > self.max_length for row in ids]
        if any(truncated):
            cut = self.tokenizer(
                [text for text, is_cut in zip(texts, truncated, strict=True) if is_cut],
                padding=False,
                truncation=True,
                max_length=self.max_length,
            )["input_ids"]
            replacement = iter(cut)
            ids = [next(replacement) if is_cut else row for row, is_cut in zip(ids, truncated, strict=True)]
        return ids, truncated

    def places(self, texts: Sequence[str]) -> list[TokenPlaces]:
        """Where the tokens of each text stand in it, in the order of their ids; special tokens stand nowhere."""
        if not self.tokenizer.is_fast:
            return [word_places(self.tokenizer, text, self.max_length) for text in texts]
        prepared = self._prepare(texts)
        options = {"padding": False, "truncation": True, "max_length": self.max_length}
        found = self.tokenizer(prepared, return_offsets_mapping=True, **options)
        special = {self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, self.tokenizer.pad_token_id}
        places = []
        for text, seen, encoding in zip(texts, prepared, found.encodings, strict=True):
            spans = zip(encoding.ids, encoding.offsets, strict=True)
            tokens = [(0, 0) if one in special else span for one, span in spans]
            if self.clean and seen != text:
                seen, tokens = text, places_before(text, seen, tokens)
            reach = max(end for _, end in tokens) if encoding.overflowing else len(seen)
            places.append(TokenPlaces(text, seen, tokens, reach))
        return places

    @property
    def preparation(self) -> str:
        """What is done to a text before the tokenizer reads it, in words."""
        if self.clean:
            return f"cleaned by ftfy {ftfy.__version__} and HTML unescape, as by CLIP's own tokenizer"
        return "lower-cased" if self.lower else "as written"

    def _prepare(self, texts: Sequence[str]) -> list[str]:
        if self.clean:
            return [clean(text) for text in texts]
        return [text.lower() for text in texts] if self.lower else list(texts)

    def pad(self, rows: list[list[int]], length: int) -> torch.Tensor:
        """`[n, length]` long, padded on the right; `[0, length]` for no rows."""
        padding = [self.tokenizer.pad_token_id] * length
        padded = [row + padding[len(row) :] for row in rows]
        return torch.tensor(padded, dtype=torch.long).reshape(len(rows), length)

    def length(self, rows: Iterable[list[int]]) -> int:
        """The length to pad to: the longest, rounded up to `multiple`."""
        if self.pad_to_full:
            return self.max_length
        longest = max(len(row) for row in rows)
        return min(-(-longest // self.multiple) * self.multiple, self.max_length)

    def facts(self) -> dict[str, Any]:
        """Everything that determines a text's token ids, to identify the tokenizer."""
        return {
            "class": type(self.tokenizer).__name__,
            "vocabulary": vocabulary(self.tokenizer),
            "max_length": self.max_length,
            "full_length": self.pad_to_full,
            "lower": self.lower,
            "clean": self.clean,
            "pad_token_id": self.tokenizer.pad_token_id,
        }


def vocabulary(tokenizer: Any) -> str:
    """All that decides how a text is cut into tokens, as JSON; padding and truncation are left out."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return json.dumps(tokenizer.get_vocab(), sort_keys=True)
    rules = json.loads(backend.to_str())
    return json.dumps({name: part for name, part in rules.items() if name not in ("padding", "truncation")})


def _is_case_sensitive(tokenizer: Any) -> bool:
    upper, lower = tokenizer(["A RED CUBE", "a red cube"])["input_ids"]
    return upper != lower


def _check_end_of_text(tokenizer: Any, eos_token_id: int | None, *, legacy: bool) -> None:
    if legacy and tokenizer.eos_token_id < len(tokenizer) - 1:
        raise ValueError(
            "the text tower's eos_token_id is 2, so it pools at the highest token id, but the tokenizer's "
            f"end-of-text token {tokenizer.eos_token_id} is not the highest of {len(tokenizer)}. Set "
            f"model.config.text_config.eos_token_id = {tokenizer.eos_token_id} (not 2) and load the model again, or "
            "use a tokenizer without added tokens."
        )
    if not legacy and eos_token_id is not None and tokenizer.eos_token_id != eos_token_id:
        raise ValueError(
            f"the text tower pools at token {eos_token_id}, but the tokenizer ends a text with "
            f"{tokenizer.eos_token_id}: it would pool the first position instead. Use the model's own processor."
        )
