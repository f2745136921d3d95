"""Pairs of captioned images: Winoground, ColorSwap, BiVLC, VisMin, COCO-Counterfactuals, MMVP-VLM and COLA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.files import (
    ZippedFiles,
    csv_entries,
    line_entries,
    listed_entries,
    open_archive,
)
from hfcomp.evaluation.benchmarks.readers.pools import VISUAL_GENOME, both_photographs
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import Adapted, HubData, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, with_columns

if TYPE_CHECKING:
    from datasets import Dataset

EXAMPLES, FOLDER, ARCHIVE = "examples.jsonl", "images", "images.zip"
BOTH = ("image", "negative_image")
IMAGE_FIRST = ("image", "group", "text")
"""Metrics of benchmarks whose papers report the image score."""
OVERALL = Average("all items", pooled=True)


def columns_from(first: int, **more: str) -> dict[str, str]:
    """Returns the columns `image_0`, `image_1`, `caption_0` and `caption_1`, starting at `first`, and `more`."""
    texts = {"caption": f"caption_{first}", "negative_captions": f"caption_{first + 1}"}
    return {"image": f"image_{first}", "negative_image": f"image_{first + 1}", **texts, **more}


def one_negative(rows: Dataset) -> Dataset:
    lists = [[text] for text in rows["negative_captions"]]
    return with_columns(rows, {"negative_captions": lists})


def example_rows(
    folder: Path, columns: Mapping[str, str], photograph: Callable[[str], str] | None = None
) -> list[dict[str, Any]]:
    """Reads the items of `examples.jsonl`, whose images are in a folder or an archive next to it.

    `photograph` maps the name of the first image to the photograph behind the item; by default, the image.
    """
    # By stem, because the list does not contain the file endings.
    places = _places(folder)
    items = []
    for _, entry in line_entries(folder / EXAMPLES, tuple(columns.values())):
        row = {ours: entry[theirs] for ours, theirs in columns.items()}
        own = {} if photograph is None else {"image_id": photograph(row["image"])}
        images = {column: places.get(row[column]) for column in BOTH}
        items.append(row | images | own | {"negative_captions": [row["negative_captions"]]})
    return items


def _places(folder: Path) -> dict[str, str]:
    if (folder / FOLDER).is_dir():
        return {path.stem: str(path) for path in (folder / FOLDER).iterdir()}
    with open_archive(folder / ARCHIVE) as archive:
        return {PurePosixPath(name).stem: name for name in archive.namelist()}


def example_files(
    layout: str, columns: Mapping[str, str], photograph: Callable[[str], str] | None = None, **source: str
) -> tuple[RawFiles, RawFiles]:
    """Returns the forms of `examples.jsonl` next to its images in a folder, or in an archive from `source`."""
    read = partial(example_rows, columns=columns, photograph=photograph)
    return (
        RawFiles((EXAMPLES, FOLDER), read, f"{layout} unpacked into {FOLDER}/"),
        ZippedFiles((EXAMPLES, ARCHIVE), read, f"{layout} as {ARCHIVE}", archive=ARCHIVE, images=BOTH, **source),
    )


WINOGROUND_REPO = "facebook/winoground"
WINOGROUND_AT = "b400e173549071916ad1b3d449293bc8d8b4b763"  # the one that MTEB reads
WINOGROUND_COLUMNS = columns_from(0, item="id", subset="collapsed_tag")
WINOGROUND = Benchmark(
    name="winoground",
    title="Winoground",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=(
        HubData(WINOGROUND_REPO, WINOGROUND_COLUMNS, reshape=one_negative, revision=WINOGROUND_AT),
        *example_files(
            f"examples.jsonl of {WINOGROUND_REPO}/data on the Hub with its images",
            WINOGROUND_COLUMNS,
            web=f"https://huggingface.co/datasets/{WINOGROUND_REPO}/resolve/{WINOGROUND_AT}/data",
        ),
    ),
    # These are the paper's scores. Its table by linguistic tag has the three subsets.
    averages=(OVERALL,),
    subsets=("Object", "Relation", "Both"),
    paper="Thrush et al. 2022, arXiv:2204.03162",
    license="its own, on the Hub (license_agreement.txt); the images are Getty's",
    obtain=f"Accept its terms at https://huggingface.co/datasets/{WINOGROUND_REPO} and run `hf auth login`.",
    gated=True,
)

COLORSWAP_REPO = "stanfordnlp/colorswap"
COLORSWAP = Benchmark(
    name="colorswap",
    title="ColorSwap",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=(HubData(COLORSWAP_REPO, columns_from(1, item="id"), reshape=one_negative),),
    paper="Burapacheep et al. 2024, arXiv:2402.04492",
    license="MIT",
    obtain=f"Accept its terms at https://huggingface.co/datasets/{COLORSWAP_REPO} and run `hf auth login`.",
    gated=True,
)

BIVLC_REPO = "imirandam/BiVLC"
BIVLC_COLUMNS = {"image": "image", "caption": "caption", "negative_image": "negative_image"}
BIVLC_COLUMNS |= {"negative_captions": "negative_caption", "type": "type", "subtype": "subtype"}


def name_subsets(rows: Dataset) -> Dataset:
    names = [f"{kind}_{part}".lower() for kind, part in zip(rows["type"][:], rows["subtype"][:], strict=True)]
    return one_negative(with_columns(rows, {"subset": names}, drop=("type", "subtype")))


BIVLC = Benchmark(
    name="bivlc",
    title="BiVLC",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),  # the paper's I2T is the text score, its T2I the image score
    data=(HubData(BIVLC_REPO, BIVLC_COLUMNS, reshape=name_subsets),),
    averages=(OVERALL, Average("macro of subsets")),
    paper="Miranda et al. 2024, arXiv:2406.09952",
    license="MIT; images and captions of COCO, a license each",
    obtain=f"It comes from the Hub ({BIVLC_REPO}, 540 MB).",
)

VISMIN_REPO = "mair-lab/vismin-bench"
VISMIN_COLUMNS = {"image": "image_0", "caption": "text_0", "negative_image": "image_1", "negative_captions": "text_1"}
VISMIN = Benchmark(
    name="vismin",
    title="VisMin",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=(HubData(VISMIN_REPO, {**VISMIN_COLUMNS, "subset": "category"}, reshape=one_negative),),
    averages=(Average("macro of categories"), OVERALL),
    paper="Awal et al. 2024, arXiv:2407.16772",
    license="CC BY 4.0",
    obtain=f"It comes from the Hub ({VISMIN_REPO}, 1.5 GB).",
)

COUNTERFACTUALS_REPO, COUNTERFACTUALS_AT = "Intel/COCO-Counterfactuals", "958a3e0b32421b9f07c4c3f78aecbf98019a3402"
COCO_COUNTERFACTUALS = Benchmark(
    name="coco_counterfactuals",
    title="COCO-Counterfactuals",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(),
    data=example_files(
        f"examples.jsonl of {COUNTERFACTUALS_REPO}/data on the Hub with its images",
        columns_from(0, item="id"),
        photograph=lambda name: name.partition("_")[0],  # "236308_0_img_0": the number of COCO's photograph
        repo=COUNTERFACTUALS_REPO,
        inside="data",
        revision=COUNTERFACTUALS_AT,
    ),
    paper="Le et al. 2023, arXiv:2309.14356",
    license="CC BY 4.0",
    obtain=f"Downloaded automatically from the Hub ({COUNTERFACTUALS_REPO}, 6.4 GB).",
)

MMVP_REPO, MMVP_AT = "MMVP/MMVP_VLM", "211372d5357398f914d806d07dc305aea1f257d2"
QUESTIONS, IMAGES = "Questions.csv", "MLLM_VLM Images"
NUMBER, PATTERN, TEXT = "Question ID", "Type", "Statement"


def mmvp_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the pairs, lines 2k and 2k + 1 of the authors' table, with the prompt of their script."""
    lines = [line for _, line in csv_entries(folder / QUESTIONS, (NUMBER, PATTERN, TEXT))]
    image = [str(folder / IMAGES / line[PATTERN] / f"{line[NUMBER]}.jpg") for line in lines]
    texts = [f"a photo of {line[TEXT]}" for line in lines]
    return pair_rows([line[PATTERN] for line in lines], image, texts, str(folder / QUESTIONS))


