"""Agreement of annotators and reviewers, and the amount of each person's work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from hfcomp.data.annotations.decisions import Entry
from hfcomp.data.annotations.entries import ACTIONS, AUTOMATIC, QUALITIES, Action, Quality, first_spellings
from hfcomp.metrics.units import Unit
from hfcomp.statistics.bootstrap import ImageBootstrap
from hfcomp.statistics.resampling import Kappa, percentile_interval, resample

KAPPA = Unit(1, 2)
DECISIONS: tuple[Action, ...] = tuple(action for action in ACTIONS if action != "undo")


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval; None if undefined."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Agreement:
    """Agreement of two people, or of all people.

    Attributes:
        annotator: Person who made the edits; None for all people.
        reviewer: Person who reviewed the edits; None for all people.
        accepted: Number of accepted edits, each rated by both.
        sent_back: Number of edits that were sent back; the reviewer does not rate these.
        equal: Share of accepted edits with two equal ratings, 0 to 1.
        kappa: Cohen's kappa of the ratings, -1 to 1; undefined if all ratings are the same.
        reasons: Number of uses of each reason for sending back.
    """

    annotator: str | None
    reviewer: str | None
    accepted: int
    sent_back: int
    equal: Estimate
    kappa: Estimate
    reasons: Mapping[str, int]

    @property
    def sent_back_share(self) -> float | None:
        """Share of the reviews, 0 to 1; None without reviews."""
        reviews = self.accepted + self.sent_back
        return self.sent_back / reviews if reviews else None


@dataclass(frozen=True)
class Work:
    """Decisions of a person.

    Attributes:
        decisions: Number of decisions by action, without undone ones.
        annotating_seconds: Median time from receiving an item to submitting it; None without submissions.
        reviewing_seconds: Median time from receiving an edit to accepting it or sending it back; None without reviews.
    """

    person: str
    decisions: Mapping[Action, int]
    annotating_seconds: float | None
    reviewing_seconds: float | None


@dataclass(frozen=True)
class AnnotationStatistics:
    """Statistics of the people in a log.

    Attributes:
        overall: Agreement over the edits of people. Automatic edits have no person's rating to agree with.
        pairs: Agreement of each annotator with each reviewer, by name, including automatic edits.
        people: Work of each person, by name.
        skip_reasons: Number of uses of each reason for skipping.
    """

    overall: Agreement
    pairs: Sequence[Agreement]
    people: Sequence[Work]
    skip_reasons: Mapping[str, int]


def annotation_statistics(log: Iterable[Entry], *, resamples: int = 2000, seed: int = 0) -> AnnotationStatistics:
    """Statistics of the decisions that were not undone.

    Ratings are compared on accepted edits, which a reviewer rates without seeing the annotator's rating. Intervals
    resample items.
    """
    entries = standing_decisions(log)
    # Spellings of one person, such as "anna" and "Anna", count together.
    names = first_spellings(entry.person for entry in entries)
    pairs: dict[tuple[str, str], list[tuple[Entry, Entry]]] = {}
    people: dict[str, list[Entry]] = {}
    for entry, edit in _pair_with_edits(entries):
        people.setdefault(names[entry.person], []).append(entry)
        if edit is not None:
            pairs.setdefault((names[edit.person], names[entry.person]), []).append((entry, edit))
    # The automatic mode gives all its edits the same rating, which is not an opinion that a reviewer could share.
    everybody = [
        (entry, edit) for entry, edit in _pair_with_edits(entries) if edit is not None and edit.person != AUTOMATIC
    ]
    skipped = Counter(entry.content["reason"] for entry in entries if entry.action == "skip")
    return AnnotationStatistics(
        _agreement(None, None, everybody, resamples, seed),
        [_agreement(*pair, pairs[pair], resamples, seed) for pair in sorted(pairs)],
        [_work(name, people[name]) for name in sorted(people)],
        dict(skipped.most_common()),
    )


def standing_decisions(log: Iterable[Entry]) -> list[Entry]:
    """The decisions of a log, without undone ones."""
    entries = list(log)
    # The log is append-only: an undo is a separate entry that names the entry it reverts.
    undone = {entry.content["undoes"] for entry in entries if entry.action == "undo"}
    return [entry for entry in entries if entry.action != "undo" and entry.number not in undone]


def _pair_with_edits(entries: list[Entry]) -> Iterator[tuple[Entry, Entry | None]]:
    """Yields each decision, and for a review also the reviewed submission."""
    submissions: dict[str, Entry] = {}
    for entry in entries:
        if entry.action == "submit":
            # The latest submission is the one under review: an item that was sent back is submitted again.
            submissions[entry.item] = entry
        yield entry, submissions[entry.item] if entry.action in ("accept", "send back") else None


def _agreement(
    annotator: str | None, reviewer: str | None, reviews: Sequence[tuple[Entry, Entry]], resamples: int, seed: int
) -> Agreement:
    """The agreement over reviews, each given with the reviewed edit."""
    reasons = Counter(review.content["reason"] for review, _ in reviews if review.action == "send back")
    ratings = [
        (edit.content["quality"], review.content["quality"]) for review, edit in reviews if review.action == "accept"
    ]
    equal, kappa = Estimate(), Estimate()
    if ratings:
        equal, kappa = rating_agreement(*zip(*ratings, strict=True), resamples=resamples, seed=seed)
    counts = dict(reasons.most_common())
    return Agreement(annotator, reviewer, len(ratings), reasons.total(), equal, kappa, counts)


def _work(person: str, entries: Sequence[Entry]) -> Work:
    def seconds(*actions: Action) -> float | None:
        times = [entry.time - entry.taken for entry in entries if entry.action in actions and entry.taken is not None]
        return median(times) if times else None

    decisions = Counter(entry.action for entry in entries)
    counts = {action: decisions[action] for action in DECISIONS}
    return Work(person, counts, seconds("submit"), seconds("accept", "send back"))


def rating_agreement(
    first: Sequence[Quality], second: Sequence[Quality], *, resamples: int = 2000, seed: int = 0
) -> tuple[Estimate, Estimate]:
    """The share of equal ratings, and Cohen's kappa, which is undefined if all ratings are the same."""
    equal = np.array([float(rating == other) for rating, other in zip(first, second, strict=True)])
    items = np.arange(len(equal))
    bootstrap = ImageBootstrap(items, resamples=resamples, seed=seed)
    share = _estimate(equal.mean(), *bootstrap.interval(equal, items))
    ratings = ([QUALITIES.index(rating) for rating in ratings] for ratings in (first, second))
    kappa = resample({"": Kappa(*map(np.array, ratings), items, len(QUALITIES))}, bootstrap.draws)[""]
    return share, _estimate(kappa.value, *percentile_interval(kappa.draws))


def _estimate(*numbers: float) -> Estimate:
    """An estimate; an undefined number has no interval."""
    known = [None if np.isnan(number) or np.isnan(numbers[0]) else float(number) for number in numbers]
    return Estimate(known[0], *(known[1:] if None not in known else (None, None)))
