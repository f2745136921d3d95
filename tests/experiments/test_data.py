"""The training set of a recipe: filter, longest caption, keyword negatives, joined ratings, concepts, lost rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.data.columns import CONCEPT_FEATURES
from hfcomp.experiments.data import training_rows
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.recipes import read_recipe
from hfcomp.sandbox import training_set
from hfcomp.sandbox.negatives import DRAWABILITY
from tests import tiny
from tests.evaluation.webdatasets import write_tar
from tests.factory import builds

CAPTIONS = [
    ["A dog.", "A red dog under a small table."],
    ["Nothing here.", "Words without any."],
    ["The bus is large."],
]


@pytest.fixture
def listing(tmp_path: Path) -> str:
    rows = []
    for index, captions in enumerate(CAPTIONS):
        tiny.image(index).save(tmp_path / f"{index}.png")
        rows.append({"image": f"{index}.png", "texts": captions, "held_out": index == 2})
    path = tmp_path / "photographs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def rows(dataset: str, **changes):
    config = ExperimentConfig(objective="x:y", method="m", dataset=dataset, batch_size=2, **changes)
    logged: list[str] = []
    return training_rows(config, column_names={"caption": "texts"}, seed=0, log=logged.append), logged


def test_the_longest_of_several_captions_is_used(listing):
    dataset, logged = rows(listing)
    assert dataset["caption"][:] == ["A red dog under a small table.", "Words without any.", "The bus is large."]
    assert "several captions per image: using the longest" in logged


def test_filtered_rows_are_counted(listing):
    dataset, logged = rows(listing, dataset_filter="held_out=false")
    assert len(dataset) == 2
    assert "2 rows match held_out=false; 1 are left out" in logged


def test_a_filter_on_a_missing_column_names_those_that_exist(listing):
    with pytest.raises(ValueError, match="'heldout'.*: .*held_out"):
        rows(listing, dataset_filter="heldout=false")


def test_captions_without_a_keyword_take_part_without_a_negative(listing):
    dataset, logged = rows(listing, keyword_negatives=["color", "size"])
    texts = [row[0] for row in dataset["negative_captions"]]
    assert texts[1] == ""
    assert all(text and text != caption for text, caption in zip(texts[::2], dataset["caption"][::2], strict=True))
    assert dataset["negative_image"][:] == [None, None, None]
    assert any("2 captions have a keyword" in line and "1 are used without" in line for line in logged)


def test_ratings_are_joined_to_keywords_and_missing_ones_counted(listing, tmp_path):
    header = "Word\tBigram\tConc.M\tConc.SD\tUnknown\tTotal\tPercent_known\tSUBTLEX\tDom_Pos"
    path = tmp_path / "ratings.txt"
    path.write_bytes(f"{header}\r\nlarge\t0\t3.2\t1\t0\t30\t1\t9\tAdjective\r\n".encode())
    dataset, logged = rows(listing, keyword_negatives=["size"], concreteness_ratings=str(path))
    by_keyword = {
        words[0]: ratings[0]
        for words, ratings in zip(dataset["negative_keywords"], dataset["negative_concreteness"], strict=True)
    }
    assert by_keyword == {"small": None, "": None, "large": 3.2}
    assert any(line.startswith("concreteness of negatives' keywords: 1 of 2") for line in logged)


@pytest.mark.parametrize("captions", [[], ["", " "]])
def test_a_row_without_any_caption_is_named(listing, captions):
    lines = [json.loads(line) for line in Path(listing).read_text().splitlines()]
    lines[1]["texts"] = captions
    Path(listing).write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(ValueError, match="'caption', row 1: found .*string"):
        rows(listing)


def test_keyword_negatives_take_what_belongs_to_the_old_ones_with_them(tmp_path):
    """The old image shows the old negative, and its rating is of the old keyword."""
    old = tiny.pairs(4).add_column("mask", [None] * 4)
    assert {"negative_captions", "negative_image", "negative_concreteness"} <= set(old.column_names)
    old.save_to_disk(tmp_path / "pairs")
    config = ExperimentConfig(
        objective="x:y", method="m", dataset=str(tmp_path / "pairs"), batch_size=2, keyword_negatives=["color"]
    )
    logged: list[str] = []
    dataset = training_rows(config, column_names=None, seed=0, log=logged.append)
    assert dataset["negative_image"][:] == [None] * 4
    assert not {"negative_concreteness", "mask"} & set(dataset.column_names)
    assert {kind for kinds in dataset["negative_kinds"] for kind in kinds} == {"keyword_color"}
    (line,) = [line for line in logged if "keyword negatives replace" in line]
    assert all(name in line for name in ("negative_captions", "negative_image", "negative_concreteness", "mask"))


def test_ratings_without_keywords_are_refused_with_the_way_out(listing, tmp_path):
    with pytest.raises(ValueError, match="'negative_keywords', .*keyword_negatives"):
        rows(listing, concreteness_ratings=str(tmp_path / "ratings.txt"))


def test_extended_matching_finds_capitals(tmp_path):
    tiny.image(0).save(tmp_path / "0.png")
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps({"image": "0.png", "texts": "Red is the ball."}))
    texts = {
        name: rows(str(path), keyword_negatives=["color"], keyword_matching=name)[0]["negative_captions"][0][0]
        for name in ("paper", "extended")
    }
    assert texts["paper"] == "" and texts["extended"].endswith(" is the ball.")


# Keyword tables, captions with a keyword alone, several negatives


def test_as_many_negatives_as_asked_and_fewer_are_the_first(listing):
    def texts(number: int) -> list[list[str]]:
        config = ExperimentConfig(
            objective="x:y", method="m", dataset=listing, batch_size=2, keyword_negatives=["color", "size"]
        )
        names = {"caption": "texts"}
        return training_rows(config, column_names=names, seed=0, log=print, num_negatives=number)["negative_captions"]

    three = texts(3)
    assert [len(row) for row in three] == [3, 3, 3]
    assert [row[:1] for row in three] == texts(1)[:]


def test_a_table_of_ones_own_is_used(listing, tmp_path):
    path = tmp_path / "words.yaml"
    path.write_text("furniture: {any_other: [table, shelf], category: object}")
    dataset, _ = rows(listing, keyword_negatives=["furniture"], keyword_table=str(path))
    assert dataset["negative_captions"][:] == [["A red dog under a small shelf."], [""], [""]]
    assert dataset["negative_kinds"][0] == ["other"]
    with pytest.raises(ValueError, match="'color' .*furniture"):
        rows(listing, keyword_negatives=["color"], keyword_table=str(path))


def test_captions_without_a_keyword_are_left_out_and_told(listing):
    dataset, logged = rows(listing, keyword_negatives=["color", "size"], keyword_captions_only=True)
    assert dataset["caption"][:] == ["A red dog under a small table.", "The bus is large."]
    assert [Path(image["path"]).stem for image in dataset["image"]] == ["0", "2"]
    assert "2 captions have a keyword and got a negative; 1 are left out" in logged


@pytest.mark.follows("hfcomp/experiments/data.py", "Choose other concepts, or set keyword_matching: extended")
def test_no_caption_with_a_keyword_is_an_error_with_the_way_out(listing):
    Path(listing).write_text(json.dumps({"image": "0.png", "texts": ["Dogs on a small hill."]}))
    with pytest.raises(ValueError, match="no caption .* object.* keyword_matching: extended"):
        rows(listing, keyword_negatives=["object"], keyword_captions_only=True)
    for changes in ({"keyword_negatives": ["size"]}, {"keyword_matching": "extended"}):
        dataset, _ = rows(listing, **{"keyword_negatives": ["object"], "keyword_captions_only": True, **changes})
        assert len(dataset) == 1


# Every caption


ALL = ["A dog.", "Nothing here.", "The bus is large.", "A red dog under a small table.", "Words without any."]


def test_every_caption_is_a_row_with_its_image(listing):
    dataset, logged = rows(listing, captions="all")
    assert dataset["caption"][:] == ALL
    assert dataset["image_id"][:] == ["0.png", "1.png", "2.png", "0.png", "1.png"]
    assert [Path(image["path"]).stem for image in dataset["image"]] == ["0", "1", "2", "0", "1"]
    assert "one row per caption: 5 rows from 3 images" in logged


def test_every_caption_gets_its_own_negative(listing):
    dataset, logged = rows(listing, captions="all", keyword_negatives=["object"])
    assert [row[0] != "" for row in dataset["negative_captions"]] == [True, False, True, True, False]
    assert "3 captions have a keyword and got a negative; 2 are used without one" in logged
    kept, logged = rows(listing, captions="all", keyword_negatives=["object"], keyword_captions_only=True)
    assert kept["caption"][:] == [ALL[0], ALL[2], ALL[3]]
    assert "3 captions have a keyword and got a negative; 2 are left out" in logged
    longest, _ = rows(listing, keyword_negatives=["object"])
    assert dataset["negative_captions"][3] == longest["negative_captions"][0]


@pytest.mark.parametrize("condition", [None, "kept=true"])
def test_ids_of_images_are_kept_and_bytes_of_images_are_not_copied(tmp_path, condition):
    pairs = tiny.pairs(4).select_columns(["image"]).add_column("image_id", list("abcd"))
    pairs = pairs.add_column("caption", [["one", "two", "three"]] * 4).add_column("kept", [True, True, False, True])
    pairs.save_to_disk(tmp_path / "pairs")
    config = ExperimentConfig(
        objective="x:y",
        method="m",
        dataset=str(tmp_path / "pairs"),
        batch_size=2,
        captions="all",
        dataset_filter=condition,
    )
    dataset = training_rows(config, column_names=None, seed=0, log=print)
    ids = list("abd" if condition else "abcd")
    assert dataset["image_id"][:] == ids * 3
    assert dataset["caption"][:] == [text for text in ("one", "two", "three") for _ in ids]
    chunks = dataset.data.column("image").chunks
    addresses = [tuple(part.address for part in chunk.field("bytes").buffers() if part) for chunk in chunks]
    assert len(chunks) == 3 and len(set(addresses)) == 1


def test_every_caption_needs_lists(tmp_path):
    tiny.image(0).save(tmp_path / "0.png")
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps({"image": "0.png", "texts": "Red is the ball."}))
    with pytest.raises(ValueError, match="captions=all: .*'caption' .*Value"):
        rows(str(path), captions="all")


def test_captions_that_are_drawn_stay_lists(listing):
    dataset, logged = rows(listing, captions="drawn")
    assert dataset["caption"][:] == CAPTIONS
    assert "several captions per image: one is drawn every epoch" in logged
    with pytest.raises(ValueError, match="keyword_negatives .* captions: drawn"):
        rows(listing, captions="drawn", keyword_negatives=["color"])


# Captions of a file


def test_rows_without_a_caption_in_the_file_are_left_out(tmp_path):
    members = {
        f"00000{row}.{end}": png for row in range(3) for end, png in (("png", builds.png(row)), ("txt", b"alt"))
    }
    write_tar(tmp_path / "shards" / "00000.tar", members)
    (tmp_path / "short.jsonl").write_text('{"file": "000002", "text": "a red dog"}')
    changes = {"captions_file": str(tmp_path / "short.jsonl"), "captions_columns": "file,text"}
    config = ExperimentConfig(
        objective="x:y", method="m", dataset=str(tmp_path / "shards"), batch_size=2, concept_parser="rules", **changes
    )
    logged: list[str] = []
    dataset = training_rows(config, column_names={"image": "png"}, seed=0, log=logged.append)
    assert dataset["caption"][:] == ["a red dog"] and dataset["concepts"][:] == [["a red dog"]]
    assert [image.getpixel((0, 0))[0] for image in dataset["image"]] == [2]
    assert any("1 rows have one; 2 have none" in line for line in logged)
    assert any("1 phrases from 1 captions" in line for line in logged)


def test_fields_of_a_file_without_the_file_are_refused(listing):
    with pytest.raises(ValueError, match="key_column .*captions_file.*not set"):
        rows(listing, key_column="url")
    with pytest.raises(ValueError, match="captions_file .*sandbox.* captions"):
        sandbox(captions_file="short.csv")


# Concepts


def test_concepts_are_made_of_the_caption_that_is_used(listing):
    dataset, logged = rows(listing, concept_parser="rules")
    assert dataset["concepts"][:] == [["A red dog", "a small table"], ["Words"], ["The bus"]]
    assert dataset["concept_spans"][0] == [[[0, 9]], [[16, 29]]]
    (line,) = [line for line in logged if line.startswith("concepts by rules (textblob ")]
    assert "4 phrases from 3 captions; 0 captions name no thing" in line


def test_every_caption_gets_its_own_concepts(listing):
    dataset, logged = rows(listing, captions="all", concept_parser="rules")
    assert dataset["caption"][:] == ALL
    assert dataset["concepts"][:] == [["A dog"], [], ["The bus"], ["A red dog", "a small table"], ["Words"]]
    assert any("5 phrases from 5 captions; 1 captions name no thing" in line for line in logged)


def test_concepts_of_the_data_set_stay_and_are_told(tmp_path):
    own = {"concepts": [["a thing"], []], "concept_spans": [[[[0, 2]]], []]}
    pairs = tiny.pairs(2).select_columns(["image", "caption"])
    for name, values in own.items():
        pairs = pairs.add_column(name, values, feature=CONCEPT_FEATURES[name])
    pairs.save_to_disk(tmp_path / "own")
    config = ExperimentConfig(
        objective="x:y", method="m", dataset=str(tmp_path / "own"), batch_size=2, concept_parser="rules"
    )
    logged: list[str] = []
    dataset = training_rows(config, column_names=None, seed=0, log=logged.append)
    assert {name: dataset[name][:] for name in own} == own
    assert "using the dataset's own concepts; concept_parser=rules has no effect" in logged


def test_concepts_that_cannot_be_made_are_refused(listing):
    with pytest.raises(ValueError, match="parser 'stanza'"):
        rows(listing, concept_parser="stanza")
    with pytest.raises(ValueError, match="concept_parser .*sandbox.*concepts"):
        sandbox(concept_parser="rules")
    Path(listing).write_text(json.dumps({"image": "0.png", "texts": "hello"}))
    with pytest.raises(ValueError, match="no noun phrase .* 1 captions"):
        rows(listing, concept_parser="rules")


# The sandbox


def sandbox(number: int = 1, **changes):
    config = ExperimentConfig(objective="x:y", method="m", dataset="sandbox", dataset_rows=40, batch_size=2, **changes)
    logged: list[str] = []
    return training_rows(config, column_names=None, seed=3, log=logged.append, num_negatives=number), logged


def test_the_sandbox_is_its_training_set_with_as_many_negatives():
    assert sandbox()[0].to_dict() == training_set(40, 3).to_dict()
    assert sandbox(3)[0]["negative_captions"][:] == training_set(40, 3, num_negatives=3)["negative_captions"][:]


def norms(folder: Path, words: tuple[str, ...] = tuple(DRAWABILITY)) -> str:
    """A file like that of the norms, in which each word has a value of its own, from 1.01 on."""
    lines = [f"{word}\t{1 + number / 100}\tNoun\n" for number, word in enumerate(words, 1)]
    (folder / "norms.txt").write_text("Word\tConc.M\tDom_Pos\n" + "".join(lines))
    return str(folder / "norms.txt")


def test_the_sandbox_has_the_ratings_that_the_recipe_names():
    """A file of human ratings alone leaves them, since it adds runs of its own."""
    assert sandbox()[0].to_dict() == sandbox(concreteness_ratings="not read")[0].to_dict()
    assert sandbox(ratings="synthetic")[0].to_dict() == training_set(40, 3, ratings="synthetic").to_dict()


def test_human_ratings_of_the_sandbox_come_from_the_file_and_words_that_it_lacks_are_named(tmp_path):
    ((lost,),) = sandbox()[0]["negative_keywords"][:1]
    words = tuple(word for word in DRAWABILITY if word != lost)
    dataset, logged = sandbox(ratings="human", concreteness_ratings=norms(tmp_path, words))
    ratings = {word: 1 + number / 100 for number, word in enumerate(words, 1)}
    for keywords, values in zip(dataset["negative_keywords"], dataset["negative_concreteness"], strict=True):
        assert values == [pytest.approx(ratings[word]) if word in ratings else None for word in keywords]
    (line,) = logged
    assert f"; missing: {lost!r} {sum(words == [lost] for words in dataset['negative_keywords'])};" in line
    assert (
        dataset.remove_columns("negative_concreteness")[:] == sandbox()[0].remove_columns("negative_concreteness")[:]
    )


@pytest.mark.follows("hfcomp/experiments/experiment_config.py", "Pass --concreteness_ratings FILE.")
def test_human_ratings_without_their_file_say_how_to_give_it(tmp_path):
    with pytest.raises(ValueError, match=r"ratings: human .* --concreteness_ratings FILE"):
        sandbox(ratings="human")
    recipe = read_recipe("slipform", ["--ratings", "human", "--concreteness_ratings", norms(tmp_path)])
    assert recipe.experiment.joins_ratings


def test_ratings_are_of_the_sandboxs_own_negatives(listing):
    with pytest.raises(ValueError, match="ratings .*not those of"):
        rows(listing, ratings="synthetic")
    with pytest.raises(ValueError, match="ratings shapes .*keyword_negatives"):
        sandbox(ratings="synthetic", keyword_negatives=["color"])


def test_keyword_negatives_of_the_sandbox_take_the_place_of_its_own():
    table = str(Path(__file__).parents[2] / "recipes/hard_negatives/sandbox_keywords.yaml")
    settings = {"keyword_table": table, "keyword_matching": "extended", "keyword_negatives": ["color"]}
    own, _ = sandbox()
    dataset, logged = sandbox(3, **settings)
    assert dataset["caption"][:] == own["caption"][:]  # the same scenes for any number
    assert {kind for kinds in dataset["negative_kinds"] for kind in kinds if kind} == {"keyword_color"}
    assert dataset["negative_image"][:] == [None] * 40 and "mask" not in dataset.column_names
    assert any("keyword negatives replace" in line and "negative_image" in line and "mask" in line for line in logged)
    kept, _ = sandbox(**(settings | {"keyword_negatives": ["size"]}), keyword_captions_only=True)
    assert 0 < len(kept) < 40 and all(texts[0] for texts in kept["negative_captions"])


def test_captions_over_the_limits_get_no_negative_and_no_concept_and_are_reported(tmp_path):
    for index in range(2):
        tiny.image(index).save(tmp_path / f"{index}.png")
    texts = ["a red dog", "a red dog " * 1000]
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(json.dumps({"image": f"{i}.png", "texts": text}) for i, text in enumerate(texts)))
    dataset, logged = rows(str(path), keyword_negatives=["color"])
    assert [bool(texts[0]) for texts in dataset["negative_captions"]] == [True, False]
    assert any("row 1: caption too" in line for line in logged)
    dataset, logged = rows(str(path), concept_parser="rules")
    assert dataset["concepts"][:] == [["a red dog"], []]
    assert any("1 captions are too long or not valid Unicode" in line for line in logged)
