"""Tokenizes texts for dual encoders, with CLIP's own text cleaning."""

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
from hfcomp.families import FAMILIES, Family, family_of, text_length
from hfcomp.parsing.captions import Span

_WORD = re.compile(r"\S+")


def clean(text: str) -> str:
    """Cleans a text like `basic_clean` and `whitespace_clean` in OpenAI's `simple_tokenizer.py`.

    ftfy repairs wrongly decoded text and straightens curly quotes, HTML entities become characters (twice, because
    `&amp;amp;` occurs), and every run of white space becomes one space. The tokenizer lower-cases the text.
    """
    # In printable ASCII without "&" only white space changes; ftfy would take twenty times as long to find that out.
    if not (text.isascii() and text.isprintable() and "&" not in text):
        text = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(text.split())


def places_before(text: str, cleaned: str, tokens: Sequence[Span]) -> list[Span]:
    """Maps token positions `[start, end)` in a cleaned text to positions in the text before `clean`."""
    # Cleaning reports no positions, so words are aligned by a diff. Unchanged words map character by character. Tokens
    # of a changed word map to the whole original word, or to all words in between if the numbers of words differ.
    before = [match.span() for match in _WORD.finditer(text)]
    after = [match.span() for match in _WORD.finditer(cleaned)]
    starts, ends = [0] * len(cleaned), [0] * len(cleaned)
    words = [text[slice(*span)] for span in before], [cleaned[slice(*span)] for span in after]
    for kind, first, last, begin, stop in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        paired = last - first == stop - begin
        for offset, (start, end) in enumerate(after[begin:stop]):
            # A word without a counterpart, such as an added character, is placed at the start of the next word.
            whole = (before[first][0], before[last - 1][1]) if first < last else (_start(before, first, text),) * 2
            own = before[first + offset] if paired else whole
            for place in range(start, end):
                starts[place] = own[0] + (place - start if kind == "equal" else 0)
                ends[place] = starts[place] + 1 if kind == "equal" else own[1]
    return [(starts[start], ends[end - 1]) if start < end else (0, 0) for start, end in _trim(cleaned, tokens)]


def _start(spans: Sequence[Span], number: int, text: str) -> int:
    return spans[number][0] if number < len(spans) else len(text)


def _trim(text: str, tokens: Sequence[Span]) -> list[Span]:
    spans = []
    for start, end in tokens:
        part = text[start:end]
        start += len(part) - len(part.lstrip())
        spans.append((start, max(start, start + len(part.strip()))))
    return spans


