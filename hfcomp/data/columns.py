"""The column contract: column names of training sets on disk, on the Hub and in every collator.

| column | type | used by |
|---|---|---|
| `image`, `caption` | Image, string | all |
| `positive_captions` | list of string | other true captions |
| `negative_captions`, `negative_kinds`, `negative_keywords`, `negative_categories`, `negative_concreteness` | lists of
equal length; an empty string is masked; concreteness is 1 to 5 or null | text hard negatives, Cement |
| `negative_rated_words` | for each negative, the entry of the concreteness ratings that matched its keyword, or an
empty string; ratings are joined on it | Cement |
| `negative_spans` | for each negative, a list of `[start, end)` in the caption: the changed parts | reports |
| `negative_image`, `mask` | Image or null | Slipform, TripletCLIP, inpainting; shows the first negative caption |
| `neighbor_ids` | list of string | NegCLIP's hard images |
| `concepts` | list of string: phrases of the caption; none = the caption itself | C2LIP |
| `concept_spans` | for each concept, a list of `[start, end)` in the caption | C2LIP with `concept_source: tokens` |
| `group`, `hard_negative_groups`, `generalized_caption`, `level_1` to `level_4` | string or list | CLEAR GLASS |
| `image_id` | string; null = derived from the image file | all: rows of one image are not each other's negatives;
clustering |
| `source`, `license` | string | overlap guard, publishing |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datasets import List, Value

from hfcomp.data.concepts.level_names import LEVEL_COLUMNS
from hfcomp.data.formats.archives import fitting_columns
from hfcomp.data.known_names import column_names_text, proposed_names
from hfcomp.fields import FIELDS, columns_of
from hfcomp.old_names import current_columns, current_names
from hfcomp.reading import nearest

# Columns that no trainer reads through `Features`.
_FURTHER_COLUMNS = (
    "positive_captions",
    "negative_keywords",
    "negative_categories",
    "negative_rated_words",
    "negative_spans",
    "mask",
    "neighbor_ids",
    "concept_spans",
    *LEVEL_COLUMNS,
    "hard_negative_groups",
    "generalized_caption",
    "source",
    "license",
)
COLUMNS = (*columns_of(FIELDS), *_FURTHER_COLUMNS)

NEGATIVE_KINDS = (
    "replace_att",
    "replace_obj",
    "replace_rel",
    "swap_att",
    "swap_obj",
    "swap_rel",
    "add_att",
    "add_obj",
    "add_rel",
    "mask_noun",
    "mask_adj",
    "mask_verb",
    "keyword_object",
    "keyword_color",
    "keyword_location",
    "keyword_size",
    "other",
)
KIND_IDS = {kind: index for index, kind in enumerate(NEGATIVE_KINDS)}

# Arrow types of the list columns, for datasets that are written or joined: an empty list has no type of its own.
NEGATIVE_FEATURES = {
    "negative_captions": List(Value("string")),
    "negative_kinds": List(Value("string")),
    "negative_keywords": List(Value("string")),
    "negative_categories": List(Value("string")),
    "negative_rated_words": List(Value("string")),
    "negative_concreteness": List(Value("float64")),
    "negative_spans": List(List(List(Value("int32")))),
}
CONCEPT_FEATURES = {
    "concepts": List(Value("string")),
    "concept_spans": List(List(List(Value("int32")))),
}

LEFT_OUT = "left_out_rows"
"""Column of a streamed dataset and key of its batches: number of rows dropped since the previous row."""
COUNTED_KEYS = ("row", "truncated", "tiny", "uncached", "cut_concepts", "shortened_concepts", LEFT_OUT)
"""Keys of a batch that the trainer counts and does not pass to the model."""
# Keys that the model encodes, and keys that losses read directly from the batch.
_CONCEPTS = ("concept_input_ids", "concept_text_index", "concept_token_mask")
_ENCODED = ("input_ids", "text_index", "pixels", "negative_input_ids", *_CONCEPTS)
BATCH_KEYS = (*COUNTED_KEYS, *_ENCODED, *(name for name, field in FIELDS.items() if field.in_batch))
TEXT_IDS = ("text_id", "negative_text_id")
"""Keys of a batch that show which texts are equal; they are passed on unless `mask_equal_texts` is off."""
# Names that the model creates, and names that the transformers Trainer would interpret itself. A user's collator
# cannot use them.
RESERVED_KEYS = (*(name for name, field in FIELDS.items() if not field.in_batch), "rows", "labels", "return_loss")


class RowsLeftOut:
    """Drops rows from the batches of a stream and counts them in the column `LEFT_OUT`."""

    # A batch whose rows are all dropped cannot carry a count. So the count stays here until the next kept row, even if
    # that row is in a later batch. Each reading worker has its own copy.
    left_out = 0

    def select(self, batch: dict[str, list[Any]], kept: Sequence[bool]) -> dict[str, list[Any]]:
        rows, counts = [], []
        for row, before in enumerate(batch.get(LEFT_OUT, [0] * len(kept))):
            self.left_out += before
            if kept[row]:
                rows.append(row)
                counts.append(self.left_out)
                self.left_out = 0
            else:
                self.left_out += 1
        return {name: [values[row] for row in rows] for name, values in batch.items()} | {LEFT_OUT: counts}


def select_values(dataset: Any, stored: Any) -> Any:
    """Selects the values of a dataset's rows, in their order, from a column as stored (an Arrow array)."""
    # A filtered or shuffled dataset keeps the stored table and adds indices into it.
    return stored if dataset._indices is None else stored.take(dataset._indices.column(0))


