"""`hfcomp probe`: the share of the gradient on the hard negative by batch size and margin, before any training."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from hfcomp.cli.options import add_fields, command_parser
from hfcomp.cli.places import check_datasets, check_models

USAGE = "MODEL --dataset DATASET [--batch_sizes 256 1024] [--margins 0 1 2]"
SUMMARY = "whether a margin can matter: the gradient's share on the hard negative, without training"


def main(arguments: Sequence[str]) -> None:
    """Probes a model, prints the table and writes the report, its figure and the numbers.

    Raises:
        ValueError: as `probe`, or for an output folder that is in use or holds results.
        OSError: for a file that cannot be read or written.
    """
    from hfcomp.analysis.probe.options import ProbeOptions

    given = vars(parser().parse_args(arguments))
    model, dataset = given.pop("model"), given.pop("dataset")
    options = ProbeOptions(**given)
    check_models([model])
    check_datasets([dataset])
    from hfcomp.analysis.probe.probe import FILES, probe
    from hfcomp.writing import check_free_folder, locked

    check_free_folder(options.output_dir, options.overwrite, written=FILES)
    with locked(options.output_dir):
        results = probe(model, dataset, options)
        results.save(options.output_dir, command=shlex.join(["hfcomp", "probe", *arguments]))


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to the fields of `ProbeOptions`."""
    from hfcomp.analysis.probe.options import ProbeOptions

    found = command_parser(
        "probe",
        "Computes the share of Cement's gradient that falls on the hard negative, by batch size and "
        "margin, for a model as it is: whether a margin can matter for a batch. Nothing is trained.",
        sparse=True,
    )
    found.add_argument("model", metavar="MODEL", help="Hub id or folder; sandbox or sandbox-siglip for a bundled base")
    words = "folder, file or Hub id with negative_captions, or sandbox for the built-in world"
    found.add_argument("--dataset", required=True, metavar="DATASET", help=words)
    add_fields(found, ProbeOptions, listed=("batch_sizes", "margins"))
    return found
