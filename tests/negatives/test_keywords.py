from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hfcomp.negatives.keywords import all_keyword_permutations, keyword_negatives, negative_columns
from hfcomp.negatives.keywords.matching import (
    EXTENDED,
    MATCHINGS,
    PAPER,
    KeywordMatch,
    Matching,
    find_keywords,
    matcher,
    replace_keyword,
)
from hfcomp.negatives.keywords.tables import CATEGORIES, COLORS, CONCEPTS, OBJECTS, PAPER_TABLE, REPLACEMENTS
from hfcomp.negatives.surface import starts_with_vowel_sound


@pytest.fixture(scope="module")
def coco_captions() -> list[str]:
    folder = os.environ.get("HFCOMP_REAL_DATA")
    if not folder:
        pytest.skip("HFCOMP_REAL_DATA is not set; it names a folder with coco/captions_val2017.json")
    annotations = json.loads((Path(folder) / "coco" / "captions_val2017.json").read_text(encoding="utf-8"))
    return [annotation["caption"] for annotation in annotations["annotations"]]


def words(caption: str, concept: str, matching: Matching = PAPER) -> list[str]:
    return [match.keyword for match in find_keywords(caption, concept, matching)]


def replace(caption: str, concept: str, replacement: str, matching: Matching = PAPER) -> str:
    (match,) = find_keywords(caption, concept, matching)
    return replace_keyword(caption, match, replacement, matching)


# The tables


def test_table_6_sizes():
    assert [len(REPLACEMENTS[concept]) for concept in CONCEPTS] == [80, 9, 12, 11]
    assert len(set(OBJECTS)) == 80 and len(set(COLORS)) == 9


def test_any_other_word_replaces_an_object_or_a_color():
    for concept in ("object", "color"):
        for keyword, others in REPLACEMENTS[concept].items():
            assert {keyword, *others} == set(REPLACEMENTS[concept]) and keyword not in others


def test_location_is_one_to_one_and_its_own_inverse():
    for keyword, (other,) in REPLACEMENTS["location"].items():
        assert REPLACEMENTS["location"][other] == (keyword,)


def test_one_way_size_rules():
    size = REPLACEMENTS["size"]
    assert size["huge"] == size["giant"] == ("tiny",)
    assert size["long"] == size["tall"] == ("short",)
    assert size["short"] == ("tall",)
    assert "tiny" not in size


def test_no_keyword_begins_with_the_last_word_of_another():
    # So leftmost-longest, which a regular expression gives, is the same as longest first.
    for keywords in REPLACEMENTS.values():
        last = {keyword.split()[-1] for keyword in keywords if " " in keyword}
        assert not last & {keyword.split()[0] for keyword in keywords if " " in keyword}


def test_all_concepts_of_table_6_are_found_in_one_pass():
    # "orange" is the same word in both its concepts; two words that overlap would need passes of their own.
    for matching in MATCHINGS.values():
        assert len(matcher(CONCEPTS, matching, PAPER_TABLE)._passes) == 1


# Counts


def test_counts_of_table_8(coco_captions):
    assert len(coco_captions) == 25_014
    counts = {concept: sum(bool(find_keywords(text, concept)) for text in coco_captions) for concept in CONCEPTS}
    assert counts == {"object": 12_969, "color": 3_907, "location": 2_527, "size": 2_601}


def test_parking_meter_accounts_for_the_difference_to_the_paper_in_objects(coco_captions):
    keyword_sets = [set(words(caption, "object")) for caption in coco_captions]
    assert sum(bool(keywords - {"parking meter"}) for keywords in keyword_sets) == 12_907
    alone = Counter(next(iter(keywords)) for keywords in keyword_sets if len(keywords) == 1)
    assert [keyword for keyword, count in alone.items() if count == 12_969 - 12_907] == ["parking meter"]


def test_extended_finds_what_paper_finds_and_more(coco_captions):
    for concept in CONCEPTS:
        strict = [bool(find_keywords(caption, concept)) for caption in coco_captions[::5]]
        loose = [bool(find_keywords(caption, concept, EXTENDED)) for caption in coco_captions[::5]]
        assert all(wide or not narrow for narrow, wide in zip(strict, loose, strict=True))
        assert sum(loose) > sum(strict)


