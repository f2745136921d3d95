"""`hfcomp attention`: where the image tokens of one or two models attend for a phrase, as a picture and numbers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hfcomp.cli.options import add_device

if TYPE_CHECKING:
    from hfcomp.analysis.attention import TokenCosines

USAGE = "MODEL [MODEL] --image FILE --text PHRASE"
SUMMARY = "where each model's image tokens attend for a phrase, and the difference"
HEADER = ["phrase", "model", "pooled\ncosine", "best\ntoken", "its row,\ncolumn", "its\nattention", "entropy,\n%"]


def main(arguments: Sequence[str]) -> None:
    """Compares, prints the table, and writes the figure and, if asked, the values.

    Args:
        arguments: models and options, see `parser`.

    Raises:
        ValueError: for options that do not fit, an image that cannot be used, or a model that is not a dual encoder.
        OSError: for a file that cannot be read or written.
        ImportError: when the figure cannot be drawn; the table is printed before.
    """
    from hfcomp.analysis.attention import token_cosines
    from hfcomp.analysis.attention_figure import draw_attention
    from hfcomp.analysis.attention_values import write_values
    from hfcomp.data.images import decode_image
    from hfcomp.data.urls import UrlAccess
    from hfcomp.evaluation.models import named_models, open_embedder

    options = parser().parse_intermixed_args(arguments)
    models = named_models(options.models)
    if len(models) > 2:
        raise ValueError(f"found {len(models)} models, expected one or two.")
    _check_values(options)
    image = decode_image(options.image, where="--image", urls=UrlAccess())  # a URL was asked for by name
    phrases = list(dict.fromkeys(options.text))
    found = {}
    for name, place in models.items():
        embedder = open_embedder(place, device=options.device)
        found[name] = token_cosines(embedder, image, phrases)
        embedder.release()
    print_attention(phrases, found, options.temperature)
    if options.values is not None:
        facts = {"models": models, "image": options.image, "phrases": phrases, "temperature": options.temperature}
        write_values(options.values, found, **facts)
        print(f"values written to {options.values}")
    shown = {"quantity": options.map, "temperature": options.temperature}
    print(f"written to {draw_attention(options.output, image, phrases, found, **shown)}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from hfcomp.analysis.attention_figure import QUANTITIES

    found = argparse.ArgumentParser(
        prog="hfcomp attention",
        description="Draws where the tokens of an image attend for a phrase, and how that differs between two models.",
        allow_abbrev=False,
    )
    found.add_argument("models", nargs="*", metavar="MODEL", help="one or two: Hub id or folder, or name=ID")
    found.add_argument("--image", required=True, metavar="FILE", help="the image")
    found.add_argument("--text", required=True, action="append", metavar="PHRASE", help="may be given several times")
    found.add_argument("--temperature", type=float, default=1.0, help="of the attention; below 1 sharper (default: 1)")
    found.add_argument(
        "--map", choices=QUANTITIES, default=QUANTITIES[0], help="what colours show (default: attention)"
    )
    found.add_argument("--output", type=Path, default=Path("attention.png"), metavar="PNG", help="(attention.png)")
    found.add_argument("--values", type=Path, metavar="JSON", help="write the maps as numbers there")
    add_device(found)
    return found


def _check_values(options: argparse.Namespace) -> None:
    if not 0 < options.temperature < float("inf"):
        raise ValueError(f"--temperature: found {options.temperature:g}, expected a number above 0.")
    if not all(phrase.strip() for phrase in options.text):
        raise ValueError("--text: found an empty text, expected a phrase such as 'green tablecloth'.")
    for option, path, suffix in (("--output", options.output, ".png"), ("--values", options.values, ".json")):
        if path is not None and (path.suffix.lower() != suffix or path.is_dir()):
            raise ValueError(f"{option}: found {path}, expected the name of a {suffix} file.")
    if "://" not in options.image and not Path(options.image).is_file():
        raise ValueError(f"--image: there is no file {options.image!r}; relative paths start at {os.getcwd()!r}.")


def print_attention(phrases: Sequence[str], found: Mapping[str, TokenCosines], temperature: float) -> None:
    """Prints a row for each phrase and model.

    Args:
        phrases: as many as `found` has maps of each model.
        found: by model.
        temperature: of the attention.
    """
    from rich.console import Console

    from hfcomp.reporting.report import Table
    from hfcomp.reporting.terminal import WIDTH, print_table

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    for name, one in found.items():
        for phrase in (phrase for phrase, cut in zip(phrases, one.truncated, strict=True) if cut):
            print(f"{name}: {phrase!r} is longer than its text tower and was cut")
    rows = [
        [phrase, name, *_numbers(one, row, temperature)]
        for row, phrase in enumerate(phrases)
        for name, one in found.items()
    ]
    print_table(Table("", HEADER, rows, labels=2), console)
    grids = ", ".join(f"{name} {one.tokens.shape[1]} x {one.tokens.shape[2]}" for name, one in found.items())
    print(f"\nBest token: its cosine; rows and columns count from 1 at the top left of {grids}.")
    print(f"Attention: at temperature {temperature:g}, 1 = the same for every token; entropy: 100 = likewise.")


def _numbers(one: TokenCosines, row: int, temperature: float) -> list[str]:
    from hfcomp.analysis.attention import attention, best_token, evenness

    best = best_token(one.tokens[row])
    attended = attention(one.tokens[row], temperature)
    place = f"{best[0] + 1}, {best[1] + 1}"
    cosines = [f"{value:.3f}" for value in (one.pooled[row], one.tokens[row][best])]
    return [*cosines, place, f"{attended[best]:.3f}", f"{100 * float(evenness(attended)):.2f}"]
