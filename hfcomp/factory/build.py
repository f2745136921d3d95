"""From options to a built dataset: its source is read, its stages run, its card written."""

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
from hfcomp.factory.options import BuildOptions, command_line
from hfcomp.factory.runner import Build, Stage, run_stages
from hfcomp.factory.sources import BuildInputs, Log, check_local_files, license_stages
from hfcomp.reporting.report import Lines, Report, Section, Table


@dataclass(frozen=True)
class BuiltSet:
    """A built dataset.

    Attributes:
        text: What its card says of its kind.
        chains: the builds of each configuration, of which the last made its files; `default` for the only one.
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
        """The folders of builds without a row: of these, `set_aside.jsonl` has the reasons."""
        ends = [chain[-1] for chain in self.chains.values() if not chain[-1].manifest["rows"]]
        return [folder for end in ends for folder in configurations(end.folder)]

    def report(self) -> Report:
        sections = []
        for config, chain in self.chains.items():
            counts = count_tables(chained_manifest([one.manifest for one in chain]), self.text)
            parts = [*counts, Lines(_rows(chain), "Rows", whole=True)]
            sections.append(Section("" if config == DEFAULT else config, parts))
        sections += [Section("", [table]) for table in self.facts]
        return Report("Counts" if any(len(one.parts) > 1 for one in sections) else "", sections=sections)


def build_set(options: BuildOptions, *, log: Log = print, progress: bool = False) -> BuiltSet:
    """Builds a dataset with the builder of its kind, which the class of the options names.

    After an interruption the same call resumes; see `hfcomp.factory.runner.run_stages`.

    Raises:
        ValueError: for options that do not fit, a source or folder that is not as expected.
        StageError: when a stage fails; what is done is kept.
    """
    # A missing device is reported before a source is downloaded.
    check_device(getattr(options, "device", None))
    set_url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout))
    builder = find_builder(options.what)
    return resolve_name(builder.build)(builder.card, options, log, progress).build()


@dataclass(eq=False)
class DatasetBuild:
    """The building of one dataset. A subclass gives its `inputs`, or is a `hfcomp.factory.chain.Chain`."""

    card: CardText
    options: Any
    log: Log
    progress: bool

    def inputs(self) -> BuildInputs:
        """The rows to build from, the stages that they pass, and the columns that are written."""
        raise NotImplementedError(f"{type(self).__name__} gives no inputs.")

    @cached_property
    def stated_license(self) -> str | None:
        return stated_license(self.options.source)

    def build(self) -> BuiltSet:
        options, inputs = self.options, self.inputs()
        # The license check comes first: no model is asked about a row that is left out anyway.
        stages, reads = inputs.stages, inputs.reads
        if options.only_adaptable:
            stages, reads = with_license_check(inputs.dataset, self.stated_license, stages, reads)
        allow = options.allow_outside_files
        check_local_files(inputs.dataset, list(inputs.features), options.source, allow_outside=allow, log=self.log)
        running = options.running(self.progress) | {"split": inputs.split, "check": inputs.check}
        build = run_stages(inputs.dataset, stages, options.output, features=inputs.features, reads=reads, **running)
        self.write_card(inputs.dataset, {DEFAULT: [build.manifest]}, command_line(options.words()), inputs.facts)
        return BuiltSet(build.folder, self.card, {DEFAULT: [build]}, inputs.facts)

    def write_card(
        self, rows: Dataset, sets: Mapping[str, Sequence[Any]], command: str, facts: Sequence[Table] = ()
    ) -> None:
        source = Source(self.options.source, self.stated_license, LICENSE in rows.column_names)
        write_card(self.options.output, sets, source, self.card, command, facts)


def with_license_check(
    rows: Dataset, stated: str | None, stages: Sequence[Stage], reads: Sequence[str]
) -> tuple[Sequence[Stage], Sequence[str]]:
    """The stages behind the check of licenses, if rows need one, and the columns that they read."""
    checks = license_stages(rows, stated)
    return ([*checks, *stages], [*reads, LICENSE]) if checks else (stages, reads)


def _rows(chain: Sequence[Build]) -> list[str]:
    read, written = chain[0].manifest["plan"]["source"]["rows"], chain[-1].manifest["rows"]
    lines = [f"{read:,} rows read, {written:,} written to {chain[-1].folder}"]
    if kept := sum(one.kept for one in chain):
        made = sum(one.made for one in chain)
        lines.append(f"shards: {kept:,} there already, {made:,} made")
    run = sum((one.counts for one in chain), Counter[str]())
    return [*lines, *(f"{name}: {number:,}" for name, number in sorted(run.items()))]