def test_negatives_of_real_captions_are_distinct_and_differ_from_the_caption(coco_captions):
    for matching in MATCHINGS.values():
        for caption in coco_captions[:3000]:
            texts = [negative.text for negative in keyword_negatives(caption, num_negatives=3, matching=matching)]
            assert len({caption, *texts}) == 1 + len(texts)


@pytest.mark.parametrize("matching", [PAPER, EXTENDED])
def test_all_concepts_together_draw_from_what_each_finds_alone(coco_captions, matching):
    for caption in coco_captions[:600]:
        alone = [
            (keyword.start, keyword.end, keyword.keyword)
            for c in CONCEPTS
            for keyword in find_keywords(caption, c, matching)
        ]
        together = matcher(CONCEPTS, matching, PAPER_TABLE).find(caption)
        assert sorted(alone) == [place[:3] for place in together]


@pytest.mark.parametrize("matching", [PAPER, EXTENDED])
def test_properties_of_negatives_of_real_captions(coco_captions, matching):
    """Never the original, one keyword changed where the span says, and HN1 the beginning of HN2 and HN3."""
    for caption in coco_captions[::25]:
        three = keyword_negatives(caption, num_negatives=3, seed=1, matching=matching)
        assert keyword_negatives(caption, num_negatives=1, seed=1, matching=matching) == three[:1]
        assert keyword_negatives(caption, num_negatives=2, seed=1, matching=matching) == three[:2]
        for negative in three:
            ((start, end),) = negative.spans
            name = negative.kind.removeprefix("keyword_")
            match = KeywordMatch(negative.keyword, start, end, name)
            assert negative.text != caption and match in find_keywords(caption, name, matching)
            assert negative.text == replace_keyword(caption, match, negative.replacement, matching)
            if matching == PAPER:
                assert negative.text == caption[:start] + negative.replacement + caption[end:]


# Captions of every form


@pytest.mark.parametrize("caption", ["", " ", ".", "\n", "nothing here", "🐶🔴", "réd", "dogged"])
def test_captions_without_a_keyword_have_no_negative(caption):
    assert keyword_negatives(caption, num_negatives=3) == []


@pytest.mark.parametrize(
    ("caption", "before", "after"),
    [
        ("red", "", ""),
        ("🐶 é red 🔴 ü", "🐶 é ", " 🔴 ü"),
        ("word " * 299 + "red", "word " * 299, ""),
        ("red" + " word" * 299, "", " word" * 299),
        ("it is red.\r\n", "it is ", ".\r\n"),
        ("it is red\n", "it is ", "\n"),
        ("one\r\ntwo red ", "one\r\ntwo ", " "),
    ],
)
def test_the_rest_of_any_caption_is_kept(caption, before, after):
    negatives = keyword_negatives(caption, concepts=("color",), num_negatives=99)
    assert {negative.text for negative in negatives} == {f"{before}{c}{after}" for c in COLORS if c != "red"}
    assert {negative.spans for negative in negatives} == {((len(before), len(before) + 3),)}


def test_a_carriage_return_is_no_end_of_a_keyword():
    assert words("it is red\r\n", "color") == []


def test_a_keyword_that_is_there_twenty_times_is_changed_in_one_place():
    caption = " ".join(["red"] * 20)
    negatives = keyword_negatives(caption, concepts=("color",), num_negatives=60)
    assert all(negative.text.split().count("red") == 19 for negative in negatives)
    assert len({negative.spans for negative in negatives}) > 10
    assert len({negative.text for negative in negatives}) == 60


# Boundaries


@pytest.mark.parametrize("after", [*".,;:!?)'\"", " ", "", "\n", "'s tail"])
def test_what_may_follow_a_keyword(after):
    assert words(f"a photo of a dog{after}", "object") == ["dog"]


@pytest.mark.parametrize("after", ["s", "-like thing", "/cat", "_", "ged", "\t", "\nand more", "(", "…", "’s"])
def test_what_may_not_follow_a_keyword(after):
    assert words(f"a photo of a dog{after}", "object") == []


@pytest.mark.parametrize("before", ["", "the ", "(the ", "two  "])
def test_what_may_precede_a_keyword(before):
    assert words(f"{before}red bus", "color") == ["red"]


