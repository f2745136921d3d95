"""Keyword permutation: negative captions for object, color, location and size, or your own (Rösch et al. 2024)."""

from hfcomp.negatives.keywords.matching import EXTENDED, MATCHINGS, PAPER, KeywordMatch, Matching, find_keywords
from hfcomp.negatives.keywords.permutation import (
    KeywordPermutations,
    all_keyword_permutations,
    keyword_negatives,
    negative_columns,
)
from hfcomp.negatives.keywords.tables import PAPER_TABLE, Concept, KeywordTable, Plurals, read_keyword_table

__all__ = [
    "EXTENDED",
    "MATCHINGS",
    "PAPER",
    "PAPER_TABLE",
    "Concept",
    "KeywordMatch",
    "KeywordPermutations",
    "KeywordTable",
    "Matching",
    "Plurals",
    "all_keyword_permutations",
    "find_keywords",
    "keyword_negatives",
    "negative_columns",
    "read_keyword_table",
]
