"""DOCCI (Onoe et al. 2024): retrieval by single sentences of long descriptions, and by the whole descriptions."""

from __future__ import annotations

from functools import partial

from hfcomp.evaluation.benchmarks.readers.descriptions import Captions, annotated, docci, in_captions, sentences, whole
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import HubData, RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

FILE, FLAIR = "docci_descriptions.jsonlines", "annotations/test_annotations.json"
READ_FLAIR = partial(annotated, file=FLAIR, images="images")
CUT = RawFiles((FLAIR,), READ_FLAIR, f"{FLAIR} of github.com/ExplainableML/flair and images/")
# pinned by a public reader that found its descriptions equal to Google's
REPO, COMMIT = "nicolollo/docci", "d25e433474a72db3853da8e208d564e9b98795e6"
COLUMNS, FILES = {"image": "image_file", "captions": "description"}, {"test": "data/test-*"}


def _benchmark(name: str, title: str, captions: Captions, *forms: RawFiles, version: int) -> Benchmark:
    raw = RawFiles((FILE,), partial(docci, captions=captions), f"{FILE} and images/ of google.github.io/docci")
    subsets, shape = {"all": {"split": "test", "data_files": FILES}}, partial(in_captions, captions=captions)
    return Benchmark(
        name=name,
        title=title,
        suite=GENERAL,
        protocol=Retrieval(),
        data=(raw, *forms, HubData(REPO, COLUMNS, subsets, reshape=shape, revision=COMMIT)),
        paper="Onoe et al. 2024, arXiv:2404.19753",
        licence="CC BY 4.0",
        obtain="A copy is downloaded from the Hub; the authors' files are at https://google.github.io/docci.",
        folder="docci",
        version=version,
    )


DOCCI = _benchmark("docci", "DOCCI retrieval", sentences, CUT, version=2)
DOCCI_FULL = _benchmark("docci_full", "DOCCI full-text retrieval", whole, version=1)
