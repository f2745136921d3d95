"""`hfcomp evaluate --list`: which benchmarks there are, and all that is known of one, without slow libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks
from hfcomp.evaluation.spec import Benchmark


def benchmark_list(names: Sequence[str]) -> Iterator[str]:
    """Lines: a benchmark each, or everything on those that are named.

    Args:
        names: of benchmarks; without any, all are listed.

    Raises:
        ValueError: for a name that nobody has.
    """
    if names:
        for benchmark in find_benchmarks(names):
            yield from _whole(benchmark)
        return
    for suite, members in groupby(benchmarks().values(), key=lambda one: one.suite):
        yield f"{suite}:"
        for title, parts in groupby(members, key=lambda one: one.title):
            yield from _short(title, list(parts))
    yield ""
    yield "* gated on the Hub.  ~ in no suite: name it to run it."
    yield "hfcomp evaluate --list NAME shows all that is known of one."


def _short(title: str, parts: Sequence[Benchmark]) -> Iterator[str]:
    marks = f"{'*' if parts[0].gated else ''}{'' if parts[0].in_suites else '~'}"
    if len(parts) == 1:
        yield f"  {parts[0].name + marks:28} {title}"
        return
    prefix = parts[0].name.partition("_")[0]
    yield f"  {prefix + marks:28} {title}: {len(parts)} parts, {prefix}_..."
    line = "     "
    for part in parts:
        own = part.name.removeprefix(f"{prefix}_")
        if len(line) + len(own) > 78:
            yield line
            line = "     "
        line += f" {own}"
    yield line


def _whole(benchmark: Benchmark) -> Iterator[str]:
    yield f"{benchmark.name}: {benchmark.title} ({benchmark.suite}, version {benchmark.version})"
    yield f"  paper     {benchmark.paper}"
    yield f"  licence   {benchmark.licence}{'; gated on the Hub' if benchmark.gated else ''}"
    yield f"  get it    {benchmark.obtain}"
    for form in benchmark.data:
        yield f"  reads     {form.layout}"
    for average in benchmark.averages:
        yield f"  average   {average.name}"
    folders = [benchmark.name, *([benchmark.folder] if benchmark.folder else [])]
    yield f"  folder    {' or '.join(f'--data {name}=DIR' for name in folders)}"
    if not benchmark.in_suites:
        yield "  suites    none: it runs when it is named"
