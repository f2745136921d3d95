"""Mistakes of users as one line; other exceptions keep their traceback."""

from __future__ import annotations

import json
import logging

import httpx
import pytest

from hfcomp.errors import one_line_errors


@pytest.mark.parametrize("error", [httpx.ConnectError("no network"), ModuleNotFoundError("No module named 'x'")])
def test_other_errors_of_a_users_machine_are_one_line(error):
    with pytest.raises(SystemExit, match=f"^error: {error}"), one_line_errors():
        raise error


def test_a_value_error_of_another_library_says_where_it_was_raised():
    with pytest.raises(SystemExit, match=r"\(JSONDecodeError in json/decoder.py; --traceback"), one_line_errors():
        json.loads("{")


def test_an_inner_block_leaves_errors_to_the_outer_one():
    with pytest.raises(ValueError, match="inner"), one_line_errors(traceback_wanted=True), one_line_errors():
        raise ValueError("inner")


@pytest.mark.parametrize("wanted", [False, True])
def test_attempts_to_reach_the_hub_are_logged_for_who_asks(caplog, wanted):
    with one_line_errors(traceback_wanted=wanted):
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
    logging.getLogger("huggingface_hub.utils._http").warning("After it.")
    assert [record.message for record in caplog.records] == [*["Retrying in 1s [Retry 1/5]."] * wanted, "After it."]


@pytest.mark.parametrize("text", ["/photos/caf\udce9.png", '{\n "name": "/photos/caf\udce9.png", "size": 3}'])
def test_a_text_that_is_not_unicode_is_named(text):
    with pytest.raises(SystemExit) as caught, one_line_errors():
        text.encode()
    assert str(caught.value) == (
        r"error: '/photos/caf\udce9.png' is not valid Unicode. Rename the file, or correct the text."
    )
