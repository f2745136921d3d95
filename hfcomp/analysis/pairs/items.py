"""Reads datasets of pairs in the column contract: one row per negative caption, with its rating."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from datasets import Dataset, Image, get_dataset_config_names

from hfcomp.analysis.gallery import options as gallery_options
from hfcomp.analysis.gallery.rows import is_sandbox, read_set
from hfcomp.analysis.pairs.options import DataOptions
from hfcomp.data.built_sets.files import check_finished, configurations
from hfcomp.data.columns import require_columns
from hfcomp.data.image_ids import IMAGE_ID, has_no_id, photographs_or_rows
from hfcomp.data.pair_table import NEGATIVE_FACTS, check_entries, choose_captions, pair_table
from hfcomp.factory.options import RENAME
from hfcomp.factory.targets.choice import MODES, PAPER_MEAN_AND_MEDIAN
from hfcomp.negatives.concreteness import MAXIMUM, MINIMUM, ConcretenessRatings
from hfcomp.reading import may_be_hub_id

IMAGES = ("image", "negative_image")
MISSING_SHOWN = 3
SANDBOX_ROWS = 4096
"""Default number of rows of the built-in training set; `limit` overrides it."""
PAPER_CONFIGS = ("high_concreteness", "low_concreteness", "random")
TABLE_1 = {
    "mean concreteness": tuple(PAPER_MEAN_AND_MEDIAN[mode][0] for mode in MODES),
    "median concreteness": tuple(PAPER_MEAN_AND_MEDIAN[mode][1] for mode in MODES),
    "I2T accuracy": (0.9225, 0.8357, 0.8712),
    "T2I accuracy": (0.5087, 0.4020, 0.4433),
    "BERTScore": (0.8907, 0.8981, 0.8992),
    "CLIP-L": (0.9029, 0.9279, 0.9197),
    "DINOScore": (0.6225, 0.6707, 0.6514),
    "CLIP-V": (0.7000, 0.7270, 0.7168),
    "unique keywords": (11190, 11034, 11050),
}
"""The paper's own numbers by row, one per configuration in `PAPER_CONFIGS`.

Source: Im, Madhwal and Gupta, "Concrete Jungle", 2026. They were computed with PE-Core-L-14-336, DINOv2 (size not
given) and RoBERTa-large on pairs built from COCO's Karpathy split.
"""
PAPER_NAMES = {
    **{config: config for config in PAPER_CONFIGS},
    **{
        "high": PAPER_CONFIGS[0],
        "hc": PAPER_CONFIGS[0],
        "low": PAPER_CONFIGS[1],
        "lc": PAPER_CONFIGS[1],
        "wo": PAPER_CONFIGS[2],
    },
}


@dataclass(frozen=True, eq=False)
class PairSet:
    name: str  # name shown in tables
    source: str  # path or Hub id
    config: str | None  # the paper's configuration that the name refers to, if any
    dataset: Dataset  # with undecoded images
    # One row per negative: `row` of the dataset, `place` in its list, `image_id` that intervals resample, `caption`,
    # `negative_caption`, `kind`, `keyword`, `category`, `rated_word` (None if the dataset lacks them) and
    # `concreteness` (NaN without a rating).
    items: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def has(self, column: str) -> bool:
        return column in self.dataset.column_names

    def note(self, text: str) -> None:
        self.notes.append(f"{self.name}: {text}")


def named_sets(datasets: Sequence[str] | Mapping[str, str], config: str | None = None) -> dict[str, str]:
    """Maps names to dataset places. A place without a name is named after its configuration or last part.

    A place with several configurations stands for all of them, unless it or `config` selects one. If it has a name,
    its configurations are named `NAME CONFIG`.
    """
    places: dict[str, str] = {}
    for name, place in datasets.items() if isinstance(datasets, Mapping) else map(_split_name, datasets):
        path, _, own_config = place.partition("::")
        names = [] if own_config or config else _configurations(path)
        several = {f"{name} {config_name}".strip(): f"{path}::{config_name}" for config_name in names}
        for label, source in (several or {name or own_config or Path(path).absolute().name: place}).items():
            if label in places:
                raise ValueError(
                    f"two datasets are named {label!r}. Give one another name, for example second={place}."
                )
            places[label] = source
    return places


def _split_name(word: str) -> tuple[str, str]:
    name, sign, place = word.partition("=")
    # A file name may contain an equals sign.
    return (name, place) if sign and not Path(word).exists() else ("", word)


def _configurations(path: str) -> list[str]:
    """Lists the configurations of a built dataset, or of a Hub dataset or a folder with a card if it has several."""
    folder = Path(path)
    # Only part of an unfinished dataset would be read.
    check_finished(folder)
    if configurations(folder) != [folder]:
        return [config.name for config in configurations(folder)]
    if is_sandbox(path):
        return []
    # The query takes seconds, so only send it for a possible Hub id or a folder with a card.
    if not (folder / "README.md").is_file() and (folder.exists() or not may_be_hub_id(path)):
        return []
    try:
        names = get_dataset_config_names(path)
    except ConnectionError as error:  # loading would only wait for the network again
        raise ConnectionError(
            f"{path} is not a local file or folder, and reading it as a Hub id failed: {error}"
        ) from error
    except Exception:  # loading reports the problem
        return []
    return names if len(names) > 1 else []


def read_pairs(name: str, place: str, options: DataOptions, ratings: ConcretenessRatings | None) -> PairSet:
    """Reads the pairs of a dataset with their ratings.

    Args:
        name: Name of the dataset in tables.
        place: Folder, file or Hub id, with `::CONFIG` after it to select a configuration; or `sandbox`.
        options: Data options.
        ratings: Ratings in which to look up concreteness. Defaults to the column `negative_concreteness`, if any.
    """
    path, _, own_config = place.partition("::")
    config = own_config or options.config
    reading = gallery_options.DataOptions(split=options.split, config=config, column_names=options.column_names)
    dataset, notes = read_set(path, reading, options.limit or SANDBOX_ROWS), []
    needed = {"needed_by": f"the analysis of {place}", "rename": RENAME}
    require_columns(dataset, ("caption", "negative_captions"), **needed)
    if options.limit is not None:
        dataset = dataset.select(range(min(options.limit, len(dataset))))
    dataset = choose_captions(dataset, options.caption_choice, notes.append, allow_missing=True)
    config = paper_config(name, config, Path(path).name)
    pairs = PairSet(name, place, config, dataset, _items(dataset, name, place))
    for note in notes:
        pairs.note(note)
    _note_left_out(pairs)
    _add_concreteness(pairs, ratings)
    return pairs


def paper_config(*names: str | None) -> str | None:
    """Returns the paper's configuration for the first recognized name; `None` if no name is recognized."""
    words = (re.sub(r"[^a-z]+", "_", (name or "").lower()).strip("_") for name in names)
    return next((PAPER_NAMES[word] for word in words if word in PAPER_NAMES), None)


