"""The complete challenge set pipeline on a small scale: `make challenge`.

| `--only` | step |
|---|---|
| `sandbox` | scenes with exact edits by a scripted person, reviewed by another, built, and models ranked on them |
| `photographs` | the same with 449 photographs, a random segmenter and a random inpainter, scored by a random CLIP |

The models of the first step come from `recipes/slipform.py` on the sandbox: its base, its same-batch control and
Slipform. Their test items are synthetic but exact. The second step tests the plumbing on real photographs and captions
and says nothing about quality.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import hfcomp
from dataset_builders.factories import Steps, Written, random_model, run_steps, say, train
from dataset_builders.inpaintcoco.sandbox_project import annotate_sandbox
from hfcomp.annotate.candidates import CandidateOptions, add_candidates
from hfcomp.annotate.captions import (
    check_caption,
    editable_keywords,
    inpaint_prompt,
    mask_prompt,
    proposed_caption,
    replacements,
)
from hfcomp.annotate.drafting import draft
from hfcomp.annotate.models import Inpainter, Segmenter, load_inpainter, load_segmenter
from hfcomp.annotate.options import DraftOptions
from hfcomp.data.annotations.entries import AUTOMATIC, QUALITIES, Edit, Item
from hfcomp.data.annotations.masks import compose, mask_image, threshold_mask
from hfcomp.data.annotations.project import Project
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.errors import one_line_errors
from hfcomp.evaluation.benchmarks.papers.inpaintcoco import INPAINTCOCO
from hfcomp.evaluation.benchmarks.sandbox import sandbox_benchmarks
from hfcomp.factory.command import build_and_report
from hfcomp.factory.inpaintcoco.options import InpaintCocoOptions
from hfcomp.modeling.random_clip import RANDOM_CLIPS, write_random_clip
from hfcomp.run_folders import FINISHED_FILE
from hfcomp.testing import write_tiny_clipseg, write_tiny_inpainting

SANDBOX, PHOTOGRAPHS = "sandbox", "photographs"
BASE, CONTROL, METHOD = "base", "same-batch", "method"
EXACT = "sandbox edited"
"""The sandbox's own evaluation of edited images."""
ANNOTATORS, REVIEWER = ("scripted annotator 1", "scripted annotator 2"), "scripted reviewer"
DRAFTS = {
    **{"inpaint_steps": 2, "inpaint_size": 64, "candidates": 1, "clip_model": "none"},
    **{"threshold": 0.5, "enlarge_x": 0, "enlarge_y": 0, "min_area": 0.0, "max_area": 1.0},
}
"""Settings of the automatic mode with which some edits by random models pass."""
SKIP_REASON, SENT_BACK_REASON = "nothing can be painted", "every fifth automatic edit, by the script"


@dataclass(kw_only=True)
class ChallengeOptions:
    """A challenge set.

    Attributes:
        output: Output folder of all steps.
        run: Finished run of recipes/slipform.py with the control same-batch. If unset, one is trained.
        scenes: Number of sandbox scenes per concept.
        photographs: Number of photographs to read. Defaults to all.
        seed: Random seed for the scenes and the order of the photographs.
        device: Device such as cpu or cuda:1. Defaults to a GPU if available.
    """

    output: Path = Path("runs/challenge")
    run: Path | None = None
    scenes: int = 400
    photographs: int | None = None
    seed: int = 0
    device: str | None = None

    def __post_init__(self) -> None:
        if self.scenes < 1:
            raise ValueError(f"scenes: found {self.scenes}, expected at least 1.")


def main(arguments: Sequence[str]) -> None:
    """Runs the steps in `--only`, by default all, and lists the written files."""
    about = "Make a challenge set with scripted people and rank models on it."
    only_sandbox = {"without_caveat": [SANDBOX], "without_data": [SANDBOX]}
    run_steps(arguments, ChallengeOptions, STEPS, Factory.from_options, about, **only_sandbox)


