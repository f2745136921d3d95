"""What a person has made of an item so far, as the database keeps it."""

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
        prompt: what is segmented; empty for a mask drawn by hand.
        threshold: 0 to 1.
        enlarge: pixels in x and y.
        added: file of the brush strokes that were added, white on black.
        erased: file of the brush strokes that were erased; they win.
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
    """An image to choose."""

    file: str
    seed: int


@dataclass(frozen=True)
class Painting:
    """Candidates, with the mask and prompt that they were made with.

    Attributes:
        mask: its file.
        candidates: Sorted by their seeds.
    """

    segmentation: Segmentation
    mask: str
    prompt: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class PageDraft:
    """What a person has made of an item so far.

    Attributes:
        original: caption of the item that the new one is based on.
        caption: the new one.
        painting: the last candidates.
        chosen: index of one of them.
        next_seed: First seed of the next candidates.
        note: Message to the person, such as why a reviewer sent the item back.
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
    """What a caption offers to replace.

    Attributes:
        mask_prompt: Phrase that the keyword is part of.
        prompts: Inpainting prompts by the word that replaces the keyword.
    """

    keyword: str
    mask_prompt: str
    prompts: Mapping[str, str] = field(default_factory=dict)


def offer(item: Item, caption: str) -> Offer:
    """What a caption of an item offers to replace: its keyword, by the words that `replacements` allows."""
    keyword = dict(zip(item.captions, item.keywords, strict=True)).get(caption, item.keywords[0])
    match = next((one for one in editable_keywords(caption, item.concept) if one.keyword == keyword), None)
    if match is None:
        return Offer(keyword, keyword, {word: word for word in replacements(item.concept, keyword)})
    words = replacements(item.concept, keyword)
    return Offer(keyword, mask_prompt(caption, match), {word: inpaint_prompt(caption, match, word) for word in words})


def first_draft(item: Item) -> PageDraft:
    """The draft that an item begins with: its first caption, the keyword's phrase and the first replacement.

    Which replacement comes first differs from item to item, else most would become what heads the list.
    """
    caption = item.captions[0]
    offered = offer(item, caption)
    prompts = list(offered.prompts.values())
    # A sum of bytes instead of `hash`, which differs between processes.
    prompt = prompts[sum(item.id.encode()) % len(prompts)] if prompts else ""
    return PageDraft(
        original=caption,
        segmentation=Segmentation(offered.mask_prompt),
        prompt=prompt,
        caption=proposed_caption(caption, item.concept, prompt),
    )


def following(item: Item, before: PageDraft, draft: PageDraft) -> PageDraft:
    """A draft whose caption follows the inpainting prompt and the base, unless somebody has changed it by hand."""
    # A caption that is neither our proposal nor the original was typed by a person, and stays.
    proposed = proposed_caption(before.original, item.concept, before.prompt)
    if draft.caption != before.caption or before.caption not in (proposed, before.original):
        return draft
    return replace(draft, caption=proposed_caption(draft.original, item.concept, draft.prompt))


def draft_of(edit: Edit, inverse: str | None, note: str = "") -> PageDraft:
    """The draft that would be submitted as an edit.

    Args:
        inverse: file of the pixels outside its mask, for a mask that was corrected by hand.
    """
    strokes = {"added": edit.mask, "erased": inverse} if edit.is_corrected else {}
    made = Segmentation(edit.mask_prompt, edit.threshold, edit.enlarge, **strokes)
    return PageDraft(
        original=edit.original,
        segmentation=made,
        prompt=edit.inpaint_prompt,
        caption=edit.caption,
        painting=Painting(made, edit.mask, edit.inpaint_prompt, (Candidate(edit.image, edit.seed),)),
        chosen=0,
        quality=edit.quality,
        next_seed=edit.seed + 1,
        note=note,
    )


@cache
def _adapter() -> TypeAdapter[PageDraft]:
    return TypeAdapter(PageDraft)