def published_number(row: str, config: str | None) -> float | None:
    """Returns a number from the paper's Table 1, if it has one."""
    if config is None or row not in TABLE_1:
        return None
    return float(TABLE_1[row][PAPER_CONFIGS.index(config)])


def _items(dataset: Dataset, name: str, place: str) -> pd.DataFrame:
    present = [name for name in ("caption", "negative_captions", *NEGATIVE_FACTS) if name in dataset.column_names]
    columns = {column: dataset[column][:] for column in present}
    check_entries(columns, place)
    items = pair_table(columns, _image_ids(dataset, name)).pairs.rename(columns={"negative": "negative_caption"})
    if items.empty:
        raise ValueError(
            f"{place}: none of its {len(dataset):,} rows has a caption with a negative caption. Pass a dataset built "
            "by `hfcomp build`, or name the columns: --column_names negative_captions=..."
        )
    return items


def _image_ids(dataset: Dataset, name: str) -> list[str]:
    """Returns a photograph id per row. Datasets can share an `image_id`, but ids from file names are their own."""
    ids = dataset[IMAGE_ID][:] if IMAGE_ID in dataset.column_names else []
    given_ids = {str(value) for value in ids if not has_no_id(value)}
    return [
        photograph if photograph in given_ids else f"{name}: {photograph}"
        for photograph in photographs_or_rows(dataset)
    ]


def _note_left_out(pairs: PairSet) -> None:
    rows = len(pairs.dataset)
    without = rows - pairs.items["row"].nunique()
    if without:
        pairs.note(f"{without:,} of {rows:,} rows have no caption or no negative caption and are left out")
    if not pairs.has(IMAGE_ID) and pairs.has("image"):
        pairs.note(
            "the column image_id is missing: rows with the same image file count as one photograph, and no "
            "photograph is shared with another dataset"
        )


def _add_concreteness(pairs: PairSet, ratings: ConcretenessRatings | None) -> None:
    """Fills `concreteness` from the ratings, or keeps the dataset's own values."""
    items = pairs.items
    if ratings is None:
        ratings_of_dataset = items["concreteness"].tolist()
        for row, value in zip(items["row"], ratings_of_dataset, strict=True):
            if value is not None and not math.isnan(value) and not MINIMUM <= value <= MAXIMUM:
                raise ValueError(
                    f"{pairs.source}, column 'negative_concreteness', row {row}: found {value:g}, expected "
                    f"{MINIMUM:g} to {MAXIMUM:g}, or null."
                )
        items["concreteness"] = pd.Series(ratings_of_dataset, dtype="float64")
        missing, source = Counter({"": int(items["concreteness"].isna().sum())}), "negative_concreteness"
    else:
        source = "negative_rated_words" if pairs.has("negative_rated_words") else "negative_keywords"
        words = items[NEGATIVE_FACTS[source]].fillna("")
        # Look up each distinct word only once.
        ratings_by_word = {word: ratings.lookup(word) if word else None for word in words.unique()}
        items["concreteness"] = words.map(ratings_by_word).astype("float64")
        missing = Counter(words[items["concreteness"].isna()])
    if items["concreteness"].isna().all():
        needed = f"{source} has no rating" if pairs.has(source) else f"column {source} is missing"
        hint = "" if ratings else "; --concreteness_ratings adds ratings by keyword"
        pairs.note(f"concreteness is left out: {needed}{hint}")
    elif missing.total():
        pairs.note(f"{missing.total():,} of {len(items):,} negatives have no rating{_most_frequent(missing)}")


def _most_frequent(missing: Mapping[str, int]) -> str:
    named = sorted(((word, count) for word, count in missing.items() if word), key=lambda item: (-item[1], item[0]))
    most = ", ".join(f"{word!r} {count:,}" for word, count in named[:MISSING_SHOWN])
    return f" (most often {most})" if most else ""


def image_features(pairs: PairSet) -> list[str]:
    """Lists the existing image columns; a column without any value is left out."""
    columns = []
    for column in IMAGES:
        if not pairs.has(column):
            continue
        if not isinstance(pairs.dataset.features[column], Image):
            kind = pairs.dataset.features[column]
            # A column without any value has no type.
            if str(getattr(kind, "dtype", "")) == "null":
                continue
            raise ValueError(f"{pairs.source}, column {column!r}: found {kind}, expected images.")
        columns.append(column)
    return columns
