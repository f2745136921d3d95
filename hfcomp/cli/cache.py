"""`hfcomp cache`: what the caches of embeddings and of image hashes hold, and clearing them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hfcomp.evaluation.cache_files import CachedModel

USAGE = "[clear] [--model NAME] [--older_than DAYS]"
SUMMARY = "the embeddings and image hashes that are kept for later runs: what there is, and clearing it"


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: see `parser`.

    Raises:
        ValueError: for a model that the cache does not have, or without `--yes` where nobody can be asked.
        OSError: for a file that cannot be removed.
    """
    from hfcomp.data.overlap.hash_store import stored_files
    from hfcomp.evaluation.cache_files import DAY, chosen_models

    options = parser().parse_args(arguments)
    if options.cache is not None and not options.cache.is_dir():
        raise ValueError(f"--cache: {options.cache} is not a folder.")
    folder = options.cache or _default_folder()
    chosen = chosen_models(folder, model=options.model, older_than=options.older_than)
    with_hashes = options.cache is None and options.model is None  # they are of no model or other folder
    age = None if options.older_than is None else options.older_than * DAY
    if options.action == "clear":
        clear_cache(folder, chosen, stored_files(older_than=age) if with_hashes else [], ask=not options.yes)
    else:
        show_cache(folder, chosen, stored_files(older_than=age) if with_hashes else None)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from hfcomp.data.overlap.hash_store import default_folder as hashes
    from hfcomp.evaluation.cache_files import LIMIT_VARIABLE

    found = argparse.ArgumentParser(
        prog="hfcomp cache",
        description="Shows what the cache of embeddings holds, or clears it. Its size is limited by the environment "
        f"variable {LIMIT_VARIABLE}, such as 5GB. Without --cache and --model so for the hashes of images by which "
        f"photographs that are both trained on and scored are found, in {hashes()}.",
        allow_abbrev=False,
    )
    found.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="(default: show)")
    found.add_argument("--cache", type=Path, metavar="DIR", help=f"of embeddings (default: {_default_folder()})")
    found.add_argument("--model", metavar="NAME", help="only what was encoded by this model, named as it is shown")
    found.add_argument("--older_than", type=float, metavar="DAYS", help="only what was not used for so many days")
    found.add_argument("--yes", action="store_true", help="clear without asking")
    return found


def _default_folder() -> Path:
    from hfcomp.evaluation.cache_files import default_folder

    return default_folder()


def show_cache(folder: Path, chosen: Sequence[CachedModel], hashes: Sequence[Path] | None) -> None:
    """Prints the folders and their sizes, the limit, and what is kept of each model.

    Args:
        folder: of embeddings.
        chosen: what is shown of it.
        hashes: files of image hashes; None where they are not asked for.
    """
    from rich.console import Console
    from rich.table import Table

    from hfcomp.data.overlap.hash_store import default_folder as hash_folder
    from hfcomp.evaluation.cache_files import LIMIT_VARIABLE, default_limit, size_text

    if hashes is not None:
        print(f"{hash_folder()}: {size_text(_size(hashes))} of image hashes")
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


def clear_cache(folder: Path, chosen: Sequence[CachedModel], hashes: Sequence[Path], *, ask: bool) -> None:
    """Removes embeddings, of one model or of all, and image hashes.

    Args:
        folder: of embeddings.
        chosen: what goes of it.
        hashes: files of image hashes that go.
        ask: whether to ask before.
    """
    from hfcomp.evaluation.cache_files import clear

    if not chosen and not hashes:
        print(f"{folder}: nothing to clear")
        return
    what = _what(folder, chosen, hashes)
    if ask:
        if not sys.stdin.isatty():
            raise ValueError(f"{what} would be removed. Pass --yes to clear it without being asked.")
        if _answer(f"Remove {what}? [y/N] ") not in ("y", "yes"):
            print("nothing was removed")
            return
    clear(chosen)
    for path in hashes:
        path.unlink(missing_ok=True)
    print(f"removed {what}")


def _what(folder: Path, chosen: Sequence[CachedModel], hashes: Sequence[Path]) -> str:
    """What would be removed, in words."""
    from hfcomp.data.overlap.hash_store import default_folder as hash_folder
    from hfcomp.evaluation.cache_files import size_text

    found = []
    if chosen:
        models = ", ".join(dict.fromkeys(model.model for model in chosen))
        found.append(f"{size_text(sum(model.size for model in chosen))} of {models} from {folder}")
    if hashes:
        found.append(f"{size_text(_size(hashes))} of image hashes from {hash_folder()}")
    return " and ".join(found)


def _size(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def _answer(question: str) -> str:
    try:
        return input(question).strip().lower()
    except (EOFError, KeyboardInterrupt):
        print()
        return ""