def pair_rows(
    subsets: Sequence[str], images: Sequence[str], captions: Sequence[str], place: str
) -> list[dict[str, Any]]:
    """Makes a row from each two consecutive lines; `place` is the source of the lines in errors."""
    # Pairs are identified only by position, so one extra line would shift all following pairs.
    if len(subsets) % 2:
        raise ValueError(f"{place}: found {len(subsets)} lines, expected pairs. Download the file again.")
    rows = []
    for first, second in zip(range(0, len(subsets), 2), range(1, len(subsets), 2), strict=True):
        if subsets[first] != subsets[second]:
            raise ValueError(
                f"{place}: entries {first} and {second} should be a pair, but belong to {subsets[first]!r} and "
                f"{subsets[second]!r}. Download the file again."
            )
        both = {"image": images[first], "negative_image": images[second]}
        texts = {"caption": captions[first], "negative_captions": [captions[second]]}
        rows.append({"subset": subsets[first], **both, **texts})
    return rows


MMVP_VLM = Benchmark(
    name="mmvp_vlm",
    title="MMVP-VLM",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(metrics=IMAGE_FIRST),
    data=(
        RawFiles(
            (QUESTIONS, IMAGES), mmvp_rows, f"the files of {MMVP_REPO} on the Hub", repo=MMVP_REPO, revision=MMVP_AT
        ),
    ),
    averages=(Average("mean of 9 patterns"),),
    paper="Tong et al. 2024, arXiv:2401.06209",
    license="MIT",
    obtain=f"Downloaded automatically from the Hub ({MMVP_REPO}).",
)

COLA_FILE = "COLA_multiobjects_matching_benchmark.json"
COLA_WEB = "https://raw.githubusercontent.com/arijitray1993/COLA/1fa52fba9cff4e6ffb7bfcf3550838748347273b/data"
COLA_LAYOUT = f"{COLA_FILE} of github.com/arijitray1993/COLA and a folder visual_genome/"


def cola_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the items of a JSON list of `[image, caption, other image, other caption]`.

    An image is a path or a URL, of which only the file name is used.
    """
    return [
        {
            "item": place,
            "image": Path(entry["image"]).name,
            "caption": entry["caption"],
            "negative_image": Path(entry["other image"]).name,
            "negative_captions": [entry["other caption"]],
        }
        for place, entry in listed_entries(folder / COLA_FILE, ("image", "caption", "other image", "other caption"))
    ]


COLA = Benchmark(
    name="cola",
    title="COLA multi-object",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(metrics=IMAGE_FIRST),
    data=(Adapted(RawFiles((COLA_FILE,), cola_rows, COLA_LAYOUT, web=COLA_WEB), both_photographs),),
    paper="Ray et al. 2023, arXiv:2305.03689",
    license="MIT (the repository); images of Visual Genome, CC BY 4.0",
    obtain=f"Its texts are downloaded automatically. {VISUAL_GENOME.obtain}",
)
