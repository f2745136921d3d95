"""What a reader of a benchmark's scores has to know about its items."""

from __future__ import annotations

from collections.abc import Iterator

from hfcomp.evaluation.spec import Benchmark, BenchmarkData


def cut_remark(truncated: int, merged: int, tower: str = "the text tower") -> str:
    """What a reader has to know about texts that were cut.

    Args:
        truncated: number of them.
        merged: how many of them have the tokens of another text then.
        tower: for which they are too long.
    """
    equal = f", {merged:,} of them to the tokens of another text" if merged else ""
    return f"{truncated:,} texts are longer than {tower} and were cut{equal}"


def remarks(benchmark: Benchmark, items: BenchmarkData) -> Iterator[str]:
    """What a reader has to know about a benchmark's items: which are not scored, in part or at all, or cannot be."""
    yield from (f"{benchmark.name}: {note}" for note in (*items.notes, *benchmark.protocol.notes(items)))
    total = len(items.rows) + sum(items.left_out.values())
    for reason, count in items.left_out.items():
        yield f"{benchmark.name}: {count:,} of {total:,} rows left out: {reason}"
    if items.texts_alone:
        count = f"{items.texts_alone:,} of {len(items.rows):,} rows"
        yield f"{benchmark.name}: {count} have no image and are scored on their texts alone"
    if items.unsolvable:
        yield f"{benchmark.name}: {items.unsolvable:,} items cannot be solved: a negative is the caption"
