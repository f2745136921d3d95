"""Reads the rows of a source under the contract's names, and checks images, files and licenses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, Image, LargeList, List
from huggingface_hub.constants import HF_HUB_CACHE
from huggingface_hub.file_download import repo_folder_name

from hfcomp.data.built_sets.files import SET_ASIDE_FILE, TRAIN
from hfcomp.data.columns import require_columns
from hfcomp.data.formats.image_files import TEXTS, check_image_files, named_image_files
from hfcomp.data.image_ids import IMAGE_ID, photographs_or_rows, with_image_ids
from hfcomp.data.images import decode_image
from hfcomp.data.known_names import column_names_text, parse_column_names, proposed_names
from hfcomp.data.loading import undecoded
from hfcomp.data.pair_table import Log, RowSource, has_lists, read_rows, texts_of
from hfcomp.data.publishing import LICENSE, allows_adaptation, without_local_paths
from hfcomp.data.sources import listing_folders
from hfcomp.data.urls import is_url
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.factory.options import RENAME, BuildOptions, CaptionOptions
from hfcomp.factory.shards import BAD_IMAGE, SET_ASIDE, Batch, Stage
from hfcomp.parsing.captions import SAMPLED, language_note
from hfcomp.reading import may_be_hub_id
from hfcomp.reporting.report import Table

NO_IMAGE = "no image"
FORBIDDEN, UNSTATED = "license forbids adaptation", "license unknown"
_ROWS = 1000
_SHOWN = 3
# Column that `datasets` adds to WebDataset shards, with the local path of each sample's archive.
SHARD_PATH = "__url__"


class BuildInputs(NamedTuple):
    """The inputs of `run_stages`.

    Attributes:
        reads: Columns of the source that stages see.
        facts: Tables for the card.
        check: Check of the total counts before the build is closed, see `run_stages`.
    """

    dataset: Dataset
    stages: Sequence[Stage]
    features: Features
    reads: Sequence[str]
    split: str = TRAIN
    facts: Sequence[Table] = ()
    check: Callable[[Mapping[str, Any]], None] | None = None


def read_source(options: BuildOptions, log: Log) -> Dataset:
    """Reads the rows of the source under the contract's names, and logs a line about them."""
    part = {"split": options.split, "config": options.config}
    names = parse_column_names(options.column_names)
    source = RowSource(name=options.source, column_names=names, **part)
    if isinstance(options, CaptionOptions):  # rows without a caption are set aside later
        files = ("captions_file", "key_column", "captions_columns")
        source = replace(source, **{name: getattr(options, name) for name in files})
    dataset = read_rows(source, log)
    # The column is a local path, so two machines that build the same dataset would write different bytes.
    if SHARD_PATH in dataset.column_names:
        dataset = dataset.remove_columns(SHARD_PATH)
    kept = kept_columns(dataset, options.columns)
    if options.columns is None:
        _check_images_are_named(dataset, options.source, part, names)
    if "image" in kept and dataset.features["image"] in TEXTS:
        raise ValueError(
            f"column 'image' of {options.source} contains strings such as {dataset[0]['image']!r}, expected images. "
            "File names are resolved only next to a local file or folder: download the dataset and pass its folder as "
            "--source; or build without images: --columns caption."
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
    always_kept: Sequence[str] = (),
) -> Dataset:
    """Reads the rows to build from, with captions and without columns of an earlier build of the same kind.

    Rows with images get an `image_id` that identifies the photograph, unless `always_kept` names it.

    Args:
        is_old: Whether a column describes an earlier build.
        needed: Further required columns.
        needed_by: Option that requires them, for errors.
        always_kept: Columns that are kept if they exist, whatever `--columns` names.
    """
    dataset = read_source(options, log)
    _check_captions(dataset, options.source)
    if options.reads_english and (note := language_note(_sampled_captions(dataset))):
        log(note)
    require_columns(dataset, needed, needed_by=needed_by, rename=RENAME)
    needed = [*needed, *(name for name in always_kept if name in dataset.column_names)]
    kept = kept_columns(dataset, options.columns)
    left = [name for name in kept if is_old(name)]
    if left and options.columns is not None:
        raise ValueError(
            f"--columns names {', '.join(left)}, which cannot be kept: in the source they describe other "
            f"{options.what}, and this build makes them again. Remove them from --columns."
        )
    if left:
        log(f"dropping the source's columns {', '.join(left)}: they describe other {options.what}")
    kept = [name for name in kept if name not in left]
    if options.captions == "all" and has_lists(dataset.features):
        # A row becomes several rows, which must be recognizable as rows of the same image.
        dataset = with_image_ids(dataset, photographs_or_rows(dataset))
        needed = [*needed, IMAGE_ID]
    elif "image" in (*needed, *kept) and IMAGE_ID not in always_kept:  # a build that joins on it derives it itself
        dataset = with_image_ids(dataset)
        kept = [*kept, *({IMAGE_ID} & {*dataset.column_names})]
    return dataset.select_columns(list(dict.fromkeys(["caption", *needed, *kept])))


