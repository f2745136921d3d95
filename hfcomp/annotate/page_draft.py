"""A person's unfinished work on an item, as stored in the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hfcomp.annotate.captions import editable_keywords, inpaint_prompt, mask_prompt, proposed_caption, replacements
from hfcomp.data.annotations.entries import Edit, Item, Quality
from hfcomp.data.annotations.masks import THRESHOLD


@dataclass(frozen=True)
class Segmentation:
    """Settings of a mask.

    Attributes:
        prompt: Text that names what to segment. Empty for a mask drawn by hand.
        threshold: Minimum probability, 0 to 1.
        enlarge: Enlargement of the mask in x and y, in pixels.
        added: File of the added brush strokes, white on black.
        erased: File of the erasing brush strokes. They take precedence over the added ones.
    """

    prompt: str
    threshold: float = THRESHOLD
    enlarge: tuple[int, int] = (0, 0)
    added: str | None = None
    erased: str | None = None

    @property
    def is_corrected(self) -> bool:
        """Whether the brush was used."""
        return self.added is not None or self.erased is not None


@dataclass(frozen=True)
class Candidate:
    """A painted image to choose from."""

    file: str
    seed: int


@dataclass(frozen=True)
class Painting:
    """Candidates with the mask and the prompt that they were painted with.

    Attributes:
        mask: File of the mask.
        candidates: Sorted by their seeds.
    """

    segmentation: Segmentation
    mask: str
    prompt: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class PageDraft:
    """A person's work on an item so far.

    Attributes:
        original: The item's caption that the new caption is based on.
        caption: The new caption.
        painting: The latest candidates.
        chosen: Index of the chosen candidate.
        next_seed: First seed of the next candidates.
        note: Message to the person, such as the reason why a reviewer sent the item back.
    """

    original: str
    segmentation: Segmentation
    prompt: str
    caption: str
    painting: Painting | None = None
    chosen: int | None = None
    quality: Quality | None = None
    next_seed: int = 0
    note: str = ""

    @classmethod
    def from_json(cls, content: Mapping[str, Any], where: str) -> PageDraft:
        try:
            return _adapter().validate_python(dict(content))
        except ValidationError as error:
            raise ValueError(f"{where}: not a draft of this version: {error.errors()[0]['msg']}.") from error


@dataclass(frozen=True)
class Offer:
    """The replacements that a caption offers.

    Attributes:
        mask_prompt: Phrase that contains the keyword.
        prompts: Inpainting prompts, keyed by the word that replaces the keyword.
    """

    keyword: str
    mask_prompt: str
    prompts: Mapping[str, str] = field(default_factory=dict)


def offer(item: Item, caption: str) -> Offer:
    """Offers to replace the keyword of an item's caption by each word that `replacements` allows."""
    keyword = dict(zip(item.captions, item.keywords, strict=True)).get(caption, item.keywords[0])
    match = next((match for match in editable_keywords(caption, item.concept) if match.keyword == keyword), None)
    if match is None:
        return Offer(keyword, keyword, {word: word for word in replacements(item.concept, keyword)})
    words = replacements(item.concept, keyword)
    return Offer(keyword, mask_prompt(caption, match), {word: inpaint_prompt(caption, match, word) for word in words})


def first_draft(item: Item) -> PageDraft:
    """Returns the initial draft of an item: its first caption, the keyword's phrase and a replacement.

    The initial replacement differs from item to item. Otherwise, most edits would use the first word in the list.
    """
    caption = item.captions[0]
    offered = offer(item, caption)
    prompts = list(offered.prompts.values())
    # Use a sum of bytes instead of `hash`, which differs between processes.
    prompt = prompts[sum(item.id.encode()) % len(prompts)] if prompts else ""
    return PageDraft(
        original=caption,
        segmentation=Segmentation(offered.mask_prompt),
        prompt=prompt,
        caption=proposed_caption(caption, item.concept, prompt),
    )


def update_caption(item: Item, before: PageDraft, draft: PageDraft) -> PageDraft:
    """Adapts the caption of a draft to its inpainting prompt and base caption, unless a person has edited it."""
    # A caption that is neither our proposal nor the original was typed by a person, so keep it.
    proposed = proposed_caption(before.original, item.concept, before.prompt)
    if draft.caption != before.caption or before.caption not in (proposed, before.original):
        return draft
    return replace(draft, caption=proposed_caption(draft.original, item.concept, draft.prompt))


def draft_from_edit(edit: Edit, inverse: str | None, note: str = "") -> PageDraft:
    """Returns the draft that would be submitted as the given edit.

    Args:
        inverse: File of the pixels outside the mask, if the mask was corrected by hand.
    """
    strokes = {"added": edit.mask, "erased": inverse} if edit.is_corrected else {}
    segmentation = Segmentation(edit.mask_prompt, edit.threshold, edit.enlarge, **strokes)
    return PageDraft(
        original=edit.original,
        segmentation=segmentation,
        prompt=edit.inpaint_prompt,
        caption=edit.caption,
        painting=Painting(segmentation, edit.mask, edit.inpaint_prompt, (Candidate(edit.image, edit.seed),)),
        chosen=0,
        quality=edit.quality,
        next_seed=edit.seed + 1,
        note=note,
    )


@cache
def _adapter() -> TypeAdapter[PageDraft]:
    return TypeAdapter(PageDraft)
