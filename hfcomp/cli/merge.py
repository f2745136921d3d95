"""`hfcomp merge`: interpolates between a base and a model tuned from it, at a given or a chosen point."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.merging.options import SweepOptions
from hfcomp.options import Options, Spelling, check_models, command_parser, declared_options, make_options


@dataclass(kw_only=True)
class MergeOptions(Options):
    """Models and output."""

    base: Annotated[str, Spelling("BASE", positional=True), "Hub id or folder of the base model."]
    tuned: Annotated[
        str,
        Spelling("TUNED", positional=True),
        "Hub id or folder of the tuned model, or of an adapter (LoRA, DoRA) for BASE.",
    ]
    alpha: Annotated[float | None, "Interpolation point: 0 is BASE, 1 is TUNED. Pass this or --sweep."] = None
    sweep: Annotated[bool, "Score 11 points and choose one by a rule, instead of --alpha."] = False
    output_dir: Annotated[Path, "Output folder for the model or the sweep."]
    overwrite: Annotated[bool, "Replace the output of an earlier merge."] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sweep == (self.alpha is not None):
            raise ValueError("Pass either --alpha X or --sweep.")


def main(arguments: Sequence[str]) -> None:
    """Writes the model at `--alpha`; with `--sweep`, scores 11 points and writes the chosen one."""
    given = vars(parser().parse_args(arguments))
    options = make_options(MergeOptions, given)
    base, tuned, folder, overwrite = options.base, options.tuned, options.output_dir, options.overwrite
    changed = [name for name, value in given.items() if value != declared_options(SweepOptions)[name].default]
    if changed and not options.sweep:
        raise ValueError(f"--{changed[0]} only applies to --sweep. Remove it, or use --sweep instead of --alpha.")
    check_models((base, tuned))
    from hfcomp.evaluation.spec import parse_folders
    from hfcomp.merging.merge import MODEL_FOLDER, RECORD_FILE, WRITTEN, merge, merge_by_sweep
    from hfcomp.writing import check_free_folder, locked

    if not options.sweep:
        check_free_folder(folder, overwrite, written=[RECORD_FILE], whole=True)
        with locked(folder):
            merge(base, tuned, options.alpha, folder)
        print(f"model: {folder} (alpha {options.alpha:g})")
        return
    given["data"] = parse_folders(given.get("data", ()), option="data")
    check_free_folder(folder, overwrite, written=WRITTEN)
    check_free_folder(folder / MODEL_FOLDER, overwrite, written=[RECORD_FILE], whole=True)
    with locked(folder):
        merge_by_sweep(
            base, tuned, make_options(SweepOptions, given), folder, command=shlex.join(["hfcomp", "merge", *arguments])
        )


def parser() -> argparse.ArgumentParser:
    description = "Interpolate the weights of a base model and a model tuned from it (WiSE-FT)."
    return command_parser("merge", description, MergeOptions, SweepOptions)