def _check_images_are_named(dataset: Dataset, source: str, part: Mapping[str, Any], names: Mapping[str, str]) -> None:
    """Raises ValueError if the source names image files that the dataset would not contain."""
    if any(isinstance(feature, Image) for feature in dataset.features.values()):
        return
    named = named_image_files(dataset, listing_folders(source, part["split"], part["config"], {}))
    if not named:
        return
    column, file = next(iter(named.items()))
    missing = [] if "caption" in dataset.column_names else ["caption"]
    fix = {**names, "image": column, **proposed_names(dataset, missing)}
    raise ValueError(
        f"{source}: column {column!r} names image files such as {file!r}, but no column is called 'image', so the "
        f"built dataset would have no images. Name it: {column_names_text(fix)}. Or build a dataset of texts: "
        "--columns caption"
    )


def _sampled_captions(dataset: Dataset) -> list[str]:
    """The first captions of evenly spaced rows."""
    rows = np.unique(np.linspace(0, len(dataset) - 1, min(len(dataset), SAMPLED)).astype(np.int64))
    values = dataset.select_columns("caption").select(rows)["caption"]
    return [text for value in values for text in texts_of(value)[:1]]


def _check_captions(dataset: Dataset, source: str) -> None:
    if "caption" not in dataset.column_names:
        known = proposed_names(dataset, [name for name in ("image", "caption") if name not in dataset.column_names])
        fix = f"You may mean: {column_names_text(known)}" if known else f"Name it: {RENAME.format('caption')}"
        raise ValueError(f"{source} has no column 'caption'; it has: {', '.join(dataset.column_names)}. {fix}")
    kind = dataset.features["caption"]
    if (kind.feature if isinstance(kind, List | LargeList) else kind) not in TEXTS:
        raise ValueError(f"column 'caption' contains {kind}; expected strings or lists of strings.")


def kept_columns(dataset: Dataset, wanted: str | None) -> list[str]:
    """The source's columns to keep: all, or the requested ones and `license`, which publishing needs."""
    if wanted is None:
        return dataset.column_names
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    require_columns(dataset, names, needed_by="--columns", rename=RENAME)
    return list(dict.fromkeys([*names, *({LICENSE} & {*dataset.column_names})]))


def output_features(dataset: Dataset, added: Mapping[str, Any]) -> Features:
    """The columns of a built dataset: those of the source, with images decoded on access, and the added ones."""
    own = {name: Image() if isinstance(feature, Image) else feature for name, feature in dataset.features.items()}
    return Features({**own, **added})


def model_facts(place: str) -> str:
    """A model's name and the hash of its weights."""
    try:
        return f"{without_local_paths(place)} ({identity(place)})"
    except OSError as error:
        why = f" and could not be downloaded: {error}" if may_be_hub_id(place) else "."
        raise OSError(f"the model {place!r} is not a folder{why} Pass a folder.") from error


def make_image_check() -> Callable[[Batch], Batch]:
    """The stage that sets aside rows with an image that cannot be decoded."""

    def images(batch: Batch) -> Batch:
        return batch | {SET_ASIDE: [_image_problem(image) for image in batch["image"]]}

    return images


def _image_problem(image: Any) -> str | None:
    if image is None or (image["bytes"] is None and not image["path"]):
        return NO_IMAGE
    try:
        decode_image(image)
    except (ValueError, OSError) as error:
        return f"{BAD_IMAGE}: {without_local_paths(str(error))}"
    return None


def license_stages(dataset: Dataset, stated: str | None) -> Sequence[Stage]:
    """The stage that keeps rows whose license allows adaptation; empty if the source allows it for all rows.

    Args:
        stated: License on the source's card, which applies if the source has no column `license`.
    """
    if LICENSE not in dataset.column_names:
        if allows_adaptation(stated):
            return ()
        require_columns(dataset, [LICENSE], needed_by="--only_adaptable", rename=RENAME)
    return (Stage("licenses", make_license_check),)


def make_license_check() -> Callable[[Batch], Batch]:
    """The stage that sets aside rows whose license forbids adaptation, is unknown or is missing."""

    def check(batch: Batch) -> Batch:
        licenses = batch[LICENSE]
        rest = {name: values for name, values in batch.items() if name != LICENSE}
        return rest | {SET_ASIDE: [_license_problem(license) for license in licenses]}

    return check


