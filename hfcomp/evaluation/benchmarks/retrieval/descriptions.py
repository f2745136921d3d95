"""Retrieval by long descriptions, by single sentences or as a whole: DOCCI, ImageInWords, DCI and Urban1k."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.files import ZippedFiles, entries, line_entries, object_in, open_archive
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import HubData, RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark, Data

if TYPE_CHECKING:
    from datasets import Dataset

_SHORTEST = 3
"""Minimum characters of a sentence. FLAIR's ImageInWords file lacks shorter pieces, such as the end of a quotation."""
Captions = Callable[[str], list[str]]


def sentences(description: str) -> list[str]:
    """Splits a description at each full stop and line break, as FLAIR does (Xiao et al. 2025, arXiv:2412.03561).

    This gives exactly the 6,204 texts of FLAIR's ImageInWords file. "3.5" and "St. Paul" are split too.
    """
    return [part for part in _pieces(description) if len(part) >= _SHORTEST]


def whole(description: str) -> list[str]:
    return [description.strip()]


def rejoin(description: str) -> list[str]:
    """Joins the pieces between full stops and line breaks by ". ", as LoTLIP and FLAIR do."""
    return [". ".join(filter(None, _pieces(description)))]


def _pieces(description: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n|</s>|[.]", description)]


def annotation_rows(folder: Path, file: str, images: str = "", only: str = "") -> list[dict[str, Any]]:
    captions: dict[str, list[str]] = defaultdict(list)
    for _, entry in entries(folder / file, ("image", "caption"), inside="annotations"):
        if entry["image"].startswith(only):
            captions[entry["image"]].append(entry["caption"])
    return [
        {"item": name, "image": str(folder / images / name), "image_id": name, "captions": texts}
        for name, texts in captions.items()
    ]


def _benchmark(name: str, title: str, *data: Data, **facts: Any) -> Benchmark:
    return Benchmark(name, title, GENERAL, Retrieval(), data, **facts)


# DOCCI (Onoe et al. 2024). The copy on the Hub is pinned by a public reader that found its descriptions equal to
# Google's.
DOCCI_FILE, DOCCI_FLAIR = "docci_descriptions.jsonlines", "annotations/test_annotations.json"
DOCCI_REPO, DOCCI_AT = "nicolollo/docci", "d25e433474a72db3853da8e208d564e9b98795e6"


def docci(folder: Path, *, captions: Captions) -> list[dict[str, Any]]:
    keys = ("example_id", "split", "image_file", "description")
    return [
        {
            "item": row["example_id"],
            "image": str(folder / "images" / row["image_file"]),
            "captions": captions(row["description"]),
        }
        for _, row in line_entries(folder / DOCCI_FILE, keys)
        if row["split"] == "test"
    ]


def split_captions(rows: Dataset, *, captions: Captions) -> Dataset:
    lists = [captions(text) for text in rows["captions"]]
    return rows.remove_columns("captions").add_column("captions", lists)


def _docci(name: str, title: str, captions: Captions, *forms: RawFiles, version: int) -> Benchmark:
    copy = HubData(
        DOCCI_REPO,
        {"image": "image_file", "captions": "description"},
        {"all": {"split": "test", "data_files": {"test": "data/test-*"}}},
        reshape=partial(split_captions, captions=captions),
        revision=DOCCI_AT,
    )
    return _benchmark(
        name,
        title,
        RawFiles(
            (DOCCI_FILE,), partial(docci, captions=captions), f"{DOCCI_FILE} and images/ of google.github.io/docci"
        ),
        *forms,
        copy,
        paper="Onoe et al. 2024, arXiv:2404.19753",
        license="CC BY 4.0",
        obtain="A copy is downloaded from the Hub; the authors' files are at https://google.github.io/docci.",
        folder="docci",
        version=version,
    )


DOCCI_CUT = RawFiles(
    (DOCCI_FLAIR,),
    partial(annotation_rows, file=DOCCI_FLAIR, images="images"),
    f"{DOCCI_FLAIR} of github.com/ExplainableML/flair and images/",
)
DOCCI = _docci("docci", "DOCCI retrieval", sentences, DOCCI_CUT, version=2)
DOCCI_FULL = _docci("docci_full", "DOCCI full-text retrieval", whole, version=1)

# ImageInWords (Garg et al. 2024), written by people.
PARTS = {
    "DOCCI_Test": ("image", "docci/{}.jpg"),
    "IIW-400": ("image/key", "docci_aar/{}.jpg"),
    "DCI_Test": ("image", "dci/{}"),
}
"""Field with the image's name, and place of the image, for each part of ImageInWords."""
IIW_FLAIR = "test_annotations.json"


def imageinwords(folder: Path, *, parts: Sequence[str], captions: Captions) -> list[dict[str, Any]]:
    items = []
    for part in parts:
        field, place = PARTS[part]
        for _, row in line_entries(folder / part / "data.jsonl", (field, "IIW")):
            name = place.format(row[field])
            texts = captions(row["IIW"])
            items.append({"item": name, "image": str(folder / name), "image_id": name, "captions": texts})
    return items


def _imageinwords(name: str, title: str, parts: tuple[str, ...], captions: Captions = sentences) -> Benchmark:
    folders = ", ".join(PARTS[part][1].partition("/")[0] for part in parts)
    files, read = tuple(f"{part}/data.jsonl" for part in parts), partial(imageinwords, parts=parts, captions=captions)
    layout = f"{', '.join(parts)} of datasets/ of github.com/google/imageinwords, with folders of images {folders}"
    cut = partial(annotation_rows, file=IIW_FLAIR, only="" if len(parts) > 1 else f"{folders}/")
    layout_cut = f"{IIW_FLAIR} of github.com/ExplainableML/flair with folders of images {folders}"
    return _benchmark(
        name,
        title,
        RawFiles(files, read, layout),
        *((RawFiles((IIW_FLAIR,), cut, layout_cut),) if captions is sentences else ()),
        paper="Garg et al. 2024, arXiv:2405.02793",
        license="CC BY 4.0; images of DCI under SA-1B's license" if "dci" in folders else "CC BY 4.0",
        obtain="The images are in docci_images_aar.tar.gz (IIW-400), docci_images.tar.gz (DOCCI_Test), both at "
        "https://google.github.io/docci, and in Meta's SA-1B, which requires registration (DCI_Test). Pass a folder "
        f"with them and the texts as --data {name.removesuffix('_full')}=FOLDER.",
        folder=name.removesuffix("_full"),
        version=2 if captions is sentences else 1,
    )


IMAGEINWORDS = _imageinwords("imageinwords", "ImageInWords retrieval", tuple(PARTS))
IMAGEINWORDS_400 = _imageinwords("imageinwords_400", "ImageInWords-400 retrieval", ("IIW-400",))
IMAGEINWORDS_FULL = _imageinwords("imageinwords_full", "ImageInWords full-text retrieval", tuple(PARTS), rejoin)


# DCI (Urbanek et al. 2024)
def dci(folder: Path, *, captions: Captions) -> list[dict[str, Any]]:
    """Reads the images of DCI's three splits, with the short and the long caption as one description."""
    splits: Mapping[str, Sequence[str]] = object_in(folder / "splits.json", ())
    items = []
    for name in (name for names in splits.values() for name in names):
        entry = object_in(folder / "annotations" / name, ("image", "short_caption", "extra_caption"))
        # Joined by a line break, at which descriptions are split like at a full stop.
        texts = captions(f"{entry['short_caption']}\n{entry['extra_caption']}")
        items.append({"item": name, "image": str(folder / "photos" / entry["image"]), "captions": texts})
    return items


DCI = _benchmark(
    "dci",
    "DCI full-text retrieval",
    RawFiles(
        required_files=("splits.json", "annotations"),
        read=partial(dci, captions=rejoin),
        layout="splits.json and annotations/ of dci.tar.gz (github.com/facebookresearch/DCI) and a folder photos/",
    ),
    paper="Urbanek et al. 2024, arXiv:2312.08578; protocol of Wu et al. 2024, LoTLIP, arXiv:2410.05249",
    license="CC BY-NC; images under SA-1B's license",
    obtain="Get https://dl.fbaipublicfiles.com/densely_captioned_images/dci.tar.gz and, after accepting the license "
    "of SA-1B, sa_000138.tar, whose images go into photos/.",
)

# Urban1k (Zhang et al. 2024, Long-CLIP): similar street scenes, captions of a hundred words
URBAN1K_REPO = "BeichenZhang/Urban1k"
ARCHIVE, IMAGES, CAPTIONS = "Urban1k.zip", "image", "caption"


def unpacked_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the items of an image and a caption folder, in which the two files of an item have the same name."""
    files = {path.stem: path for path in sorted((folder / CAPTIONS).glob("*.txt"))}
    return _rows(files, lambda path: path.read_bytes(), lambda stem: str(folder / IMAGES / f"{stem}.jpg"))


def archive_rows(folder: Path) -> list[dict[str, Any]]:
    with open_archive(folder / ARCHIVE) as archive:
        members = [PurePosixPath(name) for name in archive.namelist()]
        captions = {path.stem: path for path in members if path.parent.name == CAPTIONS and path.suffix == ".txt"}
        images = {path.stem: str(path) for path in members if path.parent.name == IMAGES}
        return _rows(captions, lambda path: archive.read(str(path)), images.get)


def _rows(
    captions: Mapping[str, Any], read: Callable[[Any], bytes], image: Callable[[str], str | None]
) -> list[dict[str, Any]]:
    items = []
    for stem, path in captions.items():
        try:
            lines = read(path).decode("utf-8-sig").strip().splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: found bytes that are not UTF-8 ({error}). Download it again.") from error
        items.append({"item": stem, "image": image(stem), "image_id": stem, "captions": lines[:1]})
    return items


URBAN1K = _benchmark(
    "urban1k",
    "Urban1k full-text retrieval",
    RawFiles(
        (IMAGES, CAPTIONS),
        unpacked_rows,
        f"{ARCHIVE} of {URBAN1K_REPO} on the Hub unpacked into {IMAGES}/, {CAPTIONS}/",
    ),
    ZippedFiles(
        (ARCHIVE,),
        archive_rows,
        f"{ARCHIVE} as it is",
        archive=ARCHIVE,
        repo=URBAN1K_REPO,
        revision="953fcf1d1a3bde031d9424a91a0154e594b5a586",  # pinned by a public reader
    ),
    paper="Zhang et al. 2024, arXiv:2403.15378",
    license="not confirmed",
    obtain=f"It comes from the Hub ({URBAN1K_REPO}, {ARCHIVE}, 81 MB).",
)
