"""The benchmarks of the field: every `Benchmark` in a module of this package has its name on the command line.

So has one that an installed package names by an entry point; docs/adding_a_benchmark.md adds one.
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
    """All benchmarks by name, compositional ones first, then in the order of their names."""
    found: dict[str, Benchmark] = {}
    # Benchmarks are discovered and not listed, so a new benchmark is a single file.
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for value in vars(import_module(module.name)).values():
            for benchmark in value if isinstance(value, tuple) else (value,):
                if isinstance(benchmark, Benchmark) and found.setdefault(benchmark.name, benchmark) is not benchmark:
                    raise ValueError(f"{module.name}: another benchmark already has the name {benchmark.name!r}.")
    found |= load_plugins(ENTRY_POINTS, Benchmark, found, lambda benchmark: benchmark.name)
    return {one.name: one for one in sorted(found.values(), key=lambda one: (SUITES.index(one.suite), one.name))}


def find_benchmarks(
    names: Iterable[str | Benchmark], column_names: Mapping[str, str] | None = None, split: str | None = None
) -> list[Benchmark]:
    """Benchmarks by name: of the package, `package.module:NAME` of your own, or a file, folder or id of your own data.

    A name that several begin with, as `vtab` before `vtab_dtd` and `vtab_svhn`, stands for all of them. Each is there
    once; a `Benchmark` is taken as it is.

    Args:
        names: as above.
        column_names: of your own data, contract name to its own.
        split: The split of your own data; see [`own_benchmark`].

    Raises:
        ValueError: for a name that nobody has, with the nearest; an object that is not a Benchmark; or names of
            columns without own data.
    """
    names = list(names)
    for option, value in (("column_names", column_names), ("split", split)):
        if value and not any(isinstance(name, str) and _is_own(name) for name in names):
            raise ValueError(
                f"{option} applies to your own files or folders, and no benchmark is one. Add it to benchmarks, or "
                f"leave {option} out."
            )
    found = [
        one
        for name in names
        for one in ([name] if isinstance(name, Benchmark) else _resolve(name, column_names, split))
    ]
    return list({id(one): one for one in found}.values())


def suite(name: str) -> list[Benchmark]:
    """The benchmarks of a suite: `compositional`, `general` or `all`; without those that run only when they are named.

    Raises:
        ValueError: for another name.
    """
    if name not in (*SUITES, "all"):
        raise ValueError(f"suite: found {name!r}, expected {', '.join(SUITES)} or all.{nearest(name, SUITES)}")
    return [one for one in benchmarks().values() if name in (one.suite, "all") and one.in_suites]


def _is_own(name: str) -> bool:
    return name not in benchmarks() and is_place(name) and not (":" in name and not Path(name).exists())


def _resolve(name: str, column_names: Mapping[str, str] | None, split: str | None) -> list[Benchmark]:
    known = benchmarks()
    if name in known:
        return [known[name]]
    group = [one for one in known.values() if one.name.startswith(f"{name}_")]
    # A prefix that fits a single name is more likely a misspelling.
    if len(group) > 1:
        return group
    if ":" in name and not Path(name).exists():
        return [_import(name)]
    if _is_own(name):
        return [own_benchmark(name, column_names=column_names, split=split)]
    raise ValueError(
        f"unknown benchmark {name!r}.{nearest(name, known)} `hfcomp evaluate --list` lists them; your own is "
        "package.module:NAME, or a file or folder with your data."
    )


def _import(name: str) -> Benchmark:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"benchmarks: {name!r} cannot be imported: {error}") from error
    if not isinstance(found, Benchmark):
        raise ValueError(f"benchmarks: {name!r} is a {type(found).__name__}, expected a Benchmark.")
    return found
