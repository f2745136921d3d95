"""A small model in this process: the same answer in any batch (about 4 s)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from dataset_builders.serving import transformers_serve
from hfcomp.factory.concretebatch.negative_captions import make_negative_captions
from hfcomp.factory.shards import COUNTS, SET_ASIDE
from hfcomp.factory.writer_options import WriterOptions
from hfcomp.factory.writers.in_process import InProcessWriter
from hfcomp.factory.writers.requests import Request
from hfcomp.testing import write_tiny_llama
from tests.factory.concretebatch.test_negative_captions import batch


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "llama")


def requests(temperature: float) -> list[Request]:
    prompts = ["a dog", "the red table is under a man and a woman of two", "cat " * 40, "unknown words here", "a dog"]
    return [Request(prompt, seed, temperature, 40) for seed, prompt in enumerate(prompts * 2)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_neither_batch_nor_padding_nor_order_changes_an_answer(model, temperature):
    some = requests(temperature)
    single = InProcessWriter(str(model), batch_size=1, device="cpu")
    alone = [dict(single.replies([request]))[0] for request in some]
    for size in (3, 10):
        writer = InProcessWriter(str(model), batch_size=size, device="cpu")
        replies = dict(writer.replies(some))
        assert [replies[place] for place in range(len(some))] == alone
        replies = dict(writer.replies(some[::-1]))
        assert [replies[place] for place in reversed(range(len(some)))] == alone
    if temperature:
        texts = {reply.text for reply in alone if reply.problem is None}
        assert len(texts) > 3
        assert alone[0] != alone[4] or alone[5] != alone[9]  # one prompt, other seeds


def test_an_answer_without_an_end_is_cut(model):
    reply = dict(InProcessWriter(str(model), device="cpu").replies([Request("a dog", 0, 1.0, 1)]))[0]
    assert reply.problem == "answer cut off" or len(reply.text.split()) <= 1


def test_thinking_is_off_and_a_model_without_a_template_gets_the_prompt(model, tmp_path):
    assert InProcessWriter(str(model), device="cpu")._encode("a dog") == [1, 3, 4, 2]
    plain = write_tiny_llama(tmp_path / "plain", chat=False)
    assert InProcessWriter(str(plain), device="cpu")._encode("a dog") == [3, 4]


def refusals(options: WriterOptions) -> tuple[list, Counter]:
    """Reasons and counts of a build of 20 captions by a model that knows nothing; 50 answers would stop it."""
    rows = [(f"a dog under a red table in street {n}", "dog", "object", "NN", "dog") for n in range(20)]
    stage = make_negative_captions(mode="high", seed=0, attempts=2, writer=options.writer_settings(), device="cpu")
    columns = stage(batch(rows))
    return columns[SET_ASIDE], sum((Counter(counts) for counts in columns[COUNTS]), Counter())


@pytest.mark.slow
def test_a_model_that_knows_nothing_is_refused_nearly_always_and_counted(model, tmp_path):
    options = WriterOptions(writer="transformers", llm=str(model), answer_cache=str(tmp_path), temperature=1.0)
    reasons, counts = refusals(options)
    assert sum(reason is not None for reason in reasons) >= 19
    assert sum(number for name, number in counts.items() if name.startswith("dropped: ")) >= 38
    assert all(reason.startswith("no negative caption, ") for reason in reasons if reason)


@pytest.fixture
def served_address(model):
    with transformers_serve(model) as address:
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("plain", [False, True])
def test_transformers_serve_answers_and_nearly_everything_is_refused(model, served_address, tmp_path, plain):
    """About 20 s. It has no structured output, so that JSON is refused as none and text by its words."""
    options = WriterOptions(
        base_url=served_address,
        llm=str(model),
        answer_cache=str(tmp_path),
        temperature=1.0,
        plain_answers=plain,
        concurrency=4,
    )
    reasons, counts = refusals(options)
    assert sum(reason is not None for reason in reasons) >= 19
    dropped = {name.removeprefix("dropped: "): number for name, number in counts.items() if name.startswith("dropped")}
    assert sum(dropped.values()) >= 38 and "no reply from the server" not in dropped
    assert dropped["other words changed" if plain else "not the JSON that was asked for"] > 12


def test_what_decides_an_answer_is_what_it_was(model):
    payload = InProcessWriter(str(model), device="cpu").payload(Request("a dog", 1, 0.5, 40))
    assert payload.keys() == {"in_process", "dtype", "prompt", "seed", "temperature", "max_tokens"}
