"""Sets of pairs as they are read: items, ratings, and what is wrong with a set."""

from __future__ import annotations

import json
import math

import datasets
import pytest

from hfcomp.analysis.pairs.items import named_sets, paper_config, published_number, read_pairs
from hfcomp.analysis.pairs.options import DataOptions
from hfcomp.negatives.concreteness import ConcretenessRatings
from tests import tiny
from tests.hub.built import write_build

RATINGS = ConcretenessRatings({"dog": 4.8, "fire hydrant": 4.9, "red": 4.2, "idea": 1.6})


def row(**changes):
    """A row with two negatives."""
    columns = {
        "caption": "a dog by a red fire hydrant",
        "negative_captions": ["a cat by a red fire hydrant", "a dog by a red bench"],
        "negative_keywords": ["dog", "fire hydrants"],
        "negative_concreteness": [4.0, None],
        "image_id": "one",
    }
    return {name: value for name, value in {**columns, **changes}.items() if value != "absent"}


def read(tmp_path, *rows, ratings=None, name="set", **options):
    file = tmp_path / "set.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in rows))
    return read_pairs(name, str(file), DataOptions(**options), ratings)


def test_every_negative_is_a_pair_with_its_rating(tmp_path):
    pairs = read(tmp_path, row(), row(negative_captions=["", "a dog by a blue fire hydrant"], image_id="two"))
    assert pairs.items[["row", "place", "image_id"]].to_numpy().tolist() == [
        [0, 0, "one"],
        [0, 1, "one"],
        [1, 1, "two"],
    ]
    assert pairs.items["keyword"].tolist() == ["dog", "fire hydrants", "fire hydrants"]
    assert pairs.items["concreteness"][0] == 4 and pairs.items["concreteness"].isna().tolist() == [False, True, True]
    assert pairs.notes == ["set: 2 of 3 negatives have no rating"]


def test_ratings_are_joined_by_rated_word_and_else_by_keyword(tmp_path):
    joined = read(tmp_path, row(), ratings=RATINGS)
    assert joined.items["concreteness"].tolist() == [4.8, 4.9] and not joined.notes
    by_word = read(tmp_path, row(negative_rated_words=["idea", ""]), ratings=RATINGS)
    assert by_word.items["concreteness"][0] == 1.6 and math.isnan(by_word.items["concreteness"][1])
    strange = row(negative_keywords=["pegasus", "pegasus"])
    assert read(tmp_path, row(), strange, ratings=RATINGS).notes == [
        "set: 2 of 4 negatives have no rating (most often 'pegasus' 2)"
    ]


def test_without_ratings_the_set_says_so(tmp_path):
    (note,) = read(tmp_path, row(negative_concreteness="absent")).notes
    assert "column negative_concreteness" in note and "--concreteness_ratings" in note
    nothing = row(negative_keywords="absent")
    assert "column negative_keywords" in read(tmp_path, nothing, ratings=RATINGS).notes[0]
    broken = read(tmp_path, row(negative_concreteness=[float("nan"), float("nan")]))
    assert broken.items["concreteness"].isna().all() and "negative_concreteness has no rating" in broken.notes[0]


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([], "set.jsonl .*no rows"),
        ([row(negative_captions=[]), row(caption=None)], "none of its 2 rows"),
        ([row(caption=7)], "'caption', row 0: found 7"),
        ([row(negative_captions="absent")], "needs .*column 'negative_captions'"),
        ([row(negative_captions=[7, 8])], r"'negative_captions', row 0: found \[7, 8\]"),
        ([row(), row(negative_keywords=["dog"])], r"'negative_keywords', row 1: found .* 2"),
        ([row(negative_concreteness=[6.5, 1])], "'negative_concreteness', row 0: found 6.5,.* 1 to 5"),
    ],
)
def test_what_is_wrong_with_a_set_is_named(tmp_path, rows, match):
    if len(rows) == 2 and not rows[0]["negative_captions"]:
        rows = [
            {name: value for name, value in record.items() if "key" not in name and "conc" not in name}
            for record in rows
        ]
    with pytest.raises(ValueError, match=match):
        read(tmp_path, *rows)


def test_rows_without_a_pair_are_counted(tmp_path):
    lists = ("negative_keywords", "negative_concreteness")
    rows = [row(**dict.fromkeys(lists, "absent")) for _ in range(3)]
    rows[1]["negative_captions"], rows[2]["caption"] = None, ""
    pairs = read(tmp_path, *rows)
    assert len(pairs.items) == 2
    assert "set: 2 of 3 rows have no caption or no negative caption and are left out" in pairs.notes


