"""An annotation project on the sandbox, with two scripted people whose edits and masks are exact.

Scenes are held out of the sandbox's training sets. Everything else is the same as with people at the page: candidates,
masks, composition, caption checks, decisions and reviews. A mask covers whole grid cells, and outside them the
counterfactual image equals the original. So the feathered border of a composition changes nothing, and the edited
image and the counterfactual are bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset

from hfcomp.annotate.candidates import CandidateOptions, add_candidates
from hfcomp.annotate.captions import check_caption
from hfcomp.data.annotations.entries import Accepted, Edit, Item
from hfcomp.data.annotations.masks import compose, mask_image, read_mask
from hfcomp.data.annotations.project import Project
from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.images import decode_image
from hfcomp.data.loading import undecoded
from hfcomp.data.publishing import LICENSE
from hfcomp.sandbox import edited_pairs_set
from hfcomp.sandbox.scenes import SHAPES
from hfcomp.writing import replacing

ANNOTATOR, REVIEWER = "scripted annotator", "scripted reviewer"
FROM_KEYWORDS = ("color", "size")
"""Concepts for which the keyword tables contain sandbox words: five of its eight colors, and all sizes."""
CONCEPTS = ("object", *FROM_KEYWORDS)
SOURCE, SOURCE_NAME, LICENSE_NAME = "source", "hfcomp sandbox", "Apache-2.0"


@dataclass(frozen=True)
class SandboxProject:
    """Result of the scripted people's work.

    Attributes:
        folder: Project folder.
        scenes: Number of held-out scenes drawn.
        accepted: Number of accepted items.
        differing: Number of accepted edited images that are not bit-identical to the counterfactual.
    """

    folder: Path
    scenes: int
    accepted: int
    differing: int


def annotate_sandbox(folder: Path, scenes: int, seed: int = 0, *, log: Callable[[str], None]) -> SandboxProject:
    """Makes a project in which all items are annotated and accepted, or finishes it after an interruption.

    Candidates for color and size are chosen from captions with the keyword tables, as for any source. The tables'
    objects are COCO's, which do not occur in the sandbox, so the items for the concept object are all scenes with a
    shape to replace.

    Args:
        folder: Project folder.
        scenes: Number of held-out scenes per concept.
        seed: Random seed of the scenes.
        log: Receives lines about the candidates.
    """
    rows = undecoded(edited_pairs_set(scenes, seed))
    rows = rows.select([row for row, concept in enumerate(rows["concept"]) if concept in CONCEPTS])
    pairs = {row[IMAGE_ID]: row for row in rows}
    project = Project(folder)
    try:
        for concept in FROM_KEYWORDS:
            _add_candidates(project, rows, concept, log)
        project.decisions.add_items(_object_items(project, rows))
        _annotate(project, pairs)
        _review(project)
        accepted = list(project.decisions.accepted())
        differing = sum(not _is_exact(project, item, pairs) for item in accepted)
    finally:
        project.decisions.close()
    return SandboxProject(folder, len(rows), len(accepted), differing)


def _is_exact(project: Project, accepted: Accepted, pairs: Mapping[str, dict[str, Any]]) -> bool:
    """Whether an edited image is bit-identical to the counterfactual."""
    exact = decode_image(pairs[accepted.item.facts[IMAGE_ID]]["inpaint_image"])
    return project.read(accepted.edit.image).tobytes() == exact.tobytes()


def _add_candidates(project: Project, rows: Dataset, concept: str, log: Callable[[str], None]) -> None:
    """Adds the scenes whose exact edit changes a concept, via a Parquet dataset next to the project."""
    source = project.folder.with_name(f"{project.folder.name}-scenes") / concept
    own = rows.select([row for row, name in enumerate(rows["concept"]) if name == concept])
    own = own.select_columns(["coco_image", "coco_caption", IMAGE_ID])
    own = own.rename_columns({"coco_image": "image", "coco_caption": "caption"})
    own = own.add_column(LICENSE, [LICENSE_NAME] * len(own)).add_column(SOURCE, [SOURCE_NAME] * len(own))
    with replacing(source / "train.parquet") as part:
        own.to_parquet(part)
    add_candidates(project, CandidateOptions(source=str(source), concepts=(concept,)), log=log)


def _object_items(project: Project, rows: Dataset) -> list[Item]:
    facts = {LICENSE: LICENSE_NAME, SOURCE: SOURCE_NAME}
    items = []
    for row in rows:
        if row["concept"] != "object":
            continue
        caption, name = row["coco_caption"], row[IMAGE_ID]
        shape = next(shape for shape in SHAPES if shape in caption)
        image = project.save(decode_image(row["coco_image"]))
        items.append(Item(f"{name}/object", image, "object", (caption,), (shape,), {IMAGE_ID: name, **facts}))
    return items


def _annotate(project: Project, pairs: Mapping[str, dict[str, Any]]) -> None:
    while (item := project.decisions.next_item(ANNOTATOR)) is not None:
        row, (caption, *_) = pairs[item.facts[IMAGE_ID]], item.captions
        mask, changed = read_mask(decode_image(row["mask"])), row["inpaint_caption"]
        image = compose(project.read(item.image), decode_image(row["inpaint_image"]), mask)
        check_caption(changed, caption, item.concept)
        edit = Edit(
            image=project.save(image),
            mask=project.save(mask_image(mask)),
            caption=changed,
            original=caption,
            mask_prompt="",
            threshold=0.0,
            enlarge=(0, 0),
            is_corrected=False,
            inpaint_prompt=changed,
            seed=0,
            quality="very good",
        )
        project.decisions.submit(ANNOTATOR, item.id, edit)


def _review(project: Project) -> None:
    while (pending := project.decisions.next_review(REVIEWER)) is not None:
        project.decisions.accept(REVIEWER, pending[0].id, "very good")
