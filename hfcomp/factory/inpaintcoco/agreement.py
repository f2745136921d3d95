"""Whether annotators and reviewers agree, and how much each person has done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    """A number with its 95 % interval; None where it is not defined."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Agreement:
    """Agreement of two people, or of all.

    Attributes:
        annotator: who made the edits; None for all people.
        reviewer: who reviewed them; None for all people.
        accepted: number of accepted edits, each with a rating of both.
        sent_back: number of edits that were sent back; they have no rating of the reviewer.
        equal: share of accepted edits with two equal ratings, 0 to 1.
        kappa: Cohen's kappa of the ratings, -1 to 1; undefined where all ratings are the same.
        reasons: Number of times that each reason for sending back was given.
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
        """Share of the reviews, 0 to 1; None without one."""
        reviews = self.accepted + self.sent_back
        return self.sent_back / reviews if reviews else None


@dataclass(frozen=True)
class Work:
    """Decisions of a person.

    Attributes:
        decisions: standing ones by action.
        annotating_seconds: median from being given an item to submitting it; None without one.
        reviewing_seconds: median from being given an edit to accepting it or sending it back.
    """

    person: str
    decisions: Mapping[Action, int]
    annotating_seconds: float | None
    reviewing_seconds: float | None


@dataclass(frozen=True)
class AnnotationStatistics:
    """What a log says of the people.

    Attributes:
        overall: agreement over the edits of people; automatic edits have no person's rating to agree with.
        pairs: agreement of each annotator with each reviewer, by name; automatic edits, too.
        people: work of each person, by name.
        skip_reasons: Number of times that each reason for skipping was given.
    """

    overall: Agreement
    pairs: Sequence[Agreement]
    people: Sequence[Work]
    skip_reasons: Mapping[str, int]


def annotation_statistics(log: Iterable[Entry], *, resamples: int = 2000, seed: int = 0) -> AnnotationStatistics:
    """Statistics of the decisions that still stand.

    Ratings are compared on accepted edits, which a reviewer rates without seeing the annotator's rating. Intervals
    resample items.
    """
    entries = standing_decisions(log)
    # Spellings of one person, such as "anna" and "Anna", count together.
    names = first_spellings(entry.person for entry in entries)
    pairs: dict[tuple[str, str], _Reviews] = {}
    people: dict[str, _Decided] = {}
    everybody, skipped = _Reviews(), Counter[str]()
    for entry, edit in _with_edits(entries):
        people.setdefault(names[entry.person], _Decided()).add(entry)
        if entry.action == "skip":
            skipped[entry.content["reason"]] += 1
        elif edit is not None:
            pairs.setdefault((names[edit.person], names[entry.person]), _Reviews()).add(entry, edit)
            # The automatic mode rates all its edits the same, which is no opinion that a reviewer could share.
            if edit.person != AUTOMATIC:
                everybody.add(entry, edit)
    return AnnotationStatistics(
        everybody.agreement(None, None, resamples, seed),
        [pairs[names].agreement(*names, resamples, seed) for names in sorted(pairs)],
        [people[name].work(name) for name in sorted(people)],
        dict(skipped.most_common()),
    )


def standing_decisions(log: Iterable[Entry]) -> list[Entry]:
    """The decisions of a log without those that were undone."""
    entries = list(log)
    # The log is append-only: an undo is an entry of its own that names the one it takes back.
    undone = {entry.content["undoes"] for entry in entries if entry.action == "undo"}
    return [entry for entry in entries if entry.action != "undo" and entry.number not in undone]


def _with_edits(entries: list[Entry]) -> Iterator[tuple[Entry, Entry | None]]:
    """Each decision, a review with the submission that it is about."""
    submissions: dict[str, Entry] = {}
    for entry in entries:
        if entry.action == "submit":
            # The latest submission is the one under review: an item that was sent back is submitted again.
            submissions[entry.item] = entry
        yield entry, submissions[entry.item] if entry.action in ("accept", "send back") else None


@dataclass
class _Reviews:
    """Reviews, with the ratings of accepted edits."""

    first: list[Quality] = field(default_factory=list)
    second: list[Quality] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, review: Entry, edit: Entry) -> None:
        if review.action == "send back":
            self.reasons[review.content["reason"]] += 1
        else:
            self.first.append(edit.content["quality"])
            self.second.append(review.content["quality"])

    def agreement(self, annotator: str | None, reviewer: str | None, resamples: int, seed: int) -> Agreement:
        number = len(self.first)
        equal, kappa = Estimate(), Estimate()
        if number:
            equal, kappa = rating_agreement(self.first, self.second, resamples=resamples, seed=seed)
        reasons = dict(self.reasons.most_common())
        return Agreement(annotator, reviewer, number, self.reasons.total(), equal, kappa, reasons)


@dataclass
class _Decided:
    """Decisions of a person."""

    decisions: Counter[Action] = field(default_factory=Counter)
    annotating: list[float] = field(default_factory=list)
    reviewing: list[float] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        self.decisions[entry.action] += 1
        if entry.taken is not None and entry.action != "skip":
            (self.annotating if entry.action == "submit" else self.reviewing).append(entry.time - entry.taken)

    def work(self, person: str) -> Work:
        seconds = [median(times) if times else None for times in (self.annotating, self.reviewing)]
        return Work(person, {action: self.decisions[action] for action in DECISIONS}, *seconds)


def rating_agreement(
    first: Sequence[Quality], second: Sequence[Quality], *, resamples: int = 2000, seed: int = 0
) -> tuple[Estimate, Estimate]:
    """The share of equal ratings and Cohen's kappa, which is undefined where all ratings are the same."""
    equal = np.array([float(one == other) for one, other in zip(first, second, strict=True)])
    items = np.arange(len(equal))
    bootstrap = ImageBootstrap(items, resamples=resamples, seed=seed)
    share = _estimate(equal.mean(), *bootstrap.interval(equal, items))
    ratings = ([QUALITIES.index(one) for one in ratings] for ratings in (first, second))
    kappa = resample({"": Kappa(*map(np.array, ratings), items, len(QUALITIES))}, bootstrap.draws)[""]
    return share, _estimate(kappa.value, *percentile_interval(kappa.draws))


def _estimate(*numbers: float) -> Estimate:
    """A number that is not defined has no interval."""
    known = [None if np.isnan(one) or np.isnan(numbers[0]) else float(one) for one in numbers]
    return Estimate(known[0], *(known[1:] if None not in known else (None, None)))
