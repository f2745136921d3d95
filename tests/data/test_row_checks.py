"""Captions and images that are missing are named before the first step, as missing files are."""

from __future__ import annotations

import datasets
import pytest

from hfcomp.data import load_training_set
from hfcomp.data.known_names import proposed_names
from hfcomp.data.row_checks import check_contents
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from tests import tiny

COLUMNS = ["image", "caption"]


def rows_of(captions, **more):
    return datasets.Dataset.from_dict({"image": [tiny.image(0)] * len(captions), "caption": captions, **more})


def refusal_text(rows, message):
    with pytest.raises(ValueError, match=message) as error:
        check_contents(rows, COLUMNS)
    return str(error.value)


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        (["a", "b", None, "d"], r"column 'caption', row 2: found None, expected a string\. Complete"),
        (["a", " ", None, "d"], r"column 'caption', row 1: found ' ', expected a string\. 2 of 4 rows"),
    ],
)
def test_a_missing_caption_is_named_and_the_advice_helps(captions, message):
    advised = refusal_text(rows_of(captions), message).partition("in Python: ")[2].rstrip(".")
    kept = eval(advised, {"dataset": rows_of(captions)})
    assert check_contents(kept, COLUMNS) is None and {*kept["caption"]} == {*captions} - {None, " "}
    assert check_contents(rows_of(captions).select([0, 3]), COLUMNS) is None
    refusal_text(rows_of(captions).select([3, 2]), "row 1: found None")


@pytest.mark.follows("hfcomp/data/row_checks.py", "strings. Convert numbers to strings: dataset.cast_column('caption'")
@pytest.mark.parametrize(
    ("captions", "description"), [([1984, 300], "1984 of type int64"), ([0.5, float("nan")], "0.5")]
)
def test_numbers_are_no_captions(captions, description):
    advised = (
        refusal_text(rows_of(captions), f"row 0: found {description}.*, expected strings")
        .partition("to strings: ")[2]
        .rstrip(".")
    )
    assert check_contents(eval(advised, {"dataset": rows_of(captions), "datasets": datasets}), COLUMNS) is None


@pytest.mark.follows("hfcomp/data/row_checks.py", "string. Draw one per epoch with draw_captions=True")
def test_lists_are_drawn_from_or_chosen_from(tmp_path):
    rows = rows_of([["a", "b"], ["c"]])
    message = refusal_text(rows, "row 0: found a list of 2 captions")
    settings = {"output_dir": str(tmp_path), "use_cpu": True, "report_to": "none"}
    assert InfoNCETrainer.check_rows(rows, InfoNCEConfig(draw_captions=True, **settings)) is None
    advised = message.partition("or choose one: ")[2].rstrip(".")
    assert InfoNCETrainer.check_rows(eval(advised, {"dataset": rows}), InfoNCEConfig(**settings)) is None


def test_a_trainer_refuses_such_rows_when_it_is_made(clip, tmp_path):
    args = InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match="'caption', row 1: found None"):
        InfoNCETrainer(str(clip), args, rows_of(["a", None]))


def own_names(tmp_path):
    text = "photo_path,description\n" + "".join(f"photos/{row}.png,a ball number {row}\n" for row in range(3))
    (tmp_path / "own.csv").write_text(text)
    (tmp_path / "photos").mkdir()
    for row in range(3):
        tiny.image(row).save(tmp_path / f"photos/{row}.png")
    return str(tmp_path / "own.csv")


@pytest.mark.follows("hfcomp/data/columns.py", "You may mean:")
def test_both_columns_are_proposed(tmp_path):
    path = own_names(tmp_path)
    args = InfoNCEConfig(output_dir=str(tmp_path / "run"), use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match=r"--column_names image=photo_path,caption=description") as error:
        InfoNCETrainer.check_rows(load_training_set(path), args)
    names = eval(str(error.value).partition("in Python column_names=")[2].rstrip("."))
    assert InfoNCETrainer.check_rows(load_training_set(path, column_names=names), args) is None


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"bild": ["a.jpg", "b.jpg"], "satz": ["a dog", "a cat"]}, {"image": "bild", "caption": "satz"}),
        ({"link": ["http://x/1"], "what": ["a dog runs"], "kind": ["dog"]}, {"image": "link", "caption": "what"}),
        ({"a": ["x.png"], "b": ["y.png"], "c": ["a dog"]}, {"caption": "c"}),  # which of both is not known
        ({"image": ["x.png"], "a": ["a dog"], "b": ["a cat"]}, {"image": "image"}),
        ({"n": [1], "text": ["a dog"]}, {"caption": "text"}),
    ],
)
def test_columns_are_proposed_by_what_they_hold(columns, expected):
    rows = datasets.Dataset.from_dict(columns)
    missing = [name for name in ("image", "caption") if name not in rows.column_names]
    assert proposed_names(rows, missing) == {name: own for name, own in expected.items() if name in missing}
