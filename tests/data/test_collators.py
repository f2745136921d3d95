"""Batches of the collator: texts as the towers expect them, the layout of masks, and bad rows by name."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor

from hfcomp.data.collators import CompositionalCollator, texts_of_row
from hfcomp.data.columns import BATCH_KEYS, KIND_IDS
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.modeling import encode_texts, load_backbone
from tests import tiny, tolerances

SHORT, LONG = "a cube", "a red cube on a blue ball on a green cone"


def tokenizer_of(folder, **changes) -> TextTokenizer:
    config = load_backbone(folder).config
    settings = {
        "model_type": config.model_type,
        "max_length": config.text_config.max_position_embeddings,
        "eos_token_id": config.text_config.eos_token_id,
    }
    return TextTokenizer(AutoProcessor.from_pretrained(folder).tokenizer, **settings | changes)


def collator_for(folder, **settings) -> CompositionalCollator:
    return CompositionalCollator(AutoProcessor.from_pretrained(folder), load_backbone(folder).config, **settings)


def row(index: int = 0, **columns) -> dict:
    return {"row": index, "image": tiny.image(index), "caption": "a red cube"} | columns


@torch.no_grad()
def features(folder, texts: list[str]) -> torch.Tensor:
    batch = collator_for(folder)([row(caption=text) for text in texts])
    return encode_texts(load_backbone(folder).eval(), batch["input_ids"])


def test_a_tokenizers_facts_tell_it_from_others(clip, siglip, siglip2):
    own = tokenizer_of(clip)
    facts = own.facts()
    own(["a red cube"]), own([" ".join(["cube"] * 99)])
    assert own.facts() == facts == tokenizer_of(clip).facts() == collator_for(clip).tokenizer.facts()
    others = [tokenizer_of(siglip), tokenizer_of(siglip2), tokenizer_of(clip, max_length=9)]
    assert all(other.facts() != facts for other in others)
    own.tokenizer.pad_token = "cube</w>"
    assert own.facts() != facts


# Padding


def test_clip_is_padded_to_the_longest_of_the_batch(clip):
    collator = collator_for(clip)
    short = collator([row(caption=SHORT)])["input_ids"]
    both = collator([row(caption=SHORT), row(caption=LONG)])["input_ids"]
    assert short.shape[1] < both.shape[1] < tiny.TEXT_LENGTH
    assert both[0, : short.shape[1]].tolist() == short[0].tolist()


@pytest.mark.parametrize("name", ["clip", "siglip", "siglip2"])
@torch.no_grad()
def test_a_captions_features_do_not_depend_on_its_batch(name, request):
    folder = request.getfixturevalue(name)
    alone, together = features(folder, [SHORT]), features(folder, [LONG, SHORT, "a ring"])
    torch.testing.assert_close(alone[0], together[1], atol=tolerances.embedding(), rtol=0)
    processor = AutoProcessor.from_pretrained(folder)
    padded = processor.tokenizer(
        [SHORT, LONG], padding="max_length", max_length=tiny.TEXT_LENGTH, truncation=True, return_tensors="pt"
    )
    expected = encode_texts(load_backbone(folder).eval(), padded["input_ids"])
    torch.testing.assert_close(alone[0], expected[0], atol=tolerances.embedding(), rtol=0)
    torch.testing.assert_close(together[0], expected[1], atol=tolerances.embedding(), rtol=0)


@pytest.mark.parametrize("name", ["siglip", "siglip2"])
def test_siglip_is_padded_to_its_full_length_and_gets_no_attention_mask(name, request):
    folder = request.getfixturevalue(name)
    batch = collator_for(folder, num_negatives=1)([row(caption=SHORT, negative_captions=[LONG])])
    assert batch["input_ids"].shape == batch["negative_input_ids"].shape == (1, tiny.TEXT_LENGTH)
    assert not [key for key in batch if "attention" in key]
    pad = AutoProcessor.from_pretrained(folder).tokenizer.pad_token_id
    assert batch["input_ids"][0, -1] == pad


def test_siglip_2_is_lower_cased(siglip2, siglip, clip):
    for folder in (siglip2, siglip, clip):
        upper, lower = tokenizer_of(folder)(["A RED Cube", "a red cube"])[0]
        assert upper == lower, folder.name
    upper, lower = AutoProcessor.from_pretrained(siglip2).tokenizer(["A RED Cube", "a red cube"])["input_ids"]
    assert upper != lower


# Truncation


def test_the_end_of_text_survives_truncation(model_folder):
    tokenize = tokenizer_of(model_folder)
    (short, long), truncated = tokenize(["a red cube", " ".join(["a red cube"] * 20)])
    assert truncated == [False, True]
    assert len(long) == tiny.TEXT_LENGTH
    assert long[-1] == short[-1] == tokenize.tokenizer.eos_token_id


def test_a_text_of_exactly_the_full_length_is_not_truncated(clip):
    tokenize = tokenizer_of(clip)
    ids = tokenize(["a red cube"])[0][0]
    exact = tokenizer_of(clip, max_length=len(ids))
    assert exact(["a red cube"]) == ([ids], [False])
    assert tokenizer_of(clip, max_length=len(ids) - 1)(["a red cube"])[1] == [True]


def test_truncated_texts_are_counted_for_their_row(clip):
    long = " ".join(["a red cube"] * 20)
    batch = collator_for(clip, num_negatives=2, max_concepts=2)(
        [
            row(0, negative_captions=["a", "b"], concepts=["a"]),
            row(1, caption=long, negative_captions=["", long], concepts=["a", long]),
            row(2, negative_captions=[long, long], concepts=None),
        ]
    )
    assert batch["truncated"].tolist() == [0, 3, 2]


# Where CLIP pools


def test_an_old_configuration_pools_at_the_highest_token_which_must_be_the_end_of_text(clip):
    processor = AutoProcessor.from_pretrained(clip)
    with pytest.raises(ValueError, match=r"eos_token_id is 2, .* token 1 .*\d+ tokens\. .* = 1"):
        TextTokenizer(processor.tokenizer, model_type="clip", max_length=24, eos_token_id=2)


def test_an_old_configuration_is_accepted_where_it_pools_right(old_clip):
    config = load_backbone(old_clip).config
    assert config.text_config.eos_token_id == 2
    collator = CompositionalCollator(AutoProcessor.from_pretrained(old_clip), config)
    ids = collator([row(caption=SHORT), row(caption=LONG)])["input_ids"]
    end = AutoProcessor.from_pretrained(old_clip).tokenizer.eos_token_id
    assert end > 2
    assert ids.argmax(dim=1).tolist() == [row.tolist().index(end) for row in ids]


class Tokens:
    """A tokenizer whose end-of-text token is chosen."""

    def __init__(self, eos_token_id: int, size: int) -> None:
        self.eos_token_id, self.size = eos_token_id, size

    def __len__(self) -> int:
        return self.size

    def __call__(self, texts):
        return {"input_ids": [[1] for _ in texts]}


@pytest.mark.parametrize(
    ("end", "size", "pooled", "message"),
    [
        (49407, 49408, 49407, None),
        (49407, 49408, 2, None),
        (49407, 49409, 2, "highest of .*49409"),
        (49407, 49409, 49407, None),
        (2, 100, 2, "highest of .*100"),
        (2, 3, 2, None),
        (5, 100, 6, "pools at token 6, .* 5,"),
        (5, 100, None, None),
    ],
)
def test_every_pair_of_tokenizer_and_pooling(end, size, pooled, message):
    settings = {"model_type": "clip", "max_length": 8, "eos_token_id": pooled}
    if message is None:
        TextTokenizer(Tokens(end, size), **settings)
    else:
        with pytest.raises(ValueError, match=message):
            TextTokenizer(Tokens(end, size), **settings)


# Layout


def test_a_plain_batch_holds_images_and_captions_in_order(clip):
    images = [tiny.image(index) for index in range(3)]
    captions = ["a red cube", "a blue ball", "a ring"]
    collator = collator_for(clip)
    batch = collator([row(7 + i, image=images[i], caption=captions[i]) for i in range(3)])
    assert set(batch) == {"row", "text_id", "tiny", "pixels", "truncated", "input_ids"} <= set(BATCH_KEYS)
    assert batch["row"].tolist() == [7, 8, 9]
    for index in range(3):
        assert torch.equal(batch["pixels"].pixels[index], collator.transform([images[index]])[0])
    assert batch["input_ids"].tolist() == collator([row(caption=text) for text in captions])["input_ids"].tolist()


def test_rows_without_an_index_are_counted_from_the_batchs_start(clip):
    rows = [{"image": tiny.image(0), "caption": "a ring"}, {"image": tiny.image(1), "caption": "a cube"}]
    assert collator_for(clip)(rows)["row"].tolist() == [0, 1]


def test_negatives_lie_row_by_row_with_mask_kind_and_rating(clip):
    collator = collator_for(clip, num_negatives=2)
    batch = collator(
        [
            row(
                0,
                negative_captions=["a blue cube", "", "unread"],
                negative_kinds=["swap_att", "swap_obj", "other"],
                negative_concreteness=[2.5, 3.5, 1.0],
            ),
            row(1, negative_captions=[" ", None], negative_kinds=[None, None], negative_concreteness=[1.0, None]),
            row(2, negative_captions=["a ring", "a ball"], negative_kinds=[None, "add_rel"]),
        ]
    )
    assert batch["negative_text_mask"].tolist() == [[True, False], [False, False], [True, True]]
    other = KIND_IDS["other"]
    assert batch["negative_kind"].tolist() == [
        [KIND_IDS["swap_att"], other],
        [other] * 2,
        [other, KIND_IDS["add_rel"]],
    ]
    rating, missing = batch["negative_concreteness"], float("nan")
    expected = torch.tensor([[2.5, missing], [missing, missing], [missing, missing]])
    torch.testing.assert_close(rating, expected, equal_nan=True)
    plain = collator_for(clip)([row(caption=text) for text in ("a blue cube", "a ring", "a ball")])["input_ids"]
    length = min(plain.shape[1], batch["negative_input_ids"].shape[1])
    assert len(batch["negative_input_ids"]) == 3
    assert torch.equal(batch["negative_input_ids"][:, :length], plain[:, :length])


def test_the_texts_of_a_row_are_those_that_the_collator_encodes(clip):
    """A masked negative stands there as an empty text."""
    texts = texts_of_row(row(negative_captions=["a blue cube", " ", None, "unread"], negative_kinds=None), 0, 3)
    assert texts == ["a red cube", "a blue cube", "", ""]
    with pytest.raises(ValueError, match="'negative_captions', row 17: found 1 .* 2"):
        texts_of_row(row(negative_captions=["a"]), 17, 2)
    with pytest.raises(ValueError, match="'caption', row 17: found None"):
        texts_of_row(row(caption=None), 17, 0)


def test_no_negative_in_the_whole_batch_leaves_an_empty_list(clip):
    batch = collator_for(clip, num_negatives=1, negative_image=True)([row(0, negative_captions=[""])])
    assert batch["negative_input_ids"].shape == (0, batch["input_ids"].shape[1])
    assert batch["negative_image_mask"].tolist() == [False]
    assert len(batch["pixels"]) == 1


def test_negative_images_follow_the_images(clip):
    collator = collator_for(clip, negative_image=True)
    other = tiny.image(50)
    batch = collator([row(0), row(1, negative_image=other), row(2, negative_image=None)])
    assert batch["negative_image_mask"].tolist() == [False, True, False]
    assert len(batch["pixels"]) == 4
    assert torch.equal(batch["pixels"].pixels[3], collator.transform([other])[0])


def test_concepts_lie_image_by_image_cut_and_counted(clip):
    batch = collator_for(clip, max_concepts=2)(
        [
            row(0, concepts=["a cube", "", "a ball", None, "a ring"]),
            row(1, concepts=[], caption="a white star"),
            row(2, concepts=["a cone"]),
        ]
    )
    assert batch["concept_image_index"].tolist() == [0, 0, 1, -1, 2, -1]
    assert batch["cut_concepts"].tolist() == [1, 0, 0]
    assert len(batch["concept_input_ids"]) == 4
    # without concepts the caption stands in
    assert batch["concept_input_ids"][2].tolist() == batch["input_ids"][1].tolist()


def test_all_texts_of_a_batch_have_one_length(clip):
    batch = collator_for(clip, num_negatives=1, max_concepts=1)([row(negative_captions=[LONG], concepts=["a cube"])])
    lengths = {batch[key].shape[1] for key in ("input_ids", "negative_input_ids", "concept_input_ids")}
    assert len(lengths) == 1


def test_images_one_pixel_wide_are_counted_for_their_row(clip):
    dot = Image.new("RGB", (1, 1))
    rows = [row(0), row(1, image=dot, negative_image=dot), row(2, negative_image=dot)]
    assert collator_for(clip, negative_image=True)(rows)["tiny"].tolist() == [0, 2, 1]


# Bad rows


def test_half_a_character_is_refused_in_a_caption(clip):
    message = r"column 'caption', row 17: found 'a dog \\ud800', .*lone surrogate.*dataset\.filter\(\)"
    with pytest.raises(ValueError, match=message):
        collator_for(clip)([row(3), row(17, caption="a dog \ud800")])


@pytest.mark.parametrize("column", ["negative_captions", "concepts"])
def test_half_a_character_is_refused_in_every_text(clip, column):
    settings = {"num_negatives": 1} if column == "negative_captions" else {"max_concepts": 1}
    message = rf"'{column}', row 17, entry 0: found 'a \\ud800 dog', .*dataset\.filter"
    with pytest.raises(ValueError, match=message):
        collator_for(clip, **settings)([row(17, **{column: ["a \ud800 dog"]})])


@pytest.mark.parametrize("caption", ["", "  \n", None, 7])
def test_a_caption_that_is_no_text_is_refused(clip, caption):
    message = rf"'caption', row 17: found {re.escape(repr(caption))}, .*dataset\.filter"
    with pytest.raises(ValueError, match=message):
        collator_for(clip)([row(3), row(17, caption=caption)])


@pytest.mark.parametrize("captions", [["a cube", "a ball"], ("a cube", "a ball")])
def test_a_list_of_captions_is_refused_with_the_way_to_pick_one(clip, captions):
    message = r"'caption', row 17: found a list of 2 .*dataset\.map"
    with pytest.raises(ValueError, match=message):
        collator_for(clip)([row(3), row(17, caption=captions)])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"negative_concreteness": 3.5}, "'negative_concreteness', row 17: found 3.5, .*map"),
        ({"negative_concreteness": "34"}, "'negative_concreteness', row 17: found .*'34'"),
        ({"negative_concreteness": ["3", None]}, "row 17, entry 0: found '3', .*null"),
        ({"negative_concreteness": [None, True]}, "row 17, entry 1: found True"),
        ({"negative_concreteness": [0.5, 3]}, "'negative_concreteness', row 17: found 0.5, .*1.* 5.*Rescale"),
        ({"negative_concreteness": [3, 700]}, "'negative_concreteness', row 17: found 700"),
        ({"negative_concreteness": [3, float("inf")]}, "'negative_concreteness', row 17: found inf"),
        ({"negative_kinds": "ab"}, "'negative_kinds', row 17: found .*'ab'"),
        ({"negative_kinds": [1, None]}, "'negative_kinds', row 17, entry 0: found 1"),
        ({"negative_captions": 7}, "'negative_captions', row 17: found 7"),
        ({"negative_captions": ["a", 7]}, "'negative_captions', row 17, entry 1: found 7"),
        ({"concepts": "a cube"}, "'concepts', row 17: found .*'a cube', .*map"),
        ({"concepts": ["a", ["b"]]}, r"'concepts', row 17, entry 1: found \['b'\]"),
    ],
)
def test_lists_of_the_wrong_type_or_value_are_refused(clip, columns, message):
    good = {"negative_captions": ["a", "b"]}
    with pytest.raises(ValueError, match=message):
        collator_for(clip, num_negatives=2, max_concepts=2)([row(3, **good), row(17, **good | columns)])


def test_ratings_may_be_missing_and_come_as_arrays(clip):
    unread = row(4, negative_captions=["a", "", "c"], negative_concreteness=[2, 0, 0])  # what is masked has no say
    assert collator_for(clip, num_negatives=2)([unread])["negative_concreteness"][0, 0] == 2
    ratings = [[1, 5], [float("nan"), None], np.array([2.5, np.nan]), torch.tensor([1, 4])]
    rows = [row(i, negative_captions=["a", "b"], negative_concreteness=rating) for i, rating in enumerate(ratings)]
    batch = collator_for(clip, num_negatives=2)(rows)
    missing = float("nan")
    expected = torch.tensor([[1.0, 5.0], [missing, missing], [2.5, missing], [1.0, 4.0]])
    torch.testing.assert_close(batch["negative_concreteness"], expected, equal_nan=True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "'negative_captions', row 17: found nothing,.* 2"),
        ({"negative_captions": None}, "'negative_captions', row 17: found nothing,.* 2"),
        ({"negative_captions": ["a"]}, "row 17: found 1 .* 2.*empty strings.*num_negatives=1"),
        ({"negative_captions": "a cube"}, "row 17: found .*'a cube',.* list"),
        (
            {"negative_captions": ["a", "b"], "negative_kinds": ["other"]},
            "'negative_kinds', row 17: found 1 .* 2, .*'negative_captions'",
        ),
        (
            {"negative_captions": ["a", "b"], "negative_concreteness": [1.0, 2.0, 3.0]},
            "'negative_concreteness', row 17: found 3 .* 2",
        ),
        (
            {"negative_captions": ["a", "b"], "negative_kinds": ["other", "swap_attr"]},
            r"'negative_kinds', row 17: 'swap_attr' .*'swap_att'",
        ),
    ],
)
def test_negatives_that_do_not_fit_are_refused(clip, columns, message):
    good = row(3, negative_captions=["a", "b"])
    with pytest.raises(ValueError, match=message):
        collator_for(clip, num_negatives=2)([good, row(17, **columns)])


def test_a_corrupt_image_is_refused_by_column_and_row(clip):
    buffer = io.BytesIO()
    tiny.image(0).save(buffer, "PNG")
    cut = {"bytes": buffer.getvalue()[:-200], "path": None}
    with pytest.raises(ValueError, match="'image', row 17 .*decoded"):
        collator_for(clip)([row(3), row(17, image=cut)])
    with pytest.raises(ValueError, match="'negative_image', row 17 .*decoded"):
        collator_for(clip, negative_image=True)([row(3), row(17, negative_image=cut)])


def test_a_missing_file_is_refused_by_column_and_row(clip, tmp_path):
    image = {"bytes": None, "path": str(tmp_path / "gone.png")}
    with pytest.raises(FileNotFoundError, match=r"'image', row 17 .*gone\.png"):
        collator_for(clip)([row(17, image=image)])


def test_a_missing_image_is_refused(clip):
    with pytest.raises(ValueError, match="'image', row 17 is empty"):
        collator_for(clip)([row(17, image=None)])


def test_an_image_over_the_limit_is_refused(clip):
    with pytest.raises(ValueError, match="'image', row 17 .*1,024 pixels.* 1,000"):
        collator_for(clip, max_image_pixels=1000)([row(17)])


def test_the_limit_holds_for_what_a_resize_makes_too(clip):
    image = Image.new("RGB", (1, 900))
    assert collator_for(clip)([row(17, image=image)])["tiny"].tolist() == [1]
    with pytest.raises(ValueError, match="'image', row 17 .*1 x 900 .*max_image_pixels"):
        collator_for(clip, max_image_pixels=1000)([row(17, image=image)])


def test_arrays_are_images_too(clip):
    array = np.asarray(tiny.image(0))
    first, second = collator_for(clip)([row(image=array), row()])["pixels"].pixels
    assert torch.equal(first, second)
