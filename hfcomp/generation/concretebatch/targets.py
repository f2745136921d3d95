"""The first step of ConcretePlant: which word of each caption a negative changes.

Three parts, so that neither shards nor processes change a target:

1. `target_inputs`: stages by which every row gets its possible targets, at most one of each category. They depend on
   that row, the seed and the settings only.
2. `text_targets.balance_targets`: one pass over the rows of that build, in their order, decides the
   category of each.
3. `text_targets.keyword_stage`: the first stage of what is built next; it brings rows to `keyword`,
   `keyword_span`, `category`, `rated_word` and `keyword_tag`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, Value
from huggingface_hub.constants import HF_HOME

from hfcomp.checksums import file_hash
from hfcomp.data.publishing import without_local_paths
from hfcomp.generation.concretebatch.options import TargetOptions
from hfcomp.generation.concretebatch.text_targets import TARGET_FEATURES, make_targets
from hfcomp.generation.shards import SOURCE_ROW, Stage
from hfcomp.generation.sources import BuildInputs, Log
from hfcomp.generation.text_negatives import make_captions
from hfcomp.negatives.concreteness import HOW_TO_GET, download_ratings
from hfcomp.negatives.targets import Mode
from hfcomp.parsing import cached_parser


def target_inputs(options: TargetOptions, mode: Mode, source: Dataset, log: Log) -> BuildInputs:
    """The texts of the source, whose images stay there, and the stages.

    Raises:
        ValueError: for ratings that are not as expected.
        OSError: for a parser that is not installed, or ratings that cannot be downloaded.
    """
    stages = [Stage("captions", make_captions, {"which": options.captions}), target_stage(options, mode, log)]
    images = [name for name, feature in source.features.items() if isinstance(feature, Image)]
    features = Features({"caption": Value("string"), **TARGET_FEATURES})
    return BuildInputs(source.remove_columns(images), stages, features, ["caption"])


def is_old(column: str) -> bool:
    """Whether a column of the source describes earlier negatives, or has a name that the chain's steps need."""
    return column.startswith("negative_") or column in ("mask", SOURCE_ROW)


def target_stage(options: TargetOptions, mode: Mode, log: Log) -> Stage:
    """The stage that gives captions their possible targets; it records names and hashes, no places on this machine."""
    choice, path = options.choice(mode), ratings_path(options, log)
    settings: dict[str, Any] = {
        "mode": choice.mode,
        "order": choice.order,
        "k": choice.k,
        "temperature": choice.temperature,
        "lookup": options.lookup,
        "prepositions": options.prepositions,
        "seed": options.seed,
        "parser": options.parser,
        "ratings": None if path is None else str(path),
    }
    facts = settings | {
        "parser": without_local_paths(cached_parser(options.parser).name),
        "ratings": None if path is None else f"{path.name} sha256:{file_hash(path)}",
    }
    return Stage("targets", make_targets, settings, facts)


def ratings_path(options: TargetOptions, log: Log) -> Path | None:
    """The file of ratings: the user's, or the one that is downloaded on request; None if neither is asked for.

    Raises:
        FileNotFoundError: for a file that is not there.
        OSError, ValueError: as `download_ratings`.
    """
    if options.download_ratings:
        return download_ratings(Path(HF_HOME) / "hfcomp" / "ratings", log=log)
    if options.concreteness_ratings is None:
        return None
    path = Path(options.concreteness_ratings)
    if not path.is_file():
        raise FileNotFoundError(f"no concreteness ratings at {path}. {HOW_TO_GET}")
    return path
