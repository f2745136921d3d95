"""The first step of ConcretePlant: which word of each caption a negative changes.

Three parts, so that neither shards nor processes change a target:

1. `target_inputs`: stages by which every row gets its possible targets, at most one of each category. They depend on
   that row, the seed and the settings only.
2. `balance_targets`: one pass over the rows of that build, in their order, decides the category of each.
3. `KEYWORD_STAGE`: the first stage of what is built next; it brings rows to `keyword`, `keyword_span`, `category`,
   `rated_word` and `keyword_tag`.

No rating is written, see `hfcomp.negatives.concreteness`: rows hold the entry of the table, and ratings are joined to
it at load.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from datasets import Dataset, Image, List, Value
from huggingface_hub.constants import HF_HOME

from hfcomp.checksums import file_hash
from hfcomp.data.publishing import without_local_paths
from hfcomp.generation.options import CaptionOptions
from hfcomp.generation.shards import COUNTS, ROW, SET_ASIDE, Batch, Stage
from hfcomp.generation.sources import BuildInputs, Log, output_features, read_captioned_rows
from hfcomp.generation.text_negatives import make_captions
from hfcomp.negatives.concreteness import HOW_TO_GET, ConcretenessRatings
from hfcomp.negatives.negative import caption_rng
from hfcomp.negatives.ratings_file import download_ratings
from hfcomp.negatives.targets import (
    Candidate,
    Choice,
    Lookup,
    Mode,
    Order,
    Prepositions,
    balanced_categories,
    find_candidates,
)
from hfcomp.parsing import DEFAULT_PARSER, cached_parser

TARGET_FEATURES = {
    "target_keywords": List(Value("string")),
    "target_spans": List(List(Value("int32"))),
    "target_categories": List(Value("string")),
    "target_rated_words": List(Value("string")),
    "target_tags": List(Value("string")),
    "unrated_words": List(Value("string")),
    "source_row": Value("int64"),
}
"""What the first part adds: lists with an entry for each possible target, the first one drawn first; the words without
a rating; and the row of the source, where the image stays."""
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
KEYWORD_READS = ("category", "target_categories", *_LISTS.values())
"""Columns that `KEYWORD_STAGE` reads."""

ANOTHER_SCRIPT, NO_CANDIDATE, NO_RATING = "caption not in Latin script", "no word to change", "no word with a rating"
# Names of counts begin so.
CANDIDATES, UNRATED = "candidates: ", "words: without a rating"
_BATCH = 1000


@dataclass(kw_only=True)
class TargetOptions(CaptionOptions):
    """Target words of negatives (Concrete Jungle).

    Attributes:
        mode: words of high or low concreteness, or random ones.
        order: top_k picks the category among the k, category_first before them, sample not at all; by default top_k
            for high, else sample.
        top_k: words that are drawn from; by default 3, for low 8.
        temperature: of the softmax of ratings; 1 as in the paper.
        lookup: rate a word or the two-word expression that it is part of first.
        prepositions: specific leaves out at, by, in and on.
        attribute_share: of rows without a relation; the others change objects.
        seed: of all draws.
        parser: spacy:NAME or rules.
        concreteness_ratings: your file of the ratings of Brysbaert et al. 2014.
        download_ratings: show the licence of the ratings (CC BY-NC-ND 3.0) and download them to the cache.
    """

    what: ClassVar[str] = "targets"
    mode: Mode = "high"
    order: Literal["top_k", "category_first", "sample"] | None = None
    top_k: int | None = None
    temperature: float = 1.0
    lookup: Lookup = "word_first"
    prepositions: Prepositions = "specific"
    attribute_share: float = 0.5
    seed: int = 0
    parser: str = DEFAULT_PARSER
    concreteness_ratings: str | None = None
    download_ratings: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.choice()
        balanced_categories([], attribute_share=self.attribute_share)
        if self.concreteness_ratings and self.download_ratings:
            raise ValueError("--concreteness_ratings and --download_ratings are given; expected one of them.")
        if self.mode != "random" and not self.concreteness_ratings and not self.download_ratings:
            raise ValueError(
                f"--mode {self.mode} needs --concreteness_ratings FILE or --download_ratings. {HOW_TO_GET}"
            )

    def choice(self) -> Choice:
        """How the targets of a caption are chosen.

        Raises:
            ValueError: for a number that is not above 0.
        """
        return Choice.of(self.mode, order=self.order, k=self.top_k, temperature=self.temperature)


def target_inputs(options: TargetOptions, log: Log) -> BuildInputs:
    """Rows without earlier targets and negatives, and the stages; images stay in the source.

    Raises:
        ValueError: for missing columns, a `caption` that is not a text, or ratings that are not as expected.
        OSError: for a parser that is not installed, or ratings that cannot be downloaded.
    """
    stages = [Stage("captions", make_captions, {"which": options.captions}), target_stage(options, log)]
    dataset = read_captioned_rows(options, log, is_old=_is_old)
    images = [name for name, feature in dataset.features.items() if isinstance(feature, Image)]
    dataset = dataset.remove_columns(images)
    features = output_features(dataset, {"caption": Value("string"), **TARGET_FEATURES})
    return BuildInputs(dataset, stages, features, ["caption"])


def _is_old(column: str) -> bool:
    ours = column in TARGET_FEATURES or column in KEYWORD_FEATURES
    return ours or column.startswith("negative_") or column == "mask"


def target_stage(options: TargetOptions, log: Log) -> Stage:
    """The stage that gives captions their possible targets; it records names and hashes, no places on this machine."""
    choice, path = options.choice(), ratings_path(options, log)
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
    facts = settings | {
        "parser": without_local_paths(cached_parser(options.parser).name),
        "ratings": None if path is None else f"{path.name} sha256:{file_hash(path)}",
    }
    return Stage("targets", make_targets, settings, facts)


def ratings_path(options: TargetOptions, log: Log) -> Path | None:
    """The file of ratings: the user's, or the one that is downloaded on request; None if neither is asked for.

    Raises:
        FileNotFoundError: for a file that is not there.
        OSError, ValueError: as `download_ratings`.
    """
    if options.download_ratings:
        return download_ratings(Path(HF_HOME) / "hfcomp" / "ratings", log=log)
    if options.concreteness_ratings is None:
        return None
    path = Path(options.concreteness_ratings)
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
    lookup: Lookup = "word_first",
    prepositions: Prepositions = "specific",
    seed: int = 0,
) -> Callable[[Batch], Batch]:
    """The stage that adds `TARGET_FEATURES`; for `run_stages`, and for `Dataset.map(batched=True)`.

    Captions without a target are set aside with their reason: nothing in them can change, no such word has a rating,
    or they are not in Latin script, which the parsers' English is written in.

    Args:
        parser: `spacy:NAME` or `rules`; by default `spacy:en_core_web_sm`.
        ratings: their file, or read already; None for `random` only.
        mode: see `hfcomp.negatives.targets.Choice`.
        order: likewise.
        k: likewise.
        temperature: likewise.
        lookup: see `hfcomp.negatives.targets.find_candidates`.
        prepositions: likewise.
        seed: any integer.

    Raises:
        ValueError: for settings that do not fit, or a file that is not a table of ratings.
    """
    choice = Choice.of(mode, order=order, k=k, temperature=temperature)
    if ratings is None and mode != "random":
        raise ValueError(f"mode {mode!r} chooses by concreteness and needs ratings. {HOW_TO_GET}")
    table = ratings if isinstance(ratings, ConcretenessRatings | None) else ConcretenessRatings.from_file(ratings)
    parse = cached_parser(parser).parse

    def targets(batch: Batch) -> Batch:
        columns: Batch = {name: [] for name in TARGET_FEATURES} | {SET_ASIDE: [], COUNTS: []}
        for caption, doc in zip(batch["caption"], parse(batch["caption"]), strict=True):
            reason = _script_problem(caption)
            candidates, chosen = [], []
            if reason is None:
                candidates = find_candidates(doc, table, lookup=lookup, prepositions=prepositions)
                chosen = choice.targets(candidates, caption_rng(seed, caption, "target", mode))
                reason = None if chosen else _why_none(candidates)
            unrated = [one.keyword.lower() for one in candidates if one.rating is None and table is not None]
            for name, values in _as_columns(chosen).items():
                columns[name].append(values)
            columns["unrated_words"].append(unrated)
            columns[SET_ASIDE].append(reason)
            counts = {UNRATED: len(unrated)} if unrated else {}
            for one in candidates:
                counts[f"{CANDIDATES}{one.category}"] = counts.get(f"{CANDIDATES}{one.category}", 0) + 1
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


def _script_problem(caption: str) -> str | None:
    """Why a caption cannot be English: most of its letters are of another script."""
    if caption.isascii():
        return None
    letters = [letter for letter in caption if letter.isalpha()]
    others = [letter for letter in letters if not unicodedata.name(letter, "").startswith("LATIN")]
    if len(others) * 2 <= len(letters):
        return None
    return f"{ANOTHER_SCRIPT}: {len(others):,} of {len(letters):,} letters, such as {others[0]!r}"


def _why_none(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return NO_CANDIDATE
    return f"{NO_RATING}: {', '.join(one.keyword for one in candidates[:5])}"


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
        words = ", ".join(f"{word!r} {count:,}" for word, count in self.unrated.most_common(most))
        return [
            f"{rows:,} targets: {shares or 'none'}",
            f"{self.unrated.total():,} candidate words have no rating" + (f"; most often: {words}" if words else ""),
        ]


def balance_targets(targets: Dataset, *, attribute_share: float = 0.5) -> tuple[Dataset, TargetTally]:
    """Decides the category of every row, in the order of rows; see `hfcomp.negatives.targets.balanced_categories`.

    It holds a word and two counts at a time, besides the decided column.

    Args:
        targets: what was built by `target_inputs`, whole.
        attribute_share: of the rows without a relation.

    Returns:
        The rows with the column `category`, for `KEYWORD_STAGE`; and what was decided.

    Raises:
        ValueError: for a share that is not in 0 to 1, or rows without possible targets.
    """
    missing = [name for name in ("target_categories", "unrated_words") if name not in targets.column_names]
    if missing:
        raise ValueError(f"the set has no column {missing[0]!r}; expected a set of targets as `target_inputs` builds.")
    tally = TargetTally()

    def possible() -> Any:
        for batch in targets.select_columns(["target_categories", "unrated_words"]).iter(_BATCH):
            tally.unrated.update(word for words in batch["unrated_words"] for word in words)
            yield from batch["target_categories"]

    decided = list(balanced_categories(possible(), attribute_share=attribute_share))
    tally.categories.update(decided)
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


KEYWORD_STAGE = Stage("keywords", make_keywords)
