"""The complete MAGIC pipeline on a small scale, with real photographs and captions: `make hierarchy`.

| `--only` | step |
|---|---|
| `set` | a hierarchy of COCO val2017 captions with our taxonomy, and the 449 photographs in their groups |
| `llm` | concepts by a random language model behind `transformers serve`, most of which must be rejected |
| `training` | CLEAR GLASS trained on the dataset with its recipe, and scored by level |

Captions and photographs are real. Without `--writer endpoint`, concepts come from words; without `--encoder ID`, their
similarity comes from captions. The models are random: this tests the plumbing and says nothing about quality.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dataset_builders.factories import (
    LLM,
    LLM_ROWS,
    Steps,
    Written,
    check_rejections,
    random_model,
    run_steps,
    say,
    train,
)
from dataset_builders.serving import transformers_serve
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.errors import one_line_errors
from hfcomp.factory.build import build_set
from hfcomp.factory.command import build_and_report
from hfcomp.factory.magic.options import BY_CAPTIONS, TAXONOMY, MagicOptions
from hfcomp.reading import read_json
from hfcomp.reporting.terminal import render_terminal
from hfcomp.testing import write_tiny_llama
from hfcomp.writing import write_text

MOST_NAMED = 0.5
"""Maximum share of a random model's answers that may pass as names, because any sequence of up to five words does."""


def main(arguments: Sequence[str]) -> None:
    """Runs the steps in `--only`, by default all, and lists the written files."""
    about = "Build a concept hierarchy, train on its groups and score by level."
    run_steps(arguments, MagicOptions, STEPS, Factory.from_options, about)


@dataclass(frozen=True)
class Factory:
    """Shared state of the steps; each step yields its output paths with descriptions.

    Attributes:
        folder: Output folder of all steps.
        options: Options of the dataset.
    """

    folder: Path
    options: MagicOptions

    @classmethod
    def from_options(cls, data: Path, given: Mapping[str, Any]) -> Factory:
        """Makes the factory from the data folder and the given options."""
        folder = Path(given.get("output", "runs/hierarchy"))
        options = {
            "source": str(write_source(data, folder / "captions.jsonl")),
            "encoder": BY_CAPTIONS,
            "allow_outside_files": True,
            "writer": TAXONOMY,
            **given,
            "output": folder / "magic",
        }
        return cls(folder, MagicOptions(**options))

    @property
    def caveat(self) -> str:
        """Sentence about the parts of the concepts and the models that are not real."""
        words = "concepts come from words, " if self.options.writer == TAXONOMY else ""
        return f"Plumbing, not quality: {words}and all models have random weights."

    def set(self) -> Written:
        """Builds and verifies the hierarchy, with the photographs in their groups."""
        built = build_and_report(self.options)
        verify_set(built.folder, log=lambda line: None)
        yield built.folder, f"{built.rows:,} photographs in groups of abstract concepts"

    def llm(self) -> Written:
        """Writes concepts with a random language model.

        Raises:
            ValueError: If validation accepts most of them.
        """
        model = random_model(self.folder, "llama", write_tiny_llama)
        requests = {
            "writer": "endpoint",
            "llm": str(model),
            "temperature": 1.0,
            "plain_answers": True,
            "concurrency": 4,
        }
        place = self.folder / "random_concepts"
        with transformers_serve(model) as address:
            options = replace(
                self.options,
                **requests,
                taxonomy=None,
                until="concepts",
                limit=min(self.options.limit or LLM_ROWS, LLM_ROWS),
                base_url=address,
                answer_cache=str(self.folder / "random_answers"),
                output=place,
            )
            built = build_set(options, log=say)
        render_terminal(built.report())
        (chain,) = built.chains.values()
        rows = chain[0].manifest["plan"]["source"]["rows"]
        summary = check_rejections(built.rows, rows, "concepts", place, most_kept=MOST_NAMED)
        say(f"{summary}, each after {options.attempts} attempts; the reasons are counted above.")
        yield chain[0].folder / "set_aside.jsonl", f"{summary}, with the reason for each"

    def training(self) -> Written:
        """Trains CLEAR GLASS on the dataset with its recipe."""
        place, data = self.folder / "clear_glass", self.options.output
        values = {"dataset": data, "evaluation_data": f"magic={data}", "output_dir": place}
        train("clear_glass.py", "clear_glass/factory", values)
        yield place / "report.md", "CLEAR GLASS, trained from random weights on the groups, and scored by level"


STEPS: Steps = {"set": Factory.set, LLM: Factory.llm, "training": Factory.training}


def write_source(data: Path, path: Path) -> Path:
    """Writes the photographs with their captions, and the captions of all other COCO val2017 images without images.

    The hierarchy covers all of them; the dataset contains those with an image.
    """
    lines = [json.loads(line) for line in (data / "coco_open_256.jsonl").read_text("utf-8").splitlines()]
    rows: dict[str, dict[str, Any]] = {}
    for line in lines:
        file = os.path.relpath(data / line["image"], path.absolute().parent)
        rows[str(line["image_id"])] = {"image": file, "caption": line["captions"], "license": line["license"]}
    content = read_json(data / "coco" / "captions_val2017.json")
    own = {*rows}
    for image in content["images"]:
        rows.setdefault(str(image["id"]), {"image": None, "caption": [], "license": None})
    for annotation in content["annotations"]:
        if str(annotation["image_id"]) not in own:
            rows[str(annotation["image_id"])]["caption"].append(annotation["caption"])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps({"image_id": name, **row}) + "\n" for name, row in rows.items()))
    return path


if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