def test_columns_splits_and_rows_are_chosen(tmp_path):
    other = row(text="a dog", caption="absent")
    pairs = read(tmp_path, other, other, column_names="caption=text", limit=1)
    assert pairs.items["caption"].tolist() == ["a dog"] * 2 and len(pairs.dataset) == 1
    with pytest.raises(ValueError, match="no split 'test'.* train"):
        read(tmp_path, row(), split="test")
    with pytest.raises(FileNotFoundError, match="nothing' exists"):
        read_pairs("set", str(tmp_path / "nothing"), DataOptions(), None)


def test_without_an_id_a_row_belongs_to_its_image(tmp_path):
    kept = tiny.pairs(4).remove_columns("image_id").select([0, 1, 2, 3, 3])
    kept.save_to_disk(tmp_path / "set")
    first, second = (read_pairs(name, str(tmp_path / "set"), DataOptions(), None) for name in ("mine", "yours"))
    assert first.items.groupby("image_id")["row"].unique().map(len).value_counts().to_dict() == {1: 3, 2: 1}
    assert not {*first.items["image_id"]} & {*second.items["image_id"]}  # whose files may have the same names
    assert "image_id is missing" in first.notes[0]
    texts = kept.remove_columns("image")
    texts.save_to_disk(tmp_path / "texts")
    own = read_pairs("mine", str(tmp_path / "texts"), DataOptions(), None)
    assert {*own.items["image_id"]} == {f"mine: row {number}" for number in range(5)}


def test_sets_are_named(tmp_path, monkeypatch):
    for place in ("a=b", "runs/x", "runs/low", "one/x", "two/x"):
        (tmp_path / place).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    given = ["high=runs/x", "runs/low/", "me/set::random", "last=me/set::random", "a=b"]
    assert named_sets(given) == {
        "high": "runs/x",
        "low": "runs/low/",
        "random": "me/set::random",
        "last": "me/set::random",
        "a=b": "a=b",
    }
    with pytest.raises(ValueError, match="'x'.*second=two/x"):
        named_sets(["one/x", "two/x"])


def test_configurations_of_a_set_are_read(tmp_path):
    for name in ("high_concreteness", "random"):
        (tmp_path / "set" / name).mkdir(parents=True)
        datasets.Dataset.from_list([row(image_id=name)]).to_parquet(tmp_path / "set" / name / "train.parquet")
    card = "".join(
        f"- config_name: {name}\n  data_files: {name}/*.parquet\n" for name in ("high_concreteness", "random")
    )
    (tmp_path / "set" / "README.md").write_text(f"---\nconfigs:\n{card}---\n")
    place = f"{tmp_path / 'set'}::random"
    whole = {"high_concreteness": f"{tmp_path / 'set'}::high_concreteness", "random": place}
    assert named_sets([str(tmp_path / "set")]) == whole
    assert list(named_sets({"mine": str(tmp_path / "set")})) == ["mine high_concreteness", "mine random"]
    assert named_sets([place]) == {"random": place} and list(named_sets([str(tmp_path / "set")], "random")) == ["set"]
    with pytest.raises(ValueError, match="two .*'random'"):
        named_sets([str(tmp_path / "set"), place])
    pairs = read_pairs("mine", place, DataOptions(config="high_concreteness"), None)
    assert pairs.items["image_id"].tolist() == ["random"] * 2 and pairs.config == "random"


def test_a_set_with_a_configuration_that_is_not_finished_is_refused_and_the_finished_one_is_read(tmp_path):
    write_build(tmp_path / "high_concreteness", rows=1)
    write_build(tmp_path / "steps" / "random" / "targets", rows=1)
    with pytest.raises(ValueError, match="captions of random.*`hfcomp build concretebatch"):
        named_sets([str(tmp_path)])
    place = f"{tmp_path}::high_concreteness"
    assert named_sets([place]) == {"high_concreteness": place}
    assert read_pairs("mine", place, DataOptions(), None).items["keyword"].tolist() == ["dogs"]


def test_the_papers_numbers():
    assert paper_config("mine", None, "High-Concreteness") == "high_concreteness"
    assert [paper_config(name) for name in ("lc", "wo", "random", "highly", None)] == [
        "low_concreteness",
        "random",
        "random",
        None,
        None,
    ]
    table = [
        published_number("mean concreteness", subset) for subset in ("high_concreteness", "low_concreteness", "random")
    ]
    assert table == [4.77, 3.81, 4.29]
    assert published_number("T2I accuracy", "random") == 0.4433 and published_number("group", "random") is None
    assert published_number("CLIP-V", None) is None
