"""`hfcomp attention`: maps of where one or two models attend in an image for a phrase, as a figure and numbers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from hfcomp.analysis.attention_figure import QUANTITIES
from hfcomp.options import Device, Options, Spelling, check_models, command_parser, make_options


@dataclass(kw_only=True)
class AttentionOptions(Options):
    """Models, image and output."""

    models: Annotated[
        tuple[str, ...], Spelling("MODEL", positional=True), "One or two models: Hub id or folder, or name=ID."
    ] = ()
    image: Annotated[str, Spelling("FILE"), "Image file."]
    text: Annotated[tuple[str, ...], Spelling("PHRASE", repeated=True), "Phrase to locate in the image; repeatable."]
    temperature: Annotated[float, "Attention temperature; below 1 sharpens the maps."] = 1.0
    map: Annotated[Literal[*QUANTITIES], "Quantity that the colors show."] = QUANTITIES[0]
    output: Annotated[Path, Spelling("PNG"), "Figure to write."] = Path("attention.png")
    values: Annotated[Path | None, Spelling("JSON"), "File for the maps as numbers."] = None
    device: Device = None


def main(arguments: Sequence[str]) -> None:
    """Compares the models, prints the table, and writes the figure and, on request, the values."""
    options = make_options(AttentionOptions, vars(parser().parse_intermixed_args(arguments)))
    check_models(options.models)
    for option, path, suffix in (("--output", options.output, ".png"), ("--values", options.values, ".json")):
        if path is not None and (path.suffix.lower() != suffix or path.is_dir()):
            raise ValueError(f"{option}: found {path}, expected the name of a {suffix} file.")
    if not Path(options.image).is_file():
        raise FileNotFoundError(f"--image: {options.image} does not exist. Relative paths start at {os.getcwd()!r}.")
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
    return command_parser(
        "attention",
        "Draw which parts of the image are attended to for a phrase, and how two models differ.",
        AttentionOptions,
    )
