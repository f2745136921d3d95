"""`hfcomp convert`: checkpoints of open_clip and of OpenAI as folders of transformers, back, and into a LLaVA."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hfcomp.cli.options import add_fields, add_output, command_parser
from hfcomp.cli.places import check_datasets

USAGE = "SOURCE --output DIR [--pretrained TAG] [--to open_clip | --to llava --llava MODEL]"
SUMMARY = "open_clip, NegCLIP, CE-CLIP and similar checkpoints as plain CLIPModel folders, back, or into a LLaVA"
TRANSFORMERS, OPEN_CLIP, LLAVA = "transformers", "open_clip", "llava"


def main(arguments: Sequence[str]) -> None:
    """Converts a checkpoint and prints what was found in it.

    Raises:
        ValueError: as `hfcomp.convert` does, or for options of one direction in the other.
    """
    options = vars(parser().parse_args(arguments))
    source, folder, target = options.pop("source"), options.pop("output"), options.pop("to")
    llava = options.pop("llava", None)
    if (llava is None) == (target == LLAVA):
        raise ValueError(f"--to {LLAVA} and --llava MODEL belong together: the model whose image tower is replaced.")
    check_datasets([source])
    from hfcomp.convert import ConversionOptions, convert_checkpoint, export_llava, export_open_clip

    if target == TRANSFORMERS:
        record = convert_checkpoint(source, folder, ConversionOptions(**options))
    elif options:
        raise ValueError(
            f"--{next(iter(options))} only applies to a checkpoint of open_clip, not to --to {target}. Remove it."
        )
    else:
        record = export_llava(source, llava, folder) if llava else export_open_clip(source, folder)
    for line in lines_of(record, folder):
        print(line)


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to `ConversionOptions`."""
    from hfcomp.convert.options import ConversionOptions

    found = command_parser(
        "convert",
        "Converts a checkpoint of open_clip or OpenAI, or of a method trained with their code, to a "
        "folder that CLIPModel (SiglipModel) loads; with --to open_clip the other way; with --to llava a LLaVA with "
        "the image tower of a CLIP or SigLIP.",
        sparse=True,
    )
    words = "file of weights (.safetensors, .pt, .pth, .bin, .ckpt), folder or Hub id"
    found.add_argument("source", metavar="SOURCE", help=words)
    add_output(found, "output", required=True, help="output folder; replaced if a previous conversion wrote it")
    found.add_argument(
        "--to",
        choices=(TRANSFORMERS, OPEN_CLIP, LLAVA),
        default=TRANSFORMERS,
        help=f"layout (default: {TRANSFORMERS})",
    )
    words = "Hub id or folder of the LLaVA whose image tower SOURCE replaces, with --to llava"
    found.add_argument("--llava", metavar="MODEL", help=words)
    add_fields(found, ConversionOptions)
    return found


def lines_of(record: dict[str, Any], folder: Path) -> list[str]:
    """What a conversion found, for the terminal."""
    unused, lines = record.get("unused", []), [f"{record['source']}: {record['layout']}"]
    if "activation" in record:
        activation = record["activation"]
        towers = dict.fromkeys((activation["image"], activation["text"]))
        lines.append(f"activation: {' and '.join(towers)}, from {activation['source']}")
    if "replaced" in record:
        number = record["replaced"]
        lines.append(
            f"{record['llava']}: {number['tensors']:,} tensors replaced, {number['changed']:,} of them changed"
        )
        for name, (own, kept) in record["pixels"].items():
            lines.append(f"images: {name} is {kept} in {record['llava']} and {own} in {record['source']}")
    if record.get("state") or record.get("prefix"):
        lines.append(f"weights: under {record['state'] or 'the file'!r}, prefix {record['prefix']!r} removed")
    if "preprocessing" in record:
        shown = record["preprocessing"]
        lines.append(
            f"images: {shown['size']} pixels, {shown['interpolation']}, {shown['resize_mode']}, from {shown['source']}"
        )
    if unused:
        shown = ", ".join(unused[:8]) + (", ..." if len(unused) > 8 else "")
        lines.append(f"not used: {len(unused)} ({shown})")
    if record.get("note"):
        lines.append(f"note: {record['note']}")
    return [*lines, f"written: {folder}"]
