"""The stage that makes concepts: columns, counts, and builds that are the same on any way (about 6 s)."""

from __future__ import annotations

import json

import pytest
from datasets import Dataset, Features, Value, load_dataset

from hfcomp.data.columns import CONCEPT_FEATURES
from hfcomp.factory.concepts import make_concepts
from hfcomp.factory.manifest import MANIFEST
from hfcomp.factory.runner import Stage, run_stages
from hfcomp.factory.shards import COUNTS, ShardMaker
from hfcomp.factory.text_negatives import make_captions
from hfcomp.parsing import cached_parser
from tests.factory import builds

CAPTIONS = ["a red dog and a dog", "a dog on a bench with a man", "hello", " ", "it is a horse", "a red dog"]
FEATURES = Features({"caption": Value("string"), **CONCEPT_FEATURES})


def build(folder, **options):
    settings = {"parser": "rules", "max_concepts": 2}
    stages = [
        Stage("captions", make_captions, {"which": "longest"}),
        Stage("concepts", make_concepts, settings, settings),
    ]
    rows = Dataset.from_dict({"caption": CAPTIONS})
    return run_stages(rows, stages, folder, features=FEATURES, **({"rows_per_shard": 2} | options))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return build(tmp_path_factory.mktemp("whole") / "out").folder


def test_phrases_their_places_and_counts(whole):
    rows = load_dataset(str(whole), split="train")
    assert rows["concepts"][:] == [["a red dog", "a dog"], ["a dog", "a bench"], [], ["a horse"], ["a red dog"]]
    for row in rows:
        assert [" ".join(row["caption"][a:b] for a, b in spans) for spans in row["concept_spans"]] == row["concepts"]
    manifest = json.loads((whole / MANIFEST).read_text())
    assert manifest["set_aside"] == {"no caption": 1}
    assert manifest["counts"] == {
        "captions: without a phrase": 1,
        "concepts: cut by max_concepts": 1,
        "concepts: written": 6,
        "phrases left out: pronoun": 1,
    }


def test_processes_change_no_byte(whole, tmp_path, quick_workers):
    assert builds.hashes(build(tmp_path, num_workers=2).folder) == builds.hashes(whole)


def test_a_build_that_stopped_goes_on_to_the_same_bytes(whole, tmp_path, monkeypatch):
    original = ShardMaker.make

    def interrupt(self, index):
        if index == 1:
            raise KeyboardInterrupt
        return original(self, index)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ShardMaker, "make", interrupt)
        build(tmp_path)
    done = build(tmp_path)
    assert (done.kept, done.made) == (1, 2)
    assert builds.hashes(tmp_path) == builds.hashes(whole)


def test_shards_change_no_row_and_no_count(whole, tmp_path):
    other = build(tmp_path, rows_per_shard=3)
    assert other.manifest["counts"] == json.loads((whole / MANIFEST).read_text())["counts"]
    rows = load_dataset(str(tmp_path), split="train").to_dict()
    assert rows == load_dataset(str(whole), split="train").to_dict()


def test_no_caption_is_no_concept_and_no_count():
    assert make_concepts(parser="rules")({"caption": []}) == {
        "caption": [],
        "concepts": [],
        "concept_spans": [],
        COUNTS: [],
    }


def test_a_parser_that_is_missing_is_never_replaced():
    cached_parser.cache_clear()
    with pytest.raises(OSError, match="spacy download en_core_web_none"):
        make_concepts(parser="spacy:en_core_web_none")
