"""`hfcomp convert`: converts checkpoints to transformers folders and back, into a LLaVA and to ONNX."""

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
        "Weights file (.safetensors, .pt, .pth, .bin, .ckpt), folder, Hub id or released checkpoint, such as NegCLIP.",
    ]
    output: Annotated[Path, "Output folder; replaced if a previous conversion wrote it."]
    to: Annotated[
        Literal["transformers", "open_clip", "llava", "onnx", "dual_encoder"],
        "Output layout. 'dual_encoder' joins the image tower of SOURCE and a text model.",
    ] = "transformers"
    llava: Annotated[
        str | None,
        Spelling("MODEL"),
        "Hub id or folder of the LLaVA whose image tower SOURCE replaces, with --to llava.",
    ] = None
    text: Annotated[
        str | None, Spelling("MODEL"), "Hub id or folder of the text model to join, with --to dual_encoder."
    ] = None
    int8: Annotated[bool, "With --to onnx, write both towers in 8 bits too, and print the cosine to fp32."] = False
    stretch_positions: Annotated[
        int | None,
        "Number of tokens that a text may have: keep the first 20 text positions of SOURCE, a transformers model, and "
        "interpolate the others, as Long-CLIP before training (248 for CLIP).",
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.llava is None) == (self.to == "llava"):
            raise ValueError("--to llava needs --llava MODEL (whose image tower is replaced), and vice versa.")
        if (self.text is None) == (self.to == "dual_encoder"):
            raise ValueError("--to dual_encoder needs --text MODEL (whose text tower is used), and vice versa.")
        if self.int8 and self.to != "onnx":
            raise ValueError("--int8 only applies to ONNX. Add --to onnx, or remove it.")
        if self.stretch_positions is not None and self.to != "transformers":
            raise ValueError(f"--stretch_positions writes a transformers folder. Remove --to {self.to}.")


def main(arguments: Sequence[str]) -> None:
    """Converts a checkpoint and prints a summary."""
    given = vars(parser().parse_args(arguments))
    options = make_options(ConvertOptions, given)
    check_datasets([options.source])
    from hfcomp import convert

    source, folder, positions = options.source, options.output, options.stretch_positions
    goal = f"--to {options.to}" if positions is None else "--stretch_positions"
    if goal == "--to transformers":
        record = convert.convert_checkpoint(source, folder, make_options(ConversionOptions, given))
    elif given:
        raise ValueError(f"--{next(iter(given))} only applies to open_clip checkpoints, not to {goal}. Remove it.")
    elif positions is not None:
        record = convert.stretch_positions(source, folder, positions)
    elif options.to == "onnx":
        record = convert.export_onnx(source, folder, int8=options.int8)
    elif options.to == "llava":
        record = convert.export_llava(source, options.llava, folder)
    elif options.to == "dual_encoder":
        record = convert.join_towers(source, options.text, folder)
    else:
        record = convert.export_open_clip(source, folder)
    for line in summary_lines(record, folder):
        print(line)


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "convert",
        "Convert a checkpoint of open_clip or OpenAI, or of a method trained with their code, to a folder that "
        "CLIPModel (SiglipModel) loads. With --to open_clip, convert in the other direction. With --to llava, put the "
        "image tower of a CLIP or SigLIP into a LLaVA. With --to dual_encoder, join the towers of two models. With "
        "--to onnx, write both towers of any dual encoder for ONNX Runtime and transformers.js. With "
        "--stretch_positions, make a model read longer texts.",
        ConvertOptions,
        ConversionOptions,
    )


def summary_lines(record: dict[str, Any], folder: Path) -> list[str]:
    """Summarizes a conversion for the terminal."""
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
            lines.append(f"images: {name} is {kept} in {record['llava']}, but {own} in {record['source']}")
    if "new" in record:
        lines.append(f"new, to be trained: {', '.join(record['new'])}")
    if record.get("state") or record.get("prefix"):
        place = f"under {record['state']!r}" if record["state"] else "at the top level"
        lines.append(f"weights: {place}, prefix {record['prefix']!r} removed")
    if "preprocessing" in record:
        images = record["preprocessing"]
        lines.append(
            f"images: {images['size']} pixels, {images['interpolation']}, {images['resize_mode']}, from "
            f"{images['source']}"
        )
    for name, checks in record.get("onnx", {}).items():
        lines.append(f"{name}.onnx: " + ", ".join(f"{k.replace('_', ' ')} {x:.4g}" for k, x in checks.items()))
    if unused:
        names = ", ".join(unused[:8]) + (", ..." if len(unused) > 8 else "")
        lines.append(f"unused: {len(unused)} ({names})")
    if record.get("note"):
        lines.append(f"note: {record['note']}")
    return [*lines, f"written: {folder}"]
