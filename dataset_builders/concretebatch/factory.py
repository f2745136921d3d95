"""The whole way of ConcreteBatch on a small scale, on real photographs and captions: `make factory`.

| `--only` | what is done |
|---|---|
| `keywords` | the keywords of the captions of COCO val2017 in three selections and three orders, beside the paper's |
| `pairs` | pairs of 449 photographs in three configurations |
| `llm` | captions by a random language model behind `transformers serve`, nearly all of which have to be refused |
| `training` | Slipform trained on the pairs by its recipe |
| `analysis` | `hfcomp analyze` of the pairs by the models before and after, and a gallery of 24 pairs |

Keywords, captions and photographs are real. The models are random, and without `--image_pipeline` so are the negative
images; without `--writer endpoint` the negative captions come from a lexicon. It tries the plumbing and says nothing
about quality.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets import Dataset

from dataset_builders.concretebatch.selection import selection_table
from dataset_builders.factories import ASKED, LLM, Steps, Written, check_refused, random_model, run_steps, say, train
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
    "top_k: the category rule acts among the k most (least) concrete words; category_first: on all words, before the "
    "k are taken; sample: one of the k is drawn without it. * is the default. Concreteness is mean / median, 1 to 5; "
    "the paper gives no shares of categories."
)


def main(arguments: Sequence[str]) -> None:
    """Runs what `--only` names, by default everything, and lists what was written."""
    about = "Builds pairs, trains on them and analyses them."
    run_steps(arguments, ConcreteBatchOptions, STEPS, Factory.of, about, without_caveat=["keywords"])


@dataclass(frozen=True)
class Factory:
    """What the steps share; each yields what it wrote, and what that is.

    Attributes:
        data: the folder of photographs, captions and ratings.
        folder: that receives everything.
        options: of the pairs.
        is_random: whether the negative images are those of the random pipeline.
    """

    data: Path
    folder: Path
    options: ConcreteBatchOptions
    is_random: bool

    @classmethod
    def of(cls, data: Path, given: Mapping[str, Any]) -> Factory:
        """By the folder of the data and the options that are given."""
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
        """What of the pairs and the models is not real."""
        images = "the negative images are noise of a tiny random pipeline, " if self.is_random else ""
        captions = "the negative captions come from a lexicon, " if self.options.writer == "substitute" else ""
        return f"Plumbing, not quality: {images}{captions}and all models have random weights."

    def random_model(self, name: str, write: Callable[[Path], object]) -> Path:
        """A model of random weights, written where it is missing."""
        return random_model(self.folder, name, write)

    def keywords(self) -> Written:
        """The words that are chosen of the captions of COCO val2017."""
        captions = captions_of(self.data / "coco" / "captions_val2017.json")
        table = selection_table(captions, self.options, log=say)
        title = f"Keywords of the longest captions of {len(captions):,} images of COCO val2017"
        facts = f"Parser {self.options.parser}, real captions and ratings. {ABOUT_KEYWORDS}"
        report = Report(title, sections=[Section("", [table])], legend=[facts])
        render_terminal(report)
        path = self.folder / "keywords.md"
        write_text(path, render_markdown(report))
        yield path, "keywords of real captions in three orders, beside the paper's"

    def pairs(self) -> Written:
        """The pairs of the photographs, built and verified."""
        if self.is_random:
            clip = self.random_model("clip", self._write_clip)
            self.random_model("sdxl", lambda part: write_tiny_sdxl(part, clip))
        built = build_and_report(self.options)
        verify_set(built.folder, log=lambda line: None)
        yield built.folder, f"{built.rows:,} pairs in the configurations {', '.join(built.chains)}"

    def llm(self) -> Written:
        """Captions of a random language model.

        Raises:
            ValueError: where validation lets more than a few of them pass.
        """
        model = self.random_model("llama", write_tiny_llama)
        asked = {"writer": "endpoint", "llm": str(model), "temperature": 1.0, "plain_answers": True, "concurrency": 4}
        place = self.folder / "random_captions"
        changes = {
            "configs": self.options.configs[:1],
            "until": "captions",
            "limit": min(self.options.limit or ASKED, ASKED),
        }
        with transformers_serve(model) as address:
            options = replace(
                self.options,
                **asked,
                **changes,
                base_url=address,
                answer_cache=str(self.folder / "random_answers"),
                output=place,
            )
            built = build_set(options, log=say)
        render_terminal(built.report())
        (chain,) = built.chains.values()
        targets, captions = chain[0].manifest["rows"], built.rows
        refused = check_refused(captions, targets, "captions", place)
        say(f"{refused}, each after {options.attempts} attempts: the reasons are counted above.")
        yield chain[-1].folder / "set_aside.jsonl", f"{refused}, with the reason for each"

    def training(self) -> Written:
        """Slipform on the pairs, by its recipe."""
        place = self.folder / "slipform"
        values = {"dataset": self.options.output, "dataset_config": self.options.configs[0], "output_dir": place}
        train("slipform.py", "slipform/factory", values)
        yield place / "report.md", "Slipform from random weights, trained on the pairs and scored"

    def analysis(self) -> Written:
        """The pairs by the models before and after, and a gallery of some of them."""
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
        cli.main(["analyze", *(f"{name}={one}" for name, one in sets.items()), *words, "--overwrite"])
        yield place / "report.md", "the configurations by random models: numbers of models show that parts fit"
        yield place / "gallery.png", f"{PAIRS} pairs drawn at random, {PAIRS // len(sets)} of each configuration"

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
    """The captions of each image of COCO's file, in the order of images."""
    content = read_json(path)
    texts: dict[int, list[str]] = {image["id"]: [] for image in content["images"]}
    for one in content["annotations"]:
        texts[one["image_id"]].append(one["caption"])
    return Dataset.from_dict({"caption": list(texts.values())})


if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
