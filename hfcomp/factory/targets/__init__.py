"""Which word of a caption a hard negative changes: ConcretePlant's choice of keywords (Concrete Jungle, section 2.2).

* `candidates`: the words that could be, with category and concreteness; `relations`: which say where, or do what.
* `choice`: the top k and the draw among them, the category of each row of a set, and how concrete its targets are.
"""

from hfcomp.factory.targets.candidates import CATEGORIES, KEPT, Candidate, Lookup, Prepositions, find_candidates
from hfcomp.factory.targets.choice import (
    CONFIGS,
    MODES,
    ORDERS,
    PAPER_MEAN_AND_MEDIAN,
    Choice,
    Mode,
    Order,
    TargetSummary,
    balanced_categories,
    summarize_targets,
)

__all__ = [
    "CATEGORIES",
    "CONFIGS",
    "KEPT",
    "MODES",
    "ORDERS",
    "PAPER_MEAN_AND_MEDIAN",
    "Candidate",
    "Choice",
    "Lookup",
    "Mode",
    "Order",
    "Prepositions",
    "TargetSummary",
    "balanced_categories",
    "find_candidates",
    "summarize_targets",
]
