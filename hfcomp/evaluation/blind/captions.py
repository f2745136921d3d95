"""Captions for the bigram model: reads them, and leaves out those that a benchmark uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.image_ids import photograph_key, photographs
from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.benchmarks.readers.pools import COCO2017_CAPTIONS, COCO_VAL2017
from hfcomp.evaluation.blind.rules import BigramModel, CountedCaptions, words_of_text
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin, Unavailable

if TYPE_CHECKING:
    from datasets import Dataset

COCO_SOURCE = "coco"
"""Name of the caption source with COCO's captions of val2017."""
FOLDER = "coco2017_retrieval"
_FILE = "captions_val2017.json"
_HUB = next(form for form in COCO2017_CAPTIONS if isinstance(form, HubData))
HOW_TO_FIX = (
    f"Pass --blind_captions FILE (one caption per line, COCO's captions_*.json, or a dataset with a column caption), "
    f"--data {FOLDER}=DIR with {_FILE} (in a recipe, the option is --evaluation_data), or --blind_captions "
    f"{COCO_SOURCE}, which downloads {_HUB.repo} with its images."
)


@dataclass(frozen=True)
class CaptionSource:
    """Captions with the names of their images.

    Attributes:
        texts: The captions.
        images: Name of each caption's image, if known.
        place: File, folder or Hub id of the captions.
    """

    texts: Sequence[str]
    images: Sequence[str | None]
    place: str
    _keys: list[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keys", [None if name is None else photograph_key(name) for name in self.images])

    @cached_property
    def _caption_counts(self) -> CountedCaptions:
        # Counted once for all benchmarks, which differ only in the captions they leave out.
        return CountedCaptions(self.texts)

    @cached_property
    def _plain(self) -> list[str]:
        return list(map(plain, self.texts))

    def by_image(self) -> dict[str, list[str]]:
        """Returns the captions of each named image, by the `photograph_key` of its name."""
        texts: dict[str, list[str]] = {}
        for key, text in zip(self._keys, self.texts, strict=True):
            if key is not None:
                texts.setdefault(key, []).append(text)
        return texts

    def model_without(self, images: Iterable[str], texts: Iterable[str]) -> tuple[BigramModel | None, dict[str, Any]]:
        """Builds the bigram model from the captions that a benchmark does not use.

        Returns:
            The model, `None` if no caption is left; and the counts: `place`, `captions` (those in the model),
            `of_its_images` and `equal_texts` (the captions left out).
        """
        # A caption of a benchmark's image may paraphrase a true text, and an equal text is one of the benchmark's
        # own. With either, the model would have seen the answer.
        used, same = {photograph_key(name) for name in images}, set(map(plain, texts))
        of_image = np.array([key is not None and key in used for key in self._keys], dtype=bool)
        # Each caption is counted for a single reason, so the counts add up.
        equal = np.array([text in same for text in self._plain], dtype=bool) & ~of_image
        kept: NDArray[np.bool_] = ~(of_image | equal)
        counts = {"captions": int(kept.sum()), "of_its_images": int(of_image.sum()), "equal_texts": int(equal.sum())}
        return (self._caption_counts.model(kept) if kept.any() else None), {"place": self.place, **counts}


def plain(text: str) -> str:
    """Returns the words of a text without capitals and punctuation, by which equal texts are found."""
    return " ".join(words_of_text(text))


def read_caption_source(given: str | Path | None, folders: Folders, read: Iterable[BenchmarkData]) -> CaptionSource:
    """Reads the captions that a user names, otherwise COCO's if they are on this machine.

    COCO's captions are read from the folder of `coco2017_retrieval`, or from the Hub if a benchmark of the same run
    reads its images there, so nothing else is downloaded.

    Raises:
        Unavailable: If there are none; says how to get them.
        ValueError: If a file cannot be read as captions.
        FileNotFoundError: If a path does not exist.
    """
    if given is not None and str(given) != COCO_SOURCE:
        return _read_user_captions(str(given))
    folder = folders.of(FOLDER)
    if folder is not None and (folder / _FILE).is_file():
        return _read_coco_json(folder / _FILE)
    if folder is not None and (items := _HUB.local(folder, folders)) is not None:
        return _captions_of_rows(items)
    # Nothing is downloaded only for a rule, so the Hub is used only if a benchmark of this run reads it anyway.
    if given is None and not any(_is_from(COCO_VAL2017.repo, items.origin) for items in read):
        raise Unavailable("no captions were given, and COCO's captions are not on this machine.", HOW_TO_FIX)
    try:
        return _captions_of_rows(_HUB.remote(folders))
    except Unavailable as error:
        raise Unavailable(error.reason, HOW_TO_FIX) from error


def _is_from(repo: str | None, origin: Origin) -> bool:
    return origin.place == repo or any(_is_from(repo, pool) for pool in origin.pools)


def _read_user_captions(given: str) -> CaptionSource:
    path = Path(given)
    if path.suffix == ".txt" and path.is_file():
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        texts = [line for line in lines if line]
        return _source(texts, [None] * len(texts), given)
    # Any other JSON file is loaded as a dataset below.
    if path.suffix == ".json" and path.is_file() and b'"annotations"' in path.read_bytes():
        return _read_coco_json(path)
    from hfcomp.data.columns import require_columns
    from hfcomp.data.loading import load_training_set

    rows = load_training_set(given)
    require_columns(rows, ("caption",), needed_by="the bigram model of --blind_captions")
    return _captions_of_contract(rows, given)


def _captions_of_contract(rows: Dataset, place: str) -> CaptionSource:
    from hfcomp.data.pair_table import texts_of

    texts, images = [], []
    for caption, name in zip(rows["caption"], photographs(rows), strict=True):
        own = texts_of(caption)
        texts += own
        images += [name] * len(own)
    return _source(texts, images, place)


def _read_coco_json(path: Path) -> CaptionSource:
    names = {image["id"]: image["file_name"] for _, image in entries(path, ("id", "file_name"), inside="images")}
    captions = [entry for _, entry in entries(path, ("image_id", "caption"), inside="annotations")]
    texts, images = [entry["caption"] for entry in captions], [names.get(entry["image_id"]) for entry in captions]
    return _source(texts, images, str(path))


def _captions_of_rows(items: BenchmarkData) -> CaptionSource:
    rows = items.rows.select_columns(["captions", "item"])
    pairs = [(text, name) for texts, name in zip(rows["captions"][:], rows["item"][:], strict=True) for text in texts]
    return _source([text for text, _ in pairs], [str(name) for _, name in pairs], items.origin.place)


def _source(texts: Sequence[str], images: Sequence[str | None], place: str) -> CaptionSource:
    if not texts:
        raise ValueError(f"{place}: found no captions for the bigram model; expected at least one.")
    return CaptionSource(texts, images, place)
