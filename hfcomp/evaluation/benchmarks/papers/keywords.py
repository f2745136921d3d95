"""Keyword ranking (Rösch et al. 2024): the true object, color, place or size against all alternatives."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hfcomp.data.image_ids import photograph_ids
from hfcomp.evaluation.benchmarks.readers.pools import COCO2017_CAPTIONS
from hfcomp.evaluation.benchmarks.retrieval.retrieval import ALL_CAPTIONS
from hfcomp.evaluation.cells import is_missing, pick_cells
from hfcomp.evaluation.protocols.caption_choice import KeywordRanking
from hfcomp.evaluation.sources import Adapted, HubData, Pool, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, EMPTY_CAPTION, NO_IMAGE, Benchmark, BenchmarkData, Data, Folders
from hfcomp.negatives.keywords import all_keyword_permutations
from hfcomp.negatives.keywords.matching import PAPER, Matching, check_concept, find_keywords
from hfcomp.negatives.keywords.tables import CONCEPTS, PAPER_TABLE, KeywordTable
from hfcomp.reading import read_json

if TYPE_CHECKING:
    from datasets import Dataset

LIMIT = 5000
"""Maximum items per concept. Our choice: the 200,310 items of objects in SBU would mean 16 million captions."""

_PAPER = "Rösch et al. 2024, arXiv:2403.02875"
_ROWS_AT_A_TIME = 1000


def keyword_benchmark(
    name: str,
    data: Data | tuple[Data, ...],
    *,
    title: str,
    license: str,
    obtain: str,
    concepts: Sequence[str] = CONCEPTS,
    limit: int | None = LIMIT,
    seed: int = 0,
    matching: Matching = PAPER,
) -> Benchmark:
    """Makes a keyword ranking benchmark from any images with captions.

    An item is a caption that contains a keyword of a concept. Its candidates are the caption and all its permutations
    (80 for object, 9 for color, 2 for location and size), and each concept is a subset. If a caption contains several
    keywords of a concept, only the first is permuted: the paper has one item per caption.

    Args:
        name: Name of the benchmark.
        data: Forms of the data, whose rows have an image in `image` and its caption in `caption` or all captions in
            `captions`. Optionally, `item` names a row, and `image_id` tells which rows show the same image.
        title: Title in tables.
        license: License of the data.
        obtain: How to get the data.
        concepts: Concepts among `object`, `color`, `location` and `size`.
        limit: Maximum items per concept. If there are more, a random sample is used and the rest are counted as left
            out. `None`: all.
        seed: Random seed of the sample.
        matching: How keywords are found and written, `PAPER` or `EXTENDED`.
    """
    for concept in concepts:
        check_concept(concept)
    if limit is not None and limit < 1:
        raise ValueError(f"limit: found {limit}, expected 1 or more, or None for all items.")
    forms = data if isinstance(data, tuple) else (data,)
    return Benchmark(
        name=name,
        title=title,
        suite=COMPOSITIONAL,
        protocol=KeywordRanking(),
        data=tuple(Adapted(form, KeywordItems(tuple(concepts), limit, seed, matching)) for form in forms),
        paper=_PAPER if limit is None else f"{_PAPER}; our choice: at most {limit:,} captions of a concept",
        license=license,
        obtain=obtain,
        subsets=tuple(concepts),
    )


class NoKeyword(ValueError):
    """No caption contains a keyword of the requested concepts."""


class _Caption(NamedTuple):
    """A caption with its row and its position there."""

    row: int
    number: int
    item: str
    image_id: str
    text: str


@dataclass(frozen=True)
class KeywordItems:
    """Turns images with captions into items of keyword ranking; arguments as in [`keyword_benchmark`]."""

    concepts: tuple[str, ...] = CONCEPTS
    limit: int | None = LIMIT
    seed: int = 0
    matching: Matching = PAPER
    table: KeywordTable = PAPER_TABLE

    def __call__(
        self, pairs: BenchmarkData, folders: Folders | None = None, folder: Path | None = None
    ) -> BenchmarkData:
        """Returns one row per caption and concept with a keyword in the caption, with the images of `pairs`."""
        from datasets import Dataset, concatenate_datasets

        cells = pairs.images["image"] if "image" in pairs.images else pairs.rows["image"]
        by_concept, empty = self._captions_by_concept(pairs)
        left_out = dict(pairs.left_out) | ({EMPTY_CAPTION: empty} if empty else {})
        tables: list[Dataset] = []
        places: list[int] = []
        for concept, captions in by_concept.items():
            kept, missing = self._sample(captions, cells)
            if missing:
                left_out[NO_IMAGE] = left_out.get(NO_IMAGE, 0) + missing
            if len(kept) + missing < len(captions):
                # Counted, so a report shows which part of the data the number covers.
                reason = f"not among the {self.limit:,} sampled per concept"
                left_out[reason] = left_out.get(reason, 0) + len(captions) - len(kept) - missing
            places += [caption.row for caption in kept]
            # Candidates of many items take several times as much memory as Python strings than as a table.
            for start in range(0, len(kept), _ROWS_AT_A_TIME):
                part = kept[start : start + _ROWS_AT_A_TIME]
                tables.append(Dataset.from_list([self._row(caption, concept) for caption in part]))
        if not tables:
            raise NoKeyword(
                f"{pairs.origin.place}: no caption contains a keyword of {', '.join(self.concepts)} "
                "(hfcomp.negatives.find_keywords)."
            )
        images = {"image": pick_cells(cells, places)}
        return BenchmarkData(concatenate_datasets(tables), pairs.origin, images, left_out)

    def _captions_by_concept(self, pairs: BenchmarkData) -> tuple[dict[str, list[_Caption]], int]:
        """Returns the captions with a keyword, by concept, and the number of rows without any caption."""
        rows = pairs.rows
        column = "captions" if "captions" in rows.column_names else "caption"
        if column not in rows.column_names:
            raise ValueError(
                f"{pairs.origin.place}: has neither 'caption' nor 'captions'; it has "
                f"{', '.join(map(repr, rows.column_names))}."
            )
        names = [str(name) for name in rows["item"]] if "item" in rows.column_names else map(str, range(len(rows)))
        given = rows["image_id"][:] if "image_id" in rows.column_names else None
        # All captions of a photograph form one cluster, even in different rows.
        images = photograph_ids(given, pairs.cells("image"))
        by_concept: dict[str, list[_Caption]] = defaultdict(list)
        empty = 0
        for row, (name, value) in enumerate(zip(names, rows[column], strict=True)):
            captions = [value] if isinstance(value, str) else value or []
            empty += not any(text and text.strip() for text in captions)
            for number, text in enumerate(captions):
                item = name if isinstance(value, str) else f"{name}/{number}"
                caption = _Caption(row, number, item, images[row] or name, text or "")
                # A caption may contain keywords of several concepts, and is an item of each of them.
                for concept in self.concepts:
                    if find_keywords(caption.text, concept, self.matching, table=self.table):
                        by_concept[concept].append(caption)
        return {concept: by_concept[concept] for concept in self.concepts if by_concept[concept]}, empty

    def _sample(self, captions: list[_Caption], cells: Sequence[Any]) -> tuple[list[_Caption], int]:
        """Selects at most `limit` captions, and counts those without an image."""
        if self.limit is None or len(captions) <= self.limit:
            return captions, 0

        # A digest per item, so the sample depends neither on the form of the data nor on other rows.
        def place(caption: _Caption) -> bytes:
            return hashlib.blake2b(f"{self.seed}\n{caption.item}".encode(), digest_size=16).digest()

        kept: list[_Caption] = []
        missing = 0
        # In the order of their digests until enough have an image, so a missing image does not affect other choices.
        for caption in sorted(captions, key=place):
            if len(kept) == self.limit:
                break
            if is_missing(cells[caption.row]):
                missing += 1
            else:
                kept.append(caption)
        # Sorted back into the order of the data.
        return sorted(kept), missing

    def _row(self, caption: _Caption, concept: str) -> dict[str, Any]:
        permuted = all_keyword_permutations(caption.text, concept, matching=self.matching, table=self.table)
        others = permuted.texts[: permuted.target] + permuted.texts[permuted.target + 1 :]
        return {
            "subset": concept,
            "item": caption.item,
            "image_id": caption.image_id,
            "caption": caption.text,
            "negative_captions": list(others),
        }


def sbu_captions(folder: Path) -> list[dict[str, Any]]:
    """Reads SBU's images and captions from its JSON object of lists; files are named as in their URLs."""
    file = folder / "sbu-captions-all.json"
    content = read_json(file)
    urls, captions = content.get("image_urls", ()), content.get("captions", ())
    if len(urls) != len(captions):
        raise ValueError(f"{file}: found {len(urls)} image_urls and {len(captions)} captions, expected one each.")
    return [{"image": url.rpartition("/")[2], "caption": text} for url, text in zip(urls, captions, strict=True)]