@pytest.mark.parametrize("before", ["(", '"', "infra", "dark-", "\n", "\t", ",", "a/"])
def test_what_may_not_precede_a_keyword(before):
    assert words(f"a {before}red bus", "color") == []


@pytest.mark.parametrize("caption", ["Red bus", "RED bus", "a Red bus"])
def test_paper_is_case_sensitive(caption):
    assert words(caption, "color") == []


def test_paper_takes_no_plurals():
    assert words("two dogs, three buses and some people", "object") == []


def test_neighboring_keywords_are_all_found_with_their_places():
    caption = "red red blue"
    assert find_keywords(caption, "color") == [
        KeywordMatch("red", 0, 3, "color"),
        KeywordMatch("red", 4, 7, "color"),
        KeywordMatch("blue", 8, 12, "color"),
    ]


# Overlaps


@pytest.mark.parametrize(
    ("caption", "concept", "expected"),
    [
        ("a hot dog next to a dog", "object", ["hot dog", "dog"]),
        ("a bear and a teddy bear", "object", ["bear", "teddy bear"]),
        ("a hot dogs and a dog", "object", ["dog"]),
        ("a dog in front of the front door", "location", ["in front of", "front"]),
        ("sits in front", "location", ["front"]),
        ("at the front of a bus", "location", ["front"]),
        ("in front office", "location", ["front"]),
        ("a baseball bat beside a bat", "object", ["baseball bat"]),
        ("a remote next to a mouse", "object", ["remote", "mouse"]),
        ("a remote-control and a mousepad", "object", []),
        ("a teddy and a hot drink", "object", []),
        ("two teddy bears and a bear's cub", "object", ["bear"]),
    ],
)
def test_longest_match_first(caption, concept, expected):
    assert words(caption, concept) == expected


def test_orange_is_a_color_and_an_object():
    caption = "a orange cat"
    assert words(caption, "color") == ["orange"]
    assert words(caption, "object") == ["orange", "cat"]
    negatives = keyword_negatives(caption, concepts=("object", "color"), num_negatives=200)
    kinds = Counter(negative.kind for negative in negatives if negative.keyword == "orange")
    assert kinds == {"keyword_object": 79, "keyword_color": 8}


def test_tiny_is_written_but_never_replaced():
    assert words("a tiny dog", "size") == words("a Tiny dog", "size", EXTENDED) == []
    assert replace("a huge dog", "size", "tiny") == "a tiny dog"
    (negative,) = keyword_negatives("a giant dog", concepts=("size",), num_negatives=5)
    assert negative.text == "a tiny dog"


def test_long_becomes_short_and_short_becomes_tall():
    assert keyword_negatives("a long train", concepts=("size",))[0].text == "a short train"
    assert keyword_negatives("a short train", concepts=("size",))[0].text == "a tall train"


# Replacing


def test_paper_leaves_grammar_alone():
    assert replace("a white cat", "color", "orange") == "a orange cat"
    assert replace("an orange sofa", "color", "red") == "an red sofa"


def test_only_the_matched_place_changes():
    caption = "a dog chases a dog"
    first, second = find_keywords(caption, "object")
    assert replace_keyword(caption, first, "cat") == "a cat chases a dog"
    assert replace_keyword(caption, second, "cat") == "a dog chases a cat"


def test_a_match_of_another_caption_raises():
    (match,) = find_keywords("a dog runs", "object")
    with pytest.raises(ValueError, match="2 to 5 .*'a cat runs' .*'cat', .*'d"):
        replace_keyword("a cat runs", match, "bird")


def test_a_match_of_another_matching_raises():
    (match,) = find_keywords("two Dogs", "object", EXTENDED)
    with pytest.raises(ValueError, match="'Dogs', .*'dog'"):
        replace_keyword("two Dogs", match, "cat", PAPER)
    with pytest.raises(ValueError, match="'Dog', .*'dog'"):
        replace_keyword("a Dog", KeywordMatch("dog", 2, 5, "object"), "cat", PAPER)


def test_an_empty_replacement_raises():
    with pytest.raises(ValueError, match="replacement of 'dog'"):
        replace("a dog", "object", "")


