"""ConcreteBatch (Concrete Jungle, section 2.2): a chain of three builds for each configuration.

| step | folder | from a row |
|---|---|---|
| targets | `steps/CONFIG/targets` | its longest caption, and the words that may be changed |
| captions | `steps/CONFIG/captions` | the category that balances the set, and the negative caption |
| images | `CONFIG` | the image edited by it: the finished set |

Each resumes where it was killed. The steps need other machines: a processor, a language model's server, GPUs; a later
one begins when the one before is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, ClassVar, Literal

from datasets import Dataset, Image, Value

from hfcomp.data.features import NEGATIVE_FEATURES
from hfcomp.data.loading import load_training_set
from hfcomp.generation.chains import joined
from hfcomp.generation.images.options import ImageOptions
from hfcomp.generation.negative_captions import READS as CAPTION_READS
from hfcomp.generation.negative_captions import caption_stage
from hfcomp.generation.options import WriterOptions
from hfcomp.generation.runner import Build, run_stages
from hfcomp.generation.shards import SOURCE_ROW, Stage
from hfcomp.generation.sources import Log, output_features, read_captioned_rows
from hfcomp.generation.targets import TargetOptions
from hfcomp.reporting.report import Table

CONFIGS = {"high_concreteness": "high", "low_concreteness": "low", "random": "random"}
"""The configurations and the mode of selection of each: the paper's D_hc, D_lc and D_wo."""
STEPS = ("targets", "captions", "images")
