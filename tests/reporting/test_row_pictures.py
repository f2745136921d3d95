"""Galleries: what the rows hold is in the picture, small images stay sharp, what is missing is shown as missing."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image, ImageFont

from hfcomp.reporting import row_pictures as gallery
from hfcomp.reporting.row_pictures import draw_gallery
from hfcomp.sandbox import training_set
from tests import tiny

BLUE, GREEN, SIZE = (10, 20, 200), (10, 180, 30), 32


def rows(**columns) -> datasets.Dataset:
    data = {"image": [Image.new("RGB", (SIZE, SIZE), BLUE)], "caption": ["a caption"], **columns}
    features = {name: datasets.Image() for name in ("image", "negative_image", "mask") if name in data}
    dataset = datasets.Dataset.from_dict({name: data[name] for name in data if name not in features})
    for name, feature in features.items():
        dataset = dataset.add_column(
            name, [feature.encode_example(v) if v else None for v in data[name]], feature=feature
        )
    return dataset


def draw(dataset: datasets.Dataset, folder: Path, **changes) -> Image.Image:
    path = draw_gallery(dataset, folder / "new" / "gallery.png", **{"rows": range(len(dataset)), **changes})
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        return picture.convert("RGB")


def count(picture: Image.Image, color: tuple[int, int, int]) -> int:
    return int((np.asarray(picture) == np.array(color, dtype=np.uint8)).all(-1).sum())


@pytest.fixture
def texts(monkeypatch) -> list[str]:
    """Every line that is drawn."""
    drawn = []
    original = gallery.ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        gallery.ImageDraw.ImageDraw,
        "text",
        lambda self, xy, text, **k: drawn.append(text) or original(self, xy, text, **k),
    )
    return drawn


def test_the_sandbox_s_rows_are_shown_with_captions_and_facts(tmp_path, texts):
    dataset = training_set(3, 0)
    draw(dataset, tmp_path)
    for row in dataset.remove_columns(["image", "negative_image"]):
        assert row["caption"] in texts and f"not: {row['negative_captions'][0]}" in texts
        facts = next(line for line in texts if line.startswith(f"{row['negative_kinds'][0]}, "))
        assert "keyword " in facts and "concreteness " in facts
    assert "negative image" in texts


def test_a_heading_and_labels_of_ones_own_are_shown_and_cover_nothing(tmp_path, texts):
    dataset = rows(image_id=["7"])
    plain = draw(dataset, tmp_path)
    assert "row 0, 7" in texts
    picture = draw(dataset, tmp_path, labels=["mine"], heading="synthetic " * 60)
    assert "mine" in texts and texts.count("row 0, 7") == 1
    assert "synthetic" in texts[-1] and picture.height > plain.height
    assert count(picture, BLUE) == count(plain, BLUE)


@pytest.mark.parametrize(("scale", "side"), [(None, 224), (1, 32), (3, 96)])
def test_small_images_are_enlarged_by_whole_factors_without_blur(tmp_path, scale, side):
    halves = Image.new("RGB", (SIZE, SIZE), BLUE)
    halves.paste(GREEN, (SIZE // 2, 0, SIZE, SIZE))
    picture = draw(rows(image=[halves]), tmp_path, scale=scale)
    assert count(picture, BLUE) == count(picture, GREEN) == side * side // 2


def test_photographs_are_shrunk_and_keep_their_shape(tmp_path):
    picture = draw(rows(image=[Image.new("RGB", (896, 448), BLUE)]), tmp_path)
    assert count(picture, BLUE) == 224 * 112


def test_the_mask_is_outlined_over_the_negative_image(tmp_path):
    mask = Image.new("L", (2 * SIZE, 2 * SIZE))  # of another size than the image
    mask.paste(255, (16, 16, 48, 48))
    dataset = rows(negative_image=[Image.new("RGB", (SIZE, SIZE), GREEN)], mask=[mask])
    picture = draw(dataset, tmp_path, scale=4)
    whole = (4 * SIZE) ** 2
    inside = whole // 4
    outline = count(picture, gallery.TINT)
    assert count(picture, BLUE) == whole
    assert count(picture, GREEN) == 2 * whole - inside - outline
    assert 4 * 64 < outline < 4 * 64 * 3


@pytest.mark.parametrize("absent", [["negative_image"], ["mask"], ["negative_image", "mask"]])
def test_what_a_row_does_not_have_is_shown_as_none(tmp_path, texts, absent):
    columns = {name: [None if name in absent else tiny.image(0)] for name in ("negative_image", "mask")}
    picture = draw(rows(**columns), tmp_path)
    assert texts.count("none") == len(absent)
    assert count(picture, (237, 237, 237)) > 0.9 * len(absent) * 224 * 224


def test_columns_that_the_set_does_not_have_take_no_room(tmp_path, texts):
    alone = draw(rows(), tmp_path)
    assert "mask" not in texts and "negative image" not in texts and "no negative caption" not in texts
    assert alone.width < draw(rows(negative_image=[None]), tmp_path).width


def test_long_captions_are_wrapped_and_none_of_their_letters_is_lost(tmp_path, texts):
    caption = "a very long caption with " + "w" * 90 + " in it and some more words behind it"
    picture = draw(rows(caption=[caption]), tmp_path)
    assert "".join(texts).replace(" ", "").count(caption.replace(" ", "")) == 1
    font = ImageFont.load_default(gallery.FONT_SIZE)
    assert max(font.getlength(line) for line in texts) <= picture.width - 2 * gallery.GAP


@pytest.fixture
def marked_phrases(monkeypatch) -> list[str]:
    """The words of each line that is drawn on a ground of the mark's color."""
    phrases = []
    original = gallery._mark
    monkeypatch.setattr(
        gallery,
        "_mark",
        lambda draw, line, numbers, *rest: (
            phrases.append(" ".join(word for number, word in line if number in numbers))
            or original(draw, line, numbers, *rest)
        ),
    )
    return phrases


