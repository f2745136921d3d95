"""The first step of ConcretePlant: which word of each caption a negative changes.

Three parts, so that neither shards nor processes change a target:

1. `target_inputs`: stages by which every row gets its possible targets, at most one of each category. They depend on
   that row, the seed and the settings only.
2. `balance_targets`: one pass over the rows of that build, in their order, decides the category of each.
3. `keyword_stage`: the first stage of what is built next; it brings rows to `KEYWORD_FEATURES`.

No rating is written, see `hfcomp.negatives.concreteness`: rows hold the entry of the table, and ratings are joined to
it at load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, List, Value

from hfcomp.checksums import file_hash
from hfcomp.data.publishing import without_local_paths
from hfcomp.factory.concretebatch.options import CANDIDATES, UNRATED, TargetOptions
from hfcomp.factory.shards import COUNTS, ROW, SET_ASIDE, Batch, Stage
from hfcomp.factory.sources import BuildInputs, Log
from hfcomp.factory.targets.candidates import Candidate, Lookup, Prepositions, find_candidates
from hfcomp.factory.targets.choice import Choice, Mode, Order, balanced_categories
from hfcomp.factory.text_negatives import make_captions
from hfcomp.negatives.concreteness import HOW_TO_GET, ConcretenessRatings, download_ratings
from hfcomp.negatives.negative import caption_rng
from hfcomp.parsing import cached_parser
from hfcomp.parsing.captions import script_problem
from hfcomp.store import cache_folder

# What the first part adds: lists with an entry for each possible target, the first one drawn first; the words without
# a rating; and the row of the source, where the image stays.
TARGET_FEATURES = {
    "target_keywords": List(Value("string")),
    "target_spans": List(List(Value("int32"))),
    "target_categories": List(Value("string")),
    "target_rated_words": List(Value("string")),
    "target_tags": List(Value("string")),
    "unrated_words": List(Value("string")),
    "source_row": Value("int64"),
}
KEYWORD_FEATURES = {
    "keyword": Value("string"),
    "keyword_span": List(Value("int32")),
    "category": Value("string"),
    "rated_word": Value("string"),
    "keyword_tag": Value("string"),
}
_LISTS = {
    "keyword": "target_keywords",
    "keyword_span": "target_spans",
    "rated_word": "target_rated_words",
    "keyword_tag": "target_tags",
}
# Columns that `keyword_stage` reads.
KEYWORD_READS = ("category", "target_categories", *_LISTS.values())

NO_CANDIDATE, NO_RATING = "no word to change", "no word with a rating"
_BATCH = 1000


def target_inputs(options: TargetOptions, mode: Mode, source: Dataset, log: Log) -> BuildInputs:
    """The texts of the source, whose images stay there, and the stages."""
    choice = Choice.of(mode, order=options.order, k=options.top_k, temperature=options.rating_temperature)
    path = ratings_path(options.concreteness_ratings, options.download_ratings, log)
    settings: dict[str, Any] = {
        "mode": choice.mode,
        "order": choice.order,
        "k": choice.k,
        "temperature": choice.temperature,
        "lookup": options.lookup,
        "prepositions": options.prepositions,
        "seed": options.seed,
        "parser": options.parser,
        "ratings": None if path is None else str(path),
    }
    # Recorded are names and hashes, no places on this machine.
    facts = settings | {
        "parser": without_local_paths(cached_parser(options.parser).name),
        "ratings": None if path is None else f"{path.name} sha256:{file_hash(path)}",
    }
    captions = Stage("captions", make_captions, {"which": options.captions})
    stages = [captions, Stage("targets", make_targets, settings, facts)]
    images = [name for name, feature in source.features.items() if isinstance(feature, Image)]
    features = Features({"caption": Value("string"), **TARGET_FEATURES})
    return BuildInputs(source.remove_columns(images), stages, features, ["caption"])


def ratings_path(own: str | None, download: bool, log: Log) -> Path | None:
    """The file of ratings: the user's, or the one that is downloaded on request; None if neither is asked for."""
    if download:
        return download_ratings(cache_folder("ratings"), log=log)
    if own is None:
        return None
    path = Path(own)
    if not path.is_file():
        raise FileNotFoundError(f"no concreteness ratings at {path}. {HOW_TO_GET}")
    return path


