"""Builders that add columns to a source's rows in a single build."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hfcomp.factory.builder import ANSWERS, CAPTIONS, DROPPED, FLAGGED, IMAGES, MADE, Builder, CardText, Counts
from hfcomp.factory.options import ConceptOptions, NegativeOptions, NeighborOptions

if TYPE_CHECKING:
    from hfcomp.reporting.report import Table

# Proposals of a masked language model. A request for more proposals repeats the earlier ones.
FILLS = Counts("fills refused: ", "rejected fills of masks, counted each time", "reason")
CONCEPT_COUNTS = Counts("concepts: ", "concepts", "concepts")
LEFT_OUT = Counts("phrases left out: ", "phrases left out", "reason")
NEGATIVE_STAGE = "negatives"
# Reason of captions that are set aside, and count of captions that are kept.
NO_NEGATIVE, WITHOUT = "no negative", CAPTIONS("without a negative")


class Share(NamedTuple):
    """Number of captions without a negative, and of all captions that the stage received."""

    without: int
    captions: int

    @property
    def value(self) -> float:
        """The share, 0 to 1."""
        return self.without / max(1, self.captions)

    @classmethod
    def of(cls, sums: Mapping[str, Any]) -> Share:
        """The share of a build, from its `rows`, `counts` and `set_aside`."""
        aside = sums["set_aside"].get(NO_NEGATIVE, 0)
        return cls(sums["counts"].get(WITHOUT, 0), sums["rows"] + aside)


def check_share(sums: Mapping[str, Any], *, most: float) -> None:
    """Raises ValueError if more captions than allowed have no negative; the error says what to do."""
    share = Share.of(sums)
    if share.value <= most or not sums["rows"]:  # a dataset without rows is an error anyway
        return
    # Rounded up, so the advised share passes.
    allowed = math.ceil(100 * share.value) / 100
    raise ValueError(
        f"{share.without:,} of {share.captions:,} captions ({share.value:.1%}) got no negative, more than "
        f"--max_without_negative {most:g} allows. Check that the captions are English sentences, and choose --kinds "
        "that fit them, with another output folder. Or accept the share: repeat the command with "
        f"--max_without_negative {allowed:g}, which keeps finished shards."
    )


def share_table(manifest: Mapping[str, Any]) -> list[Table]:
    """The table with the share of captions without a negative, for builds that make negative captions."""
    from hfcomp.reporting.report import Table

    if all(stage["name"] != NEGATIVE_STAGE for stage in manifest["plan"]["stages"].values()):
        return []
    share = Share.of(manifest)
    row = [f"{share.without:,} of {share.captions:,} captions", f"{share.value:.1%}"]
    return [Table("without a negative", ["captions", "share"], [row])]


NEGATIVES = Builder(
    NegativeOptions,
    CardText(
        "Hard negative captions",
        "A negative caption is the caption with something changed that should make it untrue of the image. The "
        "negatives were not reviewed individually: some may still be true of it, and some are not fluent English.",
        {
            "`caption`": "the true caption",
            "`negative_captions`": "false captions, the same number in every row; an empty string means no negative",
            "`negative_kinds`, `negative_categories`": "the kind of change; `attribute`, `object` or `relation`",
            "`negative_keywords`": "the changed text",
            "`negative_spans`": "position of the change, as `[start, end)` in characters of `caption`",
        },
        header=("caption", "negative caption", "kind"),
        reads=("caption", "negative_captions", "negative_kinds"),
        cells=lambda caption, texts, kinds: [
            (caption, text, kind) for text, kind in zip(texts, kinds, strict=True) if text
        ],
        counts=(MADE, FLAGGED, CAPTIONS, IMAGES, DROPPED, FILLS, ANSWERS),
        tables=share_table,
    ),
    "hfcomp.factory.negatives:NegativeBuild",
)

CONCEPTS = Builder(
    ConceptOptions,
    CardText(
        "Noun phrases",
        "The noun phrases of each caption, found by a parser or a language model, as concepts for C2LIP "
        "(arXiv:2603.25722). The phrases were not reviewed individually.",
        {
            "`caption`": "the caption",
            "`concepts`": "its noun phrases, from left to right, without duplicates; if empty, training uses the "
            "caption itself",
            "`concept_spans`": "the position of each phrase, a list of `[start, end)` in characters of `caption`; "
            "the list has several entries if phrases share a noun",
        },
        header=("caption", "concepts"),
        reads=("caption", "concepts"),
        cells=lambda caption, concepts: [(caption, "; ".join(concepts))],
        counts=(CONCEPT_COUNTS, CAPTIONS, IMAGES, LEFT_OUT, ANSWERS),
    ),
    "hfcomp.factory.concepts:ConceptBuild",
)

NEIGHBORS = Builder(
    NeighborOptions,
    CardText(
        "Nearest images",
        "The most similar images by a model's embeddings, for hard negatives in a batch (NegCLIP, arXiv:2210.01936).",
        {
            "`image_id`": "identifies an image; rows of one image share it",
            "`neighbor_ids`": "the images most similar to this one, the nearest first",
        },
        counts=(IMAGES,),
    ),
    "hfcomp.factory.neighbors:NeighborBuild",
)
