"""The stage that writes negative captions: by substitute or endpoint, checked, tried again, set aside, resumed."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from datasets import Dataset, Features, List, Value

from hfcomp.data.columns import NEGATIVE_FEATURES
from hfcomp.data.negatives import RATED_WORDS
from hfcomp.factory.concretebatch.negative_captions import READS, caption_stage, make_negative_captions
from hfcomp.factory.concretebatch.options import ConcreteBatchOptions
from hfcomp.factory.runner import run_stages
from hfcomp.factory.shards import COUNTS, ROW, SET_ASIDE
from hfcomp.negatives.negative import COLUMN_NAMES
from tests.factory.builds import hashes
from tests.factory.writers.endpoint import Answer, caption_of, completion, right, serving, text
from tests.negatives import language_models

ROWS = [
    ("A dog under a red table.", "dog", "object", "NN", "dog"),
    ("A dog under a red table.", "red", "attribute", "JJ", "red"),
    ("A dog under a red table.", "under", "relation", "IN", "under"),
    ("A child standing in front of the tree", "front", "relation", "NN", "front"),
    ("two men ride horses", "two", "attribute", "CD", "two"),
]


def batch(rows=ROWS) -> dict:
    columns = {name: [] for name in READS}
    for caption, keyword, category, tag, rated in rows:
        start = caption.index(keyword)
        values = (caption, keyword, [start, start + len(keyword)], category, tag, rated)
        for name, value in zip(READS, values, strict=True):
            columns[name].append(value)
    return columns | {ROW: list(range(len(rows)))}


def options(folder, base_url=None, **changed) -> ConcreteBatchOptions:
    unread = dict.fromkeys(("source", "output", "concreteness_ratings"), "unread")
    return ConcreteBatchOptions(
        writer="endpoint" if base_url else "substitute",
        base_url=base_url,
        llm="m",
        retries=0,
        answer_cache=str(folder / "answers"),
        **unread,
        **changed,
    )


def settings(folder, base_url=None, **changed):
    writer = options(folder, base_url).writer_settings()
    return {"mode": "high", "seed": 0, "attempts": 3, "writer": writer, **changed}


def count_reasons(columns) -> Counter:
    return sum((Counter(counts) for counts in columns[COUNTS]), Counter())


def test_substitutes_change_the_keyword_alone(tmp_path):
    columns = make_negative_captions(**settings(tmp_path))(batch())
    assert columns[SET_ASIDE] == [None] * 5
    texts = [captions[0] for captions in columns["negative_captions"]]
    assert texts[3] == "A child standing behind the tree" and texts[2].startswith("A dog ")
    assert texts[0].endswith(" under a red table.") and texts[1].startswith("A dog under a ")
    assert columns["negative_kinds"] == [
        ["replace_obj"],
        ["replace_att"],
        ["replace_rel"],
        ["replace_rel"],
        ["replace_att"],
    ]
    assert columns["negative_keywords"][3] == ["in front of"] and columns["negative_spans"][3] == [[[17, 28]]]
    assert columns[RATED_WORDS] == [["dog"], ["red"], ["under"], ["front"], ["two"]]


def test_half_of_a_compound_that_is_replaced_whole_lends_it_no_rating(tmp_path):
    """But its last word does: a grizzly bear is as concrete as a bear."""
    rows = [("A bus near a brick building.", "brick", "object", "NN", "brick")]
    rows += [("A grizzly bear in water.", "bear", "object", "NN", "bear")]
    columns = make_negative_captions(**settings(tmp_path))(batch(rows))
    assert columns["negative_keywords"] == [["brick building"], ["grizzly bear"]]
    for (caption, *_), keywords, spans in zip(
        rows, columns["negative_keywords"], columns["negative_spans"], strict=True
    ):
        assert caption[slice(*spans[0][0])] == keywords[0]
    assert columns[RATED_WORDS] == [[""], ["bear"]]


def test_rows_beside_change_nothing(tmp_path):
    stage = make_negative_captions(**settings(tmp_path))
    whole = stage(batch())["negative_captions"]
    assert [stage(batch([row]))["negative_captions"][0] for row in ROWS] == whole


def test_an_endpoint_gets_the_examples_of_the_category_and_the_mode(tmp_path):
    with serving(right) as server:
        columns = make_negative_captions(**settings(tmp_path, server.base_url))(batch(ROWS[:3]))
        make_negative_captions(**settings(tmp_path, server.base_url, mode="random"))(batch(ROWS[:1]))
    assert columns["negative_captions"] == [
        ["A cat under a red table."],
        ["A dog under a blue table."],
        ["A dog beside a red table."],
    ]
    prompts = {body["messages"][0]["content"] for body in server.bodies}
    examples = {"Keyword: wooden": 1, "A cat sitting under": 1, "holding a coffee cup": 1}
    assert all(sum(words in prompt for prompt in prompts) == number for words, number in examples.items())
    assert sum("in front of the tree" in prompt and "highway" in prompt for prompt in prompts) == 1  # the fourth set


def test_what_is_refused_is_asked_again_with_another_seed_and_counted(tmp_path):
    seen: Counter[str] = Counter()

    def late(body):
        _, keyword = caption_of(body)
        seen[keyword] += 1
        return right(body) if seen[keyword] > 1 else text('{"caption": "Here you are: a cat"}')(body)

    with serving(late) as server:
        columns = make_negative_captions(**settings(tmp_path, server.base_url))(batch(ROWS[:3]))
    assert columns[SET_ASIDE] == [None] * 3 and count_reasons(columns)["dropped: other words changed"] == 3
    first, second = (
        next(body for body in some if caption_of(body)[1] == "dog") for some in (server.bodies[:3], server.bodies[3:])
    )
    assert first["seed"] != second["seed"] and second["temperature"] == pytest.approx(first["temperature"] + 0.2)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (text(""), "empty answer"),
        (text('{"caption": ""}'), "empty answer"),
        (text("{"), "not the JSON that was asked for"),
        (text("I'm sorry, but I can't."), "refuses in words"),
        (text('{"caption": "<p>A cat</p>"}'), "markup"),
        (text('{"caption": "A dog under a red table."}'), "the caption itself"),
        (text(json.dumps({"caption": "A\u0007 cat"})), "control characters"),
        (text("x" * 10_000_000), "answer too long"),
        (lambda _: Answer(completion(None, refusal="no")), "model refused"),
    ],
)
def test_answers_that_are_never_right_set_the_row_aside(tmp_path, answer, reason):
    with serving(answer) as server:
        columns = make_negative_captions(**settings(tmp_path, server.base_url, attempts=2))(batch(ROWS[:1]))
    assert columns[SET_ASIDE] == [f"no negative caption, {reason}"] and columns["negative_captions"] == [[""]]
    assert count_reasons(columns) == {f"dropped: {reason}": 2}


def test_rows_without_a_good_target_are_set_aside(tmp_path):
    rows = batch([*ROWS[:1]] * 6)
    rows["keyword"][1] = rows["caption"][4] = None
    rows["keyword_span"][2], rows["category"][3], rows["keyword"][5] = [3, 6], "color", "日本"
    columns = make_negative_captions(**settings(tmp_path))(rows)
    reasons = [reason and reason.partition(":")[0] for reason in columns[SET_ASIDE]]
    assert reasons == [None, "no keyword", *["keyword is not at its span"] * 2, "no caption", reasons[2]]
    foreign = make_negative_captions(**settings(tmp_path))(batch([("赤い 犬", "犬", "object", "NN", "")]))
    assert foreign[SET_ASIDE] == ["no negative caption, not an English word"]


def test_a_language_model_judges_and_the_next_substitute_is_tried(tmp_path):
    liked = ["a dog on a red mat", "a cat on a red mat"]
    model = language_models.gpt2(tmp_path / "model", liked, noise=0.02, steps=60)
    row = [("a dog on a red mat", "dog", "object", "NN", "dog")]
    judged = {"attempts": 30, "grammar_model": str(model), "grammar_tolerance": 0.05, "device": "cpu"}
    columns = make_negative_captions(**settings(tmp_path, **judged))(batch(row))
    assert columns["negative_captions"] == [["a cat on a red mat"]] and count_reasons(columns)["dropped: grammar"] > 0
    facts = caption_stage(options(tmp_path, **judged), "high").facts()
    assert facts["grammar_tolerance"] == 0.05 and facts["lexicon"].startswith("lexicon.yaml sha256:")


FEATURES = Features(
    {
        "caption": Value("string"),
        **{name: NEGATIVE_FEATURES[name] for name in COLUMN_NAMES},
        RATED_WORDS: List(Value("string")),
    }
)


def source(rows: int) -> Dataset:
    some = [(f"{row} {caption}", *rest) for row in range(rows) for caption, *rest in [ROWS[row % len(ROWS)]]]
    columns = batch(some)
    columns.pop(ROW)
    return Dataset.from_dict(columns)


def build(folder, answers, base_url, rows=60):
    stage = caption_stage(options(answers, base_url), "high")
    return run_stages(source(rows), [stage], folder, features=FEATURES, reads=READS, rows_per_shard=10)


def test_the_manifest_names_model_and_prompts_and_no_address(tmp_path, monkeypatch):
    monkeypatch.setenv("HFCOMP_LLM_API_KEY", "secret-123")
    with serving(right) as server:
        built = build(tmp_path / "set", tmp_path, server.base_url)
    facts = built.manifest["plan"]["stages"]["0 negative captions"]
    assert facts["llm"] == "m" and facts["temperature"] == 0.7 and facts["prompts"].startswith("keyword.yaml sha256:")
    everything = "".join(path.read_text(errors="replace") for path in (tmp_path / "set").rglob("*") if path.is_file())
    assert "127.0.0.1" not in everything and "secret-123" not in everything and str(tmp_path) not in everything
    assert built.manifest["rows"] == 60


@pytest.mark.slow
def test_killed_builds_resume_to_the_same_bytes_though_the_server_samples(tmp_path, context):
    """A build is killed 20 times at random moments; a question that is asked again has another answer."""
    numbers = iter(range(10**6))

    def sample_answer(body):
        caption, keyword = caption_of(body)
        word = ["horse", "boat", "cup", "tent", "clock"][next(numbers) % 5]
        return Answer(completion(json.dumps({"caption": caption.replace(keyword, word, 1)})), seconds=0.05)

    rng = random.Random(0)
    with serving(sample_answer) as server:
        killed = tmp_path / "killed", tmp_path, server.base_url, 400
        moments = 0
        for _ in range(20):
            process = context.Process(target=build, args=killed)
            process.start()
            process.join(0.4 + 0.8 * rng.random())
            moments += process.is_alive()
            process.kill()
            process.join()
        build(*killed)
        asked = len(server.bodies)
        build(tmp_path / "again", *killed[1:])
    assert moments > 3 and len(server.bodies) == asked  # all from the cache
    assert hashes(tmp_path / "killed") == hashes(tmp_path / "again")
