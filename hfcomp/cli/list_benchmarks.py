"""`hfcomp evaluate --list`: which benchmarks there are, and all that is known of one, without slow libraries."""

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

    names: Annotated[
        tuple[str, ...], Spelling("NAME", positional=True), "Benchmarks of which to list all that is known."
    ] = ()
    benchmarks: Annotated[tuple[str, ...], "Likewise."] = ()
    suite: Annotated[Literal[*SUITES, "all"], "Benchmarks of a kind only."] = "all"
    list: Annotated[bool, "List the benchmarks."] = False


def main(arguments: Sequence[str]) -> None:
    """Prints a line for each benchmark, or everything on those that are named, with `--benchmarks` or without."""
    options = make_options(ListOptions, vars(parser().parse_intermixed_args(arguments)))
    names = [name for words in (*options.names, *options.benchmarks) for name in words.split(",") if name]
    whole = [line for benchmark in find_benchmarks(names) for line in _whole(benchmark)]
    print("\n".join(whole or _all(options.suite)))


def parser() -> argparse.ArgumentParser:
    """The command line of `hfcomp evaluate --list`."""
    return command_parser("evaluate --list", "Lists the benchmarks, or all that is known of some.", ListOptions)


def _all(chosen: str) -> Iterator[str]:
    for suite, members in groupby(benchmarks().values(), key=lambda one: one.suite):
        if chosen not in (suite, "all"):
            continue
        yield f"{suite}:"
        for title, parts in groupby(members, key=lambda one: one.title):
            yield from _short(title, list(parts))
    if chosen == "all":
        yield "means over benchmarks:"
        yield from (f"  {source}: {one.name}" for source, own in MEANS.items() for one in own)
    yield "\n* gated on the Hub.  ~ in no suite: name it to run it."
    yield "hfcomp evaluate --list NAME shows all that is known of one."


def _short(title: str, parts: Sequence[Benchmark]) -> Iterator[str]:
    marks = f"{'*' if parts[0].gated else ''}{'' if parts[0].in_suites else '~'}"
    if len(parts) == 1:
        yield f"  {parts[0].name + marks:28} {title}"
        return
    prefix = parts[0].name.partition("_")[0]
    yield f"  {prefix + marks:28} {title}: {len(parts)} parts, {prefix}_..."
    names = " ".join(part.name.removeprefix(f"{prefix}_") for part in parts)
    indent = 6 * " "
    yield from wrap(names, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _whole(benchmark: Benchmark) -> Iterator[str]:
    yield f"{benchmark.name}: {benchmark.title} ({benchmark.suite}, version {benchmark.version})"
    yield f"  paper     {benchmark.paper}"
    yield f"  license   {benchmark.license}{'; gated on the Hub' if benchmark.gated else ''}"
    yield f"  get it    {benchmark.obtain}"
    for form in benchmark.data:
        yield f"  reads     {form.layout}"
    for average in benchmark.averages:
        yield f"  average   {average.name}"
    for source, own in MEANS.items():
        for one in own:
            if benchmark.title in [title for title, _, _ in one.parts]:
                yield f"  part of   {source}: {one.name}"
    folders = [benchmark.name, *([benchmark.folder] if benchmark.folder else [])]
    yield f"  folder    {' or '.join(f'--data {name}=DIR' for name in folders)}"
    if not benchmark.in_suites:
        yield "  suites    none: it runs when it is named"
    yield from _published(benchmark)


def _published(benchmark: Benchmark) -> Iterator[str]:
    """The published numbers of its title, averages first, and what differs in the protocols of some."""
    from hfcomp.evaluation.published.scores import published_scores

    averages = [average.name for average in benchmark.averages]
    scores = sorted(published_scores(benchmark.name), key=lambda one: [*averages, one.subset].index(one.subset))
    tables: dict[tuple[str, str], dict[str, list[str]]] = {}
    for one in scores:
        numbers = tables.setdefault((one.subset, one.metric), {}).setdefault(one.place, [])
        numbers.append(f"{one.model} {one.shown}{'~' if one.differs else ''}")
    for (subset, metric), sources in tables.items():
        yield f"  published {metric if subset == ALL_ITEMS else f'{subset}, {metric}'}"
        for place, numbers in sources.items():
            yield from _wrapped(f"{place}: {', '.join(numbers)}")
    for remark in dict.fromkeys(f"~ {one.place}: {one.differs}" for one in scores if one.differs):
        yield from _wrapped(remark)


def _wrapped(text: str) -> list[str]:
    indent = 4 * " "
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=2 * indent, break_on_hyphens=False)