@pytest.mark.parametrize(
    ("caption", "concept", "replacement", "expected"),
    [
        ("two dogs run", "object", "cat", "two cats run"),
        ("two dogs run", "object", "bus", "two buses run"),
        ("two dogs run", "object", "bench", "two benches run"),
        ("two dogs run", "object", "hot dog", "two hot dogs run"),
        ("two dogs run", "object", "mouse", "two mice run"),
        ("two dogs run", "object", "knife", "two knives run"),
        ("two dogs run", "object", "sheep", "two sheep run"),
        ("two buses", "object", "person", "two people"),
        ("five people", "object", "tv monitor", "five tv monitors"),
        ("a herd of sheep", "object", "cow", "a herd of cows"),
        ("sheep graze", "object", "cow", "cows graze"),
        ("a sheep grazes", "object", "cow", "a cow grazes"),
        ("a white sheep grazes", "object", "cow", "a white cow grazes"),
        ("a few sheep graze", "object", "cow", "a few cows graze"),
        ("a man feeding sheep", "object", "cow", "a man feeding cows"),
        ("a man on skis", "object", "elephant", "a man on elephants"),
        ("some broccoli", "object", "cake", "some cake"),
        ("oranges", "object", "apple", "apples"),
        ("two teddy bears", "object", "mouse", "two mice"),
        ("three mice", "object", "remote", "three remotes"),
        ("a dog", "object", "elephant", "an elephant"),
        ("an elephant", "object", "dog", "a dog"),
        ("An elephant", "object", "dog", "A dog"),
        ("A dog", "object", "elephant", "An elephant"),
        ("A DOG", "object", "elephant", "AN ELEPHANT"),
        ("a white sofa", "color", "orange", "an orange sofa"),
        ("an orange sofa", "color", "red", "a red sofa"),
        ("a old white sofa", "color", "orange", "a old orange sofa"),
        ("an white sofa", "color", "red", "a red sofa"),
        ("the data dog", "object", "elephant", "the data elephant"),
        ("Dogs run", "object", "cat", "Cats run"),
        ("Dog runs", "object", "hot dog", "Hot dog runs"),
        ("RED bus", "color", "blue", "BLUE bus"),
        ("a TV monitor", "object", "sofa", "a sofa"),
        ("TV monitor", "object", "sofa", "Sofa"),
        ("In front of a house", "location", "behind", "Behind a house"),
    ],
)
def test_extended_mends_number_case_and_article(caption, concept, replacement, expected):
    assert replace(caption, concept, replacement, EXTENDED) == expected


def test_flags_of_a_matching_are_independent():
    assert words("Dogs", "object", Matching(plurals=True)) == []
    assert words("Dogs", "object", Matching(any_case=True)) == []
    assert words("Dog", "object", Matching(any_case=True)) == ["dog"]
    assert replace("a dog", "object", "elephant", Matching(articles=True)) == "an elephant"
    assert replace("a dog", "object", "elephant", Matching(any_case=True, plurals=True)) == "a elephant"
    assert replace("sheep", "object", "cow", Matching(any_case=True, articles=True)) == "cow"


def test_articles_go_by_sound():
    articles = Matching(articles=True)
    assert replace("a dog", "object", "hour glass", articles) == "an hour glass"
    assert replace("an orange", "object", "unicorn", articles) == "a unicorn"
    keywords = [keyword for concept in CONCEPTS for keyword in REPLACEMENTS[concept]]
    assert [word for word in keywords if starts_with_vowel_sound(word) != (word[0] in "aeiou")] == []


def test_extended_keeps_boundaries_and_ascii():
    assert words("a Red-brick wall, (Red", "color", EXTENDED) == []
    assert words("a ſheep", "object", EXTENDED) == []


# Drawing


def test_a_negative_says_what_it_is():
    caption = "a dog left of it"
    (negative,) = keyword_negatives(caption, concepts=("location",))
    assert negative.text == "a dog right of it"
    assert (negative.kind, negative.category) == ("keyword_location", "relation")
    assert (negative.keyword, negative.replacement) == ("left", "right")
    assert caption[slice(*negative.spans[0])] == "left"


