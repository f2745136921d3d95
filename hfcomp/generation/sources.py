"""What all builds begin with: the source's rows under the contract's names, and names of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from datasets import Dataset, Features, Image, LargeList, List

from hfcomp.data.built_sets import TRAIN
from hfcomp.data.columns import require_columns
from hfcomp.data.formats.image_files import TEXTS, check_image_files, named_image_files
from hfcomp.data.image_ids import IMAGE_ID, photographs_or_rows, with_image_ids
from hfcomp.data.known_names import parse_column_names, proposed_names, spelled
from hfcomp.data.pair_table import Log, RowSource, has_lists, read_rows, texts_of
from hfcomp.data.publishing import LICENSE, without_local_paths
from hfcomp.data.sources import listing_folders
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.generation.options import RENAME, BuildOptions, CaptionOptions
from hfcomp.generation.shards import Stage
from hfcomp.parsing.language import SAMPLED, language_note
from hfcomp.reading import may_be_hub_id
from hfcomp.reporting.report import Table

SHARD_PATH = "__url__"
"""The path on this machine of a sample's archive, as `datasets` reads WebDataset shards."""


class BuildInputs(NamedTuple):
    """What `run_stages` needs of a build.

    Attributes:
        dataset: the source's rows.
        stages: in their order.
        features: of the columns that are written.
        reads: columns of the source that stages see.
        split: that the rows are.
        facts: tables for the card.
        check: as for `run_stages`.
    """

    dataset: Dataset
    stages: Sequence[Stage]
    features: Features
    reads: Sequence[str]
    split: str = TRAIN
    facts: Sequence[Table] = ()
    check: Callable[[Mapping[str, Any]], None] | None = None


def read_source(options: BuildOptions, log: Log) -> Dataset:
    """The rows of the source, under the contract's names; `log` receives a line about what was read.

    Raises:
        ValueError: for a split or column that is not there.
    """
    part = {"split": options.split, "config": options.config}
    names = parse_column_names(options.column_names)
    source = RowSource(name=options.source, column_names=names, **part)
    if isinstance(options, CaptionOptions):  # rows without a caption are set aside later
        files = ("captions_file", "key_column", "captions_columns")
        source = replace(source, **{name: getattr(options, name) for name in files})
    dataset = read_rows(source, log)
    if SHARD_PATH in dataset.column_names:
        dataset = dataset.remove_columns(SHARD_PATH)
    kept = kept_columns(dataset, options.columns)
    _check_images_are_named(options, dataset, names)
    if "image" in kept and dataset.features["image"] in TEXTS:
        raise ValueError(
            f"column 'image' of {options.source} holds texts such as {dataset[0]['image']!r}, expected images. File "
            "names are read beside a local file or folder: download the set and pass its folder as --source; or build "
            "without images: --columns caption."
        )
    check_image_files(dataset, kept, one_is_enough=True)
    return dataset if options.limit is None else dataset.select(range(min(options.limit, len(dataset))))


