"""Retrieval among photographs with five captions each: Flickr8k, Flickr30k and COCO."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.benchmarks.readers.pools import COCO2017_CAPTIONS, COCO_VAL2014
from hfcomp.evaluation.protocols.level_choice import LevelChoice
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import Adapted, HubData, Pool, RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark, BenchmarkData, Data, Folders

if TYPE_CHECKING:
    from datasets import Dataset

FLICKR30K_IMAGES = Pool(
    name="flickr30k-images",
    obtain="Request Flickr30k at https://shannon.cs.illinois.edu/DenotationGraph and pass the folder of its images "
    "as --data flickr30k-images=FOLDER.",
)
FILE = "results_20130124.token"


def flickr30k_captions(folder: Path) -> list[dict[str, Any]]:
    """Reads all Flickr30k images with their captions from the authors' file of lines `name#number<tab>caption`."""
    captions: dict[str, list[str]] = defaultdict(list)
    for line in (folder / FILE).read_text(encoding="utf-8").splitlines():
        key, _, caption = line.partition("\t")
        captions[key.partition("#")[0]].append(caption)
    return [{"item": name, "image": name, "captions": texts} for name, texts in captions.items()]


ALL_CAPTIONS = (
    RawFiles(
        required_files=(FILE,),
        read=flickr30k_captions,
        layout=f"{FILE} of Flickr30k and a folder {FLICKR30K_IMAGES.name}/",
        pool=FLICKR30K_IMAGES,
    ),
    HubData("lmms-lab/flickr30k", {"image": "image", "captions": "caption", "item": "filename"}),
)
"""All 31,783 images, in two forms. The Hub calls all of them `test`."""


FLICKR8K_IMAGES = Pool(
    name="flickr8k-images",
    obtain="Request Flickr8k at https://shannon.cs.illinois.edu/DenotationGraph and pass the folder of its images "
    "as --data flickr8k-images=FOLDER.",
)


def karpathy(folder: Path, file: str) -> list[dict[str, Any]]:
    return [
        {
            "item": image["filename"],
            "image": image["filename"],
            "captions": [sentence["raw"] for sentence in image["sentences"]],
        }
        for _, image in entries(folder / file, ("filename", "split", "sentences"), inside="images")
        if image["split"] == "test"
    ]


def read_list(folder: Path, file: str) -> list[dict[str, Any]]:
    """Reads the images of one of BLIP's lists, which contain one split each."""
    # The lists contain paths of images, but pools use names.
    named = [(Path(entry["image"]).name, entry) for _, entry in entries(folder / file, ("image", "caption"))]
    return [{"item": name, "image": name, "captions": entry["caption"]} for name, entry in named]


def split_lines(rows: Dataset) -> Dataset:
    """Splits texts with one caption per line into lists."""
    # `datasets` silently fills a missing member of a sample with None.
    for row in (row for row, text in enumerate(rows["captions"]) if text is None):
        raise ValueError(
            f"the sample {rows['item'][row]!r} of the archives has no .txt with its captions. Add it, or remove it."
        )
    captions = [text.split("\n") for text in rows["captions"]]
    return rows.remove_columns("captions").add_column("captions", captions)


def _data_formats(pool: Pool, karpathy_file: str, list_file: str, repo: str) -> tuple[RawFiles | HubData, ...]:
    def raw(file: str, read: Callable[[Path, str], list[dict[str, Any]]]) -> RawFiles:
        layout = f"{file} and a folder {pool.name}/ with the images"
        return RawFiles(required_files=(file,), read=partial(read, file=file), layout=layout, pool=pool)

    archives = HubData(
        repo,
        {"item": "__key__", "image": "jpg", "captions": "txt"},
        # nshards.txt is next to the archives.
        {"all": {"split": "test", "data_files": {"test": "test/*.tar"}}},
        reshape=split_lines,
        files="*.tar",
    )
    return raw(karpathy_file, karpathy), raw(list_file, read_list), archives


FLICKR8K_CAPTIONS = _data_formats(
    FLICKR8K_IMAGES, "dataset_flickr8k.json", "flickr8k_test.json", "clip-benchmark/wds_flickr8k"
)
FLICKR30K_CAPTIONS = _data_formats(
    FLICKR30K_IMAGES, "dataset_flickr30k.json", "flickr30k_test.json", "clip-benchmark/wds_flickr30k"
)
COCO_CAPTIONS = _data_formats(
    COCO_VAL2014, "dataset_coco.json", "coco_karpathy_test.json", "clip-benchmark/wds_mscoco_captions"
)


def _benchmark(name: str, title: str, data: Sequence[Data], paper: str, version: int = 2) -> Benchmark:
    flickr = f"not stated on the Hub; {title.partition(' ')[0]} is for research and teaching only"
    return Benchmark(
        name=name,
        title=title,
        suite=GENERAL,
        # The other two are for models that were trained on train2017, and for one paper's numbers.
        in_suites=name not in ("coco2017_retrieval", "flickr30k_all"),
        protocol=Retrieval(),
        data=tuple(data),
        paper=paper,
        license="captions CC BY 4.0; images of Flickr, a license each" if "COCO" in title else flickr,
        obtain=f"Downloaded automatically from the Hub{' (4.4 GB)' if data is ALL_CAPTIONS else ''}.",
        version=version,
    )


SPLIT, CHEN = "split of Karpathy and Fei-Fei 2015, arXiv:1412.2306", "Chen et al. 2015, arXiv:1504.00325"
HODOSH, YOUNG = "Hodosh et al. 2013, JAIR 47", "Young et al. 2014, TACL 2"
VAL2017 = f"{CHEN}; on val2017: Rösch et al. 2024, arXiv:2403.02875, section 5.1"
EVERY = f"{YOUNG}; all images: our reading of Im et al. 2026, Table 3"
FLICKR8K = _benchmark("flickr8k", "Flickr8k retrieval", FLICKR8K_CAPTIONS, f"{HODOSH}; {SPLIT}", 1)
FLICKR30K = _benchmark("flickr30k", "Flickr30k retrieval", FLICKR30K_CAPTIONS, f"{YOUNG}; {SPLIT}")
COCO_RETRIEVAL = _benchmark("coco_retrieval", "COCO retrieval", COCO_CAPTIONS, f"{CHEN}; {SPLIT}")
COCO2017_RETRIEVAL = _benchmark("coco2017_retrieval", "COCO 2017 retrieval", COCO2017_CAPTIONS, VAL2017)
FLICKR30K_ALL = _benchmark("flickr30k_all", "Flickr30k retrieval, all images", ALL_CAPTIONS, EVERY, version=1)


def first_captions(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Keeps only the first caption of each image, as in the released evaluation."""
    texts = [captions[0] if captions else None for captions in items.rows["captions"][:]]
    return replace(items, rows=items.rows.remove_columns("captions").add_column("caption", texts))


COCO_CAPTION_CHOICE = replace(
    COCO2017_RETRIEVAL,
    name="coco_caption_choice",
    title="COCO caption choice",
    protocol=LevelChoice(texts=("caption",), candidates=(2, 10)),
    data=tuple(Adapted(form, first_captions) for form in COCO2017_RETRIEVAL.data),
    paper="Chen et al. 2015, arXiv:1504.00325; protocol of Suissa et al., CLEAR GLASS, Table 3",
    folder="coco2017_retrieval",
    in_suites=False,
    version=1,
)
