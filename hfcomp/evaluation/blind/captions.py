"""Captions that a benchmark does not use, for the bigram model: where they are read, and which are left out."""

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
"""The name of COCO's captions as a source: those of val2017."""
FOLDER = "coco2017_retrieval"
_FILE = "captions_val2017.json"
_HUB = next(form for form in COCO2017_CAPTIONS if isinstance(form, HubData))
HOW_TO_FIX = (
    f"Pass --blind_captions FILE (a caption per line, COCO's captions_*.json, or a set with a column caption), "
    f"--data {FOLDER}=DIR with {_FILE} (in a recipe that option is --evaluation_data), or --blind_captions "
    f"{COCO_SOURCE}, which fetches {_HUB.repo} with its images."
)


@dataclass(frozen=True)
class CaptionSource:
    """Captions with the names of their images.

    Attributes:
        images: of each, the name of its image where it is known.
    """

    texts: Sequence[str]
    images: Sequence[str | None]
    place: str
    _keys: list[Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keys", [None if one is None else photograph_key(one) for one in self.images])

    @cached_property
    def _counted(self) -> CountedCaptions:
        # Counted once for all benchmarks, which only leave out different captions.
        return CountedCaptions(self.texts)

    @cached_property
    def _plain(self) -> list[str]:
        return list(map(plain, self.texts))

    def by_image(self) -> dict[str, list[str]]:
        """The captions of each image that has a name, by the `photograph_key` of that name."""
        texts: dict[str, list[str]] = {}
        for key, text in zip(self._keys, self.texts, strict=True):
            if key is not None:
                texts.setdefault(key, []).append(text)
        return texts

    def model_without(self, images: Iterable[str], texts: Iterable[str]) -> tuple[BigramModel | None, dict[str, Any]]:
        """The model of the captions that a benchmark does not use.

        Returns:
            The model, `None` where no caption is left; and what was counted: `place`, `captions` (those in the
            model), `of_its_images` and `equal_texts`, the captions that were left out.
        """
        # A caption of a benchmark's image may be a true text in other words, and an equal text is one of the
        # benchmark's own. With either the model would have seen the answer.
        used, same = {photograph_key(one) for one in images}, set(map(plain, texts))
        of_image = np.array([key is not None and key in used for key in self._keys], dtype=bool)
        # Each caption is left out for a single reason, so the counts add up.
        equal = np.array([text in same for text in self._plain], dtype=bool) & ~of_image
        kept: NDArray[np.bool_] = ~(of_image | equal)
        counts = {"captions": int(kept.sum()), "of_its_images": int(of_image.sum()), "equal_texts": int(equal.sum())}
        return (self._counted.model(kept) if kept.any() else None), {"place": self.place, **counts}


def plain(text: str) -> str:
    """A text by which equal ones are found: its words, whatever their capitals and punctuation."""
    return " ".join(words_of_text(text))


def read_caption_source(given: str | Path | None, folders: Folders, read: Iterable[BenchmarkData]) -> CaptionSource:
    """The captions that a user names, else COCO's where they are on this machine.

    COCO's are taken from the folder of `coco2017_retrieval`, and from the Hub where a benchmark of the same run has
    its images from there, so that nothing more is fetched.

    Raises:
        Unavailable: where there are none, with how to get them.
        ValueError: for a file that is not as expected.
        FileNotFoundError: for a path where nothing is.
    """
    if given is not None and str(given) != COCO_SOURCE:
        return _of_user(str(given))
    folder = folders.of(FOLDER)
    if folder is not None and (folder / _FILE).is_file():
        return _of_coco_json(folder / _FILE)
    if folder is not None and (items := _HUB.local(folder, folders)) is not None:
        return _of_rows(items)
    # Nothing is downloaded just for a rule. Only captions that a benchmark of this run reads from the Hub anyway are
    # used.
    if given is None and not any(_is_of(COCO_VAL2017.repo, one.origin) for one in read):
        raise Unavailable("no captions were named, and COCO's are not on this machine.", HOW_TO_FIX)
    try:
        return _of_rows(_HUB.remote(folders))
    except Unavailable as error:
        raise Unavailable(error.reason, HOW_TO_FIX) from error


def _is_of(repo: str | None, origin: Origin) -> bool:
    return origin.place == repo or any(_is_of(repo, pool) for pool in origin.pools)


def _of_user(given: str) -> CaptionSource:
    path = Path(given)
    if path.suffix == ".txt" and path.is_file():
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        texts = [line for line in lines if line]
        return _source(texts, [None] * len(texts), given)
    # Any other JSON file is loaded as a dataset below.
    if path.suffix == ".json" and path.is_file() and b'"annotations"' in path.read_bytes():
        return _of_coco_json(path)
    from hfcomp.data.columns import require_columns
    from hfcomp.data.loading import load_training_set

    rows = load_training_set(given)
    require_columns(rows, ("caption",), needed_by="the bigram model of --blind_captions")
    return _of_contract(rows, given)


def _of_contract(rows: Dataset, place: str) -> CaptionSource:
    from hfcomp.data.pair_table import texts_of

    texts, images = [], []
    for caption, name in zip(rows["caption"], photographs(rows), strict=True):
        own = texts_of(caption)
        texts += own
        images += [name] * len(own)
    return _source(texts, images, place)


def _of_coco_json(path: Path) -> CaptionSource:
    names = {one["id"]: one["file_name"] for _, one in entries(path, ("id", "file_name"), inside="images")}
    found = [one for _, one in entries(path, ("image_id", "caption"), inside="annotations")]
    return _source([one["caption"] for one in found], [names.get(one["image_id"]) for one in found], str(path))


def _of_rows(items: BenchmarkData) -> CaptionSource:
    rows = items.rows.select_columns(["captions", "item"])
    pairs = [(text, name) for texts, name in zip(rows["captions"][:], rows["item"][:], strict=True) for text in texts]
    return _source([text for text, _ in pairs], [str(name) for _, name in pairs], items.origin.place)


def _source(texts: Sequence[str], images: Sequence[str | None], place: str) -> CaptionSource:
    if not texts:
        raise ValueError(f"{place}: found no captions for the bigram model; expected at least one.")
    return CaptionSource(texts, images, place)
