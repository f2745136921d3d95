"""Texts are cleaned as OpenAI's tokenizer does, and tokens are still found in the text as it was."""

from __future__ import annotations

import html
import json
import os
import random
import re
import string
from functools import cache
from pathlib import Path

import ftfy
import pytest
import regex
from transformers import AutoModel, AutoProcessor, CLIPTokenizer

from hfcomp.data.concepts.spans import Concept, tokens_of
from hfcomp.data.tokenizing import TextTokenizer, clean, places_before
from tests import tiny

FILES = {"vocab": "vocab.json", "merges": "merges.txt"}
REAL_DATA = os.environ.get("HFCOMP_REAL_DATA")
ASCII = [chr(code) for code in range(128)]
OTHER = [*ASCII, *"’“”é…—ﬁÃ©Ｆ\u00a0\u2028\ufeff", "&amp;", "&quot;", "&#39;", "&amp;lt;", "&nbsp;", "â€™"]
QUOTED = "The man’s  “red” dog &amp;amp; a caf\u00e9"


def reference(text: str) -> str:
    """`whitespace_clean(basic_clean(text))` of OpenAI's simple_tokenizer.py."""
    text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    return re.sub(r"\s+", " ", text).strip()


@pytest.mark.parametrize("letters", [ASCII, OTHER, list(string.printable)])
def test_a_text_becomes_what_openai_makes_of_it(letters):
    generator = random.Random(0)
    for _ in range(5000):
        text = "".join(generator.choices(letters, k=generator.randint(0, 40)))
        assert clean(text) == reference(text), repr(text)
    assert clean(QUOTED) == 'The man\'s "red" dog & a café'


def test_tokens_are_found_in_the_text_as_it_was():
    cleaned = clean(QUOTED)
    tokens = [match.span() for match in re.finditer(r"\w+|[^\w\s]", cleaned)]
    mapping = {}
    for token, place in zip(tokens, places_before(QUOTED, cleaned, tokens), strict=True):
        mapping[cleaned[slice(*token)]] = QUOTED[slice(*place)]
    assert mapping == {
        **{word: word for word in ("The", "dog", "a", "café")},
        **dict.fromkeys(["man", "'", "s"], "man’s"),
        **dict.fromkeys(['"', "red"], "“red”"),
        "&": "&amp;amp;",
    }


def test_words_that_appear_or_go_leave_the_others_where_they_are():
    # "&nbsp;" parts one word into two, the byte order mark is one of its own
    for text in ("big&nbsp;red dog", "\ufeff big red dog", "a “b c” dog", "x &lt; y dog", "dog"):
        cleaned = clean(text)
        tokens = [match.span() for match in re.finditer(r"\S+", cleaned)]
        places = places_before(text, cleaned, [*tokens, (0, 0)])
        assert text[slice(*places[-2])] == "dog" and places[-1] == (0, 0)
        assert all(0 <= start <= end <= len(text) for start, end in places)


def test_concepts_keep_their_tokens_in_a_text_that_is_cleaned(clip):
    tokenizer = AutoProcessor.from_pretrained(clip).tokenizer
    words = TextTokenizer(tokenizer, model_type="clip", max_length=24, eos_token_id=tokenizer.eos_token_id)
    plain, quoted = 'a "red cube" on a blue ball', "a  “red cube” on a blue ball"
    assert words([plain]) == words([quoted])
    token_lists = []
    for text in (plain, quoted):
        starts = [(phrase, text.index(phrase)) for phrase in ("cube", "blue ball", "on")]
        concepts = [Concept(phrase, [(start, start + len(phrase))]) for phrase, start in starts]
        token_lists.append(tokens_of(concepts, words.places([text])[0])[1:])
    assert token_lists[0] == token_lists[1]


@pytest.mark.parametrize(("name", "cleans"), [("clip", True), ("metaclip2", False), ("siglip", False)])
def test_only_clip_is_cleaned(name, cleans, request, tmp_path):
    folder = getattr(tiny, name)(tmp_path / name)
    config = AutoModel.from_pretrained(folder).config
    words = TextTokenizer.from_processor(AutoProcessor.from_pretrained(folder), config)
    assert words.clean is cleans and ("ftfy" in words.preparation) is cleans
    if cleans:
        assert words(["a man&#39;s  dog"]) == words(["a man's dog"])


@pytest.mark.skipif(REAL_DATA is None, reason="needs CLIP's vocabulary and captions: set HFCOMP_REAL_DATA")
def test_tokens_are_openai_s_on_real_captions():
    folder = Path(REAL_DATA)
    names = {name: str(folder / "clip_tokenizer" / file) for name, file in FILES.items()}
    hugging_face = CLIPTokenizer(vocab=names["vocab"], merges=names["merges"])
    words = TextTokenizer(hugging_face, model_type="clip", max_length=77, eos_token_id=49407)
    texts = set()
    for name, keys in (("valse", ("caption", "foil")), ("sugarcrepe", ("caption", "negative_caption"))):
        for file in (folder / name).glob("*.json"):
            rows = json.loads(file.read_text(encoding="utf-8")).values()
            texts |= {row[key] for row in rows for key in keys}
    texts = sorted(texts)[::7] + sorted(text for text in texts if clean(text) != " ".join(text.split()))
    encode = openai_encoder(Path(names["vocab"]), Path(names["merges"]))
    differ = [text for text, ids in zip(texts, words(texts)[0], strict=True) if ids[1:-1] != encode(text)[:75]]
    assert differ == [] and len(texts) > 2000


def openai_encoder(vocabulary: Path, merges: Path):
    """`SimpleTokenizer.encode` of openai/CLIP, written again from its rules."""
    ids = json.loads(vocabulary.read_text(encoding="utf-8"))
    pairs = [tuple(line.split()) for line in merges.read_text(encoding="utf-8").split("\n")[1:] if line]
    rank = {pair: number for number, pair in enumerate(pairs)}
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letter = {code: chr(code) for code in visible}
    letter |= {code: chr(256 + number) for number, code in enumerate(sorted(set(range(256)) - set(visible)))}
    cut = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", regex.IGNORECASE)

    @cache
    def merge_pieces(word: str) -> tuple[int, ...]:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            best = min(zip(parts, parts[1:], strict=False), key=lambda pair: rank.get(pair, len(rank)))
            if best not in rank:
                break
            joined, at = [], 0
            while at < len(parts):
                two = at + 1 < len(parts) and (parts[at], parts[at + 1]) == best
                joined.append("".join(parts[at : at + 1 + two]))
                at += 1 + two
            parts = joined
        return tuple(ids[part] for part in parts)

    def encode(text: str) -> list[int]:
        words = cut.findall(reference(text).lower())
        return [piece for word in words for piece in merge_pieces("".join(letter[byte] for byte in word.encode()))]

    return encode
