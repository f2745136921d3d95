"""Benchmarks with their data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hfcomp.evaluation.cells import DAMAGED
from hfcomp.evaluation.engine import select_rows, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import (
    FAILED,
    NAMES,
    NO_IMAGE,
    PART,
    Benchmark,
    BenchmarkData,
    Folders,
    Unavailable,
    column_values,
)


@dataclass(frozen=True)
class Loaded:
    """A benchmark with its validated data."""

    benchmark: Benchmark
    data: BenchmarkData

    @property
    def title(self) -> str:
        """Title in tables, with a suffix if images are missing, so scores cover only a part of the benchmark."""
        missing = (NO_IMAGE, DAMAGED, "no images of")
        # A score on some of the items is a different number, so the title differs and it is not compared with others.
        is_part = self.data.texts_alone > 0 or any(reason.startswith(missing) for reason in self.data.left_out)
        return f"{self.benchmark.title}{PART}" if is_part else self.benchmark.title

    def facts(self) -> dict[str, Any]:
        data = self.data
        facts = {"title": self.title, "version": self.benchmark.version, "data": asdict(data.origin)}
        counts = {"unsolvable": data.unsolvable, "texts_alone": data.texts_alone}
        return {**facts, "items": len(data.rows), "left_out": dict(data.left_out), **counts}

    @property
    def digest(self) -> str:
        """Hash that identifies the items by their names and texts, and images by name."""
        rows = self.data.rows
        columns = [name for name in rows.column_names if name not in (*self.benchmark.protocol.images, *NAMES)]
        columns += NAMES
        # Images are hashed only by name, because hashing their bytes would read the whole dataset.
        digest = hashlib.sha256(repr((self.benchmark.name, columns)).encode())
        for name in columns:
            digest.update(repr(column_values(rows, name)).encode())
        return digest.hexdigest()[:16]

    def remarks(self) -> Iterator[str]:
        """Yields what a reader of the scores must know about the items, such as which are not scored."""
        name, data, number = self.benchmark.name, self.data, len(self.data.rows)
        yield from (f"{name}: {note}" for note in (*data.notes, *self.benchmark.protocol.notes(data)))
        for reason, count in data.left_out.items():
            yield f"{name}: {count:,} of {number + sum(data.left_out.values()):,} rows left out: {reason}"
        if data.texts_alone:
            yield f"{name}: {data.texts_alone:,} of {number:,} rows have no image, so only their texts are read"
        if data.unsolvable:
            yield f"{name}: {data.unsolvable:,} items cannot be solved, because a negative equals the caption"

    def select_concept(self, concept: str) -> Loaded:
        chosen = np.flatnonzero(np.asarray(self.data.rows["subset"][:]) == concept)
        return replace(self, data=select_rows(self.data, chosen)) if len(chosen) else self


def load_benchmark(benchmark: Benchmark, folders: Folders | None = None) -> Loaded:
    folders = folders or Folders()
    items = load_items(benchmark, folders)
    return Loaded(benchmark, validate(benchmark, items, texts_suffice=folders.texts_suffice))


def load_or_explain(benchmark: Benchmark, folders: Folders, strict: bool) -> Loaded | tuple[str, str]:
    try:
        return load_benchmark(benchmark, folders)
    except Unavailable as error:
        return error.reason, error.how_to_fix or benchmark.obtain
    except ValueError as error:
        # A user's wrong data is an error. If a published dataset has changed, only that benchmark is skipped.
        own = getattr(benchmark.data[0], "is_own", False)  # a user's form of data may be any class
        if strict or own or folders.of(benchmark.name) or (benchmark.folder and folders.of(benchmark.folder)):
            raise
        return f"{FAILED}{error}", benchmark.obtain
