"""The page that says which published numbers were reproduced."""

from __future__ import annotations

from dataclasses import replace

from hfcomp.evaluation.evaluation_results import EvaluationResults, evaluation_report
from hfcomp.evaluation.published.comparison import READING, TITLE
from hfcomp.reporting.report import Report

SECTIONS = (TITLE, "Data", "Models", "How it was made")


def reproduction_report(results: EvaluationResults) -> Report:
    """Published numbers beside measured ones, what was read, and how it was made.

    Args:
        results: with `published`.
    """
    whole = evaluation_report(results, brief=False)
    sections = [section for section in whole.sections if section.title in SECTIONS]
    legend = [one for one in whole.legend if one == READING]  # none where nothing is compared
    return replace(whole, title="Reproduced numbers", sections=sections, legend=legend)
