"""`hfcomp evaluate --list`, without the libraries that scoring needs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hfcomp.evaluation.listing import benchmark_list


def main(arguments: Sequence[str]) -> None:
    """Prints the list.

    Args:
        arguments: of `hfcomp evaluate`; names of benchmarks may be given with `--benchmarks` or without.

    Raises:
        SystemExit: for a name that nobody has.
    """
    parser = argparse.ArgumentParser(prog="hfcomp evaluate --list", allow_abbrev=False)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--benchmarks", default="")
    options, _ = parser.parse_known_intermixed_args(arguments)
    names = [name.strip() for text in (*options.names, options.benchmarks) for name in text.split(",")]
    try:
        print("\n".join(benchmark_list([name for name in names if name])))
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