class TextTokenizer:
    """Tokenizes texts for a dual encoder: right-padded token ids, and whether each text was truncated.

    CLIP is causal and pools at the end-of-text token, and a BERT gets an attention mask, so padding to the longest
    text of the batch is exact. SigLIP attends to its padding and was trained at full length, so its texts are always
    padded to `max_length`. Texts are prepared as in the model's own training, which the transformers tokenizers do not
    do: CLIP texts are cleaned by [`clean`], and SigLIP 2 texts are lower-cased. MetaCLIP 2 was trained with its
    unmodified tokenizer. Truncation keeps the end-of-text token. `hfcomp.families` lists these traits.

    Args:
        tokenizer: The processor's tokenizer.
        model_type: Family of the model, such as `clip` or `siglip`.
        max_length: Number of tokens at which a text is cut.
        eos_token_id: The text tower's end-of-text id; 2 is the legacy value that pools at the highest token id.
        multiple: Padded length is rounded up to a multiple of this, up to the number of positions.

    Raises:
        ValueError: If the tokenizer and the text tower disagree about the end-of-text token, because CLIP would pool
            the wrong position.
    """

    def __init__(
        self, tokenizer: Any, *, model_type: str, max_length: int, eos_token_id: int | None = None, multiple: int = 1
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.multiple = multiple
        family = FAMILIES.get(model_type, Family())
        self.pad_to_full = family.padding == "read"
        self.lower = family.lower and _is_case_sensitive(tokenizer)
        self.clean = family.clean
        if family.padding == "causal":
            old = family.clean and eos_token_id == 2  # as in CLIP configurations of old versions of transformers
            _check_end_of_text(tokenizer, eos_token_id, highest=family.highest_end or old)

    @classmethod
    def from_processor(cls, processor: Any, config: Any, *, multiple: int = 1) -> TextTokenizer:
        """Makes the tokenizer for a model from its processor and configuration."""
        text, tokenizer = config.text_config, processor.tokenizer
        if family_of(config).padding == "masked":
            _check_padding(tokenizer, text.pad_token_id)
        return cls(
            tokenizer,
            model_type=config.model_type,
            max_length=text_length(config, tokenizer),
            eos_token_id=getattr(text, "eos_token_id", None),
            multiple=multiple,
        )

    def __call__(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Returns the unpadded token ids of each text, and whether it was truncated."""
        if not texts:
            return [], []
        texts = self._prepare(texts)
        ids = self.tokenizer(texts, padding=False, truncation=False, verbose=False)["input_ids"]
        # Truncate in a second call: the first one shows which texts are too long, and the tokenizer itself keeps the
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
        """Returns the positions of each text's tokens, in the order of their ids; special tokens have no position."""
        if not self.tokenizer.is_fast:
            return [word_places(self.tokenizer, text, self.max_length) for text in texts]
        prepared = self._prepare(texts)
        options = {"padding": False, "truncation": True, "max_length": self.max_length}
        encodings = self.tokenizer(prepared, return_offsets_mapping=True, **options)
        special = {self.tokenizer.bos_token_id, self.tokenizer.eos_token_id, self.tokenizer.pad_token_id}
        places = []
        for text, seen, encoding in zip(texts, prepared, encodings.encodings, strict=True):
            spans = zip(encoding.ids, encoding.offsets, strict=True)
            tokens = [(0, 0) if token in special else span for token, span in spans]
            if self.clean and seen != text:
                seen, tokens = text, places_before(text, seen, tokens)
            reach = max(end for _, end in tokens) if encoding.overflowing else len(seen)
            places.append(TokenPlaces(text, seen, tokens, reach))
        return places

    @property
    def preparation(self) -> str:
        """Description of how a text is prepared before tokenization."""
        if self.clean:
            return f"cleaned with ftfy {ftfy.__version__} and HTML-unescaped, as CLIP's own tokenizer does"
        return "lower-cased" if self.lower else "as written"

    def _prepare(self, texts: Sequence[str]) -> list[str]:
        if self.clean:
            return [clean(text) for text in texts]
        return [text.lower() for text in texts] if self.lower else list(texts)

    def pad(self, rows: list[list[int]], length: int) -> torch.Tensor:
        """Returns token ids as a long tensor `[n, length]`, padded on the right; `[0, length]` for no rows."""
        padding = [self.tokenizer.pad_token_id] * length
        padded = [row + padding[len(row) :] for row in rows]
        return torch.tensor(padded, dtype=torch.long).reshape(len(rows), length)

    def length(self, rows: Iterable[list[int]]) -> int:
        """Returns the length to pad to: the longest row, rounded up to `multiple`."""
        if self.pad_to_full:
            return self.max_length
        longest = max(len(row) for row in rows)
        return min(-(-longest // self.multiple) * self.multiple, self.max_length)

    def facts(self) -> dict[str, Any]:
        """Returns everything that determines a text's token ids, to identify the tokenizer."""
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
    """Returns everything that determines tokenization, as JSON, without padding and truncation."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return json.dumps(tokenizer.get_vocab(), sort_keys=True)
    rules = json.loads(backend.to_str())
    return json.dumps({name: part for name, part in rules.items() if name not in ("padding", "truncation")})


def _is_case_sensitive(tokenizer: Any) -> bool:
    upper, lower = tokenizer(["A RED CUBE", "a red cube"])["input_ids"]
    return upper != lower


def _check_padding(tokenizer: Any, pad_token_id: int | None) -> None:
    padding, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    if padding is None:
        raise ValueError(
            "the tokenizer has no padding token. Set tokenizer.pad_token to one that texts never contain."
        )
    if padding != pad_token_id:
        raise ValueError(
            f"the text tower hides token {pad_token_id} as padding, but the tokenizer pads with token {padding}. Use "
            "the model's own processor."
        )
    if padding == end:
        raise ValueError(
            f"the tokenizer pads with its end-of-text token {end}, which the padding mask would hide too. Give "
            "it a padding token of its own."
        )


def _check_end_of_text(tokenizer: Any, eos_token_id: int | None, *, highest: bool) -> None:
    if highest and tokenizer.eos_token_id < len(tokenizer) - 1:
        problem = "the text tower pools at the highest token id"
        advice = "Use a tokenizer without added tokens."
        if eos_token_id == 2:
            problem = "the text tower's eos_token_id is 2, so it pools at the highest token id"
            advice = (
                f"Set model.config.text_config.eos_token_id = {tokenizer.eos_token_id} (not 2) and load the model "
                "again, or use a tokenizer without added tokens."
            )
        raise ValueError(
            f"{problem}, but the tokenizer's end-of-text token {tokenizer.eos_token_id} is not the highest of its "
            f"{len(tokenizer)} tokens. {advice}"
        )
    if not highest and eos_token_id is not None and tokenizer.eos_token_id != eos_token_id:
        raise ValueError(
            f"the text tower pools at token {eos_token_id}, but the tokenizer ends texts with token "
            f"{tokenizer.eos_token_id}, so the tower would pool the first position. Use the model's own processor."
        )
