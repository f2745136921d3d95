"""Hard Positives (Kamath et al. 2024): does a rewording that means the same beat the false caption too?"""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.sets.hard_positives import FILES, rows
from hfcomp.evaluation.benchmarks.readers.visual_genome import VISUAL_GENOME, cropped
from hfcomp.evaluation.protocols.caption_choice import Brittleness
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

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
            cropped,
        ),
    ),
    averages=(Average("REPLACE", (("replace_att",), ("replace_rel",))),),  # the paper's; SWAP is the other subset
    paper="Kamath et al. 2024, arXiv:2409.17958",
    licence="not stated; images of Visual Genome, CC BY 4.0",
    obtain=f"Its texts are downloaded automatically. {VISUAL_GENOME.obtain}",
    version=2,
)
