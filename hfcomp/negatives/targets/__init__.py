"""Which word of a caption a hard negative changes: ConcretePlant's choice of keywords (Concrete Jungle, section 2.2).

* `candidates`: the words that could be, with category and concreteness; `relations`: which say where, or do what.
* `choice`: the top k and the draw among them; `quota`: the category of each row of a set.
* `summary`: how concrete a set's targets are.
"""

from hfcomp.negatives.targets.candidates import CATEGORIES, KEPT, Candidate, Lookup, Prepositions, find_candidates
from hfcomp.negatives.targets.choice import MODES, ORDERS, Choice, Mode, Order
from hfcomp.negatives.targets.quota import balanced_categories
from hfcomp.negatives.targets.summary import PAPER_MEAN_AND_MEDIAN, TargetSummary, summarize_targets

__all__ = [
    "CATEGORIES",
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
