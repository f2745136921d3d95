"""A recipe's training set as a stream: captions joined and phrases found while it is read."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Features, IterableDataset, Value

from hfcomp.data.caption_files import KEY_COLUMN, FileCaptions, read_captions
from hfcomp.data.columns import LEFT_OUT, rename_columns, require_columns
from hfcomp.data.concepts.columns import concept_columns, noun_phrase_extractor
from hfcomp.data.features import CONCEPT_FEATURES
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.generation.text_negatives import cached_parser
from hfcomp.parsing.captions import caption_problem

Batch = dict[str, list[Any]]
# Captions whose phrases are found at a time.
ROWS_AT_A_TIME = 64
# Rows after which a key that no row has is told.
TRIED_ROWS = 1000


def streamed_rows(config: ExperimentConfig, *, column_names: Any, tell: Callable[[str], None]) -> IterableDataset:
    """The training set as a stream in the column contract.

    Rows without a caption in `captions_file` are left out and counted in the column `left_out_rows`.

    Args:
        config: the experiment.
        column_names: contract name to the data set's own.
        tell: receives a line about what is read.

    Raises:
        ValueError: for a data set that cannot be streamed, a column that is not there, or a captions file that cannot
            be read.
    """
    dataset = undecoded(_loaded(config))
    tell(f"{config.dataset} is streamed: its rows are read while training goes on")
    captions = None
    if config.captions_file:
        captions = _captions(config, dataset, tell)
        old = [name for name in ("caption", *CONCEPT_FEATURES) if name in dataset.column_names]
        dataset = dataset.remove_columns(old) if old else dataset
    names = dataset.column_names
    dataset = rename_columns(dataset, column_names)
    parser = config.concept_parser
    if parser and "concepts" in dataset.column_names:
        tell(f"the data set's own concepts are used; concept_parser={parser} makes none")
        parser = None
    if captions is None and parser is None:
        return dataset
    if captions is None:
        require_columns(dataset, ["caption"], needed_by="concept_parser")
        if not isinstance(dataset.features["caption"], Value):
            raise ValueError(
                f"streaming: column 'caption' holds {dataset.features['caption']}, expected one text a row. Name "
                "another column with column_names, or leave streaming out."
            )
    made = CONCEPT_FEATURES if parser else {}
    features = Features({**dataset.features, "caption": Value("string"), **made, LEFT_OUT: Value("int64")})
    key = config.key_column or KEY_COLUMN
    ours = {theirs: name for name, theirs in (column_names or {}).items()}
    place = key if key in names else key.partition(".")[0]
    found = _Key(key, ours.get(place, place), key.partition(".")[2] if place != key else None)
    columns = _Columns(captions, found, Path(config.captions_file or "").name, parser)
    return dataset.map(columns, batched=True, batch_size=ROWS_AT_A_TIME, features=features)


def _loaded(config: ExperimentConfig) -> IterableDataset:
    path = Path(config.dataset)
    if (path / "state.json").exists() or (path / "dataset_dict.json").exists() or path.is_file():
        raise ValueError(
            f"streaming: {config.dataset} is a {'file' if path.is_file() else 'folder of save_to_disk'}; expected a "
            "Hub id, or a folder of WebDataset shards or Parquet files. Leave streaming out."
        )
    dataset = load_training_set(
        config.dataset, split=config.dataset_split, config=config.dataset_config, streaming=True
    )
    if dataset.features is None:
        raise ValueError(f"streaming: {config.dataset} does not say its columns. Leave streaming out.")
    return dataset


def _captions(config: ExperimentConfig, dataset: IterableDataset, tell: Callable[[str], None]) -> FileCaptions:
    column = (config.key_column or KEY_COLUMN).partition(".")[0]
    if (config.key_column or KEY_COLUMN) not in dataset.column_names and column not in dataset.column_names:
        raise ValueError(
            f"key_column={config.key_column!r}: the data set has no column {column!r}; it has: "
            f"{', '.join(dataset.column_names)}."
        )
    captions = read_captions(config.captions_file, config.captions_columns)
    tell(f"{len(captions.captions):,} captions of {Path(config.captions_file).name}, joined as rows are read")
    return captions


@dataclass(frozen=True)
class _Key:
    name: str  # as the recipe has it
    column: str  # as it is called after renaming
    entry: str | None  # of a column of objects

    def of(self, batch: Batch) -> list[Any]:
        """The keys of a batch."""
        cells = batch[self.column]
        return cells if self.entry is None else [None if cell is None else cell.get(self.entry) for cell in cells]


class _Columns:
    """Adds caption and concepts to a batch of rows; what it needs travels to the workers that read."""

    def __init__(self, captions: FileCaptions | None, key: _Key, file: str, parser: str | None) -> None:
        self.captions, self.key, self.file, self.parser = captions, key, file, parser
        self.tried, self.joined, self.left_out = 0, 0, 0

    def __call__(self, batch: Batch) -> Batch:
        captions = batch["caption"] if self.captions is None else self._joined(batch)
        kept, counts = [], []
        for index, caption in enumerate(captions):
            if caption is None and self.captions is not None:
                self.left_out += 1
                continue
            kept.append(index)
            counts.append(self.left_out)
            self.left_out = 0
        chosen = {name: [values[index] for index in kept] for name, values in batch.items()}
        chosen |= {"caption": [captions[index] for index in kept], LEFT_OUT: counts}
        return chosen | (self._concepts(chosen["caption"]) if self.parser else {})

    def _joined(self, batch: Batch) -> list[str | None]:
        cells = self.key.of(batch)
        found = [None if cell is None else self.captions.captions.get(str(cell)) for cell in cells]
        self.tried += len(found)
        self.joined += len(found) - found.count(None)
        if not self.joined and self.tried >= TRIED_ROWS:
            raise ValueError(
                f"none of the first {self.tried:,} rows has its {self.key.name!r} in {self.file}: they are as "
                f"{next((cell for cell in cells if cell is not None), None)!r} there, and as "
                f"{next(iter(self.captions.captions), None)!r} in the file. Name what both have: key_column for the "
                "data set, captions_columns for the file."
            )
        return found

    def _concepts(self, captions: list[str | None]) -> Batch:
        texts = [caption or "" for caption in captions]
        extract = noun_phrase_extractor(cached_parser(self.parser))
        columns, counts = concept_columns(texts, extract, max_concepts=None)
        if counts.unusable:
            problem = next(found for found in map(caption_problem, texts) if found)
            warnings.warn(f"concept_parser: {counts.unusable} captions are not read, such as {problem}", stacklevel=1)
        return columns
