"""What annotators are given: images with captions that hold a keyword of a concept, of a licence that allows it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from datasets import Dataset
from tqdm.auto import tqdm

from hfcomp.annotation.captions import CONCEPTS, keywords_of, replacements
from hfcomp.data.annotations.project import Project
from hfcomp.data.annotations.records import Item
from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.images import decode_image
from hfcomp.data.licenses import LICENSE, allows_adaptation
from hfcomp.data.loading import undecoded
from hfcomp.generation.magic.image_rows import CAPTION, image_rows
from hfcomp.generation.options import CaptionOptions
from hfcomp.generation.sources import read_captioned_rows

SOURCE = "source"
_STARTS = {b"\xff\xd8\xff": "jpg", b"\x89PNG": "png"}
"""Of files that a browser shows, their endings."""


@dataclass(kw_only=True)
class CandidateOptions(CaptionOptions):
    """Candidates.

    Attributes:
        concepts: comma-separated.
        any_license: also images whose licence forbids adaptation, or is unknown.
        seed: of their order.
    """

    what: ClassVar[str] = "candidates"
    captions: Literal["longest", "all"] = field(default="all", init=False)
    concepts: tuple[str, ...] = CONCEPTS
    any_license: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [name for name in self.concepts if name not in CONCEPTS]
        if wrong or not self.concepts:
            raise ValueError(f"concepts: found {', '.join(self.concepts)!r}, expected some of {', '.join(CONCEPTS)}.")


def add_candidates(
    project: Project, options: CandidateOptions, *, log: Callable[[str], None], progress: bool = False
) -> int:
    """Adds the candidates of a source to a project, in an order that the seed draws; returns how many are new.

    An item is an image with the captions that hold a keyword of one concept, of any case and number; an image may be
    in several. Images are copied to the bit. What is left out is logged by its reason.

    Raises:
        ValueError: for a source without images, captions or anything that fits.
    """
    needed = {"needed": ["image"], "needed_by": "hfcomp annotate", "joined_by": [IMAGE_ID, LICENSE, SOURCE]}
    rows = undecoded(read_captioned_rows(options, log, is_old=lambda column: False, **needed))
    images = image_rows(rows)
    first = {int(image): row for row, image in reversed([*enumerate(images.image_of)])}
    order = sorted(range(len(images.images)), key=lambda image: _draw(options.seed, images.images[image][IMAGE_ID]))
    left_out: Counter[str] = Counter()
    items = _items(project, options, rows, images.images, [(image, first[image]) for image in order], left_out)
    number = project.decisions.add_items(tqdm(items, desc="candidates", unit="items", disable=not progress))
    for reason, count in left_out.most_common():
        log(f"{count:,} images are left out: {reason}")
    if not sum(project.decisions.counts().values()):
        raise ValueError(f"{options.source} has no image that can be annotated; the reasons are above.")
    log(f"{number:,} items are new")
    return number


def _items(
    project: Project,
    options: CandidateOptions,
    rows: Dataset,
    images: Dataset,
    order: Sequence[tuple[int, int]],
    left_out: Counter[str],
) -> Iterator[Item]:
    for image, row in order:
        captions = images[image][CAPTION]
        found = {concept: _with_keywords(captions, concept) for concept in options.concepts}
        if not any(found.values()):
            left_out["no caption with a keyword that may be replaced"] += 1
            continue
        facts = {name: rows[row][name] for name in (LICENSE, SOURCE) if name in rows.column_names}
        facts = {IMAGE_ID: images[image][IMAGE_ID]} | facts
        if not options.any_license and (problem := _license_problem(facts)):
            left_out[problem] += 1
            continue
        try:
            file = _copied(project, rows[row]["image"], f"column 'image', row {row}")
        except (OSError, ValueError, TypeError):
            left_out["an image that cannot be read"] += 1
            continue
        for concept, pairs in found.items():
            if pairs:
                own, keywords = zip(*pairs, strict=True)
                yield Item(f"{facts[IMAGE_ID]}/{concept}", file, concept, own, keywords, facts)


def _with_keywords(captions: Sequence[str], concept: str) -> list[tuple[str, str]]:
    """Captions with their first keyword that something may replace."""
    found = []
    for caption in dict.fromkeys(captions):
        words = [one.keyword for one in keywords_of(caption, concept) if replacements(concept, one.keyword)]
        found += [(caption, words[0])] if words else []
    return found


def _license_problem(facts: Mapping[str, Any]) -> str | None:
    allowed = allows_adaptation(facts.get(LICENSE))
    if allowed:
        return None
    return "a licence that is not known" if allowed is None else "a licence that forbids adaptation"


def _copied(project: Project, image: Any, where: str) -> str:
    """The bytes of an image in the project, once it was decoded; of one without bytes or in another format as PNG."""
    picture = decode_image(image, where=where)
    content = image.get("bytes") if isinstance(image, Mapping) else None
    if content is None and isinstance(image, Mapping) and Path(str(image.get("path"))).is_file():
        content = Path(image["path"]).read_bytes()
    ending = next((ending for start, ending in _STARTS.items() if content and content.startswith(start)), None)
    return project.save_bytes(content, ending) if content and ending else project.save(picture)


def _draw(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode()).digest()
