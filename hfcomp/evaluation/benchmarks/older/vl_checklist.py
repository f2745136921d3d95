"""VL-CheckList (Zhao et al. 2022): a phrase of an annotation or one with another object, attribute or relation."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.older.checklist import (
    ATTRIBUTES,
    HAKE,
    OBJECTS,
    POOLS,
    RELATIONS,
    TESTS,
    checklist,
)
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

COMMIT = "6f8d6a3281c401b89e4e154f46c6974ec2df3a82"
PARTS = {"attribute": ATTRIBUTES, "object": OBJECTS, "relation": RELATIONS}
WITHOUT_HAKE = tuple(tuple(test for test in part if not test.endswith(HAKE)) for part in PARTS.values())

VL_CHECKLIST = Benchmark(
    name="vl_checklist",
    title="VL-CheckList",
    suite=COMPOSITIONAL,
    protocol=CaptionChoice(),
    data=(checklist(f"https://raw.githubusercontent.com/om-ai-lab/VL-CheckList/{COMMIT}"),),
    # named one by one: an average is left out, not taken over the rest, where a source's images are missing
    averages=(
        Average("mean of 3 parts", tuple(PARTS.values())),
        Average("mean of 3 parts without HAKE", WITHOUT_HAKE),
        *(Average(name, (part,)) for name, part in PARTS.items()),
    ),
    paper="Zhao et al. 2022, arXiv:2207.00221",
    licence="not stated; each source of images its own",
    obtain=f"Its texts ({len(TESTS)} files) come by themselves. " + " ".join(pool.obtain for pool in POOLS),
    in_suites=False,
)
