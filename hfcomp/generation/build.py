"""From options to a built set: its source is read, its stages run, its card written; and the check of such a set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfcomp.checksums import is_as_written, read_checked
from hfcomp.data.built_sets import (
    CARD,
    HIERARCHY,
    MANIFEST,
    SET_ASIDE_FILE,
    build_anew,
    card_above,
    check_finished,
    check_no_others,
    check_one_source,
    check_set_aside,
    check_shard,
    configurations,
    read_manifest,
    step_builds,
)
from hfcomp.data.publishing import LICENSE
from hfcomp.data.urls import UrlAccess, set_url_access
from hfcomp.data.views import VIEWS, read_views
from hfcomp.evaluation.models import check_device
from hfcomp.generation.cards import DEFAULT, Source, chained_manifest, count_tables, source_license, write_card
from hfcomp.generation.concepts import concept_inputs
from hfcomp.generation.concretebatch.chain import (
    build_chains,
    check_output,
    commands,
    commands_path,
    concretebatch_source,
    finished_chains,
    read_commands,
    summary_table,
    unrated_tables,
)
from hfcomp.generation.concretebatch.options import ConcreteBatchOptions
from hfcomp.generation.inpaintcoco.options import InpaintCocoOptions
from hfcomp.generation.inpaintcoco.source import inpaintcoco_inputs
from hfcomp.generation.licenses import license_stages
from hfcomp.generation.local_files import check_local_files
from hfcomp.generation.magic.chain import MagicChain, magic_source
from hfcomp.generation.magic.chain import check_output as check_magic_output
from hfcomp.generation.magic.graph.tables import hierarchy_tables
from hfcomp.generation.magic.options import MagicOptions
from hfcomp.generation.negatives import negative_inputs
from hfcomp.generation.neighbours import neighbour_inputs
from hfcomp.generation.options import BuildOptions, ConceptOptions, NegativeOptions, NeighbourOptions, command_line
from hfcomp.generation.runner import Build, run_stages
from hfcomp.generation.sources import BuildInputs, Log
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.writing import locked

INPUTS: dict[type[BuildOptions], Callable[[Any, Log], BuildInputs]] = {
    NegativeOptions: negative_inputs,
    ConceptOptions: concept_inputs,
    NeighbourOptions: neighbour_inputs,
    InpaintCocoOptions: inpaintcoco_inputs,
}
"""What is built at once, by the class of the options."""


@dataclass(frozen=True)
class BuiltSet:
    """What was built.

    Attributes:
        folder: of the set.
        chains: the builds of each configuration, of which the last made its files; `default` for the only one.
        facts: tables about what is in it.
    """

    folder: Path
    chains: Mapping[str, Sequence[Build]]
    facts: Sequence[Table] = ()

    @property
    def rows(self) -> int:
        """Of all configurations."""
        return sum(chain[-1].manifest["rows"] for chain in self.chains.values())

    @property
    def empty(self) -> list[Path]:
        """The folders of builds without a row: of these, `set_aside.jsonl` has the reasons."""
        ends = [chain[-1] for chain in self.chains.values() if not chain[-1].manifest["rows"]]
        return [folder for end in ends for folder in configurations(end.folder)]

    def report(self) -> Report:
        """What was made and left out, by kind and reason."""
        sections = [
            Section("" if config == DEFAULT else config, [*_tables(chain), Lines(_rows(chain), "Rows", whole=True)])
            for config, chain in self.chains.items()
        ]
        targets = {config: chain[0].manifest for config, chain in self.chains.items()}
        sections += [Section("", [table]) for table in (*unrated_tables(targets, self.folder), *self.facts)]
        return Report("Counts" if any(len(one.parts) > 1 for one in sections) else "", sections=sections)


def build_set(options: BuildOptions, *, log: Log = print, progress: bool = False) -> BuiltSet:
    """Builds a set of one of `KINDS`, by the class of its options.

    After an interruption the same call resumes; see `hfcomp.generation.runner.run_stages`.

    Args:
        options: one of `KINDS`.
        log: receives lines about the source.
        progress: whether to show bars.

    Raises:
        ValueError: for options that do not fit, a source or folder that is not as expected.
        StageError: when a stage fails; what is done is kept.
    """
    check_device(getattr(options, "device", None))
    set_url_access(UrlAccess.asked(options.allow_urls, options.url_timeout))
    stated = source_license(options.source)
    if isinstance(options, ConcreteBatchOptions):
        return _build_concretebatch(options, stated, log, progress)
    if isinstance(options, MagicOptions):
        return _build_magic(options, stated, log, progress)
    inputs = INPUTS[type(options)](options, log)
    dataset, stages, features, reads = inputs.dataset, inputs.stages, inputs.features, inputs.reads
    if options.only_adaptable and (checks := license_stages(dataset, stated, needed_by="--only_adaptable")):
        stages, reads = [*checks, *stages], [*reads, LICENSE]
    check_local_files(dataset, list(features), options.source, allow_outside=options.allow_outside_files, log=log)
    running = options.running(progress) | {"split": inputs.split, "check": inputs.check}
    build = run_stages(dataset, stages, options.output, features=features, reads=reads, **running)
    source = Source(options.source, stated, LICENSE in dataset.column_names)
    command, sets = command_line(options.words()), {DEFAULT: [build.manifest]}
    write_card(build.folder, sets, source, what=options.what, command=command, facts=inputs.facts)
    return BuiltSet(build.folder, {DEFAULT: [build]}, inputs.facts)


def _build_concretebatch(options: ConcreteBatchOptions, stated: str | None, log: Log, progress: bool) -> BuiltSet:
    check_output(options.output)
    dataset = concretebatch_source(options, log)
    allow = options.allow_outside_files
    check_local_files(dataset, dataset.column_names, options.source, allow_outside=allow, log=log)
    with locked(options.output):
        chains = build_chains(options, dataset, stated, log=log, progress=progress)
        finished = finished_chains(options)
        if finished:
            source = Source(options.source, stated, LICENSE in dataset.column_names)
            targets = {config: manifests[0] for config, manifests in finished.items()}
            facts = [summary_table(options, list(finished), log), *unrated_tables(targets, options.output)]
            command = "\n".join(commands(options, list(finished)))
            write_card(options.output, finished, source, what=options.what, command=command, facts=facts)
    return BuiltSet(options.output, chains)


def _build_magic(options: MagicOptions, stated: str | None, log: Log, progress: bool) -> BuiltSet:
    check_magic_output(options.output)
    dataset = magic_source(options, log)
    allow = options.allow_outside_files
    check_local_files(dataset, dataset.column_names, options.source, allow_outside=allow, log=log)
    with locked(options.output):
        built = MagicChain(options, dataset, stated, log, progress).run()
        facts = hierarchy_tables(built.hierarchy, built.pairs) if built.hierarchy else []
        if built.parts:
            source = Source(options.source, stated, LICENSE in dataset.column_names)
            sets = {DEFAULT: [one.manifest for one in built.chain]}
            command = command_line(options.words())
            write_card(options.output, sets, source, what=options.what, command=command, facts=facts)
    return BuiltSet(options.output, {DEFAULT: built.chain}, facts)


def _tables(chain: Sequence[Build]) -> list[Table]:
    return count_tables(chained_manifest([one.manifest for one in chain]))


def _rows(chain: Sequence[Build]) -> list[str]:
    read, written = chain[0].manifest["plan"]["source"]["rows"], chain[-1].manifest["rows"]
    lines = [f"{read:,} rows read, {written:,} written to {chain[-1].folder}"]
    if kept := sum(one.kept for one in chain):
        made = sum(one.made for one in chain)
        lines.append(f"shards: {kept:,} there already, {made:,} made")
    run = sum((one.counts for one in chain), Counter[str]())
    lines += [f"{name}: {number:,}" for name, number in sorted(run.items())]
    return lines


def verify_set(folder: Path, log: Log = print) -> None:
    """Reads all files of a built set, those of its steps too, and logs each that is as it was written.

    The card is for people to edit: where it is not as it was written, a line says so.

    Args:
        folder: of the set.
        log: receives the lines.

    Raises:
        ValueError: for the first file that is missing, damaged or not of the build, a set that is not finished or of
            several sources, or a folder of something else.
    """
    check_finished(folder)
    check_one_source(folder)
    if read_views(folder) is not None:
        log(f"ok  {VIEWS}")
        read_checked(folder / HIERARCHY, build_anew(folder))
        log(f"ok  {HIERARCHY}")
    summaries = [_verify(one, folder, log) for one in configurations(folder)]
    for step in step_builds(folder):
        _verify(step, folder, log)
    if (commands_file := commands_path(folder)).is_file():
        read_commands(commands_file)
        log(f"ok  {commands_file.relative_to(folder)}")
    log(_card_line(folder))
    for line in summaries:
        log(line)


def _verify(folder: Path, whole: Path, log: Log) -> str:
    """Verifies one build of a set; what to say of it at the end."""
    manifest = read_manifest(folder)
    if manifest is None:
        there = f"its {MANIFEST} is of something else" if (folder / MANIFEST).exists() else f"it has no {MANIFEST}"
        raise ValueError(f"{folder} is not a set of `hfcomp build`: {there}.")
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
    """What to say of the card of a set."""
    again = "the `hfcomp build` command that made the set writes it again"
    if not (folder / CARD).is_file():
        above = card_above(folder)  # of the set that this folder is a part of
        return f"note  {CARD} of this folder is {above}" if above else f"note  {CARD} is missing; {again}"
    is_whole = is_as_written(folder / CARD)
    if is_whole is None:
        return f"note  {CARD} has no checksum, as an earlier hfcomp wrote it, or somebody else"
    return (
        f"ok  {CARD}"
        if is_whole
        else f"note  {CARD} differs from the one that was written; unless you edited it, {again}"
    )
