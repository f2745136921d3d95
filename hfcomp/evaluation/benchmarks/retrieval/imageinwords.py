"""ImageInWords (Garg et al. 2024): retrieval by long descriptions that people wrote, sentence by sentence or whole."""

from __future__ import annotations

from functools import partial

from hfcomp.evaluation.benchmarks.readers.descriptions import IMAGEINWORDS_PARTS as PARTS
from hfcomp.evaluation.benchmarks.readers.descriptions import Captions, annotated, imageinwords, rejoined, sentences
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

FLAIR, IIW_400 = "test_annotations.json", ("IIW-400",)


def _benchmark(name: str, title: str, parts: tuple[str, ...], captions: Captions = sentences) -> Benchmark:
    folders = ", ".join(PARTS[part][1].partition("/")[0] for part in parts)
    files, read = tuple(f"{part}/data.jsonl" for part in parts), partial(imageinwords, parts=parts, captions=captions)
    layout = f"{', '.join(parts)} of datasets/ of github.com/google/imageinwords, with folders of images {folders}"
    cut = partial(annotated, file=FLAIR, only="" if len(parts) > 1 else f"{folders}/")
    flair = RawFiles((FLAIR,), cut, f"{FLAIR} of github.com/ExplainableML/flair with folders of images {folders}")
    return Benchmark(
        name=name,
        title=title,
        suite=GENERAL,
        protocol=Retrieval(),
        data=(RawFiles(files, read, layout), *((flair,) if captions is sentences else ())),
        paper="Garg et al. 2024, arXiv:2405.02793",
        licence="CC BY 4.0; images of DCI under SA-1B's licence" if "dci" in folders else "CC BY 4.0",
        obtain="The images are in docci_images_aar.tar.gz (IIW-400), docci_images.tar.gz (DOCCI_Test), both at "
        "https://google.github.io/docci, and in Meta's SA-1B, for which one registers (DCI_Test). Pass a folder "
        f"with them and the texts as --data {name.removesuffix('_full')}=FOLDER.",
        folder=name.removesuffix("_full"),
        version=2 if captions is sentences else 1,
    )


IMAGEINWORDS = _benchmark("imageinwords", "ImageInWords retrieval", tuple(PARTS))
IMAGEINWORDS_400 = _benchmark("imageinwords_400", "ImageInWords-400 retrieval", IIW_400)
IMAGEINWORDS_FULL = _benchmark("imageinwords_full", "ImageInWords full-text retrieval", tuple(PARTS), rejoined)
