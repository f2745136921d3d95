"""An annotation project on the sandbox: two scripted people, whose edits and masks are exact.

Scenes are held out of the sandbox's training sets. Everything else is as with people at the page: candidates, masks,
composition, checks of captions, decisions and reviews. A mask has whole cells of the grid, and the counterfactual
image equals the original outside them, so that the feathered border of a composition changes nothing: the edited image
is the counterfactual to the bit.
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
"""Concepts of which the keyword tables know words of the sandbox: five of its eight colors, and all sizes."""
CONCEPTS = ("object", *FROM_KEYWORDS)
SOURCE, SOURCE_NAME, LICENSE_NAME = "source", "hfcomp sandbox", "Apache-2.0"


@dataclass(frozen=True)
class SandboxProject:
    """What the scripted people made.

    Attributes:
        folder: of the project.
        scenes: held-out scenes that were drawn.
        accepted: items that were accepted.
        differing: accepted edited images that are not the exact counterfactual to the bit.
    """

    folder: Path
    scenes: int
    accepted: int
    differing: int


def annotate_sandbox(folder: Path, scenes: int, seed: int = 0, *, log: Callable[[str], None]) -> SandboxProject:
    """Makes a project whose items are all annotated and accepted, or finishes it after an interruption.

    Candidates of color and size are chosen by the keyword tables from captions, as from any source. Their objects are
    those of COCO, which the sandbox has none of: items of the concept object are all scenes with a shape to replace.

    Args:
        folder: of the project.
        scenes: held-out scenes of each concept.
        seed: of the scenes.
        log: receives lines about the candidates.
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
        differing = sum(not _is_exact(project, one, pairs) for one in accepted)
    finally:
        project.decisions.close()
    return SandboxProject(folder, len(rows), len(accepted), differing)


def _is_exact(project: Project, one: Accepted, pairs: Mapping[str, dict[str, Any]]) -> bool:
    """Whether an edited image is the counterfactual to the bit."""
    exact = decode_image(pairs[one.item.facts[IMAGE_ID]]["inpaint_image"])
    return project.read(one.edit.image).tobytes() == exact.tobytes()


def _add_candidates(project: Project, rows: Dataset, concept: str, log: Callable[[str], None]) -> None:
    """The scenes whose exact edit is of a concept, as a dataset in Parquet beside the project."""
    source = project.folder.with_name(f"{project.folder.name}-scenes") / concept
    own = rows.select([row for row, one in enumerate(rows["concept"]) if one == concept])
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
    while (found := project.decisions.next_review(REVIEWER)) is not None:
        project.decisions.accept(REVIEWER, found[0].id, "very good")
