"""`hfcomp attention`: where the image tokens of one or two models attend for a phrase, as a picture and numbers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from hfcomp.cli.options import add_device, add_output, command_parser
from hfcomp.cli.places import check_models

USAGE = "MODEL [MODEL] --image FILE --text PHRASE"
SUMMARY = "where each model's image tokens attend for a phrase, and the difference"


def main(arguments: Sequence[str]) -> None:
    """Compares, prints the table, and writes the figure and, if asked, the values.

    Raises:
        ValueError: as `compare_attention`, or for a file name of another format.
        OSError: for a file that cannot be read or written.
        ImportError: when the figure cannot be drawn; the table is printed before.
    """
    options = parser().parse_intermixed_args(arguments)
    check_models(options.models)
    for option, path, suffix in (("--output", options.output, ".png"), ("--values", options.values, ".json")):
        if path is not None and (path.suffix.lower() != suffix or path.is_dir()):
            raise ValueError(f"{option}: found {path}, expected the name of a {suffix} file.")
    if not Path(options.image).is_file():
        raise FileNotFoundError(f"--image: {options.image} does not exist; relative paths start at {os.getcwd()!r}.")
    from hfcomp.analysis.attention_results import compare_attention
    from hfcomp.reporting.terminal import render_terminal

    settings = {"temperature": options.temperature, "device": options.device}
    results = compare_attention(options.models, options.image, options.text, **settings)
    render_terminal(results.report())
    if options.values is not None:
        results.save(options.values)
        print(f"values written to {options.values}")
    print(f"written to {results.draw(options.output, quantity=options.map)}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from hfcomp.analysis.attention_figure import QUANTITIES

    found = command_parser(
        "attention", "Draws where the tokens of an image attend for a phrase, and how that differs between two models."
    )
    add = found.add_argument
    add("models", nargs="*", metavar="MODEL", help="one or two: Hub id or folder, or name=ID")
    add("--image", required=True, metavar="FILE", help="the image")
    add("--text", required=True, action="append", metavar="PHRASE", help="may be given several times")
    add("--temperature", type=float, default=1.0, help="of the attention; below 1 sharper (default: 1)")
    add("--map", choices=QUANTITIES, default=QUANTITIES[0], help="what colours show (default: attention)")
    place = Path("attention.png")
    add_output(found, "output", metavar="PNG", default=place, help=f"(default: {place})")
    add("--values", type=Path, metavar="JSON", help="write the maps as numbers there")
    add_device(found)
    return found