def make_targets(
    *,
    parser: str | None = None,
    ratings: str | Path | ConcretenessRatings | None = None,
    mode: Mode = "high",
    order: Order | None = None,
    k: int | None = None,
    temperature: float = 1.0,
    lookup: Lookup = "expression_first",
    prepositions: Prepositions = "specific",
    seed: int = 0,
) -> Callable[[Batch], Batch]:
    """The stage that adds `TARGET_FEATURES`; for `run_stages`, and for `Dataset.map(batched=True)`.

    Captions without a target are set aside with their reason: nothing in them can change, no such word has a rating,
    or they are not in Latin script, which the parsers' English is written in.

    Args:
        parser: `spacy:NAME` or `rules`; by default `spacy:en_core_web_sm`.
        ratings: their file, or read already; None for `random` only.
        mode: see `hfcomp.factory.targets.Choice`.
        lookup: see `hfcomp.factory.targets.find_candidates`.
    """
    choice = Choice.of(mode, order=order, k=k, temperature=temperature)
    if ratings is None and mode != "random":
        raise ValueError(f"mode {mode!r} chooses by concreteness and needs ratings. {HOW_TO_GET}")
    table = ratings if isinstance(ratings, ConcretenessRatings | None) else ConcretenessRatings.from_file(ratings)
    parse = cached_parser(parser).parse

    def targets(batch: Batch) -> Batch:
        columns: Batch = {name: [] for name in TARGET_FEATURES} | {SET_ASIDE: [], COUNTS: []}
        for caption, doc in zip(batch["caption"], parse(batch["caption"]), strict=True):
            reason = script_problem(caption)
            candidates, chosen = [], []
            if reason is None:
                candidates = find_candidates(doc, table, lookup=lookup, prepositions=prepositions)
                chosen = draw_targets(choice, caption, candidates, seed)
                # Words without a rating are no target by concreteness; the reason tells them from captions without
                # any word.
                reason = None if chosen else _why_none(candidates)
            unrated = [one.keyword.lower() for one in candidates if one.rating is None and table is not None]
            for name, values in _as_columns(chosen).items():
                columns[name].append(values)
            columns["unrated_words"].append(unrated)
            columns[SET_ASIDE].append(reason)
            counts = {UNRATED: len(unrated)} if unrated else {}
            for one in candidates:
                counts[CANDIDATES(one.category)] = counts.get(CANDIDATES(one.category), 0) + 1
            columns[COUNTS].append(counts)
        return batch | columns | {"source_row": batch.get(ROW, [None] * len(batch["caption"]))}

    return targets


def _as_columns(chosen: Sequence[Candidate]) -> dict[str, list[Any]]:
    return {
        "target_keywords": [one.keyword for one in chosen],
        "target_spans": [list(one.span) for one in chosen],
        "target_categories": [one.category for one in chosen],
        "target_rated_words": [one.rated_word for one in chosen],
        "target_tags": [one.tag for one in chosen],
    }


def draw_targets(choice: Choice, caption: str, candidates: Sequence[Candidate], seed: int) -> list[Candidate]:
    """The possible targets of a caption, at most one of each category; they depend on it and the settings only."""
    return choice.targets(candidates, caption_rng(seed, caption, "target", choice.mode))


def _why_none(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return NO_CANDIDATE
    return f"{NO_RATING}: {', '.join(one.keyword for one in candidates[:5])}"


def most_frequent(words: Counter[str], most: int = 10) -> str:
    return ", ".join(f"{word!r} {count:,}" for word, count in words.most_common(most))


def unrated_words(targets: Dataset) -> Counter[str]:
    """How often each word without a rating occurs, in rows that have a target."""
    batches = targets.select_columns("unrated_words").iter(_BATCH)
    return Counter(word for batch in batches for words in batch["unrated_words"] for word in words)


@dataclass
class TargetTally:
    """What `balance_targets` has seen.

    Attributes:
        categories: rows by the category that was decided.
        unrated: how often each word without a rating occurs, in rows that have a target.
    """

    categories: Counter[str] = field(default_factory=Counter)
    unrated: Counter[str] = field(default_factory=Counter)

    def lines(self, most: int = 10) -> list[str]:
        """The counts as text, with the most frequent words without a rating."""
        rows = sum(self.categories.values())
        shares = ", ".join(f"{name} {count / rows:.1%}" for name, count in sorted(self.categories.items()))
        words = most_frequent(self.unrated, most)
        return [
            f"{rows:,} targets: {shares or 'none'}",
            f"{self.unrated.total():,} candidate words have no rating" + (f"; most often: {words}" if words else ""),
        ]


def balance_targets(targets: Dataset, *, attribute_share: float = 0.5) -> tuple[Dataset, TargetTally]:
    """Decides the category of every row, in the order of rows; see `hfcomp.factory.targets.balanced_categories`.

    It holds a word and two counts at a time, besides the decided column.

    Args:
        targets: what was built by `make_targets`, whole.
        attribute_share: Share of attributes among the rows without a relation.

    Returns:
        The rows with the column `category`, for `keyword_stage`; and what was decided.
    """
    missing = [name for name in ("target_categories", "unrated_words") if name not in targets.column_names]
    if missing:
        raise ValueError(f"the set has no column {missing[0]!r}; expected a set of targets as `make_targets` gives.")
    # A quota depends on all rows before, so this is one pass in one process. It reads a single short column.
    batches = targets.select_columns("target_categories").iter(_BATCH)
    possible = (names for batch in batches for names in batch["target_categories"])
    decided = list(balanced_categories(possible, attribute_share=attribute_share))
    tally = TargetTally(Counter(decided), unrated_words(targets))
    if "category" in targets.column_names:
        targets = targets.remove_columns("category")
    return targets.add_column("category", decided, feature=Value("string")), tally


def make_keywords() -> Callable[[Batch], Batch]:
    """The stage that brings rows of `balance_targets` to `KEYWORD_FEATURES`: the target of the decided category."""

    def keywords(batch: Batch) -> Batch:
        places = [
            names.index(category)
            for names, category in zip(batch["target_categories"], batch["category"], strict=True)
        ]
        found = {
            ours: [values[place] for values, place in zip(batch[theirs], places, strict=True)]
            for ours, theirs in _LISTS.items()
        }
        return {name: values for name, values in batch.items() if name not in TARGET_FEATURES} | found

    return keywords


def keyword_stage(attribute_share: float = 0.5) -> Stage:
    """The stage of `make_keywords`; the share that decided the categories is written into the manifest."""
    # The stage needs no setting; the share is written down so that a build with another one is not resumed.
    return Stage("keywords", make_keywords, identity={"attribute_share": attribute_share})
