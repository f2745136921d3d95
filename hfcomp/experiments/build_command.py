"""`hfcomp build`: data sets made on this machine, shard by shard."""

from __future__ import annotations

import argparse
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset, Features
from datasets.exceptions import DatasetsError
from rich.console import Console

from hfcomp.data.built_sets import (
    MANIFEST,
    SET_ASIDE_FILE,
    check_no_others,
    check_set_aside,
    check_shard,
    read_manifest,
)
from hfcomp.data.urls import UrlAccess, set_url_access
from hfcomp.experiments.build_card import Source, count_sheets, source_license, write_card
from hfcomp.experiments.build_concepts import captions_for_concepts, concept_features, concept_stages
from hfcomp.experiments.build_negatives import negative_features, negative_stages, read_source
from hfcomp.experiments.build_neighbours import READS, neighbour_stages, with_found_neighbours
from hfcomp.experiments.build_source import check_device, shown_features
from hfcomp.experiments.local_files import check_local_files
from hfcomp.experiments.neighbours import NEIGHBOURS_OF
from hfcomp.experiments.sheets import TERMINAL_WIDTH, terminal_table
from hfcomp.experiments.url_options import add_url_options, url_settings
from hfcomp.generation.runner import ROWS_PER_SHARD, Build, Stage, StageError, run_stages
from hfcomp.generation.text_negatives import CAPTIONS, GENERATORS
from hfcomp.hub import without_local_paths
from hfcomp.negatives.keywords import MATCHINGS
from hfcomp.parsing import DEFAULT_PARSER

# Options that say where and how a set is built, and not what is in it.
OF_THIS_MACHINE = ("what", "source", "output", "num_workers", "device", "url_timeout")


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: what to build, and options, see `parser`; or `verify` and a folder.
    """
    options = parser().parse_args(arguments)
    try:
        if options.what == "verify":
            verify_build(options.folder)
        else:
            check_device(options.device)
            set_url_access(UrlAccess.asked(**url_settings(options)))
            BUILDS[options.what](options)
    except StageError as error:
        traceback.print_exception(error)
        raise SystemExit(f"error: {error}\nWhat is done is kept: the same command goes on from there.") from None
    except (ValueError, TypeError, OSError, ImportError, DatasetsError) as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        print("interrupted; finished shards are kept: the same command goes on from there", file=sys.stderr)
        raise SystemExit(130) from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="hfcomp build", description="Builds data sets for training.", allow_abbrev=False
    )
    kinds = found.add_subparsers(dest="what", required=True, metavar="WHAT")
    negatives = kinds.add_parser(
        "negatives",
        allow_abbrev=False,
        help="hard negative captions from keywords, swaps and mask filling",
        description="Gives captions hard negatives. Killed at any moment, the same command goes on.",
    )
    _add_device(_add_source(negatives))
    _add_captions(negatives)
    _add_generators(negatives)
    _add_filters(negatives)
    concepts = kinds.add_parser(
        "concepts",
        allow_abbrev=False,
        help="the noun phrases of captions (C2LIP)",
        description="Gives captions their noun phrases. Killed at any moment, the same command goes on.",
    )
    _add_source(concepts)
    _add_captions(concepts)
    _add_phrases(concepts)
    neighbours = kinds.add_parser(
        "neighbours",
        allow_abbrev=False,
        help="the nearest other images of each image (NegCLIP)",
        description="Gives images their nearest others. Killed at any moment, the same command goes on.",
    )
    _add_device(_add_source(neighbours))
    neighbours.set_defaults(captions_file=None, key_column=None, captions_columns=None)
    neighbours.add_argument("--model", required=True, help="Hub id or folder whose embeddings are compared")
    neighbours.add_argument("--number", type=int, default=3, metavar="N", help="neighbours of an image (default: 3)")
    neighbours.add_argument("--by", choices=NEIGHBOURS_OF, default="image", help="what is compared (default: image)")
    verify = kinds.add_parser(
        "verify",
        allow_abbrev=False,
        help="check the files of a built set",
        description="Checks every file of a built set against its manifest.json; ends with 1 at the first damaged.",
    )
    verify.add_argument("folder", type=Path, metavar="DIR", help="folder of the built set")
    return found


def build_negatives(options: argparse.Namespace) -> Build:
    """Builds a set of hard negatives and tells what it came to.

    Args:
        options: of `parser`.

    Raises:
        ValueError: for options that do not fit, a source or folder that is not as expected, or a set left empty.
        StageError: when a row could not be worked on.
    """
    options.kinds = [kind.strip() for kind in options.kinds.split(",") if kind.strip()]
    stages = negative_stages(options)
    dataset = read_source(options, print)
    reads = ["caption", *(["image"] if options.false_negative_model else [])]
    return _build(options, dataset, stages, negative_features(dataset), reads)


def build_neighbours(options: argparse.Namespace) -> Build:
    """Builds a set with the nearest images of each image and tells what it came to.

    Args:
        options: of `parser`.

    Raises:
        ValueError: for options that do not fit, or a source or folder that is not as expected.
    """
    stages = neighbour_stages(options)
    dataset = with_found_neighbours(options, print)
    return _build(options, dataset, stages, shown_features(dataset), READS)


def build_concepts(options: argparse.Namespace) -> Build:
    """Builds a set with the noun phrases of its captions and tells what it came to.

    Args:
        options: of `parser`.

    Raises:
        ValueError: for options that do not fit, or a source or folder that is not as expected.
        StageError: when a row could not be worked on.
    """
    stages = concept_stages(options)
    dataset = captions_for_concepts(options, print)
    return _build(options, dataset, stages, concept_features(dataset), ["caption"])


def verify_build(folder: Path) -> None:
    """Reads all files of a built set and prints a line for each that is as it was written.

    Args:
        folder: of the set.

    Raises:
        ValueError: for the first file that is missing, damaged or not of the build, or a folder of something else.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise ValueError(f"{folder} is not a set of `hfcomp build`: it has no {MANIFEST} of one.")
    print(f"ok  {MANIFEST}")
    check_no_others(folder, manifest)
    for shard in manifest["shards"]:
        check_shard(folder, shard)
        print(f"ok  {shard['file']}  {shard['rows']:,} rows", flush=True)
    check_set_aside(folder, manifest)
    print(
        f"ok  {SET_ASIDE_FILE}\n{manifest['rows']:,} rows in {len(manifest['shards']):,} files are as they were built"
    )


