"""`hfcomp cache`: what the cache of embeddings holds, and clearing it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hfcomp.data.columns import nearest
from hfcomp.evaluation.cache_files import (
    DAY,
    LIMIT_VARIABLE,
    CachedModel,
    cached_models,
    clear,
    default_folder,
    default_limit,
    size_text,
)


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: see `parser`.

    Raises:
        SystemExit: with what is wrong and how to fix it.
    """
    options = parser().parse_args(arguments)
    try:
        if options.action == "clear":
            clear_cache(options)
        else:
            show_cache(options)
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from error


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="hfcomp cache",
        description="Shows what the cache of embeddings holds, or clears it. Its size is limited by the environment "
        f"variable {LIMIT_VARIABLE}, such as 5GB.",
        allow_abbrev=False,
    )
    found.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="(default: show)")
    found.add_argument("--cache", type=Path, metavar="DIR", help=f"of embeddings (default: {default_folder()})")
    found.add_argument("--model", metavar="NAME", help="only what was encoded by this model, named as it is shown")
    found.add_argument("--older_than", type=float, metavar="DAYS", help="only what was not used for so many days")
    found.add_argument("--yes", action="store_true", help="clear without asking")
    return found


def show_cache(options: argparse.Namespace) -> None:
    """Prints the folder, its size and limit, and what is kept of each model."""
    folder = _folder(options)
    chosen = _chosen(folder, options)
    total = sum(model.size for model in chosen)
    print(f"{folder}: {size_text(total)} of at most {size_text(default_limit())} ({LIMIT_VARIABLE})")
    if not chosen:
        print("no embeddings")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("model", "of", "entries", "size", "last used", "made with"):
        table.add_column(name, justify="right" if name in ("entries", "size") else "left", overflow="fold")
    for model in chosen:
        made = ", ".join(f"{name} {version}" for name, version in model.versions.items()) or "-"
        used = time.strftime("%Y-%m-%d", time.localtime(model.used))
        table.add_row(model.model, model.kind, f"{model.entries:,}", size_text(model.size), used, made)
    Console(highlight=False, markup=False, emoji=False).print(table)


def clear_cache(options: argparse.Namespace) -> None:
    """Removes embeddings, of one model or of all, after asking.

    Raises:
        ValueError: for a model that the cache does not have, or without `--yes` where nobody can be asked.
        OSError: for a file that cannot be removed.
    """
    folder = _folder(options)
    chosen = _chosen(folder, options)
    if not chosen:
        print(f"{folder}: nothing to clear")
        return
    what = f"{size_text(sum(model.size for model in chosen))} of {', '.join(dict.fromkeys(m.model for m in chosen))}"
    if not options.yes:
        if not sys.stdin.isatty():
            raise ValueError(f"{folder}: {what} would be removed. Pass --yes to clear it without being asked.")
        if _answer(f"Remove {what} from {folder}? [y/N] ") not in ("y", "yes"):
            print("nothing was removed")
            return
    print(f"removed {size_text(clear(chosen))} from {folder}")


def _answer(question: str) -> str:
    try:
        return input(question).strip().lower()
    except (EOFError, KeyboardInterrupt):
        print()
        return ""


def _folder(options: argparse.Namespace) -> Path:
    folder = options.cache or default_folder()
    if options.cache is not None and not folder.is_dir():
        raise ValueError(f"--cache: {folder} is not a folder.")
    return folder


def _chosen(folder: Path, options: argparse.Namespace) -> list[CachedModel]:
    if options.older_than is not None and not options.older_than >= 0:
        raise ValueError(f"--older_than: found {options.older_than}, expected a number of days, 0 or more.")
    found = cached_models(folder)
    names = sorted({model.model for model in found})
    if options.model is not None:
        if options.model not in names:
            known = f"it has {', '.join(names)}.{nearest(options.model, names)}" if names else "it is empty."
            raise ValueError(f"--model: {folder} has nothing of {options.model!r}; {known}")
        found = [model for model in found if model.model == options.model]
    if options.older_than is not None:
        found = [model for model in found if model.used < time.time() - options.older_than * DAY]
    return found
