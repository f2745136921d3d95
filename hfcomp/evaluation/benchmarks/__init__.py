"""The registry of benchmarks: every `Benchmark` in a module of this package is available by name.

So are benchmarks that an installed package registers through an entry point, see docs/adding_a_benchmark.md.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from hfcomp.evaluation.benchmarks.own import is_place, own_benchmark
from hfcomp.evaluation.spec import SUITES, Benchmark
from hfcomp.plugins import load_plugins
from hfcomp.reading import nearest

ENTRY_POINTS = "hfcomp.benchmarks"


@cache
def benchmarks() -> dict[str, Benchmark]:
    """Returns all benchmarks by name, compositional ones first, then sorted by name."""
    known: dict[str, Benchmark] = {}
    # Benchmarks are discovered rather than listed, so a new benchmark is a single file.
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for value in vars(import_module(module.name)).values():
            for benchmark in value if isinstance(value, tuple) else (value,):
                if isinstance(benchmark, Benchmark) and known.setdefault(benchmark.name, benchmark) is not benchmark:
                    raise ValueError(f"{module.name}: another benchmark already has the name {benchmark.name!r}.")
    known |= load_plugins(ENTRY_POINTS, Benchmark, known, lambda benchmark: benchmark.name)
    return dict(sorted(known.items(), key=lambda entry: (SUITES.index(entry[1].suite), entry[0])))


def find_benchmarks(
    names: Iterable[str | Benchmark], column_names: Mapping[str, str] | None = None, split: str | None = None
) -> list[Benchmark]:
    """Finds benchmarks by name: from this package, your own `package.module:NAME`, or a place with your own data.

    A common prefix of several names, such as `vtab` for `vtab_dtd` and `vtab_svhn`, stands for all of them. Duplicates
    are removed; a `Benchmark` is used as it is.

    Args:
        names: Names, or benchmarks.
        column_names: Contract name to the column name in your own data.
        split: Split of your own data; see [`own_benchmark`].

    Raises:
        ValueError: If a name is unknown (names the nearest one), an object is not a Benchmark, or `column_names` or
            `split` is given without own data.
    """
    names = list(names)
    for option, value in (("column_names", column_names), ("split", split)):
        if value and not any(isinstance(name, str) and _is_own(name) for name in names):
            raise ValueError(
                f"{option} applies only to your own files or folders, and none is among the benchmarks. Add it to "
                f"benchmarks, or leave {option} out."
            )
    resolved = [
        benchmark
        for name in names
        for benchmark in ([name] if isinstance(name, Benchmark) else _resolve(name, column_names, split))
    ]
    return list({id(benchmark): benchmark for benchmark in resolved}.values())


def suite(name: str) -> list[Benchmark]:
    """Returns the benchmarks of a suite (`compositional`, `general` or `all`), without those that run only by name.

    Raises:
        ValueError: If the name is not one of these.
    """
    if name not in (*SUITES, "all"):
        raise ValueError(f"suite: found {name!r}, expected {', '.join(SUITES)} or all.{nearest(name, SUITES)}")
    return [known for known in benchmarks().values() if name in (known.suite, "all") and known.in_suites]


def _is_own(name: str) -> bool:
    return name not in benchmarks() and is_place(name) and not (":" in name and not Path(name).exists())


def _resolve(name: str, column_names: Mapping[str, str] | None, split: str | None) -> list[Benchmark]:
    known = benchmarks()
    if name in known:
        return [known[name]]
    group = [benchmark for benchmark in known.values() if benchmark.name.startswith(f"{name}_")]
    # A prefix of a single name is more likely a misspelling.
    if len(group) > 1:
        return group
    if ":" in name and not Path(name).exists():
        return [_import(name)]
    if _is_own(name):
        return [own_benchmark(name, column_names=column_names, split=split)]
    raise ValueError(
        f"unknown benchmark {name!r}.{nearest(name, known)} `hfcomp evaluate --list` lists them. Your own benchmark "
        "is package.module:NAME, or a file or folder with your data."
    )


def _import(name: str) -> Benchmark:
    module, _, attribute = name.partition(":")
    try:
        benchmark = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"benchmarks: {name!r} cannot be imported: {error}") from error
    if not isinstance(benchmark, Benchmark):
        raise ValueError(f"benchmarks: {name!r} is a {type(benchmark).__name__}, expected a Benchmark.")
    return benchmark