def _license_problem(license: str | None) -> str | None:
    allowed = allows_adaptation(license)
    if allowed is None:
        return f"{UNSTATED}: {license}" if license else UNSTATED
    return None if allowed else f"{FORBIDDEN}: {license}"


def check_local_files(
    dataset: Dataset, columns: Sequence[str], source: str, *, allow_outside: bool, log: Callable[[str], None]
) -> None:
    """Logs the images that a build copies, misses or fetches, and rejects files outside the source's folder.

    The author of the source chose these names. In a dataset from someone else, they may point to any picture that this
    user can read. Symbolic links are followed.

    Args:
        columns: Columns that may contain images.
        source: File, folder or Hub id. A Hub id has its own folders in the caches of the Hub and `datasets`.
        allow_outside: Whether to copy files from other folders too.
    """
    # A hostile dataset may name any picture that this user can read. Pictures in its own folder are allowed; the user
    # must allow others.
    roots = _roots(source)
    # A file list in the home directory would make the whole home directory the source's own folder.
    everything = [root for root in roots if _holds_everything(root)]
    roots = [root for root in roots if root not in everything]
    known: dict[str, Path] = {}
    number, urls, outside, missing = 0, 0, [], []
    for column, row, name in _named_files(undecoded(dataset), columns):
        if is_url(name):
            urls += 1
            continue
        number += 1
        place = _resolve(name, known)
        if not os.path.exists(place):
            missing.append(f"{place} (row {row})")
        if not any(place.is_relative_to(root) for root in roots):
            outside.append(f"{name} (column {column!r}, row {row})")
    if number:
        inside = " and ".join(map(str, roots)) or "no folder of its own"
        log(
            f"copying {number:,} image files that {source} names into the dataset: {number - len(outside):,} from "
            f"{inside} and its subfolders, {len(outside):,} from elsewhere"
        )
    if missing:
        log(
            f"{len(missing):,} of them are missing, such as {', '.join(missing[:_SHOWN])}; their rows are set aside, "
            f"and {SET_ASIDE_FILE} names each file"
        )
    if urls:
        log(f"{source} references {urls:,} images by URL, which are copied into the dataset if fetching is allowed")
    # This source has no folder of its own, so the error advises moving it into one.
    if outside and not allow_outside and everything:
        raise ValueError(
            f"{source} references {len(outside):,} image files, such as {', '.join(outside[:_SHOWN])}, and is in "
            f"{everything[0]}, which also has private files. The built dataset embeds copies of them, which would be "
            "published with it. Move the file and its images to a folder of their own, or, if all of them are "
            "intended, pass --allow_outside_files."
        )
    if outside and not allow_outside:
        raise ValueError(
            f"{source} references {len(outside):,} image files outside its own folder, such as "
            f"{', '.join(outside[:_SHOWN])}. The built dataset embeds copies of them, which would be published with "
            "it. Remove the rows, move the files to the source's folder or, if all of them are intended, pass "
            "--allow_outside_files."
        )


def _roots(source: str) -> list[Path]:
    path = Path(source)
    if path.exists():
        return [(path.parent if path.is_file() else path).resolve()]
    repository = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=source, repo_type="dataset")
    return [repository.resolve(), (Path(datasets.config.HF_DATASETS_CACHE) / source.replace("/", "___")).resolve()]


def _holds_everything(folder: Path) -> bool:
    """Whether a folder is a home directory, contains one, or is the root of a file system."""
    return folder == folder.parent or Path.home().resolve().is_relative_to(folder)


def _named_files(dataset: Dataset, columns: Sequence[str]) -> Iterator[tuple[str, int, str]]:
    """Yields column, row, and URL or path of each image that is not embedded; in an archive, the archive's path."""
    wanted = [name for name in columns if isinstance(dataset.features.get(name), Image)]
    if not wanted:
        return
    start = 0
    for table in dataset.select_columns(wanted).with_format("arrow").iter(_ROWS):
        for column in wanted:
            images: pa.ChunkedArray = table.column(column)
            without = pc.is_null(pc.struct_field(images, "bytes")).to_pylist()
            for place, name in enumerate(pc.struct_field(images, "path").to_pylist()):
                # For `zip://member::archive`, the archive is the file to read. A name with a zero byte is not a file
                # name.
                if name is not None and without[place] and "\0" not in name:
                    yield column, start + place, name if is_url(name) else name.rpartition("::")[2]
        start += len(table)


def _resolve(name: str, known: dict[str, Path]) -> Path:
    """The resolved path. Each folder is resolved once."""
    folder, file = os.path.split(name)
    if folder not in known:
        known[folder] = Path(folder).resolve()
    path = known[folder] / file
    # Resolving costs a system call per part of a path. It is done once per folder, and for a file only if it may point
    # elsewhere.
    return path.resolve() if file == ".." or path.is_symlink() else path