@pytest.mark.parametrize(
    ("caption", "negative", "words"),
    [
        ("a red cube on a table.", "a red cube under a table", ("on", "under")),
        ("a fire hydrant", "a park bench", ("fire hydrant", "park bench")),
        ("A dog", "a small dog", ("", "small")),
        ("the same", "The same!", ("", "")),
    ],
)
def test_the_words_that_differ_are_marked(tmp_path, marked_phrases, caption, negative, words):
    picture = draw(rows(caption=[caption], negative_captions=[[negative]]), tmp_path)
    assert [line for line in marked_phrases if line] == [line for line in words if line]
    assert (count(picture, (255, 224, 138)) > 0) == any(words)


def test_each_negative_is_marked_where_it_differs_and_across_lines(tmp_path, marked_phrases):
    caption = "a very long caption about one cat " + "and so on " * 12 + "and a dog"
    negatives = [caption.replace("dog", "cow"), caption.replace("cat", "toaster")]
    draw(rows(caption=[caption], negative_captions=[negatives]), tmp_path)
    assert [line for line in marked_phrases if line] == ["dog", "cow", "toaster"]
    draw(rows(caption=[[caption, "another"]], negative_captions=[negatives]), tmp_path)
    assert [line for line in marked_phrases if line] == ["dog", "cow", "toaster"]  # of which caption is not known


def test_masked_negatives_are_left_out_and_positives_named(tmp_path, texts):
    dataset = rows(
        negative_captions=[["", "wrong"]], negative_kinds=[["", "swap_att"]], negative_concreteness=[[None, None]],
        positive_captions=[["also right"]],
    )  # fmt: skip
    draw(dataset, tmp_path)
    assert "not: wrong" in texts and "swap_att" in texts and "also true: also right" in texts
    assert "not:" not in texts and not [line for line in texts if "concreteness" in line]


def test_rows_are_drawn_in_the_order_that_is_asked_for(tmp_path, texts):
    draw(training_set(4, 0), tmp_path, rows=[3, 1], columns=1)
    assert [line.split(",")[0] for line in texts if line.startswith("row ")] == ["row 3", "row 1"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": [0, 7]}, r"rows: found \[7\]"),
        ({"rows": []}, "found none"),
        ({"columns": 0}, "columns: found 0, expected"),
        ({"scale": 0}, "scale: found 0, expected"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        draw(rows(), tmp_path, **changes)


def test_a_set_without_captions_is_refused_by_the_column_s_name(tmp_path):
    with pytest.raises(ValueError, match="draw_gallery .*column 'caption'"):
        draw(rows().remove_columns("caption"), tmp_path)
