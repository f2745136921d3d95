"""Tables about how a set came about: decisions, people, their agreement, and how masks were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from hfcomp.data.annotations.decisions import Entry
from hfcomp.data.annotations.entries import AUTOMATIC, QUALITIES, Accepted, State
from hfcomp.generation.inpaintcoco.agreement import KAPPA, rating_agreement, standing_decisions
from hfcomp.metrics.units import PERCENT
from hfcomp.reporting.format import with_interval
from hfcomp.reporting.report import Table

MOST_REASONS = 20


def decision_tables(entries: Sequence[Entry], states: Mapping[State, int], names: Mapping[str, str]) -> list[Table]:
    """The state of a project's items, and why some were skipped or sent back; what was undone does not count.

    Args:
        entries: of the log.
        states: items by state.
        names: pseudonyms of people, which stand in reasons too.
    """
    reasons = {
        title: Counter(
            _unnamed(str(one.content["reason"]), names) for one in standing_decisions(entries) if one.action == action
        )
        for action, title in (("skip", "items skipped"), ("send back", "edits sent back"))
    }
    tables = [Table("items of the project", ["state", "items"], [[name, f"{n:,}"] for name, n in states.items()])]
    return tables + [_reason_table(title, counts) for title, counts in reasons.items() if counts]


def model_tables(models: Sequence[tuple[str, str]]) -> list[Table]:
    """What edits were made with.

    Args:
        models: roles and identities.
    """
    return [Table("models of the edits", ["role", "model"], [list(one) for one in models], labels=2)] if models else []


def pair_tables(pairs: Sequence[Accepted], names: Mapping[str, str]) -> list[Table]:
    """Who made the edits of a set, how ratings of annotators and reviewers agree, and how masks were made.

    Args:
        pairs: of the set.
        names: pseudonyms of people.
    """
    made = Counter(names[one.annotator] for one in pairs)
    reviewed = Counter(names[one.reviewer] for one in pairs)
    people = [name for name in names.values() if made[name] or reviewed[name]]
    thresholds = Counter(f"threshold {one.edit.threshold:.2f}" for one in pairs if one.edit.mask_prompt)
    masks = {
        **dict(sorted(thresholds.items())),
        "without a segmentation": sum(not one.edit.mask_prompt for one in pairs),
        "corrected or drawn by hand": sum(one.edit.is_corrected for one in pairs),
        "enlarged": sum(any(one.edit.enlarge) for one in pairs),
    }
    return [
        Table(
            "people",
            ["who", "edits", "reviews"],
            [[name, f"{made[name]:,}", f"{reviewed[name]:,}"] for name in people],
        ),
        *_agreement_tables(pairs),
        Table("masks", ["how", "pairs"], [[name, f"{number:,}"] for name, number in masks.items() if number]),
    ]


def _agreement_tables(pairs: Sequence[Accepted]) -> list[Table]:
    """Ratings of annotators against those of reviewers, who do not see them; an automatic rating is no opinion."""
    both = [(one.edit.quality, one.reviewed_quality) for one in pairs if one.annotator != AUTOMATIC]
    if not both:
        return []
    counts = Counter(both)
    rows = [[own, *(f"{counts[own, other]:,}" for other in QUALITIES)] for own in QUALITIES]
    equal, kappa = rating_agreement(*zip(*both, strict=True))
    shown = "undefined: all ratings are the same" if kappa.value is None else with_interval(asdict(kappa), KAPPA)
    measures = [["equal ratings, in percent", with_interval(asdict(equal), PERCENT)], ["Cohen's kappa", shown]]
    return [
        Table("ratings of annotators, and of reviewers", ["annotator", *QUALITIES], rows),
        Table("agreement, with 95 % intervals over pairs", ["measure", "value"], measures),
    ]


def _unnamed(text: str, names: Mapping[str, str]) -> str:
    """A text with pseudonyms in place of names, the longest first."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return text


def _reason_table(title: str, counts: Counter[str]) -> Table:
    rows = [[reason, f"{number:,}"] for reason, number in counts.most_common(MOST_REASONS)]
    left = sum(counts.values()) - sum(number for _, number in counts.most_common(MOST_REASONS))
    return Table(title, ["reason", "number"], [*rows, *([["other reasons", f"{left:,}"]] if left else [])])
