"""Keyword ranking, as a module of `evaluate`."""

from hfcomp.metrics.modules.evaluate_metrics import KeywordRanking

__all__ = ["KeywordRanking"]
