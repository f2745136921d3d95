"""Answers on disk: one for each request, whoever asks, whatever was killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hfcomp import writing
from hfcomp.generation.writers.answer_cache import AnswerCache, CachedWriter
from hfcomp.generation.writers.requests import Reply, Request, Unreadable, content_hash


class Counting:
    """A writer that answers with the number of the question."""

    def __init__(self, replies: Sequence[Reply] = ()) -> None:
        self.asked: list[Request] = []
        self._replies = list(replies)

    def payload(self, request: Request) -> dict:
        return vars(request)

    def replies(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        for place, request in reversed(list(enumerate(requests))):
            self.asked.append(request)
            yield place, self._replies.pop(0) if self._replies else Reply(f"{request.prompt} {len(self.asked)}")


def as_it_is(_: int, reply: Reply) -> Reply:
    if reply.problem:
        raise Unreadable(reply.problem)
    return reply


def request(prompt: str, seed: int = 0) -> Request:
    return Request(prompt, seed, 0.5, 9)


def test_equal_requests_are_asked_once_and_later_runs_ask_nothing(tmp_path):
    requests = [request("a"), request("b"), request("a"), request("a", 1)]
    first = Counting()
    found = CachedWriter(first, AnswerCache(tmp_path)).answers(requests, as_it_is)
    assert len(first.asked) == 3 and found[0] == found[2] != found[3]
    again = Counting()
    assert CachedWriter(again, AnswerCache(tmp_path)).answers(requests, as_it_is) == found and not again.asked


def test_what_the_server_failed_at_is_not_kept(tmp_path):
    failed = Counting([Reply(problem="no reply", is_final=False), Reply(problem="model refused")])
    cached = CachedWriter(failed, AnswerCache(tmp_path))
    assert cached.answers([request("a")], as_it_is)[0].args == ("no reply",)
    assert cached.answers([request("a")], as_it_is)[0].args == ("model refused",)
    assert cached.answers([request("a")], as_it_is)[0].args == ("model refused",) and len(failed.asked) == 2


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(path: Path) -> Path:
        part = path.with_suffix(".part")
        part.symlink_to("/dev/full")
        return part

    monkeypatch.setattr(writing, "_part", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*\.json'"):
        CachedWriter(Counting(), AnswerCache(tmp_path)).answers([request("a")], as_it_is)
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink() or path.is_file()]


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"text": "x"', b'{"text": "forged", "problem": null, "checksum": 1}']
)
def test_a_damaged_file_is_asked_again(tmp_path, content):
    cached = CachedWriter(Counting(), AnswerCache(tmp_path))
    cached.answers([request("a")], as_it_is)
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(content)
    assert cached.answers([request("a")], as_it_is)[0].text == "a 2"
    assert cached.answers([request("a")], as_it_is)[0].text == "a 2"


def test_any_text_comes_back_as_it_was(tmp_path):
    cache, text = AnswerCache(tmp_path), "\x00\u202e<b>😀\n" * 1000
    cache.put("ab", Reply(text))
    assert cache.get("ab") == Reply(text)


def test_the_first_answer_stays(tmp_path):
    one, other = AnswerCache(tmp_path), AnswerCache(tmp_path)
    assert one.put("ab", Reply("first")).text == other.put("ab", Reply("second")).text == "first"


def race(folder: Path, name: str, start: float) -> None:
    cache = AnswerCache(folder)
    time.sleep(max(0.0, start - time.time()))
    kept = [cache.put(f"{number:04d}", Reply(f"{name} {number}")).text for number in range(300)]
    (folder / f"{name}.txt").write_text("\n".join(kept))


def test_processes_that_ask_at_once_agree(tmp_path):
    context, start = multiprocessing.get_context("fork"), time.time() + 0.5
    some = [context.Process(target=race, args=(tmp_path, name, start)) for name in ("one", "two", "three")]
    for process in some:
        process.start()
    for process in some:
        process.join()
    assert len({(tmp_path / f"{name}.txt").read_text() for name in ("one", "two", "three")}) == 1


def write_for_ever(folder: Path) -> None:
    cache = AnswerCache(folder)
    for number in range(10**9):
        cache.put(content_hash({"n": number}), Reply(f"{number} " * 200))


def test_a_kill_leaves_whole_answers_only(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=write_for_ever, args=(tmp_path,))
    process.start()
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    cache, files = AnswerCache(tmp_path), list(tmp_path.rglob("[!.]*.json"))
    assert len(files) > 10 and all(cache.get(path.stem) is not None for path in files)


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        AnswerCache(tmp_path / "file").put("ab", Reply("x"))
