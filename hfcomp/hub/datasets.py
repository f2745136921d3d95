"""Publishes built datasets on the Hub: unchanged Parquet files, with card and manifest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from huggingface_hub import DatasetCard

from hfcomp.data.built_sets.files import (
    CARD,
    HIERARCHY,
    MANIFEST,
    SET_ASIDE_FILE,
    STEPS_FOLDER,
    check_finished,
    check_one_source,
    read_manifest,
    set_of_part,
)
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.data.built_sets.views import VIEWS, read_views
from hfcomp.data.publishing import LICENSE, allows_adaptation
from hfcomp.hub.dataset_cards import SetFolders, card_path, set_card
from hfcomp.hub.options import PushOptions
from hfcomp.hub.repositories import Repository
from hfcomp.reporting.format import count_text

KIND = "dataset"
_OURS = re.compile(rf"((?:[\w-]+/)?)(?:data/(?:train|test)-\d{{5}}-of-\d{{5}}\.parquet|{MANIFEST}|{SET_ASIDE_FILE})")
_PART_FILES = (VIEWS, HIERARCHY)
_SHOWN = 3
Log = Callable[[str], None]


class NotPublishableError(ValueError):
    """A built set has rows or columns that may not be published; build another set, or allow them."""


def push_built_sets(
    folders: Path | str | Mapping[str, Path | str], options: PushOptions, *, log: Log = print, api: Any = None
) -> str:
    """Pushes one built set, or several as the configurations of one dataset.

    Every file is verified against its manifest first. Files are uploaded in groups and become visible in one commit at
    the end, so a push that fails changes nothing and the same call resumes it: the Hub recognizes files that it
    already has by their hash. Files left from an earlier push are removed in the same commit.

    `folders` is the folder of a set that `hfcomp build` wrote, with one configuration or several, or a mapping from
    configuration to set, whose first entry is the default. Returns the address of the repository.
    """
    repository = Repository.of(options, KIND, api)
    sets = SetFolders.of(folders)
    for folder in filter(None, (sets.whole, *sets.configs.values())):
        # Only the configurations of a set that is pushed as a whole may be parts.
        if sets.whole != folder.parent:
            _check_whole(folder)
        check_finished(folder)
        check_one_source(folder)
    for name, folder in sets.configs.items():
        rows = _manifest(folder)["rows"]
        verify_set(folder, log=lambda _: None)
        check_publishable(folder, allow_unknown_licenses=options.allow_unknown_licenses)
        log(f"{name}: {count_text(rows, 'row')} of {folder}, verified")
    files = {sets.place(name) + file: path for name, folder in sets.configs.items() for file, path in _files(folder)}
    if sets.whole and read_views(sets.whole):
        files |= {name: sets.whole / name for name in _PART_FILES}
    files = {CARD: set_card(sets, options.repo, options.card).encode(), **files}
    if options.dry_run:
        log(f"would push to {options.repo}{' (private)' * options.private}: {', '.join(files)}")
        return options.repo
    state = repository.open()
    stale = _stale_files(state.files, files, repository)
    repository.commit(files, stale, "hfcomp: a built dataset", state)
    also = f", {len(stale):,} earlier ones removed" if stale else ""
    log(f"pushed to {repository.address}: {len(files) - 1:,} files{also}")
    return repository.address


def check_repository(options: PushOptions, *, api: Any = None) -> None:
    """Creates the repository and checks that a set may be pushed to it, before the set is built."""
    repository = Repository.of(options, KIND, api)
    _stale_files(repository.open().files, {}, repository)


def check_publishable(folder: Path, *, allow_unknown_licenses: bool = False) -> None:
    """Checks that a built set may be published: no concreteness ratings, and licenses that allow adaptation."""
    # Checks the rows, not the manifest, because the rows are what would be published.
    paths = [folder / shard["file"] for shard in _manifest(folder)["shards"]]
    for name in _columns(paths):
        if "concreteness" in name and (number := sum(map(_rated_rows, _column(paths, name)))):
            raise NotPublishableError(
                f"{folder}: column {name!r} has concreteness ratings in {number:,} rows, and their license (CC "
                "BY-NC-ND) does not allow publishing them. Build the dataset again in another folder, without this "
                "column: `hfcomp build KIND --columns NAMES`. hfcomp joins the ratings from your own file when it "
                "loads a dataset (a recipe's concreteness_ratings)."
            )
    licenses = _licenses(folder, paths)
    adaptable = any(map(allows_adaptation, licenses))  # otherwise no row would be left
    fix = (
        "Build it again in another folder with `hfcomp build KIND --only_adaptable`, or without `--any_license`."
        if adaptable
        else "Build it from images that may be adapted."
    )
    _reject_licenses(folder, licenses, False, "a license that forbids adaptation", fix)
    if not allow_unknown_licenses:
        fix = "Pass --allow_unknown_licenses if all may be published"
        fix += (
            ", or build it again in another folder with `hfcomp build KIND --only_adaptable`, or without "
            "`--any_license`."
            if adaptable
            else "."
        )
        _reject_licenses(folder, licenses, None, "no known license", fix)


def _check_whole(folder: Path) -> None:
    """Raises ValueError for a folder that is only a part, or a step, of a set."""
    step = folder.absolute().parent
    whole = set_of_part(folder) or (step.parent if step.name == STEPS_FOLDER and read_views(step.parent) else None)
    if whole:
        raise ValueError(f"{folder} is only a part of the dataset {whole}. Push that folder.")


def _manifest(folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder)
    if manifest is None:
        raise ValueError(
            f"{folder} was not built by `hfcomp build`: it has no {MANIFEST}, and no card that lists its "
            "configurations."
        )
    return manifest


def _reject_licenses(
    folder: Path, licenses: Mapping[str | None, int], verdict: bool | None, what: str, fix: str
) -> None:
    rejected = {name: number for name, number in licenses.items() if allows_adaptation(name) is verdict}
    if rejected:
        names = ", ".join(f"{name or 'none'}: {number:,}" for name, number in list(rejected.items())[:_SHOWN])
        raise NotPublishableError(
            f"{folder}: {sum(rejected.values()):,} of {sum(licenses.values()):,} rows have {what} ({names}). {fix}"
        )


def _licenses(folder: Path, paths: Sequence[Path]) -> Counter[str | None]:
    """Counts rows by license, taken from the column or otherwise from the card (the set's own or a shared one)."""
    counts: Counter[str | None] = Counter()
    if LICENSE in _columns(paths):
        for column in _column(paths, LICENSE):
            counts.update(column.to_pylist())
        return counts
    card = card_path(folder)
    stated = DatasetCard.load(card).data.license if card else None
    counts[stated if isinstance(stated, str) else None] = sum(pq.read_metadata(path).num_rows for path in paths)
    return counts


def _columns(paths: Sequence[Path]) -> list[str]:
    return pq.read_schema(paths[0]).names if paths else []


def _column(paths: Sequence[Path], name: str) -> Iterator[Any]:
    return (pq.read_table(path, columns=[name]).column(name) for path in paths)


def _rated_rows(column: Any) -> int:
    # One column may hold a rating per row or a list of them, one for each negative.
    return sum(
        any(rating is not None for rating in (cell if isinstance(cell, list) else [cell]))
        for cell in column.to_pylist()
    )


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields the files to upload with their path in the folder; `hfcomp build verify` accepts a download of them."""
    names = [*(shard["file"] for shard in _manifest(folder)["shards"]), MANIFEST, SET_ASIDE_FILE]
    return ((name, folder / name) for name in names if (folder / name).is_file())


def _stale_files(existing: Collection[str], files: Mapping[str, Any], repository: Repository) -> list[str]:
    """Files of an earlier push, which `load_dataset` would read along with the new ones."""
    # Cleans only folders with our manifest, because other people's Parquet files may have the same names.
    pushed = {name.removesuffix(MANIFEST) for name in existing if name.rpartition("/")[2] == MANIFEST}
    ours = [name for name in existing if (match := _OURS.fullmatch(name)) and match[1] in pushed]
    others = [name for name in existing if name.endswith(".parquet") and name not in ours]
    if others:
        raise ValueError(
            f"{repository.what} contains data that was not uploaded by `hfcomp push-dataset`: "
            f"{', '.join(others[:_SHOWN])}. Choose another repository, or remove these files on the Hub."
        )
    return sorted({*ours, *(name for name in _PART_FILES if name in existing and VIEWS in existing)} - set(files))
