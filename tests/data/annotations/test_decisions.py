"""The store's face: what is given to whom, what decisions do, and what is refused."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from hfcomp.data.annotations.decisions import Decisions
from hfcomp.data.annotations.entries import AUTOMATIC, STATES
from hfcomp.data.annotations.leases import RESERVED_SECONDS
from tests.data.annotations.making import Clock, edit, item, items


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    decisions = Decisions(tmp_path / "a.sqlite", lease_seconds=100, clock=clock)
    yield decisions
    assert decisions.rebuild() == 0  # the state of every item follows from the log
    undone = {entry.content.get("undoes") for entry in decisions.log()} - {None}
    work = Counter((e.person, e.action) for e in decisions.log() if e.action != "undo" and e.number not in undone)
    assert Counter({(name, do): n for name, own in decisions.by_person().items() for do, n in own.items()}) == work
    for concept in (None, *decisions.concepts()):
        numbers = {state: len(list(decisions.items(state=state, concept=concept))) for state in STATES}
        assert decisions.counts(concept=concept) == numbers
    decisions.close()


def annotate(store, number=1, person="Ann"):
    store.add_items(items(number))
    for place in range(number):
        store.submit(person, f"{place}/color", edit(place))


# items


def test_items_come_back_as_they_were_added(store):
    assert store.add_items(items(3)) == 3
    assert store.item("1/color") == item(1)
    assert list(store.items()) == items(3)


def test_adding_items_again_adds_the_new_ones_only(store):
    store.add_items(items(2))
    assert store.add_items(items(5)) == 3
    assert [entry.id for entry in store.items()] == [f"{place}/color" for place in range(5)]


def test_more_items_than_a_chunk_are_read_in_order(store):
    assert store.add_items(items(2500)) == 2500
    assert list(store.items()) == items(2500)


def test_an_item_with_other_content_is_refused_and_earlier_chunks_stay(store):
    store.add_items([item(1500)])
    changed = [
        dataclasses.replace(entry, image="ab/other.jpg") if entry == item(1500) else entry for entry in items(2000)
    ]
    with pytest.raises(ValueError, match=r"a\.sqlite: item 1500/color .*image"):
        store.add_items(changed)
    assert sum(store.counts().values()) == 1001
    assert store.add_items(items(2000)) == 999


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"keywords": ("red",)}, "2 captions and 1 keywords"),
        ({"captions": (), "keywords": ()}, "0 captions"),
        ({"image": "../secret.jpg"}, "'../secret.jpg'"),
        ({"facts": {"at": float("nan")}}, "cannot be saved as JSON"),
        ({"facts": {"at": {1, 2}}}, "cannot be saved as JSON"),
        ({"concept": 3}, "concept: found 3, expected a string"),
    ],
)
def test_an_item_that_cannot_be_read_again_is_not_saved(store, change, said):
    with pytest.raises(ValueError, match="item 0/color.*" + said):
        store.add_items([dataclasses.replace(item(), **change)])
    assert not any(store.counts().values())


@pytest.mark.parametrize("call", ["item", "state", "edit"])
def test_an_unknown_item_is_named(store, call):
    with pytest.raises(ValueError, match=r"a\.sqlite .*no item 'x'"):
        getattr(store, call)("x")


# who is given what


def test_people_are_given_different_items_in_order(store):
    store.add_items(items(3))
    assert [store.next_item(name).id for name in ("Ann", "Bob", "Ann", "Cem")] == [
        "0/color",
        "1/color",
        "0/color",
        "2/color",
    ]
    assert store.next_item("Dan") is None


def test_a_concept_is_chosen_and_a_held_item_stays(store):
    store.add_items([*items(2), *items(2, concept="size")])
    assert store.concepts() == ["color", "size"]
    assert store.next_item("Ann", concept="size").id == "0/size"
    assert store.next_item("Ann", concept="color").id == "0/size"
    store.release("Ann")
    assert store.next_item("Ann", concept="color").id == "0/color"
    assert store.next_item("Bob", concept="number") is None


def test_peeking_leases_nothing(store):
    store.add_items(items(3))
    store.next_item("Ann")
    assert store.peek_item("Ann").id == "1/color"
    assert store.next_item("Bob").id == "1/color"
    assert store.peek_item("Ann").id == "2/color"
    store.next_item("Cem")
    assert store.peek_item("Ann") is None


def test_a_lease_ends_and_the_item_is_given_to_others(store, clock):
    store.add_items(items(2))
    store.next_item("Ann")
    clock.now += 99
    assert store.next_item("Bob").id == "1/color"
    clock.now += 1
    assert store.next_item("Cem").id == "0/color"
    with pytest.raises(ValueError, match="0/color was given to Cem"):
        store.submit("Ann", "0/color", edit())
    assert not store.renew("Ann", "0/color")
    store.submit("Cem", "0/color", edit())
    with pytest.raises(ValueError, match="0/color was submitted by Cem"):
        store.skip("Ann", "0/color", "blurred")
    assert [entry.person for entry in store.log()] == ["Cem"]


def test_who_was_too_slow_keeps_an_item_that_nobody_took(store, clock):
    store.add_items(items(2))
    store.next_item("Ann")
    clock.now += 5000
    assert store.next_item("Ann").id == "0/color"
    clock.now += 5000
    store.submit("Ann", "0/color", edit())
    assert store.state("0/color") == "annotated"


def test_a_renewed_lease_lasts(store, clock):
    store.add_items(items(1))
    store.next_item("Ann")
    for _ in range(5):
        clock.now += 90
        assert store.renew("Ann", "0/color")
    assert store.next_item("Bob") is None


def test_released_items_are_given_to_others(store):
    store.add_items(items(1))
    store.next_item("Ann")
    store.release("Ann")
    assert store.next_item("Bob").id == "0/color"
    assert not store.renew("Ann", "0/color")


# drafts


def test_a_draft_is_replaced_and_lost_with_the_decision(store):
    store.add_items(items(1))
    store.save_draft("Ann", "0/color", {"caption": "a blü bus"})
    store.save_draft("Ann", "0/color", {"caption": "a green bus", "seeds": [1, 2]})
    store.save_draft("Bob", "0/color", {"caption": "of Bob"})
    assert store.draft("Ann", "0/color") == {"caption": "a green bus", "seeds": [1, 2]}
    store.submit("Ann", "0/color", edit())
    assert store.draft("Ann", "0/color") is None
    assert store.draft("Bob", "0/color") == {"caption": "of Bob"}


def test_a_draft_that_is_not_json_is_refused(store):
    store.add_items(items(1))
    with pytest.raises(ValueError, match="draft.* 0/color .*JSON"):
        store.save_draft("Ann", "0/color", {"mask": b"1"})


# decisions


def test_an_edit_goes_from_submission_to_acceptance(store):
    store.add_items(items(2))
    store.submit("Ann", store.next_item("Ann").id, edit(7, quality="okay"))
    assert store.next_review("Bob") == (item(0), edit(7, quality="okay"))
    store.accept("Bob", "0/color", "very good")
    (record,) = store.accepted()
    assert (record.item, record.edit) == (item(0), edit(7, quality="okay"))
    assert (record.annotator, record.reviewer, record.reviewed_quality) == ("Ann", "Bob", "very good")
    assert store.counts() == {"open": 1, "annotated": 0, "accepted": 1, "skipped": 0}
    assert store.edit("0/color") == record.edit


def test_the_log_has_every_decision_with_its_time(store, clock):
    store.add_items(items(2))
    store.next_item("Ann")
    clock.now += 60
    store.submit("Ann", "0/color", edit(3))
    store.skip("Ann", "1/color", "  no bus to be seen ")
    store.undo("Ann")
    first, second, third = store.log()
    assert (first.number, first.person, first.item, first.action) == (1, "Ann", "0/color", "submit")
    assert first.time - first.taken == 60
    assert first.content["seed"] == 3
    assert (second.action, second.content, second.taken) == ("skip", {"reason": "no bus to be seen"}, None)
    assert (third.action, third.content) == ("undo", {"undoes": 2})
    assert list(store.log(item="1/color")) == [second, third]
    assert store.newest(2) == [third, second]


def test_finished_items_come_in_the_order_in_which_they_were_added(store):
    annotate(store, 3)
    for place in (2, 0, 1):
        store.accept("Bob", f"{place}/color", "okay")
    assert [record.item.id for record in store.accepted()] == ["0/color", "1/color", "2/color"]


def test_skipped_items_are_not_given_again(store):
    store.add_items(items(2))
    store.skip("Ann", "0/color", "a face")
    assert store.next_item("Bob").id == "1/color"
    assert store.counts(concept="color")["skipped"] == 1
    assert store.counts(concept="size")["skipped"] == 0


@pytest.mark.parametrize("reason", ["", "  ", "x" * 2001])
def test_a_reason_is_needed(store, reason):
    annotate(store)
    store.add_items(items(2))
    with pytest.raises(ValueError, match="expected 1 to 2,000"):
        store.skip("Ann", "1/color", reason)
    with pytest.raises(ValueError, match="expected 1 to 2,000"):
        store.send_back("Bob", "0/color", reason)


def test_the_same_call_again_changes_nothing(store):
    store.add_items(items(1))
    for _ in range(2):
        store.submit("Ann", "0/color", edit())
    for _ in range(2):
        store.accept("Bob", "0/color", "okay")
    assert [entry.action for entry in store.log()] == ["submit", "accept"]
    with pytest.raises(ValueError, match="0/color was accepted by Bob"):
        store.submit("Ann", "0/color", edit(2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quality": "bad"}, "quality: found 'bad', expected one of very good, okay"),
        ({"threshold": float("inf")}, "cannot be saved as JSON"),
        ({"image": "/etc/passwd"}, "inside the project"),
        ({"enlarge": (1,)}, "enlarge"),
    ],
)
def test_an_edit_that_cannot_be_read_again_is_not_saved(store, change, said):
    store.add_items(items(1))
    with pytest.raises(ValueError, match="edit of 0/color.*" + said):
        store.submit("Ann", "0/color", dataclasses.replace(edit(), **change))
    assert list(store.log()) == []


# review


def test_nobody_reviews_their_own_edit(store):
    annotate(store, 1, "José")
    assert store.next_review("Jose\N{COMBINING ACUTE ACCENT} ") is None
    for decide in (lambda: store.accept("José", "0/color", "okay"), lambda: store.send_back("José", "0/color", "no")):
        with pytest.raises(ValueError, match="José annotated 0/color"):
            decide()


def test_two_reviewers_are_given_different_edits_the_oldest_first(store):
    store.add_items(items(3))
    for place in (2, 0, 1):
        store.submit("Ann", f"{place}/color", edit(place))
    assert store.next_review("Bob")[0].id == "2/color"
    assert store.next_review("Cem")[0].id == "0/color"
    assert store.next_review("Bob")[0].id == "2/color"
    with pytest.raises(ValueError, match="0/color was given to Cem"):
        store.accept("Bob", "0/color", "okay")


def test_reviews_of_a_concept(store):
    store.add_items([item(0), item(0, concept="size")])
    for name in ("0/color", "0/size"):
        store.submit("Ann", name, edit())
    assert store.next_review("Bob", concept="size")[0].id == "0/size"


def test_a_person_annotates_and_reviews_at_once(store):
    annotate(store)
    store.add_items(items(2))
    assert store.next_review("Bob")[0].id == "0/color"
    assert store.next_item("Bob").id == "1/color"
    assert store.next_review("Bob")[0].id == "0/color"


def test_a_quality_is_checked(store):
    annotate(store)
    with pytest.raises(ValueError, match="'bad'.*very good, okay"):
        store.accept("Bob", "0/color", "bad")


def test_what_was_sent_back_comes_first_for_its_annotator(store, clock):
    annotate(store, 2)
    store.add_items(items(4))
    store.next_review("Bob")
    store.send_back("Bob", "0/color", "The bus has no wheels.")
    assert [entry.content for entry in store.log(item="0/color")][-1] == {"reason": "The bus has no wheels."}
    assert store.next_item("Cem").id == "2/color"
    assert store.next_item("Ann").id == "0/color"
    store.submit("Ann", "0/color", edit(9))
    assert store.edit("0/color") == edit(9)


def test_what_was_sent_back_goes_to_others_after_a_day(store, clock):
    annotate(store, 1)
    store.send_back("Bob", "0/color", "no")
    clock.now += RESERVED_SECONDS - 1
    assert store.next_item("Cem") is None
    clock.now += 1
    assert store.next_item("Cem").id == "0/color"


# the automatic mode


def test_automatic_edits_are_reviewed_by_anybody_and_then_done_by_people(store):
    annotate(store, 2, AUTOMATIC)
    assert store.next_review("Ann")[0].id == "0/color"
    store.send_back("Ann", "0/color", "no change to be seen")
    assert store.next_item(AUTOMATIC) is None
    assert store.next_item("Ann").id == "0/color"
    for decide in (lambda: store.accept(AUTOMATIC, "1/color", "okay"), lambda: store.next_review(AUTOMATIC)):
        with pytest.raises(ValueError, match="reserved .*automatic"):
            decide()


# undo


def test_undo_goes_back_decision_by_decision(store):
    store.add_items(items(3))
    store.submit("Ann", "0/color", edit(0))
    store.skip("Ann", "1/color", "a face")
    store.submit("Bob", "2/color", edit(2))
    assert store.undo("Ann") == item(1)
    assert store.undo("Ann") == item(0)
    assert store.undo("Ann") is None
    assert store.counts() == {"open": 2, "annotated": 1, "accepted": 0, "skipped": 0}
    assert store.by_person()["Ann"] == {"submit": 0, "skip": 0, "accept": 0, "send back": 0}
    assert [entry.content.get("undoes") for entry in store.log()] == [None, None, None, 2, 1]


def test_what_was_undone_is_leased_and_what_was_held_comes_after_it(store, clock):
    store.add_items(items(3))
    store.submit("Ann", store.next_item("Ann").id, edit())
    assert store.next_item("Ann").id == "1/color"
    clock.now += 1
    store.undo("Ann")
    assert store.next_item("Ann").id == "0/color"
    assert store.peek_item("Ann").id == "1/color"
    assert store.next_item("Bob").id == "2/color"
    store.submit("Ann", "0/color", edit(5))
    assert store.next_item("Ann").id == "1/color"


def test_an_accepted_edit_is_not_undone_by_its_annotator(store):
    annotate(store)
    store.accept("Bob", "0/color", "okay")
    with pytest.raises(ValueError, match="0/color was accepted by Bob after"):
        store.undo("Ann")
    assert store.undo("Bob") == item(0)
    assert store.next_review("Bob")[0] == item(0)
    with pytest.raises(ValueError, match="Bob .*0/color"):
        store.undo("Ann")
    store.release("Bob")
    assert store.undo("Ann") == item(0)
    assert store.counts()["open"] == 1


def test_an_undone_send_back_is_to_be_reviewed_again(store):
    annotate(store)
    store.send_back("Bob", "0/color", "no")
    assert store.undo("Bob") == item(0)
    assert store.state("0/color") == "annotated"
    assert store.edit("0/color") == edit(0)
    store.accept("Bob", "0/color", "okay")
    assert store.by_person() == {
        "Ann": {"submit": 1, "skip": 0, "accept": 0, "send back": 0},
        "Bob": {"submit": 0, "skip": 0, "accept": 1, "send back": 0},
    }


def test_a_second_edit_that_is_undone_leaves_the_item_sent_back(store, clock):
    annotate(store)
    store.send_back("Bob", "0/color", "no")
    store.submit("Ann", "0/color", edit(1))
    store.undo("Ann")
    store.release("Ann")
    assert store.next_item("Cem") is None
    with pytest.raises(ValueError, match="0/color was sent back by Bob"):
        store.undo("Ann")


# the file


def test_another_process_or_session_sees_the_same(store, tmp_path, clock):
    annotate(store, 2)
    again = Decisions(tmp_path / "a.sqlite", clock=clock)
    again.accept("Bob", "0/color", "okay")
    assert store.counts() == again.counts() == {"open": 0, "annotated": 1, "accepted": 1, "skipped": 0}
    again.close()


def test_a_lost_state_follows_from_the_log(store):
    annotate(store, 4)
    store.accept("Bob", "0/color", "okay")
    store.send_back("Bob", "1/color", "no")
    store.undo("Ann")
    before, accepted = store.counts(), list(store.accepted())
    with store._database.writing() as connection:
        connection.execute("UPDATE states SET state = 'open', annotator = NULL, submission = NULL, acceptance = NULL")
    assert store.rebuild() == 2
    assert (store.counts(), list(store.accepted())) == (before, accepted)


def test_a_lease_needs_time(tmp_path):
    with pytest.raises(ValueError, match="lease_seconds: found 0"):
        Decisions(tmp_path / "a.sqlite", lease_seconds=0)
