"""The first step of ConcretePlant: chooses the word of each caption that a negative changes.

It has three parts, so neither shards nor processes change a target:

1. `target_inputs`: stages that give every row its possible targets, at most one per category. They depend only on that
   row, the seed and the settings.
2. `balance_targets`: one pass over the rows of that build, in order, decides the category of each row.
3. `keyword_stage`: the first stage of the next build; it brings rows to `KEYWORD_FEATURES`.

No rating is written, see `hfcomp.negatives.concreteness`. Rows hold the entry of the table, and ratings are joined
when a dataset is loaded.
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
from hfcomp.factory.targets.candidates import Candidate, Lookup, Prepositions, Words, find_candidates
from hfcomp.factory.targets.choice import Choice, Mode, Order, balanced_categories
from hfcomp.factory.text_negatives import make_captions
from hfcomp.negatives.concreteness import HOW_TO_GET, ConcretenessRatings, download_ratings
from hfcomp.negatives.negative import caption_rng
from hfcomp.parsing import cached_parser
from hfcomp.parsing.captions import script_problem
from hfcomp.store import cache_folder

# Columns of the first part: lists with an entry per possible target, in the order drawn; the words without a rating;
# and the row of the source, where the image stays.
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
    """The texts of the source, without its images, and the stages."""
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
    if options.target_words != "filtered":  # otherwise the settings are those of builds before there was a choice
        settings["words"] = options.target_words
    # The manifest records names and hashes, but no paths on this machine.
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
    """The file of ratings: the user's own, or a downloaded one; None if neither is requested."""
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
    words: Words = "filtered",
    seed: int = 0,
) -> Callable[[Batch], Batch]:
    """The stage that adds `TARGET_FEATURES`, for `run_stages` or `Dataset.map(batched=True)`.

    Captions without a target are set aside with a reason: no word can change, no such word has a rating, or the text
    is not in Latin script, which the English parsers need.

    Args:
        parser: `spacy:NAME` or `rules`; by default `spacy:en_core_web_sm`.
        ratings: Concreteness ratings or their file; None only for `random`.
        mode: Rule of choice, see `hfcomp.factory.targets.Choice`.
        lookup: Order of lookups, see `hfcomp.factory.targets.find_candidates`.
        words: Words that can be targets, see there.
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
                candidates = find_candidates(doc, table, lookup=lookup, prepositions=prepositions, words=words)
                chosen = draw_targets(choice, caption, candidates, seed)
                # A word without a rating is not a target by concreteness. The reason distinguishes such captions from
                # captions without any word to change.
                reason = None if chosen else _missing_reason(candidates)
            unrated = [
                candidate.keyword.lower() for candidate in candidates if candidate.rating is None and table is not None
            ]
            for name, values in _as_columns(chosen).items():
                columns[name].append(values)
            columns["unrated_words"].append(unrated)
            columns[SET_ASIDE].append(reason)
            counts = {UNRATED: len(unrated)} if unrated else {}
            for candidate in candidates:
                counts[CANDIDATES(candidate.category)] = counts.get(CANDIDATES(candidate.category), 0) + 1
            columns[COUNTS].append(counts)
        return batch | columns | {"source_row": batch.get(ROW, [None] * len(batch["caption"]))}

    return targets


def _as_columns(chosen: Sequence[Candidate]) -> dict[str, list[Any]]:
    return {
        "target_keywords": [target.keyword for target in chosen],
        "target_spans": [list(target.span) for target in chosen],
        "target_categories": [target.category for target in chosen],
        "target_rated_words": [target.rated_word for target in chosen],
        "target_tags": [target.tag for target in chosen],
    }


def draw_targets(choice: Choice, caption: str, candidates: Sequence[Candidate], seed: int) -> list[Candidate]:
    """The possible targets of a caption, at most one per category. They depend only on caption and settings."""
    return choice.targets(candidates, caption_rng(seed, caption, "target", choice.mode))


def _missing_reason(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return NO_CANDIDATE
    return f"{NO_RATING}: {', '.join(candidate.keyword for candidate in candidates[:5])}"


def most_frequent(words: Counter[str], most: int = 10) -> str:
    return ", ".join(f"{word!r} {count:,}" for word, count in words.most_common(most))


def unrated_words(targets: Dataset) -> Counter[str]:
    """Number of occurrences of each word without a rating, in rows with a target."""
    batches = targets.select_columns("unrated_words").iter(_BATCH)
    return Counter(word for batch in batches for words in batch["unrated_words"] for word in words)


@dataclass
class TargetTally:
    """Counts of `balance_targets`.

    Attributes:
        categories: Number of rows by decided category.
        unrated: Number of occurrences of each word without a rating, in rows with a target.
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

    Memory holds one word and two counts at a time, in addition to the decided column.

    Args:
        targets: The complete build of `make_targets`.
        attribute_share: Share of attributes among the rows without a relation.

    Returns:
        The rows with the column `category`, for `keyword_stage`, and the counts.
    """
    missing = [name for name in ("target_categories", "unrated_words") if name not in targets.column_names]
    if missing:
        raise ValueError(
            f"the dataset has no column {missing[0]!r}; expected a dataset of targets from `make_targets`."
        )
    # A quota depends on all earlier rows, so this is a single pass in one process. It reads a single short column.
    batches = targets.select_columns("target_categories").iter(_BATCH)
    possible = (names for batch in batches for names in batch["target_categories"])
    decided = list(balanced_categories(possible, attribute_share=attribute_share))
    tally = TargetTally(Counter(decided), unrated_words(targets))
    if "category" in targets.column_names:
        targets = targets.remove_columns("category")
    return targets.add_column("category", decided, feature=Value("string")), tally


def make_keywords() -> Callable[[Batch], Batch]:
    """The stage that reduces rows of `balance_targets` to the target of the decided category (`KEYWORD_FEATURES`)."""

    def keywords(batch: Batch) -> Batch:
        places = [
            names.index(category)
            for names, category in zip(batch["target_categories"], batch["category"], strict=True)
        ]
        keyword_columns = {
            ours: [values[place] for values, place in zip(batch[theirs], places, strict=True)]
            for ours, theirs in _LISTS.items()
        }
        return {name: values for name, values in batch.items() if name not in TARGET_FEATURES} | keyword_columns

    return keywords


def keyword_stage(attribute_share: float = 0.5) -> Stage:
    """The stage of `make_keywords`. The manifest records the share that decided the categories."""
    # The stage needs no setting. The share is recorded so that a build with another share is not resumed.
    return Stage("keywords", make_keywords, identity={"attribute_share": attribute_share})
