"""From options to a built set: its source is read, its stages run, its card written; and the check of such a set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from hfcomp.generation.cards import DEFAULT, Source, count_tables, source_license, write_card
from hfcomp.generation.concepts import concept_inputs
from hfcomp.generation.licenses import LICENSE, license_stages
from hfcomp.generation.local_files import check_local_files
from hfcomp.generation.negatives import negative_inputs
from hfcomp.generation.neighbours import neighbour_inputs
from hfcomp.generation.options import BuildOptions, ConceptOptions, NegativeOptions, NeighbourOptions
from hfcomp.generation.runner import Build, run_stages
from hfcomp.generation.sources import BuildInputs, Log
from hfcomp.reporting.report import Lines, Report, Section

INPUTS: dict[type[BuildOptions], Callable[[Any, Log], BuildInputs]] = {
    NegativeOptions: negative_inputs,
    ConceptOptions: concept_inputs,
    NeighbourOptions: neighbour_inputs,
}
"""What is built, by the class of the options."""


def build_set(options: BuildOptions, *, log: Log = print, progress: bool = False) -> Build:
    """Builds a set of hard negatives, concepts or neighbours, by the class of its options.

    After an interruption the same call resumes; see `hfcomp.generation.runner.run_stages`.

    Args:
        options: `NegativeOptions`, `ConceptOptions` or `NeighbourOptions`.
        log: receives lines about the source.
        progress: whether to show a bar.

    Raises:
        ValueError: for options that do not fit, a source or folder that is not as expected.
        StageError: when a stage fails; what is done is kept.
    """
    check_device(getattr(options, "device", None))
    set_url_access(UrlAccess.asked(options.allow_urls, options.url_timeout))
    dataset, stages, features, reads = INPUTS[type(options)](options, log)
    stated = source_license(options.source)
    if options.only_adaptable and (checks := license_stages(dataset, stated, needed_by="--only_adaptable")):
        stages, reads = [*checks, *stages], [*reads, LICENSE]
    check_local_files(dataset, list(features), options.source, allow_outside=options.allow_outside_files, log=log)
    build = run_stages(
        dataset,
        stages,
        options.output,
        features=features,
        reads=reads,
        rows_per_shard=options.shard_size,
        executor=options.executor,
        num_workers=options.num_workers,
        gpus_per_worker=options.gpus_per_worker,
        progress=progress,
    )
    source = Source(options.source, stated, LICENSE in dataset.column_names)
    write_card(build.folder, {DEFAULT: [build.manifest]}, source, what=options.what, command=options.command())
    return build


def build_report(build: Build) -> Report:
    """What a build made and left out, by kind and reason."""
    read, written = build.manifest["plan"]["source"]["rows"], build.manifest["rows"]
    lines = [f"{read:,} rows read, {written:,} written to {build.folder}"]
    if build.kept:
        lines.append(f"{build.kept:,} shards were there already, {build.made:,} were made")
    tables = list(count_tables(build.manifest))
    return Report("Counts" if tables else "", sections=[Section("", [*tables, Lines(lines, "Rows", whole=True)])])


def verify_set(folder: Path, log: Log = print) -> None:
    """Reads all files of a built set and logs each that is as it was written.

    Args:
        folder: of the set.
        log: receives the lines.

    Raises:
        ValueError: for the first file that is missing, damaged or not of the build, or a folder of something else.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise ValueError(f"{folder} is not a set of `hfcomp build`: it has no {MANIFEST} of one.")
    log(f"ok  {MANIFEST}")
    check_no_others(folder, manifest)
    for shard in manifest["shards"]:
        check_shard(folder, shard)
        log(f"ok  {shard['file']}  {shard['rows']:,} rows")
    check_set_aside(folder, manifest)
    log(f"ok  {SET_ASIDE_FILE}")
    log(f"{manifest['rows']:,} rows in {len(manifest['shards']):,} files are intact")
