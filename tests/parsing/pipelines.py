"""Parses without a model: gold `Doc`s written by hand, and a small spaCy pipeline trained on a closed grammar."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hfcomp.parsing.rules.tags import BE, UNIVERSAL

COLORS, SHAPES, PLACES = ("red", "blue", "green"), ("dog", "cat", "bird", "horse"), ("near", "behind", "under")
VERBS = {"chases": "chase", "watches": "watch", "follows": "follow"}


@cache
def tokenizer():
    import spacy

    return spacy.blank("en")


def gold(caption: str, tags: str, heads: str, labels: str, lemmas: str | None = None):
    """A `Doc` annotated by hand.

    Args:
        caption: Cut as spaCy's English tokenizer does.
        tags: Penn tags, apart by spaces; the universal tags follow from them and the labels.
        heads: Index of each word's head; the root is its own.
        labels: As spaCy's English pipelines write them.
        lemmas: The words in lower case if not given.
    """
    from spacy.tokens import Doc

    doc = tokenizer().make_doc(caption)
    words = [token.text for token in doc]
    lemma_column = lemmas.split() if lemmas else [word.lower() for word in words]
    columns = [tags.split(), heads.split(), labels.split(), lemma_column]
    if {len(column) for column in columns} != {len(words)}:
        raise ValueError(f"{caption!r} has {len(words)} tokens, its columns {[len(column) for column in columns]}")
    pos = [
        "AUX" if label in ("aux", "auxpass") and tag != "TO" or word.lower() in BE else UNIVERSAL[tag]
        for word, tag, label in zip(words, columns[0], columns[2], strict=True)
    ]
    return Doc(
        tokenizer().vocab,
        words=words,
        spaces=[bool(token.whitespace_) for token in doc],
        tags=columns[0],
        pos=pos,
        heads=[int(head) for head in columns[1]],
        deps=columns[2],
        lemmas=columns[3],
    )


def grammar() -> Iterator[Any]:
    """Every "a red dog chases a cat near a blue bird" of a small closed grammar, with its parse."""
    for color, shape, verb, other, place, last in itertools.product(COLORS, SHAPES, VERBS, SHAPES, PLACES, COLORS):
        if shape == other:
            continue
        yield gold(
            f"a {color} {shape} {verb} a {other} {place} a {last} house",
            "DT JJ NN VBZ DT NN IN DT JJ NN",
            "2 2 3 3 5 3 3 9 9 6",
            "det amod nsubj ROOT det dobj prep det amod pobj",
            f"a {color} {shape} {VERBS[verb]} a {other} {place} a {last} house",
        )


def train_pipeline(folder: Path) -> list[Any]:
    """Trains a spaCy pipeline on half of the grammar and saves it; takes 2 to 3 seconds.

    Args:
        folder: Where it is saved.

    Returns:
        The `Doc`s of the other half.
    """
    import spacy
    from spacy.lookups import Lookups
    from spacy.training import Example
    from spacy.util import minibatch

    docs = list(grammar())
    random.Random(0).shuffle(docs)
    train, held_out = docs[:500], docs[500:]
    nlp = spacy.blank("en")
    embed = {"@architectures": "spacy.HashEmbedCNN.v2", "width": 32, "depth": 2, "embed_size": 500}
    embed |= {"window_size": 1, "maxout_pieces": 2, "subword_features": True, "pretrained_vectors": None}
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 32, "upstream": "tok2vec"}
    nlp.add_pipe("tok2vec", config={"model": embed})
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}})
    transitions = {"@architectures": "spacy.TransitionBasedParser.v2", "hidden_width": 32, "maxout_pieces": 2}
    transitions |= {"extra_state_tokens": False, "use_upper": True, "nO": None, "tok2vec": listener}
    nlp.add_pipe("parser", config={"model": transitions | {"state_type": "parser"}})
    nlp.add_pipe("ner", config={"model": transitions | {"state_type": "ner"}})
    for doc in train:
        doc.set_ents([doc.char_span(doc[2].idx, doc[2].idx + len(doc[2]), "ANIMAL")], default="outside")
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in train]
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(4):
        for batch in minibatch(examples, 32):
            nlp.update(batch, sgd=optimizer)
    ruler = nlp.add_pipe("attribute_ruler")
    ruler.load_from_tag_map({tag: {"POS": pos} for tag, pos in UNIVERSAL.items()})
    lookups = Lookups()
    lookups.add_table("lemma_lookup", VERBS)
    nlp.add_pipe("lemmatizer", config={"mode": "lookup"}).initialize(lookups=lookups)
    nlp.to_disk(folder)
    return held_out


def annotations(doc) -> list[tuple]:
    """The annotations that a parser promises for a `Doc`, in a comparable form."""
    rows = [(token.text, token.idx, token.pos_, token.tag_, token.lemma_, token.head.i, token.dep_) for token in doc]
    return [*rows, *((chunk.start, chunk.end) for chunk in doc.noun_chunks)]


def annotated_captions(split: str) -> list[tuple[str, dict]]:
    """The hand-annotated COCO captions of a split; none without `HFCOMP_REAL_DATA`."""
    data = os.environ.get("HFCOMP_REAL_DATA")
    if not data:
        return []
    rows = json.loads((Path(data) / "coco" / "captions_val2017.json").read_text(encoding="utf-8"))["annotations"]
    captions = {row["id"]: row["caption"] for row in rows}
    lines = (Path(__file__).parent / "annotated_captions.jsonl").read_text(encoding="utf-8").splitlines()
    records = [row for row in map(json.loads, lines) if row["split"] == split]
    return [(captions[row["id"]], row) for row in records]
