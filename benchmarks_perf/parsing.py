"""Captions per second through `load_parser(...).parse` with 2 processes against a plain `nlp(text)` loop.

HFCOMP_REAL_DATA=FOLDER python benchmarks_perf/parsing.py [--captions 0] [--train 60] [--repeats 1] [--pipeline FOLDER]

Both sides run the same pipeline. It has the parts and sizes of `en_core_web_sm` (one tok2vec of width 96 for tagger
and parser, another in the entity recognizer, attribute ruler, rule lemmatizer) and is trained for a minute on COCO
captions as read by the rules, with noun chunks standing in for entities. The lemmatizer's tables are built from the
same captions, because spaCy's own come in a separate data package. The loop runs every component, as returned by
`spacy.load`. The pipeline only measures speed; both results are compared token by token, which does not measure
quality.
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

GOAL = 3
EMBED = {
    "@architectures": "spacy.MultiHashEmbed.v2",
    "width": 96,
    "attrs": ["NORM", "PREFIX", "SUFFIX", "SHAPE", "SPACY", "IS_SPACE"],
    "rows": [5000, 1000, 2500, 2500, 50, 50],
    "include_static_vectors": False,
}
ENCODE = {
    "@architectures": "spacy.MaxoutWindowEncoder.v2",
    "width": 96,
    "window_size": 1,
    "maxout_pieces": 3,
    "depth": 4,
}
TOK2VEC = {"@architectures": "spacy.Tok2Vec.v2", "embed": EMBED, "encode": ENCODE}
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96, "upstream": "tok2vec"}


def transitions(state: str, tok2vec: dict) -> dict:
    return {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": state,
        "extra_state_tokens": False,
        "hidden_width": 64,
        "maxout_pieces": 2,
        "use_upper": True,
        "nO": None,
        "tok2vec": tok2vec,
    }


def silver(captions: list[str]):
    """Yields the rules' parses of the captions, with noun chunks as entities."""
    from hfcomp.parsing import load_parser

    for doc in load_parser("rules").parse(captions):
        doc.set_ents([doc.char_span(c.start_char, c.end_char, "THING") for c in doc.noun_chunks], default="outside")
        yield doc


def lemma_tables(docs):
    """Builds index, exceptions and rules for spaCy's rule lemmatizer."""
    from spacy.lookups import Lookups

    rules = {
        "noun": [["s", ""], ["ies", "y"], ["es", ""]],
        "verb": [["s", ""], ["es", ""], ["ing", ""], ["ing", "e"], ["ed", ""], ["ed", "e"]],
        "adj": [["er", ""], ["est", ""]],
    }
    index, exceptions = {pos: set() for pos in rules}, {pos: {} for pos in rules}
    for token in (token for doc in docs for token in doc if token.pos_.lower() in rules):
        pos, form = token.pos_.lower(), token.lower_
        index[pos].add(token.lemma_)
        if all(form != token.lemma_[: len(form) - len(old)] + old for old, _ in rules[pos]):
            exceptions[pos][form] = [token.lemma_]
    lookups = Lookups()
    lookups.add_table("lemma_rules", rules)
    lookups.add_table("lemma_index", {pos: sorted(forms) for pos, forms in index.items()})
    lookups.add_table("lemma_exc", exceptions)
    return lookups


def train(captions: list[str], seconds: float, folder: Path) -> None:
    import spacy
    from spacy.training import Example
    from spacy.util import minibatch

    from hfcomp.parsing.rules.tags import UNIVERSAL

    docs = list(silver(captions))
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": TOK2VEC})
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENER}})
    nlp.add_pipe("parser", config={"model": transitions("parser", LISTENER)})
    ruler = nlp.add_pipe("attribute_ruler")
    lemmatizer = nlp.add_pipe("lemmatizer", config={"mode": "rule"})
    nlp.add_pipe("ner", config={"model": transitions("ner", TOK2VEC)})
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in docs]
    lemmatizer.initialize(lookups=lemma_tables(docs))
    with nlp.select_pipes(disable=["lemmatizer"]):
        optimizer = nlp.initialize(lambda: examples)
    ruler.load_from_tag_map({tag: {"POS": pos} for tag, pos in UNIVERSAL.items()})
    rng, start = random.Random(0), time.perf_counter()
    while time.perf_counter() - start < seconds:
        rng.shuffle(examples)
        for batch in minibatch(examples, 64):
            nlp.update(batch, sgd=optimizer, drop=0.1)
            if time.perf_counter() - start >= seconds:
                break
    nlp.to_disk(folder)


def annotations(docs) -> list[tuple]:
    return [
        (
            [(token.tag_, token.pos_, token.lemma_, token.head.i, token.dep_) for token in doc],
            [(chunk.start, chunk.end) for chunk in doc.noun_chunks],
        )
        for doc in docs
    ]


def loop(folder: Path, captions: list[str]):
    import spacy

    nlp = spacy.load(folder)
    nlp(captions[0])
    start = time.perf_counter()
    docs = [nlp(caption) for caption in captions]
    return time.perf_counter() - start, docs


def ours(folder: Path, captions: list[str], processes: int, batch_size: int):
    from hfcomp.parsing import load_parser

    parser = load_parser(f"spacy:{folder}")
    next(parser.parse(captions[:1]))
    start = time.perf_counter()
    docs = list(parser.parse(captions, num_processes=processes, batch_size=batch_size))
    return time.perf_counter() - start, docs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=0, help="captions to parse, 0 = all")
    parser.add_argument("--train", type=float, default=60, help="seconds of training")
    parser.add_argument("--repeats", type=int, default=1, help="runs per side")
    parser.add_argument("--processes", type=int, default=2, help="number of processes")
    parser.add_argument("--batch_size", type=int, default=256, help="captions per batch")
    parser.add_argument("--pipeline", type=Path, help="folder of the trained pipeline, which is reused if it exists")
    args = parser.parse_args()
    data = os.environ.get("HFCOMP_REAL_DATA")
    if not data:
        raise SystemExit("set HFCOMP_REAL_DATA to a folder with coco/captions_val2017.json")
    file = Path(data) / "coco" / "captions_val2017.json"
    captions = [row["caption"] for row in json.loads(file.read_text(encoding="utf-8"))["annotations"]]
    folder = args.pipeline or Path(tempfile.mkdtemp()) / "pipeline"
    if not folder.exists():
        train(captions[-3000:], args.train, folder)
    captions = list(islice(captions, args.captions or None))
    sides = {
        "loop": lambda: loop(folder, captions),
        "parse, 1 process": lambda: ours(folder, captions, 1, args.batch_size),
        f"parse, {args.processes} processes": lambda: ours(folder, captions, args.processes, args.batch_size),
    }
    seconds = {side: [] for side in sides}
    results = {}
    for repeat in range(args.repeats):
        for side in list(sides)[:: 1 if repeat % 2 == 0 else -1]:
            elapsed, docs = sides[side]()
            seconds[side].append(elapsed)
            results[side] = annotations(docs)
            print(f"{side:>20}: {elapsed:7.2f} s  {len(captions) / elapsed:8.0f} captions/s", flush=True)
    reference, medians = results["loop"], {side: statistics.median(runs) for side, runs in seconds.items()}
    for side, result in results.items():
        different = sum(a != b for a, b in zip(reference, result, strict=True))
        ratio = medians["loop"] / medians[side]
        print(f"{side:>20}: {ratio:5.2f} x the loop, {different} of {len(captions)} captions parsed differently")
    print("goal met" if medians["loop"] >= GOAL * medians[list(sides)[-1]] else f"goal of {GOAL} x missed")


if __name__ == "__main__":
    main()
