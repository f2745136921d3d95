"""Answers on disk: one for each request, whoever asks, whatever was killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from datasets import load_dataset

from hfcomp import cli, writing
from hfcomp.factory.writer_options import WriterOptions
from hfcomp.factory.writers import backoff
from hfcomp.factory.writers.answer_cache import AnswerCache, CachedWriter, UnusableAnswers
from hfcomp.factory.writers.changes import changed_part
from hfcomp.factory.writers.llm_client import Question, build_llm_client
from hfcomp.factory.writers.requests import Refused, Reply, Request, Unreadable, content_hash
from tests.factory.writers.endpoint import Answer, completion, serving, text


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
    replies = CachedWriter(first, AnswerCache(tmp_path)).answers(requests, as_it_is)
    assert len(first.asked) == 3 and replies[0] == replies[2] != replies[3]
    again = Counting()
    assert CachedWriter(again, AnswerCache(tmp_path)).answers(requests, as_it_is) == replies and not again.asked


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

    monkeypatch.setattr(writing, "_temporary_path", full)
    with pytest.raises(OSError, match=r"No space .*: '.*\.json'"):
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
    first, second = AnswerCache(tmp_path), AnswerCache(tmp_path)
    assert first.put("ab", Reply("first")).text == second.put("ab", Reply("second")).text == "first"


def test_a_damaged_file_that_cannot_be_removed_costs_only_the_storing(tmp_path, monkeypatch):
    cache = AnswerCache(tmp_path)
    cache.put("ab", Reply("first"))
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(b"{")
    monkeypatch.setattr("hfcomp.store.remove", lambda path: None)  # as in a folder of another user
    monkeypatch.setattr("hfcomp.factory.writers.answer_cache.remove", lambda path: None)
    assert cache.put("ab", Reply("second")) == Reply("second")


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


pytest.importorskip("openai")
SIX = [f"A {color} dog on a mat." for color in ("red", "blue", "green", "black", "white", "brown")]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(backoff, "PAUSE", 0.01)


def caption_in(body) -> str:
    return body["messages"][0]["content"].rpartition("Caption: ")[2].partition("\n")[0]


def right(body) -> Answer:
    return Answer(completion(json.dumps({"caption": caption_in(body).replace("mat", "bed")})))


@pytest.fixture
def build(tmp_path, capsys):
    """Runs `hfcomp build negatives` on some captions; returns the negatives and what was printed."""

    def run(name: str, server, *more: str, captions=SIX, kinds: str = "llm:replace_obj"):
        source = tmp_path / "rows.jsonl"
        source.write_text("\n".join(json.dumps({"caption": caption}) for caption in captions))
        words = ["--source", str(source), "--kinds", kinds, "--base_url", server.base_url, "--llm", "m"]
        words += ["--answer_cache", str(tmp_path / "answers"), "--output", str(tmp_path / name)]
        words += ["--max_without_negative", "1", *more]
        cli.main(["build", "negatives", *words])
        rows = load_dataset(str(tmp_path / name), split="train")["negative_captions"]
        return [row[0] for row in rows], " ".join(capsys.readouterr().out.split())

    return run


@pytest.mark.parametrize("wrong", ["", "<think>hm", '{"caption": "A dog."}', "I'm sorry, I can't."])
def test_a_repaired_server_is_asked_again_and_at_most_attempts_times_a_slot(build, wrong):
    with serving(text(wrong)) as server:
        negatives, said = build("first", server)
        assert negatives == [""] * 6 and len(server.bodies) == 6 * 3
        assert "answers from the model: 18" in said and "from the cache" not in said
    with serving(right) as server:
        negatives, said = build("second", server)
        assert negatives == [caption.replace("mat", "bed") for caption in SIX] and len(server.bodies) == 6
        assert "answers from the model: 6" in said
        negatives, said = build("third", server)
        assert len(server.bodies) == 6 and "answers from the cache: 6" in said and "from the model" not in said


def test_answers_that_led_to_a_usable_one_are_kept_for_every_process(tmp_path, build):
    numbers = count()

    def answer_at_random(body):
        return text("no")(body) if next(numbers) % 3 else right(body)

    with serving(answer_at_random) as server:
        negatives, _ = build("first", server, "--concurrency", "1", "--attempts", "9")
        asked = len(server.bodies)
    assert all(negatives) and asked > 12
    with serving(right) as server:  # would answer otherwise
        again, said = build("second", server, "--attempts", "9")
        assert not server.bodies and f"answers from the cache: {asked}" in said
    assert again == negatives
    counts = [json.loads((tmp_path / name / "manifest.json").read_text())["counts"] for name in ("first", "second")]
    assert counts[0] == counts[1] and counts[0]["answers refused: not the JSON that was asked for"] == asked - 6


def test_all_parts_of_llm_together_are_asked_at_most_attempts_times_a_slot(build):
    with serving(text("no")) as server:
        build("set", server, kinds="llm")
        assert len(server.bodies) == 6 * 3


def test_what_filters_drop_counts_as_an_attempt(build):
    with serving(lambda body: Answer(completion(json.dumps({"caption": "On a mat, a red dog."})))) as server:
        build("set", server, "--drop_same_words", kinds="llm:swap_obj")
        assert len(server.bodies) <= 6 * 3


MANY = [f"A red dog on mat {number}." for number in range(60)]


@pytest.mark.parametrize("wrong", ["no\x1b[31m\u202e" + "x" * 500, '{"caption": "A dog."}', ""])
def test_a_run_without_a_usable_answer_stops_after_fifty_with_examples(build, wrong):
    with serving(text(wrong)) as server:
        with pytest.raises(SystemExit) as stopped:
            build("set", server, "--concurrency", "4", captions=MANY)
        assert 50 <= len(server.bodies) <= 60
    said = str(stopped.value)
    assert "first 50 answers" in said and len(said) < 900
    assert said.isprintable() or said.count("\n") == 1
    assert "\x1b" not in said and "\u202e" not in said and ("x" * 81) not in said
    with serving(right) as server:  # the same command goes on
        negatives, _ = build("set", server, captions=MANY)
    assert len(negatives) == 60 and all(negatives)


@pytest.mark.follows("hfcomp/factory/writers/llm_client.py", "Check the model's answers, or choose another --llm.")
def test_another_model_of_the_server_helps(build):
    def answer(body) -> Answer:
        return right(body) if body["model"] == "good" else Answer(completion(json.dumps({"caption": "A dog."})))

    with serving(answer) as server:
        with pytest.raises(SystemExit, match="choose another --llm"):
            build("set", server, captions=MANY)
        negatives, _ = build("other", server, "--llm", "good", captions=MANY)
    assert len(negatives) == 60 and all(negatives)


def test_a_caption_without_anything_to_swap_says_nothing_about_the_server(build):
    with serving(lambda body: Answer(completion(json.dumps({"caption": caption_in(body)})))) as server:
        negatives, _ = build("set", server, captions=MANY, kinds="llm:swap_att")
    assert not any(negatives)


def reasoning(body) -> Answer:
    if body["max_tokens"] < 1000:
        return Answer(completion("<think>Let me", finish_reason="length"))
    return right(body)


def off_is_broken(body) -> Answer:
    """Switching thinking off makes this one put nothing but its reasoning into the reply."""
    return Answer(completion(None, reasoning="Well.")) if "chat_template_kwargs" in body else reasoning(body)


def prose(body) -> Answer:
    caption = json.loads(right(body).body["choices"][0]["message"]["content"])["caption"]
    return Answer(completion(caption))


@pytest.mark.follows("hfcomp/factory/writers/llm_client.py", "If the model reasons before it answers, pass")
@pytest.mark.follows("hfcomp/factory/writers/llm_client.py", "pass --plain_answers")
@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (reasoning, "--request_options max_tokens=4096"),
        (off_is_broken, "--thinking as_served --request_options max_tokens=4096"),
        (prose, "--plain_answers"),
    ],
)
def test_what_a_run_that_stops_advises_helps(build, answer, advice):
    with serving(answer) as server:
        with pytest.raises(SystemExit, match=f"pass {advice}\\."):
            build("set", server, captions=MANY)
        assert not [negative for negative in build("other", server, *advice.split(), captions=MANY)[0] if not negative]


def test_a_model_that_answered_wrongly_is_taken_at_its_word(tmp_path):
    """So the same questions give the same set; but a reply of no use is asked for again."""

    def check(_: int, answer: str) -> str:
        return changed_part("A red dog on a mat.", "replace_obj", answer).negative.text

    def answers(*texts: str) -> list[str]:
        with serving([text(content) for content in texts]) as server:
            options = WriterOptions(base_url=server.base_url, llm="m", answer_cache=str(tmp_path), concurrency=1)
            client = build_llm_client(**options.writer_settings())
            asked = [Question(prompt, prompt, ()) for prompt in ("good", "wrong", "broken")]
            replies = client.answers(asked, 0, check)
            assert (
                client.counts
                == Counter(
                    {"answers from the model": len(server.bodies), "answers from the cache": 3 - len(server.bodies)}
                )
                + Counter()
            )
        return [str(reply) if isinstance(reply, Refused) else reply for reply in replies]

    good = '{"caption": "A red dog on a bed."}'
    first = answers(good, '{"caption": "A red mat."}', "no")
    assert first == ["A red dog on a bed.", "not the change that was asked for", "not the JSON that was asked for"]
    assert answers(good) == [*first[:2], "A red dog on a bed."]


def test_the_reasons_of_a_stop_are_counted(tmp_path):
    with serving([text("no")] * 30 + [text("")]) as server:
        options = WriterOptions(base_url=server.base_url, llm="m", answer_cache=str(tmp_path), concurrency=1)
        client = build_llm_client(**options.writer_settings())
        questions = [Question(f"{number}", "x", ()) for number in range(60)]
        with pytest.raises(UnusableAnswers, match=r"\(30\), empty answer \(20\)\. Examples: 'no', ''"):
            client.answers(questions, 0, lambda _, answer: answer)