def test_categories_follow_the_column_contract():
    assert CATEGORIES == {"object": "object", "color": "attribute", "location": "relation", "size": "attribute"}
    caption = "a small red dog under it"
    seen = {(negative.kind, negative.category) for negative in keyword_negatives(caption, num_negatives=500)}
    assert seen == {(f"keyword_{concept}", CATEGORIES[concept]) for concept in CONCEPTS}


def test_kinds_are_in_the_fixed_vocabulary():
    from hfcomp.data.columns import kind_id

    ids = {kind_id(f"keyword_{concept}", where="here") for concept in CONCEPTS}
    assert len(ids) == len(CONCEPTS)


def test_all_possible_negatives_are_drawn_once_and_then_no_more():
    negatives = keyword_negatives("a red dog", concepts=("color", "object"), num_negatives=1000)
    assert len({negative.text for negative in negatives}) == len(negatives) == 8 + 79


def test_each_negative_changes_one_place():
    negatives = keyword_negatives("left right", concepts=("location",), num_negatives=5)
    assert {negative.text for negative in negatives} == {"right right", "left left"}


def test_fewer_negatives_are_the_first_of_more():
    many = keyword_negatives("a red dog under a blue car", num_negatives=6, seed=3)
    assert len(many) == 6
    for number in range(1, 6):
        assert keyword_negatives("a red dog under a blue car", num_negatives=number, seed=3) == many[:number]


def test_the_order_of_concepts_changes_nothing():
    caption = "a small red dog under a blue car"
    assert [keyword_negatives(caption, concepts=CONCEPTS, seed=seed) for seed in range(20)] == [
        keyword_negatives(caption, concepts=CONCEPTS[::-1], seed=seed) for seed in range(20)
    ]


def test_places_are_drawn_uniformly_and_not_by_their_number_of_replacements():
    counts = Counter(
        keyword_negatives("a dog left of a small box", seed=seed)[0].keyword for seed in range(3000)
    )  # three places, 1000 expected each, standard deviation 26
    assert set(counts) == {"dog", "left", "small"}
    assert all(900 < count < 1100 for count in counts.values()), counts


def test_replacements_are_drawn_uniformly():
    counts = Counter(
        keyword_negatives("a red box", concepts=("color",), seed=seed)[0].replacement for seed in range(4000)
    )  # eight replacements, 500 expected each, standard deviation 21
    assert set(counts) == set(COLORS) - {"red"}
    assert all(400 < count < 600 for count in counts.values()), counts


def test_negatives_are_the_same_in_another_process_and_version():
    expected = [negative.text for negative in keyword_negatives("a red dog under a car", num_negatives=3, seed=7)]
    # Pinned: a published set can be built again from its seed.
    assert expected == ["a red dog under a hair drier", "a blue dog under a car", "a red dog under a dining table"]
    program = (
        "from hfcomp.negatives.keywords import keyword_negatives\n"
        "import sys\n"
        "texts = [n.text for n in keyword_negatives('a red dog under a car', num_negatives=3, seed=7)]\n"
        "sys.stdout.write('|'.join(texts))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": "123", "PYTHONPATH": str(root)}
    output = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert output.split("|") == expected


def test_negatives_import_neither_torch_nor_transformers():
    program = (
        "import sys, hfcomp.negatives.keywords, hfcomp.negatives.concreteness\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", program], env=environment).returncode == 0


def test_the_global_random_state_is_neither_read_nor_moved():
    random.seed(0)
    before = random.getstate()
    first = keyword_negatives("a red dog", num_negatives=3)
    assert random.getstate() == before
    random.seed(1)
    assert keyword_negatives("a red dog", num_negatives=3) == first


def test_captions_without_keyword_give_nothing():
    assert keyword_negatives("nothing here") == keyword_negatives("") == []


@pytest.mark.parametrize("concepts", [(), "color", ("colr",), ("color", "shape")])
def test_unknown_concepts_raise(concepts):
    with pytest.raises(ValueError, match="object, color, location, size"):
        keyword_negatives("a red dog", concepts=concepts)


def test_num_negatives_below_one_raises():
    with pytest.raises(ValueError, match="num_negatives: found 0"):
        keyword_negatives("a red dog", num_negatives=0)


# The concept test


