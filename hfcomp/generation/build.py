"""From options to a built set: its source is read, its stages run, its card written; and the check of such a set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from datasets import Dataset, Features

from hfcomp.data.built_sets import (
    MANIFEST,
    SET_ASIDE_FILE,
    check_no_others,
    check_set_aside,
    check_shard,
    read_manifest,
)
from hfcomp.data.urls import UrlAccess, set_url_access
from hfcomp.evaluation.models import check_device
from hfcomp.generation.cards import Source, source_license, write_card
from hfcomp.generation.concepts import concept_features, concept_rows, concept_stages
from hfcomp.generation.local_files import check_local_files
from hfcomp.generation.negatives import negative_features, negative_rows, negative_stages
from hfcomp.generation.neighbours import FEATURES, neighbour_rows, neighbour_stages
from hfcomp.generation.options import BuildOptions, ConceptOptions, NegativeOptions, NeighbourOptions
from hfcomp.generation.runner import Build, Stage, run_stages
from hfcomp.generation.sources import shown_features

Tell = Callable[[str], None]


def build_set(options: BuildOptions, *, tell: Tell = print, progress: bool = False) -> Build:
    """Builds a set of hard negatives, concepts or neighbours, by the class of its options.

    After an interruption the same call resumes; see `hfcomp.generation.runner.run_stages`.

    Args:
        options: `NegativeOptions`, `ConceptOptions` or `NeighbourOptions`.
        tell: receives lines about the source.
        progress: whether to show a bar.

    Raises:
        ValueError: for options that do not fit, a source or folder that is not as expected.
        StageError: when a row could not be worked on.
    """
    check_device(options.device)
    set_url_access(UrlAccess.asked(options.allow_urls, options.url_timeout))
    stages, dataset, features, reads = _parts(options, tell)
    check_local_files(dataset, list(features), options.source, allow_outside=options.allow_outside_files, tell=tell)
    build = run_stages(
        dataset,
        stages,
        options.output,
        features=features,
        reads=reads,
        rows_per_shard=options.shard_size,
        num_workers=options.num_workers,
        progress=progress,
    )
    source = Source(options.source, source_license(options.source), "license" in dataset.column_names)
    write_card(build.folder, build.manifest, source, what=options.what, command=options.command())
    return build


def _parts(options: BuildOptions, tell: Tell) -> tuple[Sequence[Stage], Dataset, Features, Sequence[str]]:
    """Stages, source, the columns that are written and those that stages read."""
    if isinstance(options, NegativeOptions):
        stages, dataset = negative_stages(options), negative_rows(options, tell)
        reads = ["caption", *(["image"] if options.false_negative_model else [])]
        return stages, dataset, negative_features(dataset), reads
    if isinstance(options, ConceptOptions):
        stages, dataset = concept_stages(options), concept_rows(options, tell)
        return stages, dataset, concept_features(dataset), ["caption"]
    if isinstance(options, NeighbourOptions):
        stages, dataset = neighbour_stages(options), neighbour_rows(options, tell)
        return stages, dataset, shown_features(dataset), list(FEATURES)
    raise TypeError(f"expected the options of a set, found {type(options).__name__}.")


def verify_set(folder: Path, tell: Tell = print) -> None:
    """Reads all files of a built set and reports each that is as it was written.

    Args:
        folder: of the set.
        tell: receives the lines.

    Raises:
        ValueError: for the first file that is missing, damaged or not of the build, or a folder of something else.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise ValueError(f"{folder} is not a set of `hfcomp build`: it has no {MANIFEST} of one.")
    tell(f"ok  {MANIFEST}")
    check_no_others(folder, manifest)
    for shard in manifest["shards"]:
        check_shard(folder, shard)
        tell(f"ok  {shard['file']}  {shard['rows']:,} rows")
    check_set_aside(folder, manifest)
    tell(f"ok  {SET_ASIDE_FILE}")
    tell(f"{manifest['rows']:,} rows in {len(manifest['shards']):,} files are intact")