BUILDS = {"negatives": build_negatives, "concepts": build_concepts, "neighbours": build_neighbours}


def _build(
    options: argparse.Namespace,
    dataset: Dataset,
    stages: Sequence[Stage],
    features: Features,
    reads: Sequence[str],
) -> Build:
    check_local_files(dataset, list(features), options.source, allow_outside=options.allow_outside_files, tell=print)
    build = run_stages(
        dataset,
        stages,
        options.output,
        features=features,
        reads=reads,
        rows_per_shard=options.shard_size,
        num_workers=options.num_workers,
        progress=sys.stderr.isatty(),
    )
    source = Source(options.source, source_license(options.source), "license" in dataset.column_names)
    write_card(build.folder, build.manifest, source, what=options.what, command=_command(options))
    print_build(build)
    if not build.manifest["rows"]:
        raise ValueError(f"no row is left; {build.folder} says why, row by row, in {SET_ASIDE_FILE}.")
    return build


def print_build(build: Build) -> None:
    """Tells what a build came to: rows, counts and what was left out."""
    console = Console(width=None if sys.stdout.isatty() else TERMINAL_WIDTH, highlight=False)
    for sheet in count_sheets(build.manifest):
        console.print(f"\n{sheet.title}", markup=False)
        console.print(terminal_table(sheet))
    rows = build.manifest["plan"]["source"]["rows"]
    print(f"\n{rows:,} rows read, {build.manifest['rows']:,} written to {build.folder}")
    if build.kept:
        print(f"{build.kept:,} shards were there already, {build.made:,} were made")


