"""The paper's own numbers of its three sets (Im, Madhwal and Gupta, "Concrete Jungle", 2026, Table 1).

Of PE-Core-L-14-336, DINOv2 (size not given) and RoBERTa-large, on pairs made from COCO's Karpathy split.
"""

from __future__ import annotations

import re

from hfcomp.negatives.targets import MODES, PAPER_MEAN_AND_MEDIAN

CONFIGS = ("high_concreteness", "low_concreteness", "random")
TABLE_1 = {
    "mean concreteness": tuple(PAPER_MEAN_AND_MEDIAN[mode][0] for mode in MODES),
    "median concreteness": tuple(PAPER_MEAN_AND_MEDIAN[mode][1] for mode in MODES),
    "I2T accuracy": (0.9225, 0.8357, 0.8712),
    "T2I accuracy": (0.5087, 0.4020, 0.4433),
    "BERTScore": (0.8907, 0.8981, 0.8992),
    "CLIP-L": (0.9029, 0.9279, 0.9197),
    "DINOScore": (0.6225, 0.6707, 0.6514),
    "CLIP-V": (0.7000, 0.7270, 0.7168),
    "unique keywords": (11190, 11034, 11050),
}
"""By row, of each of `CONFIGS`."""
_NAMES = {
    **{config: config for config in CONFIGS},
    **{"high": CONFIGS[0], "hc": CONFIGS[0], "low": CONFIGS[1], "lc": CONFIGS[1], "wo": CONFIGS[2]},
}


def config_of(*names: str | None) -> str | None:
    """The paper's configuration that the first recognised name says; `None` where none is one."""
    words = (re.sub(r"[^a-z]+", "_", (name or "").lower()).strip("_") for name in names)
    return next((_NAMES[word] for word in words if word in _NAMES), None)


def published(row: str, config: str | None) -> float | None:
    """A number of Table 1."""
    if config is None or row not in TABLE_1:
        return None
    return float(TABLE_1[row][CONFIGS.index(config)])