@dataclass(frozen=True)
class Factory:
    """Shared state of the steps; each step yields its output paths with descriptions.

    Attributes:
        data: Folder with photographs and captions.
        options: Options of both steps.
    """

    data: Path | None
    options: ChallengeOptions

    caveat = (
        "The photographs test plumbing, not quality: random models segment, paint and score, and nobody checked them."
    )

    @classmethod
    def from_options(cls, data: Path | None, given: Mapping[str, Any]) -> Factory:
        """Makes the factory from the data folder and the given options."""
        return cls(data, ChallengeOptions(**given))

    def sandbox(self) -> Written:
        """Makes scenes with exact edits and ranks models on them.

        Raises:
            ValueError: If the run is unfinished or lacks a model, or edits are not exact.
        """
        folder = self.options.output / SANDBOX
        models = self._models(folder)
        project = annotate_sandbox(folder / "project", self.options.scenes, self.options.seed, log=say)
        if project.differing:
            raise ValueError(f"{project.differing} edited images in {project.folder} differ from the counterfactual.")
        say(
            f"{project.accepted:,} of {project.scenes:,} scenes accepted; every edited image equals the counterfactual"
        )
        built = self._build(project.folder, folder / "inpaintcoco")
        own = sandbox_benchmarks(self.options.scenes, self.options.seed)
        exact = next(benchmark for benchmark in own if benchmark.title == EXACT)
        results = hfcomp.evaluate(
            models,
            benchmarks=[INPAINTCOCO, exact],
            data={INPAINTCOCO.name: built},
            reference=CONTROL,
            device=self.options.device,
        )
        print(results, flush=True)
        say(comparison_text(results.outcomes.table))
        results.save(folder / "evaluation")
        yield built, f"{project.accepted:,} exact edits as a challenge set"
        yield folder / "evaluation" / "report.md", "base, same-batch control and Slipform on this set, with intervals"

    def photographs(self) -> Written:
        """Edits photographs with random models and scores a random CLIP on them."""
        folder = self.options.output / PHOTOGRAPHS
        clip = random_model(self.options.output, "clip", self._write_clip)
        segmenter = random_model(self.options.output, "clipseg", lambda part: write_tiny_clipseg(part, clip))
        inpainter = random_model(self.options.output, "inpainting", lambda part: write_tiny_inpainting(part, clip))
        project = Project(folder / "project")
        try:
            source = {"source": str(self.data / "coco_open_256.jsonl"), "column_names": "caption=captions"}
            options = CandidateOptions(**source, seed=self.options.seed, limit=self.options.photographs)
            add_candidates(project, options, log=say)
            models = {"segmenter": str(segmenter), "inpainter": str(inpainter)}
            drafts = DraftOptions(**models, **DRAFTS, seed=self.options.seed, device=self.options.device)
            draft(project, drafts, log=say)
            review(project)
            annotate(project, load_segmenter(drafts), load_inpainter(drafts))
            review(project)
        finally:
            project.decisions.close()
        built = self._build(project.folder, folder / "inpaintcoco")
        results = hfcomp.evaluate(
            {"random CLIP": clip},
            benchmarks=[INPAINTCOCO],
            data={INPAINTCOCO.name: built},
            device=self.options.device,
        )
        print(self.caveat, results, sep="\n", flush=True)
        results.save(folder / "evaluation")
        yield built, "photographs repainted by a random pipeline, as a challenge set"
        yield folder / "evaluation" / "report.md", "a random CLIP on this set"

    def _models(self, folder: Path) -> dict[str, Path]:
        """Returns base, control and method of the run; trains one if no run is given."""
        run = self.options.run or folder / "slipform"
        if self.options.run is None and not (run / FINISHED_FILE).is_file():
            train("slipform.py", "slipform/sandbox", {"controls": CONTROL, "output_dir": run})
        models = {BASE: run / BASE, CONTROL: run / "controls" / CONTROL, "Slipform": run / METHOD}
        missing = [str(place) for place in models.values() if not place.is_dir()]
        if missing:
            raise ValueError(
                f"{missing[0]} is missing: expected a finished run that contains it. Train one with `accelerate "
                f"launch recipes/slipform.py --controls {CONTROL}`, or remove --run."
            )
        return models

    def _build(self, project: Path, folder: Path) -> Path:
        built = build_and_report(InpaintCocoOptions(source=str(project), output=folder))
        verify_set(built.folder, log=lambda line: None)
        return built.folder

    def _write_clip(self, part: Path) -> None:
        vocabulary = str(self.data / "clip_tokenizer")
        write_random_clip(part, vocabulary, seed=self.options.seed, config=RANDOM_CLIPS["vit_tiny"]())


