"""What may be painted for a keyword, the prompts and captions that are proposed, and captions that are refused."""

from __future__ import annotations

import pytest

from hfcomp.annotate.captions import (
    check_caption,
    concept_keywords,
    editable_keywords,
    inpaint_prompt,
    mask_prompt,
    proposed_caption,
    replacements,
)
from hfcomp.negatives.keywords.tables import OBJECTS, SUPER_CATEGORIES

COCO = {
    "person": "person",
    "vehicle": "bicycle, car, motorcycle, airplane, bus, train, truck, boat",
    "outdoor": "traffic light, fire hydrant, stop sign, parking meter, bench",
    "animal": "bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe",
    "accessory": "backpack, umbrella, handbag, tie, suitcase",
    "sports": "frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, "
    "tennis racket",
    "kitchen": "bottle, wine glass, cup, fork, knife, spoon, bowl",
    "food": "banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake",
    "furniture": "chair, couch, potted plant, bed, dining table, toilet",
    "electronic": "tv, laptop, mouse, remote, keyboard, cell phone",
    "appliance": "microwave, oven, toaster, sink, refrigerator",
    "indoor": "book, clock, vase, scissors, teddy bear, hair drier, toothbrush",
}
"""`supercategory` and `name` of the categories in COCO's `instances_val2017.json`."""
RENAMED = {"motorcycle": "motorbike", "airplane": "aeroplane", "couch": "sofa", "tv": "tv monitor"}
"""COCO's names and those of the paper's Table 6."""


def test_super_categories_are_those_of_coco():
    expected = {key: {RENAMED.get(name, name) for name in names.split(", ")} for key, names in COCO.items()}
    assert {key: {*names} for key, names in SUPER_CATEGORIES.items()} == expected
    assert len(OBJECTS) == len({*OBJECTS}) == 80


def test_objects_are_replaced_within_their_super_category_only():
    for names in SUPER_CATEGORIES.values():
        for name in names:
            assert {*replacements("object", name)} == {*names} - {name}
    assert replacements("object", "person") == ()


def test_colors_and_sizes_have_the_replacements_of_the_paper():
    assert len(replacements("color", "red")) == 8 and "red" not in replacements("color", "red")
    assert replacements("size", "little") == ("big",)
    assert replacements("size", "tiny") == ()  # is only ever written


def edit(caption: str, concept: str, word: str, *, number: int = 0) -> tuple[str, str, str]:
    """Mask prompt, inpainting prompt and caption for a keyword of a caption."""
    match = editable_keywords(caption, concept)[number]
    prompt = inpaint_prompt(caption, match, word)
    return mask_prompt(caption, match), prompt, proposed_caption(caption, concept, prompt)


@pytest.mark.parametrize(
    "caption, concept, word, expected",
    [
        # of the paper, Table 2 and Figure 7
        ("A bird is standing on top of a car.", "object", "cat", "bird|cat|A cat is standing on top of a car."),
        (
            "A woman in a red jacket skiing down a slope",
            "color",
            "yellow",
            "red jacket|yellow jacket|A woman in a yellow jacket skiing down a slope",
        ),
        (
            "A living room with white furniture and a small wooden table.",
            "size",
            "large",
            "small wooden table|large wooden table|A living room with white furniture and a large wooden table.",
        ),
        # number, case, article, scripts
        ("Two dogs on a sofa", "object", "cat", "Two dogs|Two cats|Two cats on a sofa"),
        ("DOGS IN THE PARK", "object", "sheep", "DOGS|SHEEP|SHEEP IN THE PARK"),
        ("An apple on a plate", "object", "banana", "apple|banana|A banana on a plate"),
        ("a banana on a plate", "object", "orange", "banana|orange|an orange on a plate"),
        (
            "Ein café “élégant” with a red chair ☕",
            "color",
            "blue",
            "red chair|blue chair|Ein café “élégant” with a blue chair ☕",
        ),
        # colors that are said of a phrase elsewhere, and phrases that share their noun
        ("the car is red", "color", "green", "car|green car|the car is green"),
        ("a red and a blue cup", "color", "green", "red cup|green cup|a green and a blue cup"),
    ],
)
def test_prompts_and_captions(caption, concept, word, expected):
    assert "|".join(edit(caption, concept, word)) == expected


def test_of_several_keywords_the_one_in_the_prompt_changes():
    caption = "A red car beside a red bus and a green truck"
    assert edit(caption, "color", "blue", number=0)[2] == "A blue car beside a red bus and a green truck"
    assert edit(caption, "color", "blue", number=1)[2] == "A red car beside a blue bus and a green truck"
    assert edit(caption, "color", "blue", number=2)[2] == "A red car beside a red bus and a blue truck"
    assert edit("A dog looks at a dog", "object", "cat")[2] == "A cat looks at a dog"


def test_a_prompt_that_names_nothing_else_proposes_the_caption_itself():
    caption = "A red car beside a bus"
    for prompt in ("", "a car", "a red car", "a purple car", "a dog"):
        assert proposed_caption(caption, "color", prompt) == caption
    assert proposed_caption("A dog on a sofa", "object", "a lamp and a car") == "A dog on a sofa"


@pytest.mark.parametrize(
    "caption, concept, expected",
    [
        ("An orange jacket on an orange", "object", ["orange@23"]),
        ("An orange jacket on an orange", "color", ["orange@3"]),
        ("the wall is orange", "color", ["orange@12"]),
        ("the wall is orange", "object", []),
        ("this is an orange", "color", []),
        ("A pear, orange, and two bananas", "color", []),
        ("A bus stop beside a bus", "object", ["bus@20"]),
        ("A brown bear's face", "object", []),
        ("A man and a woman, two people", "object", []),
        ("A yellow rose", "color", ["yellow@2"]),
        ("An item beside Redmond's undogged cart", "object", []),
    ],
)
def test_keywords_are_edited_where_they_have_the_sense_of_their_concept(caption, concept, expected):
    assert [f"{keyword.keyword}@{keyword.start}" for keyword in editable_keywords(caption, concept)] == expected


def test_keywords_are_found_in_any_case_and_number():
    assert [keyword.keyword for keyword in concept_keywords("Mice, KNIVES and a Hot Dog", "object")] == [
        "mouse",
        "knife",
        "hot dog",
    ]


@pytest.mark.parametrize("caption", ["", "  ", "\n"])
def test_an_empty_caption_is_refused(caption):
    with pytest.raises(ValueError, match="caption .*empty"):
        check_caption(caption, "A red car.", "color")


@pytest.mark.parametrize("caption", ["A red car.", "a  RED car", " A red car. ", "A red ｃａｒ"])
def test_the_original_caption_is_refused_however_it_is_written(caption):
    with pytest.raises(ValueError, match="same as the original"):
        check_caption(caption, "A red car.", "color")


@pytest.mark.parametrize("caption", ["A car \ud83d", "word " * 3000])
def test_a_caption_that_no_model_reads_is_refused(caption):
    with pytest.raises(ValueError, match="cannot be used"):
        check_caption(caption, "A red car.", "color")


def test_an_object_of_another_super_category_is_refused_with_those_allowed():
    check_caption("A cat on a sofa.", "A dog on a sofa.", "object")
    check_caption("A wolf on a sofa.", "A dog on a sofa.", "object")
    with pytest.raises(ValueError, match=r"'car' .*\(animal\).*cat, dog, horse"):
        check_caption("A car on a sofa.", "A dog on a sofa.", "object")
    check_caption("A red dog on a sofa.", "A brown dog on a sofa.", "color")
