"""ConcretePlant's first step: targets in shards, categories over the whole set, and rows with a keyword."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from datasets import Dataset, Features, Image, List, Value, load_dataset

from hfcomp.data.negatives import with_concreteness
from hfcomp.factory.concretebatch.targets import (
    KEYWORD_FEATURES,
    KEYWORD_READS,
    TARGET_FEATURES,
    TargetOptions,
    balance_targets,
    keyword_stage,
    make_targets,
    target_inputs,
)
from hfcomp.factory.runner import run_stages
from hfcomp.factory.shards import ROW, SET_ASIDE
from hfcomp.factory.sources import read_captioned_rows
from tests.factory.builds import hashes, png

NOUNS = {"dog": 4.8, "cat": 4.8, "man": 4.7, "umbrella": 4.9, "table": 4.8, "park": 4.6, "car": 4.8, "ball": 4.9}
OTHERS = {"red": 4.1, "small": 3.1, "holding": 3.6, "under": 3.4, "behind": 3.4, "front": 3.7, "two": 4.1}
CAPTIONS = [
    "A small red dog under a table.",
    "A man holding an umbrella behind a car.",
    "Two cats in front of a red ball.",
    "A man and a dog with a ball.",
    "A red car, a small cat and a table.",
    "A red cat and a ball.",
]


@pytest.fixture(scope="module")
def ratings(tmp_path_factory) -> Path:
    """Invented numbers; the published ones may not be shipped."""
    path = tmp_path_factory.mktemp("ratings") / "ratings.txt"
    rows = [f"{word}\t{rating}\tNoun" for word, rating in {**NOUNS, **OTHERS}.items()]
    path.write_text("\n".join(["Word\tConc.M\tDom_Pos", *rows]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    rows = [{"caption": [CAPTIONS[row % 6], "short"], "image_id": str(row)} for row in range(40)]
    rows[3]["caption"] = ["犬が公園で走る。赤い車"]
    rows[7]["caption"] = []
    rows[11]["caption"] = ["..."]
    rows[15]["caption"] = ["A zorb."]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / "rows.jsonl"


def options(source: Path, ratings: Path | None, output: Path, **settings) -> TargetOptions:
    settings = {"parser": "rules", **settings}
    return TargetOptions(
        source=str(source), output=output, concreteness_ratings=None if ratings is None else str(ratings), **settings
    )


def build(chosen: TargetOptions, mode: str = "high"):
    log = [].append
    rows = read_captioned_rows(chosen, log, is_old=lambda name: name.startswith("negative_"))
    inputs = target_inputs(chosen, mode, rows, log)
    return run_stages(
        inputs.dataset,
        inputs.stages,
        chosen.output,
        features=inputs.features,
        reads=inputs.reads,
        rows_per_shard=chosen.shard_size,
        num_workers=chosen.num_workers,
    )


def read(folder: Path, cache: Path) -> Dataset:
    return load_dataset(str(folder), split="train", cache_dir=str(cache))


def with_keywords(targets: Dataset, folder: Path, cache: Path) -> Dataset:
    features = Features({"caption": Value("string"), "source_row": Value("int64"), **KEYWORD_FEATURES})
    run_stages(targets, [keyword_stage()], folder, features=features, reads=KEYWORD_READS, rows_per_shard=7)
    return read(folder, cache)


def test_shards_and_processes_change_no_target(source, ratings, tmp_path, quick_workers):
    runs = []
    for number, (shard_size, workers) in enumerate([(1000, 1), (6, 1), (9, 2)]):
        made = options(source, ratings, tmp_path / str(number), shard_size=shard_size, num_workers=workers, top_k=6)
        build(made)
        targets, tally = balance_targets(read(made.output, tmp_path / "cache"))
        rows = with_keywords(targets, tmp_path / f"keywords {number}", tmp_path / "cache")
        runs.append((rows[:], tally))
    assert runs[0] == runs[1] == runs[2]
    rows, tally = runs[0]
    assert len(rows["keyword"]) == 36 and set(rows["category"]) == {"attribute", "object", "relation"}
    assert abs(tally.categories["attribute"] - tally.categories["object"]) <= 2  # a row or two are objects only
    assert 7 not in rows["source_row"] and rows["source_row"] == sorted(rows["source_row"])
    for caption, keyword, span in zip(rows["caption"], rows["keyword"], rows["keyword_span"], strict=True):
        assert caption[slice(*span)] == keyword


def test_a_lost_shard_is_built_again_with_the_same_bytes(source, ratings, tmp_path):
    made = options(source, ratings, tmp_path / "set", shard_size=8)
    build(made)
    before = hashes(made.output)
    (made.output / "data" / "train-00002-of-00005.parquet").unlink()
    again = build(made)
    assert (again.kept, again.made) == (4, 1) and hashes(made.output) == before


def test_rows_without_a_target_are_set_aside_with_their_reason_and_counted(source, ratings, tmp_path):
    made = build(options(source, ratings, tmp_path / "set"))
    assert made.manifest["set_aside"] == {
        "caption not in Latin script": 1,
        "no caption": 1,
        "no word to change": 1,
        "no word with a rating": 1,
    }
    lines = [json.loads(line) for line in (made.folder / "set_aside.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["row"], line.get("detail")) for line in lines] == [
        (3, "10 of 10 letters, such as '犬'"),
        (7, None),
        (11, None),
        (15, "zorb"),
    ]
    counts = made.manifest["counts"]
    assert counts["words: without a rating"] == 1 and counts["candidates: relation"] > 0


def test_the_manifest_holds_the_settings_and_no_place_of_this_machine(source, ratings, tmp_path):
    made = build(options(source, ratings, tmp_path / "set"), "low")
    facts = made.manifest["plan"]["stages"]["1 targets"]
    assert facts["parser"].startswith("rules (") and facts["ratings"].startswith("ratings.txt sha256:")
    assert (facts["mode"], facts["order"], facts["k"]) == ("low", "sample", 8)
    assert str(tmp_path) not in json.dumps(made.manifest) and str(ratings.parent) not in json.dumps(made.manifest)


LOADING = """
import socket, sys
sys.addaudithook(lambda name, _: sys.exit(name) if name == "socket.connect" else None)
import datasets, spacy
before = "torch" in sys.modules  # old ones of these load it themselves
import hfcomp.factory.concretebatch.targets
if not before and "torch" in sys.modules:
    sys.exit("torch is loaded")
