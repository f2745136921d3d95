"""What becomes of answers that are not used: whom a second run asks, how often a run asks, and when it stops."""

from __future__ import annotations

import json
from collections import Counter
from itertools import count

import pytest
from datasets import load_dataset

from hfcomp import cli
from hfcomp.generation.options import WriterOptions
from hfcomp.generation.writers import backoff
from hfcomp.generation.writers.answer_cache import UnusableAnswers
from hfcomp.generation.writers.asker import Question, make_asker
from hfcomp.generation.writers.changes import changed_part
from hfcomp.generation.writers.requests import Refused
from tests.generation.writers.endpoint import Answer, completion, serving, text

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
        found, said = build("first", server)
        assert found == [""] * 6 and len(server.bodies) == 6 * 3
        assert "answers from the model: 18" in said and "from the cache" not in said
    with serving(right) as server:
        found, said = build("second", server)
        assert found == [caption.replace("mat", "bed") for caption in SIX] and len(server.bodies) == 6
        assert "answers from the model: 6" in said
        found, said = build("third", server)
        assert len(server.bodies) == 6 and "answers from the cache: 6" in said and "from the model" not in said


def test_answers_that_led_to_a_usable_one_are_kept_for_every_process(tmp_path, build):
    numbers = count()

    def at_random(body):
        return text("no")(body) if next(numbers) % 3 else right(body)

    with serving(at_random) as server:
        found, _ = build("first", server, "--concurrency", "1", "--attempts", "9")
        asked = len(server.bodies)
    assert all(found) and asked > 12
    with serving(right) as server:  # would answer otherwise
        again, said = build("second", server, "--attempts", "9")
        assert not server.bodies and f"answers from the cache: {asked}" in said
    assert again == found
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
    assert "none of the first 50 answers of the language model can be used" in said and len(said) < 900
    assert said.isprintable() or said.count("\n") == 1
    assert "\x1b" not in said and "\u202e" not in said and ("x" * 81) not in said
    with serving(right) as server:  # the same command goes on
        found, _ = build("set", server, captions=MANY)
    assert len(found) == 60 and all(found)


@pytest.mark.follows("hfcomp/generation/writers/asker.py", "Check what the model answers, or choose another --llm.")
def test_another_model_of_the_server_helps(build):
    def answer(body) -> Answer:
        return right(body) if body["model"] == "good" else Answer(completion(json.dumps({"caption": "A dog."})))

    with serving(answer) as server:
        with pytest.raises(SystemExit, match="Check what the model answers, or choose another --llm"):
            build("set", server, captions=MANY)
        found, _ = build("other", server, "--llm", "good", captions=MANY)
    assert len(found) == 60 and all(found)


def test_a_caption_without_anything_to_swap_says_nothing_about_the_server(build):
    with serving(lambda body: Answer(completion(json.dumps({"caption": caption_in(body)})))) as server:
        found, _ = build("set", server, captions=MANY, kinds="llm:swap_att")
    assert not any(found)


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


@pytest.mark.follows("hfcomp/generation/writers/asker.py", "If the model reasons before it answers, pass")
@pytest.mark.follows("hfcomp/generation/writers/asker.py", "pass --plain_answers")
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
        assert not [one for one in build("other", server, *advice.split(), captions=MANY)[0] if not one]


def test_a_model_that_answered_wrongly_is_taken_at_its_word(tmp_path):
    """So the same questions give the same set; but a reply of no use is asked for again."""

    def check(_: int, answer: str) -> str:
        return changed_part("A red dog on a mat.", "replace_obj", answer).negative.text

    def answers(*texts: str) -> list[str]:
        with serving([text(one) for one in texts]) as server:
            options = WriterOptions(base_url=server.base_url, llm="m", answer_cache=str(tmp_path), concurrency=1)
            asker = make_asker(**options.writer_settings())
            asked = [Question(prompt, prompt, ()) for prompt in ("good", "wrong", "broken")]
            found = asker.answers(asked, 0, check)
            assert (
                asker.counts
                == Counter(
                    {"answers from the model": len(server.bodies), "answers from the cache": 3 - len(server.bodies)}
                )
                + Counter()
            )
        return [str(one) if isinstance(one, Refused) else one for one in found]

    good = '{"caption": "A red dog on a bed."}'
    first = answers(good, '{"caption": "A red mat."}', "no")
    assert first == ["A red dog on a bed.", "not the change that was asked for", "not the JSON that was asked for"]
    assert answers(good) == [*first[:2], "A red dog on a bed."]


def test_the_reasons_of_a_stop_are_counted(tmp_path):
    with serving([text("no")] * 30 + [text("")]) as server:
        options = WriterOptions(base_url=server.base_url, llm="m", answer_cache=str(tmp_path), concurrency=1)
        asker = make_asker(**options.writer_settings())
        questions = [Question(f"{number}", "x", ()) for number in range(60)]
        with pytest.raises(UnusableAnswers, match=r"asked for \(30\), empty answer \(20\)\. Examples: 'no', ''\. If"):
            asker.answers(questions, 0, lambda _, answer: answer)
