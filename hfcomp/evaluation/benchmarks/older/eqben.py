"""EqBen (Wang et al. 2023): two frames of a video, or two rendered images, that differ little, a caption each."""

from __future__ import annotations

from functools import partial

from hfcomp.evaluation.benchmarks.readers.frames import FULL, IMAGES, SUBSET, listed_rows, shuffled_rows, with_frames
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

KUBRIC = ("eqbenkubric_loc", "eqbenkubric_attr", "eqbenkubric_cnt")
OTHERS = ("eqbenag", "eqbenyoucook2", "eqbengebc", "eqbensd")
FORMS = (
    ("eqben", "EqBen", FULL, shuffled_rows, (Average("mean of 5 sets", (KUBRIC, *((name,) for name in OTHERS))),)),
    ("eqben_subset", "EqBen (subset)", SUBSET, listed_rows, ()),
)

EQBEN = tuple(
    Benchmark(
        name=name,
        title=title,
        suite=COMPOSITIONAL,
        protocol=GroupMatch(),
        data=(
            Adapted(
                RawFiles((file,), partial(read, file=file), f"{file} of github.com/Wangt-CN/EqBen and {IMAGES[0]}/"),
                with_frames,
            ),
        ),
        averages=averages,
        paper="Wang et al. 2023, arXiv:2303.14465",
        licence="Apache 2.0 (repository); each source of images its own",
        obtain=f"Get {file} and its images (github.com/Wangt-CN/EqBen); pass the folder as --data {name}=FOLDER.",
        in_suites=False,
    )
    for name, title, file, read, averages in FORMS
)
