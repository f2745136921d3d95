"""Verification of a whole built dataset: all files, also those of its steps, against their manifests and checksums."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hfcomp.checksums import is_as_written, read_checked
from hfcomp.data.built_sets.files import (
    CARD,
    COMMANDS,
    HIERARCHY,
    MANIFEST,
    SET_ASIDE_FILE,
    STEPS_FOLDER,
    card_above,
    check_finished,
    check_no_others,
    check_one_source,
    check_set_aside,
    check_shard,
    configurations,
    read_manifest,
    rebuild_advice,
    step_builds,
)
from hfcomp.data.built_sets.views import VIEWS, read_views
from hfcomp.data.concepts.level_names import LEVELS

Log = Callable[[str], None]


def verify_set(folder: Path, log: Log = print) -> None:
    """Reads all files of a built dataset, also those of its steps, and logs each file that is unchanged.

    People may edit the card. If it has changed, a line of the log says so.

    Raises:
        ValueError: For the first file that is missing, damaged or not part of the build; if the dataset is incomplete
            or comes from several sources; or if the folder is not a built dataset.
    """
    check_finished(folder)
    check_one_source(folder)
    if (views := read_views(folder)) is not None:
        log(f"ok  {VIEWS}")
        if any(level in view.columns for view in views.values() for level in LEVELS):
            read_checked(folder / HIERARCHY, rebuild_advice(folder))
            log(f"ok  {HIERARCHY}")
    summaries = [_verify_build(place, folder, log) for place in configurations(folder)]
    for step in step_builds(folder):
        _verify_build(step, folder, log)
    if (commands_file := commands_path(folder)).is_file():
        read_commands(commands_file)
        log(f"ok  {commands_file.relative_to(folder)}")
    log(_card_line(folder))
    for line in summaries:
        log(line)


def commands_path(folder: Path) -> Path:
    return folder / STEPS_FOLDER / COMMANDS


def read_commands(path: Path) -> dict[str, list[str]]:
    """Reads the arguments of the command that built each configuration."""
    return read_checked(path, "Delete it; each build writes its own command again.")


def _verify_build(folder: Path, whole: Path, log: Log) -> str:
    """Verifies one build of a dataset and returns its line of the summary."""
    manifest = read_manifest(folder)
    if manifest is None:
        reason = "is not one of a build" if (folder / MANIFEST).exists() else "is missing"
        raise ValueError(f"{folder} was not built by `hfcomp build`: its {MANIFEST} {reason}.")
    place = "" if folder == whole else f"{folder.relative_to(whole)}/"
    log(f"ok  {place}{MANIFEST}")
    check_no_others(folder, manifest)
    for shard in manifest["shards"]:
        check_shard(folder, shard)
        log(f"ok  {place}{shard['file']}  {shard['rows']:,} rows")
    check_set_aside(folder, manifest)
    log(f"ok  {place}{SET_ASIDE_FILE}")
    return f"{place and f'{folder.name}: '}{manifest['rows']:,} rows in {len(manifest['shards']):,} files are intact"


def _card_line(folder: Path) -> str:
    again = "the `hfcomp build` command of the dataset writes it again"
    if not (folder / CARD).is_file():
        above = card_above(folder)  # the card of the dataset that contains this folder
        return f"note  the {CARD} for this folder is {above}" if above else f"note  {CARD} is missing; {again}"
    is_whole = is_as_written(folder / CARD)
    if is_whole is None:
        return f"note  {CARD} has no checksum: an earlier hfcomp or another program wrote it"
    return (
        f"ok  {CARD}" if is_whole else f"note  {CARD} has changed since it was written; unless you edited it, {again}"
    )
