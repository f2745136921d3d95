"""Agreement of annotators and reviewers, against scikit-learn and counts by hand, through the store."""

from __future__ import annotations

import random
import warnings

import pytest
from sklearn.metrics import cohen_kappa_score

from hfcomp.annotate.progress import agreement_report
from hfcomp.data.annotations.decisions import Decisions
from hfcomp.data.annotations.entries import AUTOMATIC, QUALITIES
from hfcomp.factory.inpaintcoco.agreement import annotation_statistics
from hfcomp.reporting.saving import render_markdown
from tests.data.annotations.making import Clock, edit, items


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    decisions = Decisions(tmp_path / "a.sqlite", clock=clock)
    decisions.add_items(items(60))
    yield decisions
    decisions.close()


def accept(store, number, annotator, reviewer, own, other):
    store.submit(annotator, f"{number}/color", edit(quality=own))
    store.accept(reviewer, f"{number}/color", other)


def test_equal_ratings_and_kappa_of_each_pair_and_of_all(store):
    draws, ratings = random.Random(0), []
    for number in range(40):
        own = draws.choice(QUALITIES)
        other = own if draws.random() < 0.7 else draws.choice(QUALITIES)
        ratings.append((own, other))
        accept(store, number, "Ann" if number < 25 else "Bob", "Cem", own, other)
    statistics = annotation_statistics(store.log())
    assert [(pair.annotator, pair.reviewer, pair.accepted) for pair in statistics.pairs] == [
        ("Ann", "Cem", 25),
        ("Bob", "Cem", 15),
    ]
    for pair, chosen in (
        (statistics.pairs[0], ratings[:25]),
        (statistics.pairs[1], ratings[25:]),
        (statistics.overall, ratings),
    ):
        assert pair.equal.value == pytest.approx(sum(own == other for own, other in chosen) / len(chosen))
        assert pair.kappa.value == pytest.approx(cohen_kappa_score(*zip(*chosen, strict=True)))
        for estimate in (pair.equal, pair.kappa):
            assert estimate.low < estimate.value < estimate.high
    whole, part = statistics.overall.kappa, statistics.pairs[1].kappa
    assert whole.high - whole.low < part.high - part.low
    assert annotation_statistics(store.log(), seed=0) == statistics
    assert annotation_statistics(store.log(), seed=1) != statistics


@pytest.mark.parametrize(
    ("ratings", "equal", "kappa", "shown"),
    [
        ([("okay", "okay")] * 5, 1.0, None, "undefined"),
        ([("okay", "very good")] * 5, 0.0, 0.0, "0.00"),
        ([("okay", "very good")], 0.0, 0.0, "0.00"),
        ([("okay", "okay")], 1.0, None, "undefined"),
        ([("okay", "okay"), ("very good", "very good")] * 5, 1.0, 1.0, "1.00"),
    ],
)
def test_kappa_that_is_undefined_is_shown_as_such(store, ratings, equal, kappa, shown):
    for number, (own, other) in enumerate(ratings):
        accept(store, number, "Ann", "Bob", own, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        statistics = annotation_statistics(store.log())
    assert (statistics.overall.equal.value, statistics.overall.kappa.value) == (equal, kappa)
    markdown = render_markdown(agreement_report(statistics))
    assert "nan" not in markdown.lower()
    assert shown in next(line for line in markdown.splitlines() if line.startswith("| all people"))


def test_what_was_sent_back_counts_with_its_reasons(store):
    for number in range(4):
        store.submit("Ann", f"{number}/color", edit())
    store.send_back("Bob", "0/color", "blurred")
    store.send_back("Bob", "1/color", "blurred")
    store.send_back("Cem", "2/color", "wrong caption")
    store.submit("Ann", "0/color", edit(1))
    store.accept("Cem", "0/color", "okay")
    statistics = annotation_statistics(store.log())
    assert statistics.overall.sent_back_share == 3 / 4
    assert statistics.overall.reasons == {"blurred": 2, "wrong caption": 1}
    assert [(pair.reviewer, pair.sent_back_share) for pair in statistics.pairs] == [("Bob", 1.0), ("Cem", 0.5)]
    assert "| blurred | 2 |" in render_markdown(agreement_report(statistics))


def test_undone_decisions_do_not_count(store):
    accept(store, 0, "Ann", "Bob", "okay", "very good")
    store.undo("Bob")
    store.accept("Bob", "0/color", "okay")
    store.skip("Ann", "1/color", "a face")
    store.skip("Ann", "2/color", "too dark")
    store.undo("Ann")
    statistics = annotation_statistics(store.log())
    assert (statistics.overall.accepted, statistics.overall.equal.value) == (1, 1.0)
    assert statistics.skip_reasons == {"a face": 1}
    assert {person.person: dict(person.decisions) for person in statistics.people} == store.by_person()


def test_automatic_edits_are_a_pair_and_not_of_all_people(store):
    accept(store, 0, AUTOMATIC, "Bob", "okay", "very good")
    statistics = annotation_statistics(store.log())
    assert (statistics.overall.accepted, statistics.overall.sent_back_share, statistics.overall.equal.value) == (
        0,
        None,
        None,
    )
    assert [(pair.annotator, pair.accepted) for pair in statistics.pairs] == [(AUTOMATIC, 1)]


def test_median_seconds_from_lease_to_decision(store, clock):
    for number, seconds in enumerate((10, 30, 500)):
        store.next_item("Ann")
        clock.now += seconds
        store.submit("Ann", f"{number}/color", edit())
        store.next_review("Bob")
        clock.now += 4
        store.accept("Bob", f"{number}/color", "okay")
    store.submit("Cem", "9/color", edit())  # was not leased
    work = {
        person.person: (person.annotating_seconds, person.reviewing_seconds)
        for person in annotation_statistics(store.log()).people
    }
    assert work == {"Ann": (30, None), "Bob": (None, 4), "Cem": (None, None)}


def test_an_empty_log_has_a_report(store):
    statistics = annotation_statistics(store.log())
    assert (statistics.overall.accepted, statistics.pairs, statistics.people) == (0, [], [])
    assert "all people" in render_markdown(agreement_report(statistics))
