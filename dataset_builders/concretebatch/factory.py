"""The complete ConcreteBatch pipeline on a small scale, with real photographs and captions: `make factory`.

| `--only` | step |
|---|---|
| `keywords` | keywords of COCO val2017 captions in three selections and three orders, next to the paper's numbers |
| `pairs` | pairs from 449 photographs in three configurations |
| `llm` | captions by a random language model behind `transformers serve`, nearly all of which must be rejected |
| `training` | Slipform trained on the pairs with its recipe |
| `analysis` | `hfcomp analyze` of the pairs with the models before and after, and a gallery of 24 pairs |

Keywords, captions and photographs are real. The models are random and, without `--image_pipeline`, so are the negative
images. Without `--writer endpoint`, the negative captions come from a lexicon. This tests the plumbing and says
nothing about quality.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from dataset_builders.concretebatch.selection import selection_table
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
from hfcomp import cli
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.data.loading import load_training_set
from hfcomp.errors import one_line_errors
from hfcomp.factory.build import build_set
from hfcomp.factory.command import build_and_report
from hfcomp.factory.concretebatch.chain import CONFIGS, ConcreteBatchOptions
from hfcomp.modeling.random_clip import RANDOM_CLIPS, write_random_clip
from hfcomp.reading import read_json
from hfcomp.reporting.report import Report, Section
from hfcomp.reporting.saving import render_markdown
from hfcomp.reporting.terminal import render_terminal
from hfcomp.testing import write_tiny_dinov2, write_tiny_llama, write_tiny_roberta, write_tiny_sdxl
from hfcomp.writing import write_text

RATINGS = "concreteness/Concreteness_ratings_Brysbaert_et_al_BRM.txt"
PAIRS = 24
ABOUT_KEYWORDS = (
    "top_k: the category rule applies to the k most (least) concrete words; category_first: it applies to all words, "
    "before the k are selected; sample: one of the k is drawn without it. * marks the default. Concreteness is mean / "
    "median, 1 to 5; the paper reports no shares of categories."
)


def main(arguments: Sequence[str]) -> None:
    """Runs the steps in `--only`, by default all, and lists the written files."""
    about = "Build pairs, train on them and analyze them."
    run_steps(arguments, ConcreteBatchOptions, STEPS, Factory.from_options, about, without_caveat=["keywords"])


@dataclass(frozen=True)
class Factory:
    """Shared state of the steps; each step yields its output paths with descriptions.

    Attributes:
        data: Folder with photographs, captions and ratings.
        folder: Output folder of all steps.
        options: Options for the pairs.
        is_random: Whether the negative images come from the random pipeline.
    """

    data: Path
    folder: Path
    options: ConcreteBatchOptions
    is_random: bool

    @classmethod
    def from_options(cls, data: Path, given: Mapping[str, Any]) -> Factory:
        """Makes the factory from the data folder and the given options."""
        folder, is_random = given.get("output", Path("runs/factory")), "image_pipeline" not in given
        options = {
            "source": str(data / "coco_open_256.jsonl"),
            "column_names": "caption=captions",
            "configs": tuple(CONFIGS),
            "concreteness_ratings": str(data / RATINGS),
            "parser": "rules",
            "writer": "substitute",
            "shard_size": 50,
            **({"image_pipeline": str(folder / "random_models" / "sdxl"), "image_size": 32} if is_random else {}),
            **given,
            "output": folder / "concretebatch",
        }
        return cls(data, folder, ConcreteBatchOptions(**options), is_random)

    @property
    def caveat(self) -> str:
        """Sentence about the parts of the pairs and the models that are not real."""
        images = "the negative images are noise of a tiny random pipeline, " if self.is_random else ""
        captions = "the negative captions come from a lexicon, " if self.options.writer == "substitute" else ""
        return f"Plumbing, not quality: {images}{captions}and all models have random weights."

    def random_model(self, name: str, write: Callable[[Path], object]) -> Path:
        """Returns the folder of a model with random weights; writes it if it is missing."""
        return random_model(self.folder, name, write)

    def keywords(self) -> Written:
        """Writes a table of the keywords that are chosen from the captions of COCO val2017."""
        captions = captions_of(self.data / "coco" / "captions_val2017.json")
        table = selection_table(captions, self.options, log=say)
        title = f"Keywords of the longest captions of {len(captions):,} images of COCO val2017"
        facts = f"Parser {self.options.parser}, real captions and ratings. {ABOUT_KEYWORDS}"
        report = Report(title, sections=[Section("", [table])], legend=[facts])
        render_terminal(report)
        path = self.folder / "keywords.md"
        write_text(path, render_markdown(report))
        yield path, "keywords of real captions in three orders, next to the paper's numbers"

    def pairs(self) -> Written:
        """Builds and verifies the pairs of the photographs."""
        if self.is_random:
            clip = self.random_model("clip", self._write_clip)
            self.random_model("sdxl", lambda part: write_tiny_sdxl(part, clip))
        built = build_and_report(self.options)
        verify_set(built.folder, log=lambda line: None)
        yield built.folder, f"{built.rows:,} pairs in the configurations {', '.join(built.chains)}"

    def llm(self) -> Written:
        """Writes captions with a random language model.

        Raises:
            ValueError: If validation accepts more than a few of them.
        """
        model = self.random_model("llama", write_tiny_llama)
        requests = {
            "writer": "endpoint",
            "llm": str(model),
            "temperature": 1.0,
            "plain_answers": True,
            "concurrency": 4,
        }
        place = self.folder / "random_captions"
        changes = {
            "configs": self.options.configs[:1],
            "until": "captions",
            "limit": min(self.options.limit or LLM_ROWS, LLM_ROWS),
        }
        with transformers_serve(model) as address:
            options = replace(
                self.options,
                **requests,
                **changes,
                base_url=address,
                answer_cache=str(self.folder / "random_answers"),
                output=place,
            )
            built = build_set(options, log=say)
        render_terminal(built.report())
        (chain,) = built.chains.values()
        targets, captions = chain[0].manifest["rows"], built.rows
        summary = check_rejections(captions, targets, "captions", place)
        say(f"{summary}, each after {options.attempts} attempts; the reasons are counted above.")
        yield chain[-1].folder / "set_aside.jsonl", f"{summary}, with the reason for each"

    def training(self) -> Written:
        """Trains Slipform on the pairs with its recipe."""
        place = self.folder / "slipform"
        values = {"dataset": self.options.output, "dataset_config": self.options.configs[0], "output_dir": place}
        train("slipform.py", "slipform/factory", values)
        yield place / "report.md", "Slipform, trained from random weights on the pairs, and scored"

    def analysis(self) -> Written:
        """Analyzes the pairs with the models before and after, and draws a gallery of some pairs."""
        sets = {name: self.options.output / name for name in self.options.configs}
        captions = load_training_set(str(sets[self.options.configs[0]]))["caption"]
        roberta = self.random_model("roberta", lambda part: write_tiny_roberta(part, captions, tokens=128))
        models = {"base": self.folder / "slipform" / "base", "Slipform": self.folder / "slipform" / "method"}
        place = self.folder / "analysis"
        values = {
            "models": ",".join(f"{name}={model}" for name, model in models.items()),
            "image_model": self.random_model("dinov2", write_tiny_dinov2),
            "text_model": roberta,
            "concreteness_ratings": self.options.concreteness_ratings,
            "gallery": PAIRS,
            "caveat": self.caveat,
            "output_dir": place,
        }
        words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
        cli.main(["analyze", *(f"{name}={place}" for name, place in sets.items()), *words, "--overwrite"])
        about = "the configurations analyzed with random models; the numbers only show that all parts work"
        yield place / "report.md", about
        yield place / "gallery.png", f"{PAIRS} randomly drawn pairs, {PAIRS // len(sets)} per configuration"

    def _write_clip(self, part: Path) -> None:
        vocabulary = str(self.data / "clip_tokenizer")
        write_random_clip(part, vocabulary, seed=0, config=RANDOM_CLIPS["vit_tiny"]())


STEPS: Steps = {
    "keywords": Factory.keywords,
    "pairs": Factory.pairs,
    LLM: Factory.llm,
    "training": Factory.training,
    "analysis": Factory.analysis,
}


def captions_of(path: Path) -> Dataset:
    """Reads the captions of each image from COCO's file, in the order of images."""
    content = read_json(path)
    texts: dict[int, list[str]] = {image["id"]: [] for image in content["images"]}
    for annotation in content["annotations"]:
        texts[annotation["image_id"]].append(annotation["caption"])
    return Dataset.from_dict({"caption": list(texts.values())})


if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
