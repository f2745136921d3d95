"""`hfcomp convert`: checkpoints of open_clip and of OpenAI as folders of transformers, back, and into a LLaVA."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from hfcomp.cli.places import check_datasets
from hfcomp.convert.options import ConversionOptions
from hfcomp.options import Options, Spelling, command_parser, make_options


@dataclass(kw_only=True)
class ConvertOptions(Options):
    """Models."""

    source: Annotated[
        str,
        Spelling("SOURCE", positional=True),
        "File of weights (.safetensors, .pt, .pth, .bin, .ckpt), folder or Hub id.",
    ]
    output: Annotated[Path, "Output folder; replaced if a previous conversion wrote it."]
    to: Annotated[Literal["transformers", "open_clip", "llava"], "Layout."] = "transformers"
    llava: Annotated[
        str | None,
        Spelling("MODEL"),
        "Hub id or folder of the LLaVA whose image tower SOURCE replaces, with --to llava.",
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.llava is None) == (self.to == "llava"):
            raise ValueError("--to llava and --llava MODEL belong together: the model whose image tower is replaced.")


def main(arguments: Sequence[str]) -> None:
    """Converts a checkpoint and prints what was found in it."""
    given = vars(parser().parse_args(arguments))
    options = make_options(ConvertOptions, given)
    check_datasets([options.source])
    from hfcomp.convert import convert_checkpoint, export_llava, export_open_clip

    source, folder = options.source, options.output
    if options.to == "transformers":
        record = convert_checkpoint(source, folder, make_options(ConversionOptions, given))
    elif given:
        raise ValueError(
            f"--{next(iter(given))} only applies to a checkpoint of open_clip, not to --to {options.to}. Remove it."
        )
    else:
        record = export_llava(source, options.llava, folder) if options.llava else export_open_clip(source, folder)
    for line in lines_of(record, folder):
        print(line)


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "convert",
        "Converts a checkpoint of open_clip or OpenAI, or of a method trained with their code, to a "
        "folder that CLIPModel (SiglipModel) loads; with --to open_clip the other way; with --to llava a LLaVA with "
        "the image tower of a CLIP or SigLIP.",
        ConvertOptions,
        ConversionOptions,
    )


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
