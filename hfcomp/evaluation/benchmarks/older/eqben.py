"""EqBen (Wang et al. 2023): two frames of a video, or two rendered images, that differ little, a caption each."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.older.frames import FULL, SUBSET, frame_files
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

KUBRIC = ("eqbenkubric_loc", "eqbenkubric_attr", "eqbenkubric_cnt")
OTHERS = ("eqbenag", "eqbenyoucook2", "eqbengebc", "eqbensd")
BY_SET = Average("mean of 5 sets", (KUBRIC, *((name,) for name in OTHERS)))

EQBEN = tuple(
    Benchmark(
        name=name,
        title=title,
        suite=COMPOSITIONAL,
        protocol=GroupMatch(),
        data=(frame_files(file),),
        averages=averages,
        paper="Wang et al. 2023, arXiv:2303.14465",
        licence="Apache 2.0 (repository); each source of images its own",
        obtain=f"Get {file} and its images (github.com/Wangt-CN/EqBen); pass the folder as --data {name}=FOLDER.",
        in_suites=False,
    )
    for name, title, file, averages in (
        ("eqben", "EqBen", FULL, (BY_SET,)),
        ("eqben_subset", "EqBen (subset)", SUBSET, ()),
    )
)
