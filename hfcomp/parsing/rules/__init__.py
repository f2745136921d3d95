"""A parser that needs no download: tags by textblob, then units, clauses and heads by rules for captions."""

from hfcomp.parsing.rules.parser import RuleParser

__all__ = ["RuleParser"]
