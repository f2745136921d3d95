"""Retrieval among photographs with five captions each: Flickr8k, Flickr30k and COCO, Karpathy's test images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.coco import COCO2017_CAPTIONS, COCO_VAL2014
from hfcomp.evaluation.benchmarks.readers.entries import entries
from hfcomp.evaluation.benchmarks.readers.flickr30k import ALL_CAPTIONS, FLICKR30K_IMAGES
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import HubData, Pool, RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

if TYPE_CHECKING:
    from datasets import Dataset

FLICKR8K_IMAGES = Pool(
    name="flickr8k-images",
    obtain="Ask for Flickr8k at https://shannon.cs.illinois.edu/DenotationGraph and pass the folder of its images "
    "as --data flickr8k-images=FOLDER.",
)


def karpathy(folder: Path, file: str) -> list[dict[str, Any]]:
    """The test images of one of Karpathy's `dataset_*.json`, each with its captions."""
    return [
        {
            "item": one["filename"],
            "image": one["filename"],
            "captions": [sentence["raw"] for sentence in one["sentences"]],
        }
        for _, one in entries(folder / file, ("filename", "split", "sentences"), inside="images")
        if one["split"] == "test"
    ]


def listed(folder: Path, file: str) -> list[dict[str, Any]]:
    """The images of one of BLIP's lists, which hold one split each."""
    named = [(Path(one["image"]).name, one) for _, one in entries(folder / file, ("image", "caption"))]
    return [{"item": name, "image": name, "captions": one["caption"]} for name, one in named]


def lines(rows: Dataset) -> Dataset:
    """Captions that stand in one text, a line each, as lists.

    Raises:
        ValueError: for a sample without a text.
    """
    for row in (row for row, text in enumerate(rows["captions"]) if text is None):
        raise ValueError(
            f"the sample {rows['item'][row]!r} of the archives has no .txt with its captions. Add it, or remove it."
        )
    captions = [text.split("\n") for text in rows["captions"]]
    return rows.remove_columns("captions").add_column("captions", captions)


def _forms(pool: Pool, karpathy_file: str, list_file: str, repo: str) -> tuple[RawFiles | HubData, ...]:
    def raw(file: str, read: Callable[[Path, str], list[dict[str, Any]]]) -> RawFiles:
        layout = f"{file} and a folder {pool.name}/ with the images"
        return RawFiles(required_files=(file,), read=partial(read, file=file), layout=layout, pool=pool)

    archives = HubData(
        repo,
        {"item": "__key__", "image": "jpg", "captions": "txt"},
        # nshards.txt is next to the archives
        {"all": {"split": "test", "data_files": {"test": "test/*.tar"}}},
        reshape=lines,
        files="*.tar",
    )
    return raw(karpathy_file, karpathy), raw(list_file, listed), archives


FLICKR8K = Benchmark(
    name="flickr8k",
    title="Flickr8k retrieval",
    suite=GENERAL,
    protocol=Retrieval(),
    data=_forms(FLICKR8K_IMAGES, "dataset_flickr8k.json", "flickr8k_test.json", "clip-benchmark/wds_flickr8k"),
    paper="Hodosh et al. 2013, JAIR 47; split of Karpathy and Fei-Fei 2015, arXiv:1412.2306",
    licence="not stated on the Hub; Flickr8k is for research and teaching only",
    obtain="Downloaded automatically from the Hub.",
)
FLICKR30K = Benchmark(
    name="flickr30k",
    title="Flickr30k retrieval",
    suite=GENERAL,
    protocol=Retrieval(),
    data=_forms(FLICKR30K_IMAGES, "dataset_flickr30k.json", "flickr30k_test.json", "clip-benchmark/wds_flickr30k"),
    paper="Young et al. 2014, TACL 2; split of Karpathy and Fei-Fei 2015, arXiv:1412.2306",
    licence="not stated on the Hub; Flickr30k is for research and teaching only",
    obtain="Downloaded automatically from the Hub.",
    version=2,
)
FLICKR30K_ALL = Benchmark(
    name="flickr30k_all",
    title="Flickr30k retrieval, all images",
    suite=GENERAL,
    in_suites=False,  # for one paper, whose numbers are too low for the 1,000 test images
    protocol=Retrieval(),
    data=ALL_CAPTIONS,
    paper="Young et al. 2014, TACL 2; all images: our reading of Im et al. 2026, Table 3",
    licence="not stated on the Hub; Flickr30k is for research and teaching only",
    obtain="Downloaded automatically from the Hub (4.4 GB).",
)
COCO_RETRIEVAL = Benchmark(
    name="coco_retrieval",
    title="COCO retrieval",
    suite=GENERAL,
    protocol=Retrieval(),
    data=_forms(COCO_VAL2014, "dataset_coco.json", "coco_karpathy_test.json", "clip-benchmark/wds_mscoco_captions"),
    paper="Chen et al. 2015, arXiv:1504.00325; split of Karpathy and Fei-Fei 2015, arXiv:1412.2306",
    licence="captions CC BY 4.0; images of Flickr, a licence each",
    obtain="Downloaded automatically from the Hub.",
    version=2,
)
COCO2017_RETRIEVAL = Benchmark(
    name="coco2017_retrieval",
    title="COCO 2017 retrieval",
    suite=GENERAL,
    in_suites=False,  # another split of COCO retrieval, for models that were trained on train2017
    protocol=Retrieval(),
    data=COCO2017_CAPTIONS,
    paper="Chen et al. 2015, arXiv:1504.00325; on val2017: Rösch et al. 2024, arXiv:2403.02875, section 5.1",
    licence="captions CC BY 4.0; images of Flickr, a licence each",
    obtain="Downloaded automatically from the Hub.",
    version=2,
)
