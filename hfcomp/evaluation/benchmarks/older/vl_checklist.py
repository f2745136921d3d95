"""VL-CheckList (Zhao et al. 2022): an annotated phrase against one with another object, attribute or relation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.pools import SWIG, VISUAL_GENOME, with_images_of
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import Adapted, Pool, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Folders
from hfcomp.reading import read_json

HAKE = "hake"
HAKE_IMAGES = Pool(
    HAKE,
    obtain="Get HAKE's images (github.com/DirtyHarryLYL/HAKE) and pass the folder with hico_20160224_det, openimages "
    "and so on as --data hake=FOLDER.",
)
POOLS = (VISUAL_GENOME, SWIG, HAKE_IMAGES)
_ROLES = ("agent", "destination", "item", "tool")
_BOXES = {"Location": ("center", "mid", "margin"), "Size": ("large", "medium", "small")}


def _objects() -> dict[str, str]:
    """Returns the file in `data/Object` of each test of objects, by position or size of their box."""
    files = {}
    for kind, boxes in _BOXES.items():
        for box in boxes:
            low = kind.lower()
            for part in ("obj", "subj"):
                files[f"{kind}/{box}/vg_{part}"] = f"{kind}/vg_{low}/vg_{part}_{box}.json"
            for role in _ROLES:
                files[f"{kind}/{box}/swig_{role}"] = f"{kind}/swig_{low}/swig_{role}/swig_{role}_{box}.json"
            files[f"{kind}/{box}/{HAKE}"] = f"{kind}/hake_{low}/hake_obj_{box}.json"
    return files


_KINDS = ("action", "color", "material", "size", "state")
TESTS = {
    **{f"Attribute/{kind}/{of}": f"data/Attribute/{of}/{kind}.json" for kind in _KINDS for of in ("vg", "vaw")},
    **{f"Object/{name}": f"data/Object/{file}" for name, file in _objects().items()},
    **{f"Relation/action/{of}": f"data/Relation/{of}_action.json" for of in ("swig", HAKE)},
    **{f"Relation/{kind}/vg": f"data/Relation/vg/{kind}.json" for kind in ("action", "spatial")},
}
"""File of each test, by its name in the authors' `corpus/v1`."""
ATTRIBUTES, OBJECTS, RELATIONS = (
    tuple(name for name in TESTS if name.startswith(part)) for part in ("Attribute", "Object", "Relation")
)


def checklist(web: str) -> Adapted:
    """Returns all tests with the images of every available source; `web` is the authors' repository at a commit."""
    layout = "data/ of github.com/om-ai-lab/VL-CheckList and folders of images: " + ", ".join(p.name for p in POOLS)
    return Adapted(RawFiles(tuple(TESTS.values()), rows, layout, web=web), _with_images)


def rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the items. Only the first of several phrases is used, as in the authors' script."""
    items = []
    for test, file in TESTS.items():
        for number, entry in enumerate(_list(folder / file)):
            match entry:
                case [str(image), {"POS": [str(caption), *_], "NEG": [str(negative), *_]}]:
                    row = {"subset": test, "item": str(number), "image": image, "image_id": image}
                    items.append({**row, "caption": caption, "negative_captions": [negative]})
                case _:
                    raise ValueError(
                        f"{folder / file}, entry {number}: found {str(entry)[:80]}, expected an image and an object "
                        "with lists of phrases, POS and NEG. Download the file again."
                    )
    return items


def _list(file: Path) -> list[Any]:
    content = read_json(file)
    if not isinstance(content, list):
        raise ValueError(f"{file}: found a {type(content).__name__}, expected a list. Download the file again.")
    return content


def _with_images(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    # The file name of a test begins with the source of its images. VAW annotates Visual Genome's images.
    sources = [test.rpartition("/")[2].partition("_")[0] for test in items.rows["subset"][:]]
    pools = {"vg": VISUAL_GENOME.name, "vaw": VISUAL_GENOME.name}
    return with_images_of(items, POOLS, [pools.get(source, source) for source in sources], folders, beside)


COMMIT = "6f8d6a3281c401b89e4e154f46c6974ec2df3a82"
PARTS = {"attribute": ATTRIBUTES, "object": OBJECTS, "relation": RELATIONS}
WITHOUT_HAKE = tuple(tuple(test for test in part if not test.endswith(HAKE)) for part in PARTS.values())

VL_CHECKLIST = Benchmark(
    name="vl_checklist",
    title="VL-CheckList",
    suite=COMPOSITIONAL,
    protocol=CaptionChoice(),
    data=(checklist(f"https://raw.githubusercontent.com/om-ai-lab/VL-CheckList/{COMMIT}"),),
    # Listed explicitly: if a source's images are missing, an average is left out instead of being taken over the rest.
    averages=(
        Average("mean of 3 parts", tuple(PARTS.values())),
        Average("mean of 3 parts without HAKE", WITHOUT_HAKE),
        *(Average(name, (part,)) for name, part in PARTS.items()),
    ),
    paper="Zhao et al. 2022, arXiv:2207.00221",
    license="not stated; each source of images its own",
    obtain=f"Its texts ({len(TESTS)} files) come by themselves. " + " ".join(pool.obtain for pool in POOLS),
    in_suites=False,
)
