"""Many threads, many processes, and processes that are killed."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from hfcomp.data.annotations.decisions import Decisions
from tests.data.annotations.deciding import decide_all
from tests.data.annotations.making import edit, item, items

ROOT = Path(__file__).resolve().parents[3]
NUMBER = 500


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.sqlite"


def check_each_once(store, decided):
    """No item was given twice, and each decision is in the log once."""
    names = [name for each in decided.values() for name in each]
    assert sorted(names) == sorted(entry.id for entry in items(NUMBER))
    assert {(entry.person, entry.item) for entry in store.log()} == {
        (person, name) for person, each in decided.items() for name in each
    }
    assert Counter(entry.item for entry in store.log()).most_common(1)[0][1] == 1
    assert store.counts()["open"] == 0
    assert store.rebuild() == 0


def test_20_threads_decide_every_item_once(path):
    store = Decisions(path)
    store.add_items(items(NUMBER))
    people = [f"person {number}" for number in range(20)]
    with ThreadPoolExecutor(20) as pool:
        decided = dict(zip(people, pool.map(lambda person: decide_all(store, person), people), strict=True))
    check_each_once(store, decided)
    assert sum(bool(each) for each in decided.values()) == 20
    store.close()


def _decide_in_process(path, person):
    store = Decisions(path)  # all of them make the file at once
    store.add_items(items(NUMBER))
    decisions = decide_all(store, person)
    store.close()
    return decisions


def test_4_processes_make_the_file_and_decide_every_item_once(path):
    people = ["Ann", "Bob", "Cem", "Dan"]
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        decided = dict(zip(people, pool.map(_decide_in_process, [path] * 4, people), strict=True))
    store = Decisions(path)
    check_each_once(store, decided)
    store.close()


def test_20_threads_take_one_item_and_one_gets_it(path):
    store = Decisions(path)
    store.add_items([item()])
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda number: store.next_item(f"person {number}"), range(20)))
    assert [answer for answer in answers if answer] == [item()]
    store.close()


def test_of_reviewers_and_annotators_at_once_one_wins(path):
    """An edit that one accepts and another undoes ends in one of the two states, and the loser's call raises."""
    store = Decisions(path)
    store.add_items(items(40))
    for place in range(40):
        store.submit(f"person {place}", f"{place}/color", edit(place))

    def catch_refusal(call, *values):
        try:
            call(*values)
        except ValueError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as pool:
        pairs = [
            (
                pool.submit(catch_refusal, store.accept, "reviewer", f"{place}/color", "okay"),
                pool.submit(catch_refusal, store.undo, f"person {place}"),
            )
            for place in range(40)
        ]
    for place, (accepted, undone) in enumerate(pairs):
        assert bool(accepted.result()) != bool(undone.result())
        assert store.state(f"{place}/color") == ("open" if accepted.result() else "accepted")
    assert store.rebuild() == 0
    store.close()


def _kill_once(path, delay):
    """What a process had acknowledged when it was killed."""
    command = [sys.executable, "-m", "tests.data.annotations.deciding", str(path), f"person {delay:.6f}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)
    process.kill()
    said, _ = process.communicate()
    return [tuple(line[:-1].split(" ", 1)) for line in said.splitlines(keepends=True) if line.endswith("\n")]


def _check_after_kill(path, acknowledged, kills):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store = Decisions(path)
    logged = Counter((entry.action, entry.item) for entry in store.log())
    assert not Counter(acknowledged) - logged
    assert sum(logged.values()) <= len(acknowledged) + kills  # of each, one may be written and not yet printed
    assert store.rebuild() == 0
    store.close()


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_process_loses_no_decision(path, kills):
    store = Decisions(path)
    store.add_items(items(1000 * kills))  # more than are decided before the kills
    store.close()
    moments, acknowledged = random.Random(0), []
    for kill in range(kills):
        acknowledged += _kill_once(path, moments.uniform(0.01, 0.5))
        _check_after_kill(path, acknowledged, kill + 1)
    assert len(acknowledged) > kills
