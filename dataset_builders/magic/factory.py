"""The whole way of MAGIC on a small scale, on real photographs and captions: `make hierarchy`.

| `--only` | what is done |
|---|---|
| `set` | a hierarchy of the captions of COCO val2017 by our taxonomy, and the 449 photographs in their groups |
| `llm` | concepts by a random language model behind `transformers serve`, most of which have to be refused |
| `training` | CLEAR GLASS trained on the set by its recipe, and scored by level |

Captions and photographs are real. Without `--writer endpoint` the concepts come from words, and without `--encoder ID`
their similarity from captions. The models are random: it tries the plumbing and says nothing about quality.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dataset_builders.factories import ASKED, LLM, Steps, Written, check_refused, random_model, run_steps, say, train
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
"""The share of a random model's answers that may pass as names: up to five words in any order are one."""


def main(arguments: Sequence[str]) -> None:
    """Runs what `--only` names, by default everything, and lists what was written."""
    about = "Builds a hierarchy of concepts, trains on its groups and scores by level."
    run_steps(arguments, MagicOptions, STEPS, Factory.of, about)


@dataclass(frozen=True)
class Factory:
    """What the steps share; each yields what it wrote, and what that is.

    Attributes:
        folder: that receives everything.
        options: of the set.
    """

    folder: Path
    options: MagicOptions

    @classmethod
    def of(cls, data: Path, given: Mapping[str, Any]) -> Factory:
        """By the folder of the data and the options that are given."""
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
        """What of the concepts and the models is not real."""
        words = "concepts are found by words, " if self.options.writer == TAXONOMY else ""
        return f"Plumbing, not quality: {words}and all models have random weights."

    def set(self) -> Written:
        """The hierarchy and the photographs in their groups, verified."""
        built = build_and_report(self.options)
        verify_set(built.folder, log=lambda line: None)
        yield built.folder, f"{built.rows:,} photographs in groups of abstract concepts"

    def llm(self) -> Written:
        """Concepts of a random language model.

        Raises:
            ValueError: where validation lets most of them pass.
        """
        model = random_model(self.folder, "llama", write_tiny_llama)
        asked = {"writer": "endpoint", "llm": str(model), "temperature": 1.0, "plain_answers": True, "concurrency": 4}
        place = self.folder / "random_concepts"
        with transformers_serve(model) as address:
            options = replace(
                self.options,
                **asked,
                taxonomy=None,
                until="concepts",
                limit=min(self.options.limit or ASKED, ASKED),
                base_url=address,
                answer_cache=str(self.folder / "random_answers"),
                output=place,
            )
            built = build_set(options, log=say)
        render_terminal(built.report())
        (chain,) = built.chains.values()
        rows = chain[0].manifest["plan"]["source"]["rows"]
        refused = check_refused(built.rows, rows, "concepts", place, most_kept=MOST_NAMED)
        say(f"{refused}, each after {options.attempts} attempts: the reasons are counted above.")
        yield chain[0].folder / "set_aside.jsonl", f"{refused}, with the reason for each"

    def training(self) -> Written:
        """CLEAR GLASS on the set, by its recipe."""
        place, data = self.folder / "clear_glass", self.options.output
        values = {"dataset": data, "evaluation_data": f"magic={data}", "output_dir": place}
        train("clear_glass.py", "clear_glass/factory", values)
        yield place / "report.md", "CLEAR GLASS from random weights, trained on the groups and scored by level"


STEPS: Steps = {"set": Factory.set, LLM: Factory.llm, "training": Factory.training}


def write_source(data: Path, path: Path) -> Path:
    """The photographs with their captions, and the captions of all other images of COCO val2017, which have no image.

    The hierarchy is one of all of them; the set has those with an image.
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
    for one in content["annotations"]:
        if str(one["image_id"]) not in own:
            rows[str(one["image_id"])]["caption"].append(one["caption"])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json.dumps({"image_id": name, **row}) + "\n" for name, row in rows.items()))
    return path


if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
