"""The tests of Rösch et al. 2024 on the sandbox: concepts by keyword, retrieval, edited images, other data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from datasets import Dataset

from hfcomp.data.loading import undecoded
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.protocols import group_match as group
from hfcomp.experiments.items import COMPOSITION, GENERAL, choice_table
from hfcomp.metrics.choice import pair_scores
from hfcomp.metrics.keyword_ranking import keyword_ranking
from hfcomp.metrics.ragged import padded
from hfcomp.metrics.retrieval import rank_bounds
from hfcomp.negatives.keywords import KeywordTable, Matching, all_keyword_permutations, find_keywords

KEYWORDS, EDITED, RETRIEVAL = "sandbox keywords", "sandbox edited", "sandbox retrieval"
LONE, NOVEL = "sandbox lone objects", "sandbox novel objects"
TOP_1, IMAGE, RECALL_AT_5 = "top-1", "image", "text-to-image recall@5"


class SandboxConcepts:
    """Held-out scenes on which a model is asked for the concepts of a keyword table.

    * `sandbox keywords`, top-1 (section 5.1): a caption that holds a keyword among all its permutations. Of several
      keywords the first is permuted.
    * `sandbox retrieval`, text-to-image recall@5, over the same images.
    * `sandbox edited`, image (Eq. 2): pairs of images that differ in the concept, where the set has such.
    * `sandbox lone objects` and `sandbox novel objects`, top-1 (section 5.3): other data, of which the second combines
      shape and colour as no training image does.

    Args:
        items: rows of the edited pairs of a concept and of the lone objects.
        retrieval: rows of the retrieval set, whose captions are those of the keyword test.
        seed: of the scenes; held out of training whatever it is.
        table: concepts and keywords.
        matching: how keywords are found and written.
    """

    def __init__(self, *, items: int, retrieval: int, seed: int, table: KeywordTable, matching: Matching) -> None:
        from hfcomp.sandbox import edited_pairs_set, retrieval_set, zero_shot_set

        self.pairs = undecoded(retrieval_set(retrieval, seed))
        self.edited = undecoded(edited_pairs_set(items, seed))
        self.others = {
            LONE: undecoded(zero_shot_set(items, seed)),
            NOVEL: undecoded(zero_shot_set(items, seed, novel=True)),
        }
        self.table = table
        self.matching = matching

    def __call__(self, embedder: Embedder, concept: str, *, brief: bool = False) -> pd.DataFrame:
        """One row per item and metric, with the columns of `hfcomp.experiments.items.item_table`.

        Args:
            embedder: of the model.
            concept: one of the table's.
            brief: keywords and retrieval only, without edited pairs and other data.
        """
        tables = [self._retrieval(embedder), self._keywords(embedder, KEYWORDS, self.pairs, concept)]
        if not brief:
            tables.append(self._edited(embedder, concept))
            tables += [self._keywords(embedder, name, rows, concept) for name, rows in self.others.items()]
        return pd.concat([table for table in tables if len(table)], ignore_index=True)

    def keywords(self, embedder: Embedder, concepts: Sequence[str]) -> pd.DataFrame:
        """The rows of the keyword tests alone."""
        sets = {KEYWORDS: self.pairs, **self.others}
        tables = [self._keywords(embedder, name, rows, concept) for concept in concepts for name, rows in sets.items()]
        return pd.concat([table for table in tables if len(table)], ignore_index=True)

    def check(self, concepts: Sequence[str]) -> None:
        """Raises `ValueError` for a concept whose keywords no caption holds."""
        for concept in concepts:
            if not any(
                find_keywords(text, concept, self.matching, table=self.table) for text in self.pairs["caption"]
            ):
                raise ValueError(
                    f"no caption of the sandbox holds a keyword of {concept!r}. Pass a keyword_table of its words, "
                    "such as recipes/hard_negatives/sandbox_keywords.yaml."
                )

    def _keywords(self, embedder: Embedder, name: str, rows: Dataset, concept: str) -> pd.DataFrame:
        captions = rows["caption"][:]
        find = {"table": self.table, "matching": self.matching}
        chosen = [index for index, text in enumerate(captions) if find_keywords(text, concept, **find)]
        if not chosen:
            return pd.DataFrame()
        permuted = [all_keyword_permutations(captions[index], concept, **find) for index in chosen]
        counts = [len(one.texts) for one in permuted]
        vectors = embedder.texts([text for one in permuted for text in one.texts]).vectors
        image = embedder.images(rows.select(chosen)["image"])
        parts = np.split(pair_scores(np.repeat(image, counts, axis=0), vectors), np.cumsum(counts)[:-1])
        own = np.array([part[one.target] for part, one in zip(parts, permuted, strict=True)])
        others = [np.delete(part, one.target) for part, one in zip(parts, permuted, strict=True)]
        ranked = keyword_ranking(own, *padded(others))
        names = rows.select(chosen)["image_id"][:]
        columns = {"aspect": COMPOSITION, "subsets": concept, "items": names, "images": names}
        return choice_table(name, TOP_1, ranked.first, chance=float(ranked.chance.mean()), **columns)

    def _edited(self, embedder: Embedder, concept: str) -> pd.DataFrame:
        rows = self.edited.select([index for index, one in enumerate(self.edited["concept"]) if one == concept])
        if not len(rows):
            return pd.DataFrame()
        image, other_image = embedder.images(rows["coco_image"]), embedder.images(rows["inpaint_image"])
        texts = embedder.texts([*rows["coco_caption"], *rows["inpaint_caption"]]).vectors
        matched = group.group_match(image, texts[: len(rows)], other_image, texts[len(rows) :])
        names = rows["image_id"][:]
        columns = {"aspect": COMPOSITION, "subsets": concept, "items": names, "images": names}
        return choice_table(EDITED, IMAGE, matched.image, chance=group.CHANCE["image"], **columns)

    def _retrieval(self, embedder: Embedder) -> pd.DataFrame:
        image, text = embedder.images(self.pairs["image"]), embedder.texts(self.pairs["caption"]).vectors
        names = self.pairs["image_id"][:]
        columns = {"aspect": GENERAL, "subsets": "all", "items": names, "images": names}
        found = rank_bounds(text, image).within(5)
        return choice_table(RETRIEVAL, RECALL_AT_5, found, chance=5 / len(names), **columns)
