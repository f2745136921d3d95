"""What the card of a built set says of each kind of set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """What a card says of a kind of set.

    Attributes:
        title: above all.
        about: the first paragraph.
        columns: what each column holds.
        others: what is said of the other columns.
        header: of the examples; empty for a set without.
        reads: columns of the examples.
        cells: rows of cells of a row with these columns.
    """

    title: str
    about: str
    columns: Mapping[str, str]
    others: str = (
        "Other columns are the source's; an `image_id` that it lacks is made from its images, equal in rows of one "
        "image. Its images are its own bytes. Concreteness ratings are not included, as "
        "their licence forbids it: hfcomp joins them from your copy when a set is loaded."
    )
    header: Sequence[str] = ()
    reads: Sequence[str] = ()
    cells: Callable[..., list[Sequence[str]]] | None = None


KINDS = {
    "negatives": Kind(
        "Hard negative captions",
        "A negative caption is the caption with something changed, so that it should no longer be true of the image. "
        "They were not reviewed individually: some are true all the same, and some are not fluent English.",
        {
            "`caption`": "the true caption",
            "`negative_captions`": "false captions, the same number in every row; an empty string means none",
            "`negative_kinds`, `negative_categories`": "the kind of change; `attribute`, `object` or `relation`",
            "`negative_keywords`": "what was changed",
            "`negative_spans`": "where, as `[start, end)` in characters of `caption`",
        },
        header=("caption", "negative caption", "kind"),
        reads=("caption", "negative_captions", "negative_kinds"),
        cells=lambda caption, texts, kinds: [
            (caption, text, kind) for text, kind in zip(texts, kinds, strict=True) if text
        ],
    ),
    "concepts": Kind(
        "Noun phrases",
        "The things that a caption names, as its parser found them: concepts for C2LIP (arXiv:2603.25722). They "
        "were not reviewed individually.",
        {
            "`caption`": "the caption",
            "`concepts`": "its noun phrases, from left to right, without duplicates; empty where there are none, "
            "which training reads as the caption itself",
            "`concept_spans`": "for each of them its position, a list of `[start, end)` in characters of `caption`: "
            "several where phrases share a noun",
        },
        header=("caption", "concepts"),
        reads=("caption", "concepts"),
        cells=lambda caption, concepts: [(caption, "; ".join(concepts))],
    ),
    "concretebatch": Kind(
        "ConcreteBatch",
        "Pairs of a caption and an image, each with a hard negative caption and image: one word of the caption is "
        "replaced, chosen by how concrete it is, and the image is edited to match (Slipform, arXiv:2604.13313). The "
        "negatives were not reviewed individually: some are true all the same, and some images do not show what their "
        "caption says.",
        {
            "`image`, `caption`": "the image, and its longest caption",
            "`negative_image`": "the image edited by its negative caption",
            "`negative_captions`": "a list of one: the caption with a word replaced",
            "`negative_kinds`, `negative_categories`": "`replace_att`, `replace_obj` or `replace_rel`; `attribute`, "
            "`object` or `relation`",
            "`negative_keywords`, `negative_spans`": "what was replaced, and where, as `[start, end)` in characters "
            "of `caption`",
            "`negative_rated_words`": "the entry of the concreteness ratings that the keyword was found as, by which "
            "ratings are joined",
        },
        header=("caption", "negative caption", "category"),
        reads=("caption", "negative_captions", "negative_categories"),
        cells=lambda caption, texts, names: [(caption, text, name) for text, name in zip(texts, names, strict=True)],
    ),
    "magic": Kind(
        "MAGIC",
        "Images grouped by the abstract concept of their captions, each concept with more abstract ones on three "
        "further levels and with hard-negative concepts (CLEAR GLASS). The authors' own set is not released; this one "
        "is made as the paper describes it. Concepts and captions were not reviewed individually.",
        {
            "`image`, `caption`": "the image and its captions, as in the source",
            "`generalised_caption`": "a caption of what the image has in common with others of its concept",
            "`group`": "the image's concept, of level 1",
            "`hard_negative_groups`": "concepts that are easily confused with it, the most similar first",
            "`level_1` to `level_4`": "names of its concepts, from the specific to the abstract: for evaluation, not "
            "for training",
            "`image_id`": "identifies an image; rows of one image share it",
        },
        header=("generalised caption", "level 1", "level 2", "level 3", "level 4"),
        reads=("generalised_caption", "level_1", "level_2", "level_3", "level_4"),
        cells=lambda *texts: [texts],
    ),
    "inpaintcoco": Kind(
        "InpaintCOCO",
        "Pairs of an image and the same with one thing repainted, each with its caption: a model has to tell which "
        "image a caption is of (Rösch et al. 2024, arXiv:2403.02875). For evaluation, not for training.",
        {
            "`concept`": "what was changed, such as `object`, `color` or `size`",
            "`coco_image`, `coco_caption`": "the original image and its caption",
            "`inpaint_image`, `inpaint_caption`": "the edited image and its caption",
            "`mask`": "white where the image was repainted; of a set from an annotation project all pixels beyond it "
            "and a feathered border of 4 pixels are the original's",
            "`worker`": "who made the edit, by number",
            "`coco_details`": "the image: `id`, `captions`, `image_license` and more",
            "`inpaint_details`": "the edit: prompts, seed, ratings and more, as far as the source has them",
            "`flags`, `changed_outside`": "of a published set: what is wrong with the row, and the share of pixels "
            "that differ, of those beyond the mask and a border of 4 pixels, 0 to 1",
            "`license`, `source`": "of the original image",
        },
        "Other columns are the source's. All images are its own bytes.",
        ("concept", "caption", "caption of the edited image"),
        ("concept", "coco_caption", "inpaint_caption"),
        lambda *texts: [[text or "" for text in texts]],
    ),
    "neighbours": Kind(
        "Nearest images",
        "The most similar images by a model's embeddings, as hard negatives in a batch (NegCLIP, arXiv:2210.01936).",
        {
            "`image_id`": "identifies an image; rows of one image share it",
            "`neighbour_ids`": "the images nearest to this one, the nearest first",
        },
    ),
    "gallery": Kind(
        "Reviewed rows",
        "The rows of a data set without those that somebody dropped after looking at them. Only rows that were looked "
        "at can have been dropped: how many is not known here.",
        {},
        "The columns are the source's. All images are the set's own bytes.",
    ),
}
