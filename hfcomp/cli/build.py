"""`hfcomp build`: data sets made on this machine, shard by shard."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hfcomp.cli.options import Group, add_device, add_url_options

if TYPE_CHECKING:
    from hfcomp.generation.runner import Build

USAGE = "negatives|concepts|neighbours --source DATASET --output DIR, or verify DIR"
SUMMARY = "data sets with hard negatives, noun phrases or nearest images; killed, the same command goes on"
GOES_ON = "the same command goes on from there"


def main(arguments: Sequence[str]) -> None:
    """Runs the command.

    Args:
        arguments: what to build, and options, see `parser`; or `verify` and a folder.
    """
    from hfcomp.generation.build import build_set, verify_set
    from hfcomp.generation.options import ConceptOptions, NegativeOptions, NeighbourOptions
    from hfcomp.generation.runner import StageError

    options = vars(parser().parse_args(arguments))
    what = options.pop("what")
    if what == "verify":
        verify_set(options["folder"], tell=lambda line: print(line, flush=True))
        return
    kinds = {one.what: one for one in (NegativeOptions, ConceptOptions, NeighbourOptions)}
    try:
        build = build_set(kinds[what](**options), progress=sys.stderr.isatty())
    except StageError as error:
        traceback.print_exception(error)
        raise SystemExit(f"error: {error}\nWhat is done is kept: {GOES_ON}.") from None
    except KeyboardInterrupt:
        print(f"interrupted; finished shards are kept: {GOES_ON}", file=sys.stderr)
        raise SystemExit(130) from None
    print_build(build)


def print_build(build: Build) -> None:
    """Prints what a build came to: rows, counts and what was left out.

    Raises:
        ValueError: for one without rows.
    """
    from rich.console import Console

    from hfcomp.data.built_sets import SET_ASIDE_FILE
    from hfcomp.generation.cards import counts_of
    from hfcomp.reporting.report import Table
    from hfcomp.reporting.terminal import WIDTH, print_table

    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    for counts in counts_of(build.manifest):
        console.print(f"\n{counts.title}", markup=False)
        rows = [[name, f"{number:,}"] for name, number in counts.numbers.items()]
        print_table(Table(counts.title, [counts.of, "number"], rows), console)
    read = build.manifest["plan"]["source"]["rows"]
    print(f"\n{read:,} rows read, {build.manifest['rows']:,} written to {build.folder}")
    if build.kept:
        print(f"{build.kept:,} shards were there already, {build.made:,} were made")
    if not build.manifest["rows"]:
        raise ValueError(f"no row is left; {build.folder} says why, row by row, in {SET_ASIDE_FILE}.")


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to the fields of `hfcomp.generation.options`."""
    found = argparse.ArgumentParser(
        prog="hfcomp build", description="Builds data sets for training.", allow_abbrev=False
    )
    kinds = found.add_subparsers(dest="what", required=True, metavar="WHAT")
    negatives = _kind(kinds, "negatives", "Gives captions hard negatives", "keywords, swaps and mask filling")
    add_device(_add_source(negatives))
    _add_captions(negatives)
    _add_generators(negatives)
    _add_filters(negatives)
    concepts = _kind(kinds, "concepts", "Gives captions their noun phrases", "C2LIP")
    _add_source(concepts)
    _add_captions(concepts)
    _add_phrases(concepts)
    neighbours = _kind(kinds, "neighbours", "Gives images their nearest others", "NegCLIP")
    add_device(_add_source(neighbours))
    _add_neighbours(neighbours)
    verify = kinds.add_parser(
        "verify",
        allow_abbrev=False,
        help="check the files of a built set",
        description="Checks every file of a built set against its manifest.json; ends with 1 at the first damaged.",
    )
    verify.add_argument("folder", type=Path, metavar="DIR", help="folder of the built set")
    return found


def _kind(kinds: argparse._SubParsersAction, name: str, what: str, detail: str) -> argparse.ArgumentParser:
    return kinds.add_parser(
        name,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        help=f"{what[0].lower()}{what[1:]} ({detail})",
        description=f"{what}. Killed at any moment, the same command goes on.",
    )


