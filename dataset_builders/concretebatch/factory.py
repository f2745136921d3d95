"""The whole way of ConcreteBatch on a small scale, on real photographs and captions: `make factory`.

1. Keywords of the captions of COCO val2017 in the paper's three selections, beside the paper's numbers.
2. Pairs of 449 photographs in three configurations; a picture of 24 of them.
3. Slipform trained on them by its recipe, and the analysis of the pairs by the models before and after.

Without `--image_pipeline` the images are noise of a tiny random pipeline, and without `--writer endpoint` the captions
are those of a lexicon. The model is random too. That tries the plumbing and says nothing about quality.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset

from hfcomp import cli
from hfcomp.analysis.gallery import draw_gallery
from hfcomp.cli.options import add_fields
from hfcomp.data.loading import load_training_set
from hfcomp.errors import one_line_errors
from hfcomp.generation.build import build_set, verify_set
from hfcomp.generation.concretebatch.chain import CONFIGS, ConcreteBatchOptions, selection_table
from hfcomp.modeling.random_sdxl import write_tiny_sdxl
from hfcomp.reading import read_json
from hfcomp.reporting.report import Report, Section
from hfcomp.reporting.terminal import render_terminal
from hfcomp.sandbox.bases import base_folder

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "slipform.py"
PAIRS = 24
STEPS = ("keywords", "pairs", "training")


def main(arguments: Sequence[str]) -> None:
    """Runs what `--only` names, by default everything."""
    given = vars(parser().parse_args(arguments))
    data, only = real_data(), given.pop("only", STEPS)
    folder = given.setdefault("output", Path("runs/factory"))
    ratings = str(data / "concreteness" / "Concreteness_ratings_Brysbaert_et_al_BRM.txt")
    options = {
        "source": str(data / "coco_open_256.jsonl"),
        "column_names": "caption=captions",
        "configs": tuple(CONFIGS),
        "concreteness_ratings": ratings,
        "parser": "rules",
        "writer": "substitute",
        "shard_size": 50,
        **given,
        "output": folder / "concretebatch",
    }
    if "keywords" in only:
        captions = captions_of(data / "coco" / "captions_val2017.json")
        selected = ConcreteBatchOptions(**{**options, "output": folder / "keywords"})
        table = selection_table(captions, selected, log=print)
        render_terminal(Report("Keywords", sections=[Section("", [table])]))
    if "pairs" in only:
        make_pairs(ConcreteBatchOptions(**_with_pipeline(options, folder)), folder / "pairs.png")
    if "training" in only:
        train_and_analyze(options["output"], ratings, folder)


def real_data() -> Path:
    """The folder of photographs, captions and ratings.

    Raises:
        ValueError: where `HFCOMP_REAL_DATA` does not name one.
    """
    place = os.environ.get("HFCOMP_REAL_DATA")
    if not place or not Path(place).is_dir():
        raise ValueError("HFCOMP_REAL_DATA is not set; it names a folder with COCO photographs, captions and ratings.")
    return Path(place)


def captions_of(path: Path) -> Dataset:
    """The captions of each image of COCO's file, in the order of images."""
    content = read_json(path)
    texts: dict[int, list[str]] = {image["id"]: [] for image in content["images"]}
    for one in content["annotations"]:
        texts[one["image_id"]].append(one["caption"])
    return Dataset.from_dict({"caption": list(texts.values())})


def make_pairs(options: ConcreteBatchOptions, gallery: Path) -> None:
    """Builds and verifies the configurations, and draws pairs of the first."""
    render_terminal(build_set(options, progress=sys.stderr.isatty()).report())
    verify_set(options.output, log=lambda line: None)
    rows = load_training_set(str(options.output), config=options.configs[0])
    draw_gallery(rows, gallery, rows=range(min(PAIRS, len(rows))))
    print(f"{gallery}: {min(PAIRS, len(rows))} pairs of {options.configs[0]}")


def train_and_analyze(pairs: Path, ratings: str, folder: Path) -> None:
    """Trains by the recipe, and analyses the pairs by the model before and after."""
    values = {"dataset": pairs, "dataset_config": next(iter(CONFIGS)), "output_dir": folder / "slipform"}
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    subprocess.run([sys.executable, RECIPE, "--config", "slipform/factory", *words], check=True)
    models = ",".join(
        f"{name}={folder / 'slipform' / place}" for name, place in (("base", "base"), ("Slipform", "method"))
    )
    sets = [f"{name}={pairs / name}" for name in CONFIGS]
    words = ["--models", models, "--image_model", "none", "--text_model", "none", "--limit", "100", "--overwrite"]
    cli.main(["analyze", *sets, *words, "--concreteness_ratings", ratings, "--output_dir", str(folder / "analysis")])


def _with_pipeline(options: dict, folder: Path) -> dict:
    """The options with a tiny random pipeline where none is named."""
    if "image_pipeline" in options:
        return options
    place = folder / "tiny_sdxl"
    if not (place / "model_index.json").is_file():
        write_tiny_sdxl(place, base_folder())
    return {**options, "image_pipeline": str(place), "image_size": options.get("image_size", 64)}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        description="Builds pairs and trains on them.", allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    found.add_argument("--only", choices=STEPS, nargs="+", help="by default all")
    add_fields(found, ConcreteBatchOptions)
    for action in found._actions:
        action.required = False
    return found


if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
