"""Hard Positives (Kamath et al. 2024): does a rewording with the same meaning also beat the false caption?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.benchmarks.readers.pools import VISUAL_GENOME, box_of, crop_to_boxes
from hfcomp.evaluation.protocols.caption_choice import Brittleness
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

SUBSETS = {
    "swap": "visual_genome_attribution.json",
    "replace_att": "vl_checklist_attributes.json",
    "replace_rel": "vl_checklist_relations.json",
}
"""Files by the authors' names for their data."""
ORIGINAL, REWORDED = "data", "swapped_data"
FILES = tuple(f"{folder}/{file}" for folder in (ORIGINAL, REWORDED) for file in SUBSETS.values())
KEYS = ("image_path", "true_caption", "false_caption")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [row for subset, file in SUBSETS.items() for row in _rows_of(folder, subset, file)]


def _rows_of(folder: Path, subset: str, file: str) -> list[dict[str, Any]]:
    first, second = (entries(folder / place / file, KEYS) for place in (ORIGINAL, REWORDED))
    paths = [[Path(entry["image_path"]).name for _, entry in file_entries] for file_entries in (first, second)]
    # The two files are joined by position, and a file of another version would silently break the match.
    if paths[0] != paths[1]:
        row = next((row for row, pair in enumerate(zip(*paths, strict=False)) if pair[0] != pair[1]), len(paths[1]))
        raise ValueError(
            f"{folder / REWORDED / file}: has {len(second)} entries and {folder / ORIGINAL / file} has {len(first)}; "
            f"expected the same images in both, entry {row} is the first that differs. Download both again."
        )
    return [
        {
            "subset": subset,
            "item": name,
            "image": image,
            "caption": caption["true_caption"],
            "positive_captions": [reworded["true_caption"]],
            "negative_captions": _negatives(caption["false_caption"], reworded["false_caption"]),
            "box": box_of(caption),
        }
        for image, (name, caption), (_, reworded) in zip(paths[0], first, second, strict=True)
    ]


def _negatives(*texts: str) -> list[str]:
    """Returns the false texts of both files: one if they are equal, as in REPLACE; none if either is empty."""
    return list(dict.fromkeys(texts)) if all(text.strip() for text in texts) else []


HARD_POSITIVES = Benchmark(
    name="hard_positives",
    title="Hard Positives",
    suite=COMPOSITIONAL,
    protocol=Brittleness(),
    data=(
        Adapted(
            RawFiles(
                required_files=FILES,
                read=rows,
                layout="data/ and swapped_data/ of github.com/amitakamath/hard_positives and a folder visual_genome/",
                pool=VISUAL_GENOME,
                web="https://raw.githubusercontent.com/amitakamath/hard_positives/"
                "33addaae84b58d96dc8e9251b61d497c536ed23d",
            ),
            crop_to_boxes,
        ),
    ),
    averages=(Average("REPLACE", (("replace_att",), ("replace_rel",))),),  # the paper's; SWAP is the other subset
    paper="Kamath et al. 2024, arXiv:2409.17958",
    license="not stated; images of Visual Genome, CC BY 4.0",
    obtain=f"Its texts are downloaded automatically. {VISUAL_GENOME.obtain}",
    version=2,
)
