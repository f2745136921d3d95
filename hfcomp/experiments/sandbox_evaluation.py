"""What a model makes of the sandbox's held-out scenes: composition by kind, and what it may have forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset
from numpy.typing import NDArray

from hfcomp.data.loading import undecoded
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.protocols import caption_choice as choice
from hfcomp.evaluation.protocols import group_match as group
from hfcomp.evaluation.protocols import level_choice as level
from hfcomp.evaluation.protocols import two_positive_choice as two_positive
from hfcomp.evaluation.protocols import zero_shot as words
from hfcomp.experiments.items import COMPOSITION, GENERAL, choice_table, item_table, retrieval_table

NOVEL_KINDS = ("swap_att", "replace_att", "replace_obj")
"""Kinds that are also asked with combinations of shape and colour that no training image shows."""


class SandboxEvaluation:
    """The sandbox's evaluation sets, made once for all models of a run.

    Args:
        items: rows of each kind, of each concept of the edited pairs and of the sets of words and levels. Retrieval is
            among `retrieval_rows(items)`.
        seed: of the scenes; held out of training whatever it is.
    """

    def __init__(self, items: int, seed: int) -> None:
        from hfcomp.sandbox import choice_set, edited_pairs_set, levels_set, retrieval_set, zero_shot_set

        self.choices = undecoded(choice_set(items, seed))
        self.novel_choices = undecoded(choice_set(items, seed, kinds=NOVEL_KINDS, novel=True))
        self.edited_pairs = undecoded(edited_pairs_set(items, seed))
        self.retrieval = undecoded(retrieval_set(retrieval_rows(items), seed))
        self.one_object = undecoded(zero_shot_set(items, seed))
        self.novel_object = undecoded(zero_shot_set(items, seed, novel=True))
        self.levels = undecoded(levels_set(items, seed))
        self.seed = seed

    def __call__(self, embedder: Embedder) -> pd.DataFrame:
        """One row per item and metric, with the columns of `hfcomp.experiments.items.item_table`."""
        tables = [
            *_choice_tables(embedder, self.choices),
            *_novel_tables(embedder, self.novel_choices),
            *_edited_pair_tables(embedder, self.edited_pairs),
            *_retrieval_tables(embedder, self.retrieval),
            *_detailed_tables(embedder, self.one_object),
            *_word_tables(embedder, self.one_object, "sandbox zero-shot"),
            *_word_tables(embedder, self.novel_object, "sandbox novel zero-shot"),
            *_level_tables(embedder, self.levels, self.seed),
        ]
        return pd.concat(tables, ignore_index=True)


def retrieval_rows(items: int) -> int:
    """Rows to retrieve from: 500 for 200 items, at least 20, and at most what the set has to offer."""
    from hfcomp.sandbox.datasets import MOST_RETRIEVAL_ROWS

    return min(MOST_RETRIEVAL_ROWS, max(20, 5 * items // 2))


def _texts(embedder: Embedder, *columns: Iterable[str]) -> list[NDArray[np.float32]]:
    """Embeddings of several columns of texts, of which each distinct one is encoded once."""
    columns = [list(column) for column in columns]
    vectors = embedder.texts([text for column in columns for text in column]).vectors
    return np.split(vectors, np.cumsum([len(column) for column in columns])[:-1])


def _firsts(lists: Iterable[Sequence[str]]) -> list[str]:
    return [texts[0] for texts in lists]


def _embedded(embedder: Embedder, rows: Dataset) -> dict[str, NDArray[np.float32]]:
    """Both images and all three captions of a choice set."""
    caption, paraphrase, negative = _texts(
        embedder, rows["caption"], _firsts(rows["positive_captions"]), _firsts(rows["negative_captions"])
    )
    return {
        "image": embedder.images(rows["image"]),
        "other_image": embedder.images(rows["negative_image"]),
        "caption": caption,
        "paraphrase": paraphrase,
        "negative": negative,
    }


def _named(rows: Dataset, subsets: Sequence[str] | str, **columns: Any) -> dict[str, Any]:
    names = list(rows["image_id"])
    return {"aspect": COMPOSITION, "subsets": subsets, "items": names, "images": names, **columns}


def _choice_tables(embedder: Embedder, rows: Dataset) -> list[pd.DataFrame]:
    e = _embedded(embedder, rows)
    kinds = np.array(rows["kind"][:])
    chosen = choice.caption_choice(e["image"], e["caption"], e["negative"])
    matched = group.group_match(e["image"], e["caption"], e["other_image"], e["negative"])
    both = two_positive.two_positive_choice(e["image"], e["caption"], e["paraphrase"], e["negative"])
    adds = np.char.startswith(kinds, "add_")  # whose true caption is true of both images
    forms = [kind.partition("_")[0] for kind in kinds]
    by_form = _named(rows, forms, chance=two_positive.CHANCE)
    groups = choice_table("sandbox", "group", matched.group, **_named(rows, kinds, chance=group.CHANCE["group"]))
    return [
        groups[~adds],
        choice_table("sandbox", "caption choice", chosen, **_named(rows, kinds, chance=choice.CHANCE)),
        choice_table("sandbox two positives", "image-to-text", both.image_to_text, **by_form),
        choice_table("sandbox two positives", "text only", both.text_only, **by_form),
    ]


def _novel_tables(embedder: Embedder, rows: Dataset) -> list[pd.DataFrame]:
    e = _embedded(embedder, rows)
    matched = group.group_match(e["image"], e["caption"], e["other_image"], e["negative"])
    columns = _named(rows, rows["kind"][:], chance=group.CHANCE["group"])
    return [choice_table("sandbox novel", "group", matched.group, **columns)]


def _edited_pair_tables(embedder: Embedder, rows: Dataset) -> list[pd.DataFrame]:
    caption, other_caption = _texts(embedder, rows["coco_caption"], rows["inpaint_caption"])
    image, other_image = embedder.images(rows["coco_image"]), embedder.images(rows["inpaint_image"])
    matched = group.group_match(image, caption, other_image, other_caption)
    columns = _named(rows, rows["concept"][:], chance=group.CHANCE["image"])
    return [choice_table("sandbox edited", "image", matched.image, **columns)]


def _retrieval_tables(embedder: Embedder, rows: Dataset) -> list[pd.DataFrame]:
    image, names = embedder.images(rows["image"]), list(rows["image_id"])
    text, paraphrase = _texts(embedder, rows["caption"], _firsts(rows["positive_captions"]))
    found, found_too = ((texts @ image.T).argmax(axis=1) for texts in (text, paraphrase))
    agreement = item_table(
        "sandbox wordings",
        "same image found",
        value=found == found_too,
        **_named(rows, "all", chance=1 / len(names)) | {"aspect": GENERAL},
    )
    return [retrieval_table("sandbox retrieval", image, text, items=names, images=names), agreement]


def _word_tables(embedder: Embedder, rows: Dataset, benchmark: str) -> list[pd.DataFrame]:
    """Classification by prompts of what a lone object is."""
    from hfcomp.sandbox import zero_shot_prompts

    image, tables = embedder.images(rows["image"]), []
    for column, prompts in zero_shot_prompts().items():
        classes = list(prompts)
        texts = [(text, index) for index, name in enumerate(classes) for text in prompts[name]]
        (vectors,) = _texts(embedder, [text for text, _ in texts])
        label = np.array([classes.index(name) for name in rows[column]])
        outcome = words.zero_shot(image, words.class_embeddings(vectors, [index for _, index in texts]), label)
        columns = _named(rows, column, chance=1 / len(classes)) | {"aspect": GENERAL}
        tables.append(choice_table(benchmark, "accuracy", outcome, **columns))
    return tables


def _detailed_tables(embedder: Embedder, rows: Dataset) -> list[pd.DataFrame]:
    """Retrieval by captions that say everything of a lone object; equal captions are right for each other."""
    (text,), names, captions = _texts(embedder, rows["caption"]), list(rows["image_id"]), np.array(rows["caption"][:])
    same = captions[:, None] == captions
    image = embedder.images(rows["image"])
    return [retrieval_table("sandbox detailed", image, text, items=names, images=names, positive=same)]


def _level_tables(embedder: Embedder, rows: Dataset, seed: int) -> list[pd.DataFrame]:
    """A choice between two images by the name of a concept, on four levels of abstraction."""
    image, tables = embedder.images(rows["image"]), []
    for number in (1, 2, 3, 4):
        names = rows[f"level_{number}"][:]
        (text,) = _texts(embedder, names)
        outcome = level.level_choice(text, image, level.draw_rivals(names, 2, seed))
        columns = _named(rows, f"level {number}", chance=1 / 2) | {"aspect": GENERAL}
        tables.append(choice_table("sandbox levels", "image choice", outcome, **columns))
    return tables
