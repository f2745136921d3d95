"""`hfcomp probe`: computes, before any training, how much of the gradient falls on the hard negative."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from hfcomp.analysis.probe.options import ProbeOptions
from hfcomp.cli.places import check_datasets
from hfcomp.options import Options, Spelling, check_models, command_parser, make_options


@dataclass(kw_only=True)
class ProbedOptions(Options):
    """Model and dataset."""

    model: Annotated[
        str, Spelling("MODEL", positional=True), "Hub id or folder; sandbox or sandbox-siglip for a bundled base."
    ]
    dataset: Annotated[str, "Folder, file or Hub id with negative_captions, or 'sandbox' (the built-in dataset)."]


def main(arguments: Sequence[str]) -> None:
    """Probes the model, prints the table and writes the report, the figure and the numbers."""
    given = vars(parser().parse_args(arguments))
    probed, options = make_options(ProbedOptions, given), make_options(ProbeOptions, given)
    check_models([probed.model])
    check_datasets([probed.dataset])
    from hfcomp.analysis.probe.probe import FILES, probe
    from hfcomp.writing import check_free_folder, locked

    check_free_folder(options.output_dir, options.overwrite, written=FILES)
    with locked(options.output_dir):
        results = probe(probed.model, probed.dataset, options)
        results.save(options.output_dir, command=shlex.join(["hfcomp", "probe", *arguments]))


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "probe",
        "Compute the share of Cement's gradient that falls on the hard negative, by batch size and margin. "
        "It shows whether a margin can matter at a batch size. The model is not trained.",
        ProbedOptions,
        ProbeOptions,
    )
