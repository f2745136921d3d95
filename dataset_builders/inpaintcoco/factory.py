"""The whole way of a challenge set on a small scale: `make challenge`.

| `--only` | what is done |
|---|---|
| `sandbox` | scenes with exact edits by a scripted person, reviewed by another, built, and models ranked on them |
| `photographs` | 449 photographs with a random segmenter and inpainter, the same way, scored by a random CLIP |

The models of the first step are those of `recipes/slipform.py` on the sandbox: its base, its same-batch control and
Slipform. What they are asked is synthetic but exact. The second step tries the plumbing on real photographs and
captions and says nothing about quality.
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
from hfcomp.data.annotations.masks import above, compose, mask_image
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
"""Settings of the automatic mode with random models, of which some edits pass."""
NOTHING_TO_DO, NOT_LOOKED_AT = "nothing can be painted", "every fifth automatic edit, by the script"


@dataclass(kw_only=True)
class ChallengeOptions:
    """A challenge set.

    Attributes:
        output: folder of everything.
        run: finished run of recipes/slipform.py with the control same-batch; by default one is trained.
        scenes: of the sandbox, of each concept.
        photographs: that are read; by default all.
        seed: of the scenes, and of the order of the photographs.
        device: such as cpu or cuda:1; by default a GPU where there is one.
    """

    output: Path = Path("runs/challenge")
    run: Path | None = None
    scenes: int = 400
    photographs: int | None = None
    seed: int = 0
    device: str | None = None

    def __post_init__(self) -> None:
        if self.scenes < 1:
            raise ValueError(f"scenes: found {self.scenes}, expected 1 or more.")


def main(arguments: Sequence[str]) -> None:
    """Runs what `--only` names, by default everything, and lists what was written."""
    about = "Makes a challenge set with scripted people and ranks models on it."
    run_steps(arguments, ChallengeOptions, STEPS, Factory.of, about, without_caveat=[SANDBOX], without_data=[SANDBOX])


@dataclass(frozen=True)
class Factory:
    """What the steps share; each yields what it wrote, and what that is.

    Attributes:
        data: the folder of photographs and captions.
        options: of both steps.
    """

    data: Path | None
    options: ChallengeOptions

    caveat = (
        "The photographs are plumbing, not quality: random models segment, paint and score, and nobody looked at them."
    )

    @classmethod
    def of(cls, data: Path | None, given: Mapping[str, Any]) -> Factory:
        """By the folder of the data and the options that are given."""
        return cls(data, ChallengeOptions(**given))

    def sandbox(self) -> Written:
        """Scenes with exact edits, and models ranked on them.

        Raises:
            ValueError: for a run that is not finished or lacks a model, or edits that are not exact.
        """
        folder = self.options.output / SANDBOX
        models = self._models(folder)
        made = annotate_sandbox(folder / "project", self.options.scenes, self.options.seed, log=say)
        if made.differing:
            raise ValueError(f"{made.differing} edited images in {made.folder} are not the exact counterfactual.")
        say(f"{made.accepted:,} of {made.scenes:,} scenes accepted; every edited image is the exact counterfactual")
        built = self._build(made.folder, folder / "inpaintcoco")
        own = sandbox_benchmarks(self.options.scenes, self.options.seed)
        exact = next(one for one in own if one.title == EXACT)
        results = hfcomp.evaluate(
            models,
            benchmarks=[INPAINTCOCO, exact],
            data={INPAINTCOCO.name: built},
            reference=CONTROL,
            device=self.options.device,
        )
        print(results, flush=True)
        say(compared(results.outcomes.table))
        results.save(folder / "evaluation")
        yield built, f"{made.accepted:,} exact edits as a challenge set"
        yield folder / "evaluation" / "report.md", "base, same-batch control and Slipform on it, with intervals"

    def photographs(self) -> Written:
        """Photographs with random models, scored by a random CLIP."""
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
        yield folder / "evaluation" / "report.md", "a random CLIP on it"

    def _models(self, folder: Path) -> dict[str, Path]:
        """Base, control and method of the run, which is trained where none is given."""
        run = self.options.run or folder / "slipform"
        if self.options.run is None and not (run / FINISHED_FILE).is_file():
            train("slipform.py", "slipform/sandbox", {"controls": CONTROL, "output_dir": run})
        models = {BASE: run / BASE, CONTROL: run / "controls" / CONTROL, "Slipform": run / METHOD}
        missing = [str(place) for place in models.values() if not place.is_dir()]
        if missing:
            raise ValueError(
                f"{missing[0]} is missing: expected a finished run with it. Train one with `accelerate launch "
                f"recipes/slipform.py --controls {CONTROL}`, or leave out --run."
            )
        return models

    def _build(self, project: Path, folder: Path) -> Path:
        built = build_and_report(InpaintCocoOptions(source=str(project), output=folder))
        verify_set(built.folder, log=lambda line: None)
        return built.folder

    def _write_clip(self, part: Path) -> None:
        vocabulary = str(self.data / "clip_tokenizer")
        write_random_clip(part, vocabulary, seed=self.options.seed, config=RANDOM_CLIPS["vit_tiny"]())


def compared(items: pd.DataFrame) -> str:
    """How many image scores of the set are those of the sandbox's own evaluation of the same scenes.

    Args:
        items: outcomes of both benchmarks.
    """
    keys = ["arm", "image_id", "subset"]
    ours, own = (
        items[(items["benchmark"] == title) & (items["metric"] == "image")].set_index(keys)["value"]
        for title in (INPAINTCOCO.title, EXACT)
    )
    equal = int((ours == own.reindex(ours.index)).sum())
    return f"{equal:,} of {len(ours):,} image scores are those of {EXACT!r} for the same scene"


def annotate(project: Project, segmenter: Segmenter, inpainter: Inpainter) -> None:
    """Two scripted people in turn, who skip what cannot be painted."""
    number = 0
    while (item := project.decisions.next_item(person := ANNOTATORS[number % 2])) is not None:
        number += 1
        try:
            project.decisions.submit(person, item.id, edit(project, item, segmenter, inpainter, seed=number))
        except ValueError as error:
            say(f"{item.id} is skipped: {error}")
            project.decisions.skip(person, item.id, NOTHING_TO_DO)


def edit(project: Project, item: Item, segmenter: Segmenter, inpainter: Inpainter, seed: int) -> Edit:
    """The first keyword's first replacement, painted where the segmenter finds the upper half of its heat.

    Raises:
        ValueError: where nothing can be replaced or painted.
    """
    original, caption = project.read(item.image), item.captions[0]
    match = editable_keywords(caption, item.concept)[0]
    prompt = inpaint_prompt(caption, match, replacements(item.concept, match.keyword)[0])
    wanted = mask_prompt(caption, match)
    heat = segmenter.probability_map(original, wanted)
    threshold = float(np.median(heat))  # of random weights no fixed one finds something
    mask = above(heat, threshold)
    image = compose(original, inpainter.paint(original, mask, prompt, [seed])[0].image, mask)
    changed = proposed_caption(caption, item.concept, prompt)
    check_caption(changed, caption, item.concept)
    return Edit(
        image=project.save(image),
        mask=project.save(mask_image(mask)),
        caption=changed,
        original=caption,
        mask_prompt=wanted,
        threshold=threshold,
        enlarge=(0, 0),
        is_corrected=False,
        inpaint_prompt=prompt,
        seed=seed,
        quality=QUALITIES[seed % 2],
    )


def review(project: Project) -> None:
    """A scripted person sends back every fifth automatic edit, and accepts the others, every third as "okay"."""
    number = 0
    while (found := project.decisions.next_review(REVIEWER)) is not None:
        item, _ = found
        number += 1
        *_, submission = project.decisions.log(item=item.id)
        if number % 5 == 0 and submission.person == AUTOMATIC:
            project.decisions.send_back(REVIEWER, item.id, NOT_LOOKED_AT)
        else:
            project.decisions.accept(REVIEWER, item.id, QUALITIES[number % 3 == 0])


STEPS: Steps = {SANDBOX: Factory.sandbox, PHOTOGRAPHS: Factory.photographs}

if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
