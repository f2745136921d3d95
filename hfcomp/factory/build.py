"""Builds a dataset from options: reads the source, runs the stages and writes the card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from datasets import Dataset

from hfcomp.data.built_sets.files import configurations
from hfcomp.data.publishing import DEFAULT, LICENSE, stated_license
from hfcomp.data.urls import UrlAccess, set_url_access
from hfcomp.evaluation.models import check_device
from hfcomp.factory.builder import CardText, find_builder
from hfcomp.factory.cards import Source, chained_manifest, count_tables, write_card
from hfcomp.factory.options import BuildOptions, PresetOptions, command_line
from hfcomp.factory.runner import Build, run_stages
from hfcomp.factory.sources import BuildInputs, Log, check_local_files, license_stages
from hfcomp.reporting.format import count_text
from hfcomp.reporting.report import Lines, Report, Section, Table


@dataclass(frozen=True)
class BuiltSet:
    """A built dataset.

    Attributes:
        text: The builder's part of the card.
        chains: Builds by configuration, `default` for a single one. The last build of a chain made its files.
        facts: Further tables for the report.
    """

    folder: Path
    text: CardText
    chains: Mapping[str, Sequence[Build]]
    facts: Sequence[Table] = ()

    @property
    def rows(self) -> int:
        return sum(chain[-1].manifest["rows"] for chain in self.chains.values())

    @property
    def empty(self) -> list[Path]:
        """The folders of builds without rows. Their `set_aside.jsonl` files have the reasons."""
        ends = [chain[-1] for chain in self.chains.values() if not chain[-1].manifest["rows"]]
        return [folder for end in ends for folder in configurations(end.folder)]

    def report(self) -> Report:
        sections = []
        for config, chain in self.chains.items():
            counts = count_tables(chained_manifest([build.manifest for build in chain]), self.text)
            parts = [*counts, Lines(_row_lines(chain), "Rows", whole=True)]
            sections.append(Section("" if config == DEFAULT else config, parts))
        sections += [Section("", [table]) for table in self.facts]
        return Report("Counts" if any(len(section.parts) > 1 for section in sections) else "", sections=sections)


def build_set(options: BuildOptions, *, log: Log = print, progress: bool = False) -> BuiltSet:
    """Builds a dataset with the builder that the class of the options names.

    After an interruption, the same call resumes; see `hfcomp.factory.runner.run_stages`.

    Raises:
        ImportError, OSError: For a missing package, model or file, before the first of several steps.
        ValueError: For invalid options, or an unexpected source or folder.
        StageError: If a stage fails. Finished shards are kept.
    """
    # A missing device is reported before a source is downloaded.
    check_device(getattr(options, "device", None))
    set_url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout))
    builder = find_builder(options.what)
    if isinstance(options, PresetOptions) and options.preset:
        values = " ".join(f"--{name} {value}" for name, value in options.preset_values().items())
        log(f"--preset {options.preset} sets {values or 'nothing: the command sets all its options'}")
    return resolve_name(builder.build)(builder.card, options, log, progress).build()


@dataclass(eq=False)
class DatasetBuild:
    """Builds one dataset. A subclass defines `inputs`, or is a `hfcomp.factory.chain.Chain`."""

    card: CardText
    options: Any
    log: Log
    progress: bool

    def inputs(self) -> BuildInputs:
        """Returns the rows to build from, the stages to run, and the columns to write."""
        raise NotImplementedError(f"{type(self).__name__} must define inputs().")

    @cached_property
    def stated_license(self) -> str | None:
        return stated_license(self.options.source)

    def build(self) -> BuiltSet:
        options, inputs = self.options, self.inputs()
        if options.only_adaptable:
            inputs = add_license_check(inputs, self.stated_license)
        allow = options.allow_outside_files
        check_local_files(inputs.dataset, list(inputs.features), options.source, allow_outside=allow, log=self.log)
        how = {"gpus_per_worker": options.gpus_per_worker, "skip_damaged": getattr(options, "skip_damaged", None)}
        build = self.run_stages(inputs, options.output, **how)
        self.write_card(inputs.dataset, {DEFAULT: [build.manifest]}, command_line(options.words()), inputs.facts)
        return BuiltSet(build.folder, self.card, {DEFAULT: [build]}, inputs.facts)

    def run_stages(self, inputs: BuildInputs, folder: Path, **how: Any) -> Build:
        """Runs a build with the options; `how` are further arguments of `hfcomp.factory.runner.run_stages`."""
        return run_stages(
            inputs.dataset,
            inputs.stages,
            folder,
            features=inputs.features,
            reads=inputs.reads,
            rows_per_shard=self.options.shard_size,
            executor=self.options.executor,
            num_workers=self.options.num_workers,
            progress=self.progress,
            split=inputs.split,
            check=inputs.check,
            **how,
        )

    def write_card(
        self, rows: Dataset, sets: Mapping[str, Sequence[Any]], command: str, facts: Sequence[Table] = ()
    ) -> None:
        source = Source(self.options.source, self.stated_license, LICENSE in rows.column_names)
        write_card(self.options.output, sets, source, self.card, command, facts)


def add_license_check(inputs: BuildInputs, stated: str | None) -> BuildInputs:
    """Puts the license check before the stages if any row needs it."""
    # The check comes first, so no model is asked about rows that are left out anyway.
    checks = license_stages(inputs.dataset, stated)
    if not checks:
        return inputs
    return inputs._replace(stages=[*checks, *inputs.stages], reads=[*inputs.reads, LICENSE])


def _row_lines(chain: Sequence[Build]) -> list[str]:
    read, written = chain[0].manifest["plan"]["source"]["rows"], chain[-1].manifest["rows"]
    lines = [f"{count_text(read, 'row')} read, {written:,} written to {chain[-1].folder}"]
    if kept := sum(build.kept for build in chain):
        finished = sum(build.made for build in chain)
        lines.append(f"shards: {kept:,} kept, {finished:,} made")
    run = sum((build.counts for build in chain), Counter[str]())
    return [*lines, *(f"{name}: {number:,}" for name, number in sorted(run.items()))]