def kind_id(kind: str, *, where: str) -> int:
    if kind not in KIND_IDS:
        raise ValueError(
            f"{where}: {kind!r} is not a known kind of negative.{nearest(kind, NEGATIVE_KINDS)} "
            f"Known kinds: {', '.join(NEGATIVE_KINDS)}."
        )
    return KIND_IDS[kind]


def rename_columns(dataset: Any, column_names: Mapping[str, str] | None) -> Any:
    """Renames a dataset's columns to contract names, all at once, so that two columns may swap names.

    If several contract names map to one column, it is copied. A column in `LEVEL_COLUMNS` is copied too and also keeps
    its own name. Every other column keeps only its new name.

    Args:
        dataset: A `datasets.Dataset` or a stream.
        column_names: Mapping from contract names to the dataset's own names, such as `{"caption": "text"}`. `jpg;png`
            stands for the first of these columns that is not null in a row. In rows from archives, any spelling of an
            image's file extension stands for the image column.

    Raises:
        ValueError: If a name is not in the contract, or the dataset has no such column.
    """
    dataset, names = current_columns(dataset), current_names(dict(column_names or {}))
    for ours, theirs in names.items():
        if ours not in COLUMNS:
            raise ValueError(f"column_names: {ours!r} is not a column of hfcomp.{nearest(ours, COLUMNS)}")
        fitting = fitting_columns(theirs, dataset.column_names)
        if not fitting:
            raise ValueError(
                f"column_names maps {ours!r} to {theirs!r}, which is not in the dataset. It has: "
                f"{', '.join(dataset.column_names)}."
            )
        if len(fitting) > 1:
            dataset = _add_first_value(dataset, fitting, theirs)
        names[ours] = fitting[0] if len(fitting) == 1 else theirs
    # A level column keeps its own name too, because level names are compared with captions and scored.
    names |= {name: name for name in names.values() if name in LEVEL_COLUMNS and name not in names}
    if all(ours == theirs for ours, theirs in names.items()):
        return dataset
    hidden = [name for name in names if name in dataset.column_names and name not in names.values()]
    if hidden:
        dataset = dataset.remove_columns(hidden)
    moved: dict[str, str] = {}
    for ours, theirs in names.items():
        if theirs in moved:
            dataset = _copy_column(dataset, theirs, copy := f"{theirs} as {ours}")
            theirs = copy
        moved[theirs] = ours
    # A stream rejects a new name that another column still has, so rename in two steps.
    between = {theirs: f"{theirs} becomes {ours}" for theirs, ours in moved.items() if theirs != ours}
    return dataset.rename_columns(between).rename_columns({name: moved[theirs] for theirs, name in between.items()})


def _add_first_value(dataset: Any, columns: list[str], name: str) -> Any:
    from datasets import Image

    # Without decoding: `map` would decode every image and encode it again.
    for column in columns:
        if isinstance(dataset.features[column], Image):
            dataset = dataset.cast_column(column, Image(decode=False))
    features = type(dataset.features)({**dataset.features, name: dataset.features[columns[0]]})
    return dataset.map(
        lambda row: {name: next((row[column] for column in columns if row[column] is not None), None)},
        features=features,
    )


def _copy_column(dataset: Any, name: str, copy: str) -> Any:
    from datasets import IterableDataset, concatenate_datasets

    if isinstance(dataset, IterableDataset):
        features = dataset.features and type(dataset.features)({**dataset.features, copy: dataset.features[name]})
        return dataset.map(lambda row: {copy: row[name]}, features=features)
    return concatenate_datasets([dataset, dataset.select_columns([name]).rename_column(name, copy)], axis=1)


RENAME = "column_names={{{0!r}: '<its name in your dataset>'}}"
"""Syntax with which a recipe or Python code renames a column."""


def require_columns(dataset: Any, required: Iterable[str], *, needed_by: str, rename: str = RENAME) -> None:
    """Checks that a dataset has the columns that a trainer needs.

    Args:
        dataset: A `datasets.Dataset`.
        required: Contract names of the columns.
        needed_by: Name of the trainer or function, for the error message.
        rename: Way to rename a column, for the error message, with `{0}` for the first missing column.

    Raises:
        ValueError: If columns are missing. The message names the missing and existing columns, and likely matches.
    """
    missing = [name for name in required if name not in dataset.column_names]
    if missing:
        # If both are missing, propose both: the best match for "caption" may really be the image column.
        pair = [name for name in ("image", "caption") if name not in dataset.column_names]
        proposals = proposed_names(dataset, dict.fromkeys([*pair, *missing]))
        rename_advice = f"Rename a column with {rename.format(missing[0])}, or add the column."
        fix = f"You may mean: {column_names_text(proposals)}." if proposals else rename_advice
        raise ValueError(
            f"{needed_by} needs the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}, but the "
            f"dataset has: {', '.join(map(repr, dataset.column_names))}. {fix}"
        )