def _add_source(found: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = found.add_argument_group("source and output")
    group.add_argument("--source", required=True, metavar="DATASET", help="Hub id, folder, or JSON-lines file")
    group.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder of the built set")
    group.add_argument("--split", default="train", help="of the source (default: train)")
    group.add_argument("--config", help="the source's configuration")
    group.add_argument(
        "--column_names", default="", metavar="A=B", help="hfcomp's name=its name, as caption=text; or JSON"
    )
    group.add_argument("--columns", metavar="A,B", help="of the source, to keep beside those needed (default: all)")
    group.add_argument("--limit", type=int, metavar="N", help="read the first N rows only")
    group.add_argument("--shard_size", type=int, default=ROWS_PER_SHARD, metavar="N", help="rows of the source a file")
    group.add_argument("--num_workers", type=int, default=1, metavar="N", help="processes (default: 1)")
    add_url_options(group)
    group.add_argument(
        "--allow_outside_files", action="store_true", help="copy image files outside of the source's folder too"
    )
    return group


def _add_device(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", help="of models, such as cpu or cuda:1; by default a GPU where there is one")


def _add_captions(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("captions")
    group.add_argument("--captions", choices=CAPTIONS, default="longest", help="where a row has a list of captions")
    group.add_argument("--captions_file", metavar="FILE", help="captions to join by key: JSON, CSV or Parquet")
    group.add_argument("--key_column", metavar="NAME", help="of the source, as json.url (default: __key__)")
    group.add_argument("--captions_columns", metavar="KEY,CAPTION", help="of this file (default: key,caption)")


def _add_generators(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("negatives")
    kinds = f"of {', '.join(GENERATORS)}, or a part as keyword:color, swap:nouns, mask:verb"
    group.add_argument("--kinds", default="keyword", metavar="A,B", help=f"in turn, {kinds} (default: keyword)")
    group.add_argument("--num_negatives", type=int, default=1, metavar="N", help="for each caption (default: 1)")
    group.add_argument("--seed", type=int, default=0, help="another one draws other negatives (default: 0)")
    group.add_argument(
        "--parser",
        default=DEFAULT_PARSER,
        metavar="SPEC",
        help=f"of swap and mask: spacy:NAME or rules ({DEFAULT_PARSER})",
    )
    group.add_argument("--fill_model", metavar="MODEL", help="masked language model of mask (FacebookAI/roberta-base)")
    group.add_argument("--keyword_table", metavar="FILE", help="YAML of your own concepts instead of the paper's")
    group.add_argument("--keyword_matching", choices=list(MATCHINGS), default="paper", help="extended: plurals, a/an")


def _add_phrases(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("phrases")
    group.add_argument(
        "--parser", default=DEFAULT_PARSER, metavar="SPEC", help=f"spacy:NAME or rules ({DEFAULT_PARSER})"
    )
    group.add_argument(
        "--max_concepts", type=int, metavar="N", help="keep a caption's first N and count the others (default: all)"
    )
    found.set_defaults(device=None)  # parsers run on the CPU


def _add_filters(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("filters")
    group.add_argument("--drop_same_words", action="store_true", help="drop texts of the caption's words reordered")
    group.add_argument("--grammar_model", metavar="MODEL", help="drop what this causal language model finds broken")
    group.add_argument("--grammar_tolerance", type=float, metavar="NATS", help="per token, that a negative may lose")
    group.add_argument("--false_negative_model", metavar="MODEL", help="drop what this model finds true of the image")
    group.add_argument("--false_negative_margin", type=float, default=0.0, metavar="COSINE", help="lead it takes (0)")
    group.add_argument("--only_with_negative", action="store_true", help="leave captions without any negative out")


def _command(options: argparse.Namespace) -> str:
    """The command, without places on this machine and what changes nothing in the set."""
    needed = ["--model", "x"] if options.what == "neighbours" else []
    unset = parser().parse_args([options.what, "--source", "x", "--output", "x", *needed])
    words = ["hfcomp", "build", options.what, "--source", without_local_paths(options.source)]
    for name, value in vars(options).items():
        value = ",".join(value) if isinstance(value, list) else value
        if name in OF_THIS_MACHINE or value == getattr(unset, name):
            continue
        words += [f"--{name}"] if value is True else [f"--{name}", without_local_paths(str(value))]
    return f"{shlex.join(words)} --output DIR"
