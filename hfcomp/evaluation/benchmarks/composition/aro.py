"""ARO's two sets of Visual Genome (Yuksekgonul et al. 2023): who does what to whom, and which thing is how?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hfcomp.evaluation.benchmarks.readers.sets.aro import boxed, rare, rows, symmetric
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import Adapted, HubData, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

PAPER = "Yuksekgonul et al. 2023, arXiv:2210.01936"


def _benchmark(
    part: str, subset: str, macro: str, left_out: Callable[[list[str]], list[str]], revision: str
) -> Benchmark:
    file, repo = f"visual_genome_{part}.json", f"mteb/ARO-Visual-{part.capitalize()}"
    columns = {"image": "image", "caption": "true_caption", "negative_captions": "false_caption", "subset": subset}
    read, layout = partial(rows, file=file, subset=subset), f"{file} and images/ as the authors' script downloads them"
    forms = (HubData(repo, {**columns, "box": "bbox"}, revision=revision), RawFiles((file, "images"), read, layout))
    return Benchmark(
        name=f"aro_{part}",
        title=f"ARO VG-{part.capitalize()}",
        suite=COMPOSITIONAL,
        protocol=CaptionChoice(),
        data=tuple(Adapted(form, partial(boxed, left_out=left_out)) for form in forms),
        averages=(Average(macro), Average("micro", pooled=True)),
        paper=PAPER,
        licence="MIT according to MTEB's copy; images of Visual Genome, CC BY 4.0",
        obtain=f"It comes from the Hub ({repo}).",
    )


# the revisions are those that MTEB reads
RELATION_AT, ATTRIBUTION_AT = "53c1115ab5871ab33b09d5bb8856236d46bdaf2d", "25fe9b460426ff67cdb0608a737c94f8f49a901e"
ARO_RELATION = _benchmark("relation", "relation_name", "macro of relations", symmetric, RELATION_AT)
ARO_ATTRIBUTION = _benchmark("attribution", "attributes", "macro of pairs", rare, ATTRIBUTION_AT)