def comparison_text(items: pd.DataFrame) -> str:
    """Says how many image scores on this set equal those of the sandbox's own evaluation of the same scenes.

    Args:
        items: Outcomes of both benchmarks.
    """
    keys = ["arm", "image_id", "subset"]
    ours, own = (
        items[(items["benchmark"] == title) & (items["metric"] == "image")].set_index(keys)["value"]
        for title in (INPAINTCOCO.title, EXACT)
    )
    equal = int((ours == own.reindex(ours.index)).sum())
    return f"{equal:,} of {len(ours):,} image scores equal those of {EXACT!r} for the same scene"


def annotate(project: Project, segmenter: Segmenter, inpainter: Inpainter) -> None:
    """Annotates with two scripted people in turn, who skip items that cannot be painted."""
    number = 0
    while (item := project.decisions.next_item(person := ANNOTATORS[number % 2])) is not None:
        number += 1
        try:
            project.decisions.submit(person, item.id, edit(project, item, segmenter, inpainter, seed=number))
        except ValueError as error:
            say(f"skipping {item.id}: {error}")
            project.decisions.skip(person, item.id, SKIP_REASON)


def edit(project: Project, item: Item, segmenter: Segmenter, inpainter: Inpainter, seed: int) -> Edit:
    """Paints the first replacement of the first keyword where the segmenter's probability exceeds its median.

    Raises:
        ValueError: If nothing can be replaced or painted.
    """
    original, caption = project.read(item.image), item.captions[0]
    match = editable_keywords(caption, item.concept)[0]
    prompt = inpaint_prompt(caption, match, replacements(item.concept, match.keyword)[0])
    segment = mask_prompt(caption, match)
    probabilities = segmenter.probability_map(original, segment)
    threshold = float(np.median(probabilities))  # with random weights, no fixed threshold works
    mask = threshold_mask(probabilities, threshold)
    image = compose(original, inpainter.paint(original, mask, prompt, [seed])[0].image, mask)
    changed = proposed_caption(caption, item.concept, prompt)
    check_caption(changed, caption, item.concept)
    return Edit(
        image=project.save(image),
        mask=project.save(mask_image(mask)),
        caption=changed,
        original=caption,
        mask_prompt=segment,
        threshold=threshold,
        enlarge=(0, 0),
        is_corrected=False,
        inpaint_prompt=prompt,
        seed=seed,
        quality=QUALITIES[seed % 2],
    )


def review(project: Project) -> None:
    """Reviews as a scripted person, who sends back every fifth automatic edit and rates every third item "okay"."""
    number = 0
    while (pending := project.decisions.next_review(REVIEWER)) is not None:
        item, _ = pending
        number += 1
        *_, submission = project.decisions.log(item=item.id)
        if number % 5 == 0 and submission.person == AUTOMATIC:
            project.decisions.send_back(REVIEWER, item.id, SENT_BACK_REASON)
        else:
            project.decisions.accept(REVIEWER, item.id, QUALITIES[number % 3 == 0])


STEPS: Steps = {SANDBOX: Factory.sandbox, PHOTOGRAPHS: Factory.photographs}

if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
