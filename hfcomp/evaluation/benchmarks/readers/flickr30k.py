"""All of Flickr30k's photographs with their captions; other benchmarks have Karpathy's 1,000 test images of them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from hfcomp.evaluation.sources import HubData, Pool, RawFiles

FLICKR30K_IMAGES = Pool(
    name="flickr30k-images",
    obtain="Ask for Flickr30k at https://shannon.cs.illinois.edu/DenotationGraph and pass the folder of its images "
    "as --data flickr30k-images=FOLDER.",
)
FILE = "results_20130124.token"


def flickr30k_captions(folder: Path) -> list[dict[str, Any]]:
    """All of Flickr30k's images, each with its captions, of the authors' file of lines `name#number<tab>caption`."""
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
"""The 31,783 images, in two forms; the Hub calls all of them `test`."""