def test_table_7_object():
    caption = "A small yellow bird on a branch of a tree."
    item = all_keyword_permutations(caption, "object")
    assert len(set(item.texts)) == 80
    assert item.texts[:2] == (
        "A small yellow person on a branch of a tree.",
        "A small yellow bicycle on a branch of a tree.",
    )
    assert item.texts[item.target] == caption
    assert item.texts[item.target + 1] == "A small yellow cat on a branch of a tree."


def test_table_7_color():
    item = all_keyword_permutations("a white cat sits under a black open umbrella.", "color")
    assert item.texts == tuple(f"a {color} cat sits under a black open umbrella." for color in COLORS)
    assert item.target == 5


def test_table_7_location_and_size():
    item = all_keyword_permutations("a white cat sits under a black open umbrella.", "location")
    assert item.texts == (
        "a white cat sits under a black open umbrella.",
        "a white cat sits over a black open umbrella.",
    )
    assert item.target == 0
    item = all_keyword_permutations("A small yellow bird on a branch of a tree.", "size")
    assert item.texts[1] == "A large yellow bird on a branch of a tree."
    assert item.target == 0 and len(item.texts) == 2


@pytest.mark.parametrize(("concept", "number"), [("object", 80), ("color", 9), ("location", 2), ("size", 2)])
@pytest.mark.parametrize("matching", [PAPER, EXTENDED])
def test_every_keyword_has_its_full_set_of_distinct_texts(concept, number, matching):
    for keyword in REPLACEMENTS[concept]:
        caption = f"the {keyword} there"
        item = all_keyword_permutations(caption, concept, matching=matching)
        assert len(set(item.texts)) == len(item.texts) == number
        assert item.texts[item.target] == caption


def test_another_match_can_be_chosen():
    caption = "a white cat under a black umbrella"
    match = find_keywords(caption, "color")[1]
    item = all_keyword_permutations(caption, "color", match=match)
    assert item.match == match and item.texts[0] == "a white cat under a blue umbrella"
    with pytest.raises(ValueError, match="concept 'color'"):
        all_keyword_permutations(caption, "object", match=match)


def test_a_caption_without_keyword_has_no_concept_test():
    with pytest.raises(ValueError, match="'a room' .*'size'"):
        all_keyword_permutations("a room", "size")


# Columns


def test_columns_are_aligned_and_padded():
    columns = negative_columns(["a box left of it", "nothing", "two red boxes"], num_negatives=2)
    assert columns["negative_captions"][0] == ["a box right of it", ""]
    assert columns["negative_kinds"][0] == ["keyword_location", ""]
    assert columns["negative_keywords"][0] == ["left", ""]
    assert columns["negative_categories"][0] == ["relation", ""]
    assert columns["negative_spans"][0] == [[[6, 10]], []]
    assert columns.pop("negative_spans")[1] == [[], []]
    assert all(column[1] == ["", ""] for column in columns.values())
    assert columns["negative_kinds"][2] == ["keyword_color", "keyword_color"]
    assert set(columns) == {"negative_captions", "negative_kinds", "negative_keywords", "negative_categories"}


def test_columns_do_not_depend_on_the_order_of_rows():
    captions = [f"a red dog and {number} small cars" for number in range(20)]
    forward = negative_columns(captions, num_negatives=3, seed=5)["negative_captions"]
    backward = negative_columns(captions[::-1], num_negatives=3, seed=5)["negative_captions"]
    assert forward == backward[::-1]
    assert forward != negative_columns(captions, num_negatives=3, seed=6)["negative_captions"]


def test_columns_survive_a_batched_map():
    datasets = pytest.importorskip("datasets")
    captions = [f"a red dog and {number} small cars" for number in range(7)]
    dataset = datasets.Dataset.from_dict({"caption": captions})
    mapped = dataset.map(lambda batch: negative_columns(batch["caption"], num_negatives=3), batched=True, batch_size=2)
    assert mapped["negative_captions"][:] == negative_columns(captions, num_negatives=3)["negative_captions"]


def test_columns_name_the_row_of_a_bad_caption():
    with pytest.raises(TypeError, match="row 1 is a list"):
        negative_columns(["a red dog", ["a red dog"]])
    with pytest.raises(TypeError, match="captions is .* string"):
        negative_columns("a red dog")
    with pytest.raises(ValueError, match="num_negatives: found 0"):
        negative_columns([], num_negatives=0)
