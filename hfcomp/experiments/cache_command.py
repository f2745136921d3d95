"""`hfcomp cache`: what the caches of embeddings and of image hashes hold, and clearing them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hfcomp.data.columns import nearest
from hfcomp.data.overlap import hash_store
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
        f"variable {LIMIT_VARIABLE}, such as 5GB. Without --cache and --model so for the hashes of images by which "
        f"photographs that are both trained on and scored are found, in {hash_store.default_folder()}.",
        allow_abbrev=False,
    )
    found.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="(default: show)")
    found.add_argument("--cache", type=Path, metavar="DIR", help=f"of embeddings (default: {default_folder()})")
    found.add_argument("--model", metavar="NAME", help="only what was encoded by this model, named as it is shown")
    found.add_argument("--older_than", type=float, metavar="DAYS", help="only what was not used for so many days")
    found.add_argument("--yes", action="store_true", help="clear without asking")
    return found


def show_cache(options: argparse.Namespace) -> None:
    """Prints the folders and their sizes, the limit, and what is kept of each model."""
    folder = _folder(options)
    chosen = _chosen(folder, options)
    if _with_hashes(options):
        size = sum(path.stat().st_size for path in _hash_files(options))
        print(f"{hash_store.default_folder()}: {size_text(size)} of image hashes")
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
    """Removes embeddings, of one model or of all, and image hashes, after asking.

    Raises:
        ValueError: for a model that the cache does not have, or without `--yes` where nobody can be asked.
        OSError: for a file that cannot be removed.
    """
    folder = _folder(options)
    chosen = _chosen(folder, options)
    hashes = _hash_files(options)
    if not chosen and not hashes:
        print(f"{folder}: nothing to clear")
        return
    what = _what(folder, chosen, hashes)
    if not options.yes:
        if not sys.stdin.isatty():
            raise ValueError(f"{what} would be removed. Pass --yes to clear it without being asked.")
        if _answer(f"Remove {what}? [y/N] ") not in ("y", "yes"):
            print("nothing was removed")
            return
    clear(chosen)
    for path in hashes:
        path.unlink(missing_ok=True)
    print(f"removed {what}")


def _what(folder: Path, chosen: list[CachedModel], hashes: list[Path]) -> str:
    """What would be removed, in words."""
    found = []
    if chosen:
        models = ", ".join(dict.fromkeys(model.model for model in chosen))
        found.append(f"{size_text(sum(model.size for model in chosen))} of {models} from {folder}")
    if hashes:
        size = size_text(sum(path.stat().st_size for path in hashes))
        found.append(f"{size} of image hashes from {hash_store.default_folder()}")
    return " and ".join(found)


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


def _with_hashes(options: argparse.Namespace) -> bool:
    """They belong to no model, nor to another folder of embeddings."""
    return options.cache is None and options.model is None


def _hash_files(options: argparse.Namespace) -> list[Path]:
    """All files of image hashes; none where others are asked for, or the newest is younger than `--older_than`."""
    if not _with_hashes(options):
        return []
    found = [path for path in hash_store.default_folder().rglob("*") if path.is_file()]
    used = max((path.stat().st_mtime for path in found), default=0.0)
    return [] if options.older_than is not None and used >= time.time() - options.older_than * DAY else found


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