def read_captioned_rows(
    options: CaptionOptions,
    log: Log,
    *,
    is_old: Callable[[str], bool],
    needed: Sequence[str] = (),
    needed_by: str = "",
    joined_by: Sequence[str] = (),
) -> Dataset:
    """The rows to build from, without the columns that `is_old` says describe earlier ones of the same kind.

    `needed` are further columns, `needed_by` the option that needs them; those of `joined_by` are kept where they are
    there, whatever `--columns` says. Rows with images have their photograph in `image_id`, unless that is in
    `joined_by`.

    Raises:
        ValueError: for missing columns, requested ones of earlier builds, or a `caption` that is not a text.
    """
    dataset = read_source(options, log)
    _check_captions(options, dataset)
    if options.reads_english and (note := language_note(_sampled_captions(dataset))):
        log(note)
    require_columns(dataset, needed, needed_by=needed_by, rename=RENAME)
    needed = [*needed, *(name for name in joined_by if name in dataset.column_names)]
    kept = kept_columns(dataset, options.columns)
    left = [name for name in kept if is_old(name)]
    if left and options.columns is not None:
        raise ValueError(
            f"--columns names {', '.join(left)}, which cannot be kept: the source's own describe other "
            f"{options.what}, and this build makes them anew. Leave them out of --columns."
        )
    if left:
        log(f"the source's own {', '.join(left)} are dropped: they describe other {options.what}")
    kept = [name for name in kept if name not in left]
    if options.captions == "all" and has_lists(dataset.features):
        # a row becomes several, which must be known as those of one image
        dataset = with_image_ids(dataset, photographs_or_rows(dataset))
        needed = [*needed, IMAGE_ID]
    elif "image" in (*needed, *kept) and IMAGE_ID not in joined_by:  # a build that joins by it finds it by itself
        dataset = with_image_ids(dataset)
        kept = [*kept, *({IMAGE_ID} & {*dataset.column_names})]
    return dataset.select_columns(list(dict.fromkeys(["caption", *needed, *kept])))


def _check_images_are_named(options: BuildOptions, dataset: Dataset, names: Mapping[str, str]) -> None:
    """Raises ValueError for a source with images of which the set would have none, unless columns were chosen."""
    if options.columns is not None or any(isinstance(one, Image) for one in dataset.features.values()):
        return
    found = named_image_files(dataset, listing_folders(options.source, options.split, options.config, {}))
    if not found:
        return
    column, file = next(iter(found.items()))
    missing = [] if "caption" in dataset.column_names else ["caption"]
    fix = {**names, "image": column, **proposed_names(dataset, missing)}
    raise ValueError(
        f"{options.source}: column {column!r} names image files such as {file!r}, but no column is called 'image', "
        f"so the built set would have no images. Name it: {spelled(fix)}. Or build a set of texts: --columns caption"
    )


def _sampled_captions(dataset: Dataset) -> list[str]:
    """Texts of rows that are evenly spaced; of several captions the first."""
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), SAMPLED)).astype(np.int64))
    values = dataset.select_columns("caption").select(rows)["caption"]
    return [text for value in values for text in texts_of(value)[:1]]


def _check_captions(options: BuildOptions, dataset: Dataset) -> None:
    if "caption" not in dataset.column_names:
        known = proposed_names(dataset, [name for name in ("image", "caption") if name not in dataset.column_names])
        fix = f"These may be meant: {spelled(known)}" if known else f"Name it: {RENAME.format('caption')}"
        raise ValueError(f"{options.source} has no column 'caption'; it has: {', '.join(dataset.column_names)}. {fix}")
    kind = dataset.features["caption"]
    if (kind.feature if isinstance(kind, List | LargeList) else kind) not in TEXTS:
        raise ValueError(f"column 'caption' holds {kind}; expected texts or lists of texts.")


def kept_columns(dataset: Dataset, wanted: str | None) -> list[str]:
    """The source's columns that the built set has: all, or the requested ones and `license`, for publishing."""
    if wanted is None:
        return dataset.column_names
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    require_columns(dataset, names, needed_by="--columns", rename=RENAME)
    return list(dict.fromkeys([*names, *({LICENSE} & {*dataset.column_names})]))


def output_features(dataset: Dataset, added: Mapping[str, Any]) -> Features:
    """The columns of a built set: the source's, its images decoded on access, and the added ones."""
    shown = {name: Image() if isinstance(one, Image) else one for name, one in dataset.features.items()}
    return Features({**shown, **added})


def model_facts(place: str) -> str:
    """A model's name and the hash of its weights."""
    try:
        return f"{without_local_paths(place)} ({identity(place)})"
    except OSError as error:
        why = f" and could not be downloaded: {error}" if may_be_hub_id(place) else "."
        raise OSError(f"the model {place!r} is not a folder{why} Pass a folder.") from error
