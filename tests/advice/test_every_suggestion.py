"""Every suggestion of an error is followed by a test, or cannot be, for a reason that is written down."""

from __future__ import annotations

import pytest

from tests.advice.exempt import EXEMPT
from tests.advice.find import Suggestion, is_suggestion, plain, sentences, suggestions
from tests.advice.markers import markers
from tests.advice.messages import messages, trees


def entries() -> list[tuple[str, str, str]]:
    followed = [(marker.path, marker.fragment, marker.test) for marker in markers()]
    return [*followed, *((path, fragment, "tests/advice/exempt.py") for path, fragment, _ in EXEMPT)]


def uncovered_suggestions() -> list[Suggestion]:
    known = [(path, fragment) for path, fragment, _ in entries()]
    return [each for each in suggestions() if not any(each.covers(*entry) for entry in known)]


def test_every_suggestion_is_followed_by_a_test():
    without = list(map(str, uncovered_suggestions()))
    assert not without, "mark the test that follows it with pytest.mark.follows(path, fragment):\n" + "\n".join(
        without
    )


def test_every_marker_here_and_exemption_is_of_a_suggestion():
    every = suggestions()
    here = [entry for entry in entries() if entry[2].startswith("tests/advice/")]
    wrong = [entry for entry in here if not any(each.covers(*entry[:2]) for each in every)]
    assert not wrong, "\n".join(
        f"{place}: {path} advises nothing with {fragment!r}" for path, fragment, place in wrong
    )


def test_every_marker_elsewhere_is_of_a_message():
    """There a test may also follow what names nothing of ours: what a reader should do with a file, say."""
    texts = [(message.path, plain(message.text)) for message in messages(trees())]
    wrong = [
        (path, fragment, place)
        for path, fragment, place in entries()
        if not any(path == file and plain(fragment) in text for file, text in texts)
    ]
    assert not wrong, "\n".join(
        f"{place}: {path} advises nothing with {fragment!r}" for path, fragment, place in wrong
    )


def test_a_marker_is_of_one_message():
    """As `Leave it out.` would be followed in all messages of a file by a test of one."""
    wrong = []
    for path, fragment, place in entries():
        texts = {each.message.text for each in suggestions() if each.covers(path, fragment)}
        wrong += [f"{place}: {fragment!r} is in {len(texts)} messages of {path}"] if len(texts) > 1 else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("message", "advising"),
    [
        ("{}: found {}. Pass --model, or leave hard_images out.", [1]),
        ("peft: found {}, expected one of {}, or leave it out.", [0]),
        ("{} pushes nothing. `hfcomp push-dataset {}` pushes a built set.", [1]),
        ("--grammar_tolerance needs --grammar_model, such as gpt2.", [0]),
        ("Put it into a list: dataset.map(lambda row: [row]).", [0]),
        ("{} is missing. Restore it, or evaluate again.", []),
        ("num_negatives: found {}, expected 1 or more.", []),
        ("{} is a set of `hfcomp build`.", []),
        ("column 'image', row {}: found nothing. Save it as RGB.", []),
    ],
)
def test_what_is_a_suggestion(message, advising):
    names = frozenset({"peft", "hard_images", "num_negatives"})
    parts = sentences(message)
    assert [index for index, part in enumerate(parts) if is_suggestion(part, message, names)] == advising