def _add_source(found: argparse.ArgumentParser) -> Group:
    from hfcomp.generation.runner import ROWS_PER_SHARD

    group = found.add_argument_group("source and output")
    group.add_argument("--source", required=True, metavar="DATASET", help="Hub id, folder, or JSON-lines file")
    group.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder of the built set")
    group.add_argument("--split", help="of the source (default: train)")
    group.add_argument("--config", help="the source's configuration")
    group.add_argument("--column_names", metavar="A=B", help="hfcomp's name=its name, as caption=text; or JSON")
    group.add_argument("--columns", metavar="A,B", help="of the source, to keep beside those needed (default: all)")
    group.add_argument("--limit", type=int, metavar="N", help="read the first N rows only")
    group.add_argument("--shard_size", type=int, metavar="N", help=f"rows of the source a file ({ROWS_PER_SHARD})")
    group.add_argument("--num_workers", type=int, metavar="N", help="processes (default: 1)")
    add_url_options(group)
    group.add_argument(
        "--allow_outside_files", action="store_true", help="copy image files outside of the source's folder too"
    )
    return group


def _add_captions(found: argparse.ArgumentParser) -> None:
    from hfcomp.generation.text_negatives import CAPTIONS

    group = found.add_argument_group("captions")
    group.add_argument("--captions", choices=CAPTIONS, help="where a row has a list of captions (default: longest)")
    group.add_argument("--captions_file", metavar="FILE", help="captions to join by key: JSON, CSV or Parquet")
    group.add_argument("--key_column", metavar="NAME", help="of the source, as json.url (default: __key__)")
    group.add_argument("--captions_columns", metavar="KEY,CAPTION", help="of this file (default: key,caption)")


def _add_generators(found: argparse.ArgumentParser) -> None:
    from hfcomp.generation.text_negatives import GENERATORS
    from hfcomp.negatives.keywords import MATCHINGS

    group = found.add_argument_group("negatives")
    kinds = f"of {', '.join(GENERATORS)}, or a part as keyword:color, swap:nouns, mask:verb"
    group.add_argument("--kinds", type=_words, metavar="A,B", help=f"in turn, {kinds} (default: keyword)")
    group.add_argument("--num_negatives", type=int, metavar="N", help="for each caption (default: 1)")
    group.add_argument("--seed", type=int, help="another one draws other negatives (default: 0)")
    _add_parser(group, "of swap and mask: ")
    group.add_argument("--fill_model", metavar="MODEL", help="masked language model of mask (FacebookAI/roberta-base)")
    group.add_argument("--keyword_table", metavar="FILE", help="YAML of your own concepts instead of the paper's")
    group.add_argument("--keyword_matching", choices=list(MATCHINGS), help="extended: plurals, a/an (default: paper)")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _add_phrases(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("phrases")
    _add_parser(group, "")
    group.add_argument(
        "--max_concepts", type=int, metavar="N", help="keep a caption's first N and count the others (default: all)"
    )


def _add_parser(group: Group, of: str) -> None:
    from hfcomp.parsing import DEFAULT_PARSER

    group.add_argument("--parser", metavar="SPEC", help=f"{of}spacy:NAME or rules ({DEFAULT_PARSER})")


def _add_neighbours(found: argparse.ArgumentParser) -> None:
    from hfcomp.generation.options import NEIGHBOURS_OF

    group = found.add_argument_group("neighbours")
    group.add_argument("--model", required=True, help="Hub id or folder whose embeddings are compared")
    group.add_argument("--number", type=int, metavar="N", help="neighbours of an image (default: 3)")
    group.add_argument("--by", choices=NEIGHBOURS_OF, help="what is compared (default: image)")


def _add_filters(found: argparse.ArgumentParser) -> None:
    group = found.add_argument_group("filters")
    group.add_argument("--drop_same_words", action="store_true", help="drop texts of the caption's words reordered")
    group.add_argument("--grammar_model", metavar="MODEL", help="drop what this causal language model finds broken")
    group.add_argument("--grammar_tolerance", type=float, metavar="NATS", help="per token, that a negative may lose")
    group.add_argument("--false_negative_model", metavar="MODEL", help="drop what this model finds true of the image")
    group.add_argument("--false_negative_margin", type=float, metavar="COSINE", help="lead it takes (0)")
    group.add_argument("--only_with_negative", action="store_true", help="leave captions without any negative out")
