"""`hfcomp evaluate --list`: lists the benchmarks, or all details of some, without importing slow libraries."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap
from typing import Annotated, Literal

from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.evaluation.spec import ALL_ITEMS, SUITES, Benchmark
from hfcomp.options import Options, Spelling, command_parser, make_options

WIDTH = 78


@dataclass(kw_only=True)
class ListOptions(Options):
    """Benchmarks."""

    names: Annotated[tuple[str, ...], Spelling("NAME", positional=True), "Benchmarks to describe in detail."] = ()
    benchmarks: Annotated[tuple[str, ...], "Benchmarks to describe in detail, comma-separated."] = ()
    suite: Annotated[Literal[*SUITES, "all"], "Only benchmarks of one kind."] = "all"
    list: Annotated[bool, "List the benchmarks."] = False


def main(arguments: Sequence[str]) -> None:
    """Prints one line per benchmark, or all details of the named ones, with or without `--benchmarks`."""
    options = make_options(ListOptions, vars(parser().parse_intermixed_args(arguments)))
    names = [name for words in (*options.names, *options.benchmarks) for name in words.split(",") if name]
    details = [line for benchmark in find_benchmarks(names) for line in _describe(benchmark)]
    print("\n".join(details or _list_benchmarks(options.suite)))


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "evaluate --list", "List the benchmarks, or describe the ones you name in detail.", ListOptions
    )


def _list_benchmarks(chosen: str) -> Iterator[str]:
    for suite, members in groupby(benchmarks().values(), key=lambda benchmark: benchmark.suite):
        if chosen not in (suite, "all"):
            continue
        yield f"{suite}:"
        for title, parts in groupby(members, key=lambda part: part.title):
            yield from _list_parts(title, list(parts))
    if chosen == "all":
        yield "means over benchmarks:"
        yield from (f"  {source}: {mean.name}" for source, means in MEANS.items() for mean in means)
    yield "\n* gated on the Hub.  ~ not part of a suite: run it by name."
    yield "hfcomp evaluate --list NAME describes a benchmark in detail."


def _list_parts(title: str, parts: Sequence[Benchmark]) -> Iterator[str]:
    marks = f"{'*' if parts[0].gated else ''}{'' if parts[0].in_suites else '~'}"
    if len(parts) == 1:
        yield f"  {parts[0].name + marks:28} {title}"
        return
    prefix = parts[0].name.partition("_")[0]
    yield f"  {prefix + marks:28} {title}: {len(parts)} parts, {prefix}_..."
    names = " ".join(part.name.removeprefix(f"{prefix}_") for part in parts)
    indent = 6 * " "
    yield from wrap(names, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _describe(benchmark: Benchmark) -> Iterator[str]:
    yield f"{benchmark.name}: {benchmark.title} ({benchmark.suite}, version {benchmark.version})"
    yield f"  paper     {benchmark.paper}"
    yield f"  license   {benchmark.license}{'; gated on the Hub' if benchmark.gated else ''}"
    yield f"  get it    {benchmark.obtain}"
    for form in benchmark.data:
        yield f"  reads     {form.layout}"
    for average in benchmark.averages:
        yield f"  average   {average.name}"
    for source, means in MEANS.items():
        for mean in means:
            if benchmark.title in [title for title, _, _ in mean.parts]:
                yield f"  part of   {source}: {mean.name}"
    folders = [benchmark.name, *([benchmark.folder] if benchmark.folder else [])]
    yield f"  folder    {' or '.join(f'--data {name}=DIR' for name in folders)}"
    if not benchmark.in_suites:
        yield "  suites    none: runs only by name"
    yield from _list_published(benchmark)


def _list_published(benchmark: Benchmark) -> Iterator[str]:
    """Yields the benchmark's published numbers, averages first, and protocol differences."""
    from hfcomp.evaluation.published.scores import published_scores

    averages = [average.name for average in benchmark.averages]
    scores = sorted(published_scores(benchmark.name), key=lambda score: [*averages, score.subset].index(score.subset))
    tables: dict[tuple[str, str], dict[str, list[str]]] = {}
    for score in scores:
        numbers = tables.setdefault((score.subset, score.metric), {}).setdefault(score.place, [])
        numbers.append(f"{score.model} {score.shown}{'~' if score.differs else ''}")
    for (subset, metric), sources in tables.items():
        yield f"  published {metric if subset == ALL_ITEMS else f'{subset}, {metric}'}"
        for place, numbers in sources.items():
            yield from _wrap(f"{place}: {', '.join(numbers)}")
    for remark in dict.fromkeys(f"~ {score.place}: {score.differs}" for score in scores if score.differs):
        yield from _wrap(remark)


def _wrap(text: str) -> list[str]:
    indent = 4 * " "
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=2 * indent, break_on_hyphens=False)