import hfcomp.factory.concretebatch.targets, hfcomp.negatives.concreteness
"""


def test_workers_load_the_stages_without_torch_and_nothing_is_downloaded_on_import():
    subprocess.run([sys.executable, "-c", LOADING], check=True)


def test_no_rating_is_written(source, ratings, tmp_path):
    made = build(options(source, ratings, tmp_path / "set"))
    rows = read(made.folder, tmp_path / "cache")
    assert not [name for name, kind in rows.features.items() if "float" in str(kind)]
    assert set(TARGET_FEATURES) <= set(rows.column_names)


def test_random_needs_no_ratings_and_the_other_modes_do(source, tmp_path):
    made = build(options(source, None, tmp_path / "set"), "random")
    rows = read(made.folder, tmp_path / "cache")
    assert set(sum(rows["target_rated_words"][:], [])) == {""}
    assert "no word with a rating" not in made.manifest["set_aside"]
    with pytest.raises(FileNotFoundError, match=r"ratings .*nowhere"):
        build(options(source, tmp_path / "nowhere", tmp_path / "other"))


def test_images_stay_in_the_source(ratings, tmp_path):
    rows = {"image": [{"bytes": png(row), "path": None} for row in range(3)], "caption": CAPTIONS[:3]}
    features = Features({"image": Image(), "caption": Value("string")})
    Dataset.from_dict(rows, features=features).to_parquet(str(tmp_path / "source.parquet"))
    made = build(options(tmp_path / "source.parquet", ratings, tmp_path / "set"))
    dataset = read(made.folder, tmp_path / "cache")
    assert "image" not in dataset.column_names and dataset["source_row"][:] == [0, 1, 2]


def test_it_maps_over_a_data_set(ratings):
    stage = make_targets(parser="rules", ratings=ratings)
    mapped = Dataset.from_dict({"caption": CAPTIONS}).map(stage, batched=True, batch_size=2)
    whole = stage({"caption": CAPTIONS})
    assert mapped["target_keywords"][:] == whole["target_keywords"]
    assert mapped["source_row"][:] == [None] * 6


def test_latin_letters_with_accents_and_a_few_signs_are_read(ratings):
    captions = ["A dog at a café in Málaga.", "A dog and a sign 止まれ.", "Собака и dog", "🐶 a dog"]
    columns = make_targets(parser="rules", ratings=ratings)({"caption": captions, ROW: [0, 1, 2, 3]})
    assert [reason and reason.partition(":")[0] for reason in columns[SET_ASIDE]] == [
        None,
        None,
        "caption not in Latin script",
        None,
    ]


def test_words_without_a_rating_are_counted_by_word(ratings):
    stage = make_targets(parser="rules", ratings=ratings)
    columns = stage({"caption": ["A zorb and a dog.", "A dog and two zorbs.", "A zorb under a car."], ROW: [0, 1, 2]})
    dataset = Dataset.from_dict({name: values for name, values in columns.items() if name in TARGET_FEATURES})
    _, tally = balance_targets(dataset)
    assert tally.unrated == {"zorb": 2, "zorbs": 1}
    assert tally.lines()[1] == "3 candidate words have no rating; most often: 'zorb' 2, 'zorbs' 1"


def test_balancing_refuses_another_set():
    with pytest.raises(ValueError, match="no column 'target_categories'"):
        balance_targets(Dataset.from_dict({"caption": ["a"]}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_k": 0}, "top_k: found 0,.* 1"),
        ({"rating_temperature": -1.0}, "rating_temperature: found -1.0,.* 0"),
        ({"attribute_share": 2.0}, "attribute_share: found 2.0,.* 0 .* 1"),
        ({"download_ratings": True}, "--concreteness_ratings and --download_ratings"),
    ],
)
def test_wrong_options_are_refused_at_once(source, ratings, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        options(source, ratings, tmp_path / "set", **settings)


def test_ratings_are_joined_by_the_rated_words_where_a_set_has_them(ratings):
    texts = List(Value("string"))
    rows = {"negative_keywords": [["in front of"], ["zorb"]], "negative_rated_words": [["front"], [""]]}
    dataset = Dataset.from_dict(rows, features=Features(dict.fromkeys(rows, texts)))
    logged: list[str] = []
    joined = with_concreteness(dataset, str(ratings), logged.append)
    assert joined["negative_concreteness"][:] == [[3.7], [None]]
    assert logged[0].startswith("concreteness of negatives' rated words: 1 of 1")
    by_keyword = with_concreteness(dataset.remove_columns("negative_rated_words"), str(ratings), logged.append)
    assert by_keyword["negative_concreteness"][:] == [[None], [None]]