def by_product(rows: Dataset) -> Dataset:
    """Groups photographs of one product, such as "57910_0" and "57910_1", for intervals, as they share a caption."""
    return rows.add_column("image_id", [str(name).rpartition("_")[0] or str(name) for name in rows["item_ID"]])


KEYWORDS_COCO = keyword_benchmark(
    "keywords_coco",
    COCO2017_CAPTIONS,
    title="Keywords, COCO",
    license="captions CC BY 4.0; images of Flickr, a license each",
    obtain="Downloaded automatically from the Hub.",
)
KEYWORDS_FLICKR30K = keyword_benchmark(
    "keywords_flickr30k",
    ALL_CAPTIONS,
    title="Keywords, Flickr30k",
    license="not stated on the Hub; Flickr30k is for research and teaching only",
    obtain="Downloaded automatically from the Hub (4.4 GB).",
)
KEYWORDS_SBU = keyword_benchmark(
    "keywords_sbu",
    RawFiles(
        required_files=("sbu-captions-all.json",),
        read=sbu_captions,
        layout="sbu-captions-all.json and a folder sbu_images/ with the files that its addresses name",
        pool=Pool("sbu_images", obtain="Pass the folder of the downloaded files as --data sbu_images=FOLDER."),
    ),
    title="Keywords, SBU",
    license="not stated; images of Flickr",
    obtain=(
        "Get sbu-captions-all.tar.gz from https://www.cs.rice.edu/~vo9/sbucaptions, download the images that it names "
        "(many are gone) and pass the folder as --data keywords_sbu=FOLDER."
    ),
)
KEYWORDS_FASHION200K = keyword_benchmark(
    "keywords_fashion200k",
    HubData(
        "Marqo/fashion200k",
        {"image": "image", "caption": "text", "item_ID": "item_ID"},
        {"all": {"split": "data"}},
        reshape=by_product,
    ),
    title="Keywords, Fashion200K",
    license="Apache 2.0 on the Hub, by an uploader who does not own it",
    obtain="Downloaded automatically from the Hub (3.5 GB).",
    concepts=("object", "color"),
)
KEYWORDS_NASA = keyword_benchmark(
    "keywords_nasa",
    HubData("nkasmanoff/nasa_earth_instagram", {"image": "image", "caption": "text"}, {"all": {"split": "train"}}),
    title="Keywords, NASA Earth",
    license="not stated; images and texts are NASA's",
    obtain="Downloaded automatically from the Hub (54 MB).",
    concepts=("color",),
)
KEYWORDS_OLDBOOK = keyword_benchmark(
    "keywords_oldbook",
    HubData("gigant/oldbookillustrations", {"image": "1600px", "caption": "info_alt"}, {"all": {"split": "train"}}),
    title="Keywords, Old Book Illustrations",
    license="CC BY-NC 4.0",
    obtain="Downloaded automatically from the Hub (5 GB, raw scans included).",
    concepts=("object", "location", "size"),
)
