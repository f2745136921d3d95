"""`hfcomp cache`: lists or clears cached embeddings and image hashes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from hfcomp.options import Options, Spelling, command_parser, make_options
from hfcomp.store import DAY, LIMIT_VARIABLE, cache_folder, default_limit, size_text, unused_files

if TYPE_CHECKING:
    from hfcomp.evaluation.encoding.cache import CachedModel


@dataclass(kw_only=True)
class CacheOptions(Options):
    """Options."""

    action: Annotated[
        Literal["show", "clear"], Spelling("{show,clear}", positional=True), "What to do with the cache."
    ] = "show"
    cache: Annotated[Path | None, f"Folder of embeddings (default: {cache_folder('embeddings')})."] = None
    model: Annotated[str | None, Spelling("NAME"), "Only embeddings from this model, named as in the listing."] = None
    older_than: Annotated[float | None, Spelling("DAYS"), "Only entries unused for this many days."] = None
    yes: Annotated[bool, "Clear without confirmation."] = False


def main(arguments: Sequence[str]) -> None:
    """Shows the caches, or clears them after confirmation."""
    from hfcomp.evaluation.encoding.cache import clear, select_models  # imports torch

    options = make_options(CacheOptions, vars(parser().parse_args(arguments)))
    if options.cache is not None and not options.cache.is_dir():
        raise ValueError(f"--cache: {options.cache} is not a folder.")
    folder = options.cache or cache_folder("embeddings")
    hash_folder = cache_folder("image_hashes")
    chosen = select_models(folder, model=options.model, older_than=options.older_than)
    with_hashes = options.cache is None and options.model is None  # hashes belong to no model and have one folder
    age = None if options.older_than is None else options.older_than * DAY
    hashes = unused_files(hash_folder, older_than=age) if with_hashes else []
    hashes_text = f"{size_text(sum(path.stat().st_size for path in hashes))} of image hashes"
    if options.action == "show":
        if with_hashes:
            print(f"{hash_folder}: {hashes_text}")
        return _show(folder, chosen)
    names = ", ".join(dict.fromkeys(model.model for model in chosen))
    parts = [f"{size_text(sum(model.size for model in chosen))} of {names} from {folder}"] if chosen else []
    parts += [f"{hashes_text} from {hash_folder}"] if hashes else []
    what = " and ".join(parts)
    if not what:
        print(f"{folder}: nothing to clear")
    elif options.yes or _is_confirmed(what):
        clear(chosen)
        for path in hashes:
            path.unlink(missing_ok=True)
        print(f"removed {what}")
    else:
        print("nothing was removed")


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "cache",
        "Show or clear the cache of embeddings. The environment variable "
        f"{LIMIT_VARIABLE} limits its size, for example to 5GB. Without --cache and --model, the command also covers "
        f"the image hashes in {cache_folder('image_hashes')}, which are used to find images that occur in both "
        "training and evaluation data.",
        CacheOptions,
    )


def _show(folder: Path, chosen: Sequence[CachedModel]) -> None:
    from rich.console import Console
    from rich.table import Table

    total = size_text(sum(model.size for model in chosen))
    limit = size_text(default_limit())
    print(f"{folder}: {total} used of at most {limit} (set {LIMIT_VARIABLE} to change the limit)")
    if not chosen:
        print("no embeddings")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("model", "content", "entries", "size", "last used", "made with"):
        table.add_column(name, justify="right" if name in ("entries", "size") else "left", overflow="fold")
    for model in chosen:
        versions = ", ".join(f"{name} {version}" for name, version in model.versions.items()) or "-"
        last_used = time.strftime("%Y-%m-%d", time.localtime(model.used))
        table.add_row(model.model, model.kind, f"{model.entries:,}", size_text(model.size), last_used, versions)
    Console(highlight=False, markup=False, emoji=False).print(table)


def _is_confirmed(what: str) -> bool:
    if not sys.stdin.isatty():
        raise ValueError(f"{what} would be removed. Pass --yes to clear it without confirmation.")
    try:
        return input(f"Remove {what}? [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False
