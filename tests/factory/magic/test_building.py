"""From concepts and their numbers of images to a hierarchy, against references written out in full."""

from __future__ import annotations

import json
import math
import re
import time
import tracemalloc
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from hfcomp.factory.magic import building as module
from hfcomp.factory.magic import merging
from hfcomp.factory.magic.building import build_hierarchy, check_hard_negatives, draw_test_concepts, draw_test_images
from hfcomp.factory.magic.hierarchy import (
    Concept,
    Cut,
    Hierarchy,
    Merge,
    Node,
    Removal,
    hierarchy_tables,
    read_hierarchy,
    write_hierarchy,
)
from hfcomp.factory.magic.merging import hard_negatives, merge_small
from hfcomp.factory.magic.options import GraphSettings
from tests.factory.magic.parents import Angles, Written


def build(images, source=None, degrees=None, **settings) -> Hierarchy:
    degrees = degrees or {name: 90.0 * number for number, name in enumerate(sorted(images))}
    encoder = degrees if hasattr(degrees, "encode") else Angles(degrees)
    return build_hierarchy(images, source or Written(), encoder, GraphSettings(**settings), log=lambda _: None)


def vectors(number: int, size: int = 8, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(number, size)).astype(np.float32)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def test_small_concepts_go_with_the_most_similar_or_away():
    degrees = {"dog": 0, "puppy": 10, "hound": 20, "sofa": 90}
    hierarchy = build({"dog": 9, "puppy": 2, "hound": 1, "sofa": 4}, degrees=degrees)
    assert hierarchy.merges == (Merge("hound", "puppy", 1, 0.984808), Merge("puppy", "dog", 3, 0.984808))
    assert hierarchy.removed == (Removal("sofa", 4, "fewer than 5 images", "dog", 0.0),)
    (concept,) = hierarchy.concepts
    assert (concept.name, concept.images, concept.merged) == ("dog", 12, ("puppy", "hound"))
    assert hierarchy.place("hound") == concept and hierarchy.place("sofa") == "fewer than 5 images"


def test_two_small_concepts_stay_together_and_a_threshold_is_not_enough():
    hierarchy = build({"dog": 3, "puppy": 2}, degrees={"dog": 0, "puppy": 10})
    assert [concept.name for concept in hierarchy.concepts] == ["dog"] and hierarchy.concepts[0].images == 5
    exact = build({"dog": 9, "puppy": 2}, degrees={"dog": 0, "puppy": 10}, merge_similarity=0.984808)
    assert [removal.name for removal in exact.removed] == ["puppy"]  # above, not from it on
    assert not build({"dog": 9, "puppy": 2}, degrees={"dog": 0, "puppy": 10}, merge_similarity=0.9848).removed


@pytest.mark.parametrize("kept", [1, 64])
@pytest.mark.parametrize("seed", range(5))
def test_merging_equals_a_plain_loop(seed, kept, monkeypatch):
    monkeypatch.setattr(merging, "KEPT", kept)
    rng = np.random.default_rng(seed)
    names = [f"n{number:02}" for number in range(60)]
    images = {name: int(rng.integers(1, 12)) for name in names}
    points = vectors(60, 3, seed)
    settings = GraphSettings(merge_similarity=0.95)
    cosines = np.round(points.astype(np.float64) @ points.astype(np.float64).T, 6)
    left, merges, removed = dict(images), [], []
    while small := sorted((number, name) for name, number in left.items() if number < 5):
        number, name = small[0]
        row = names.index(name)
        others = [(-cosines[row, names.index(other)], other) for other in left if other != name]
        near = min(((cosine, other) for cosine, other in others if -cosine > 0.95), default=None)
        del left[name]
        if near is None:
            near = max(
                ((-cosine, other) for cosine, other in others), key=lambda pair: (pair[0], -names.index(pair[1]))
            )
            removed.append((name, near[1], near[0]))
        else:
            left[near[1]] += number
            merges.append((name, near[1]))
    outcome = merge_small(images, names, points, settings)
    assert [(merge.name, merge.into) for merge in outcome.merges] == merges
    assert [
        (removal.name, removal.nearest, removal.similarity) for removal in outcome.removed
    ] == removed and outcome.images == left
    assert merges and removed


@pytest.mark.parametrize("block", [1, 7, 64, 1000])
@pytest.mark.parametrize("shared", [0, 1, 3, 4])
def test_hard_negatives_equal_a_plain_loop_in_blocks_of_any_size(block, shared):
    names = [f"n{number:02}" for number in range(64)]
    points = vectors(64, 3)
    chains = {name: (name, f"a{n % 9}", f"a{10 + n % 5}", f"a{8 + n % 3}") for n, name in enumerate(names)}
    settings = GraphSettings(max_negatives=3, shared_levels=shared)
    negatives = hard_negatives(chains, names, points, settings, 0.8, block=block)
    cosines = np.round(points.astype(np.float64) @ points.astype(np.float64).T, 6)
    for row, name in enumerate(names):
        near = sorted(
            (-cosines[row, column], other)
            for column, other in enumerate(names)
            if other != name
            and cosines[row, column] > 0.8
            and not {*chains[name][: 4 - shared]} & {*chains[other]}
            and not {*chains[name]} & {*chains[other][: 4 - shared]}
        )[:3]
        assert negatives[name] == [(other, -cosine) for cosine, other in near]


def test_a_name_above_a_concept_is_no_hard_negative_on_whatever_level():
    above = {"dog": ("animal",), "cow": ("pet",), "pet": ("animal",), "cat": ("feline",)}
    degrees = {"animal": 0, "dog": 5, "cow": 10, "cat": 15}
    hierarchy = build(dict.fromkeys(degrees, 9), Written(above), degrees, shared_levels=0)
    assert {concept.name: concept.hard_negatives for concept in hierarchy.concepts} == {
        "animal": ("cat",),  # dog and cow are below it
        "cat": ("cow", "dog", "animal"),
        "cow": ("cat",),  # the dog is below "animal" too, one level lower
        "dog": ("cat",),
    }
    for levels, expected in ((3, ("cow", "cat")), (4, ("animal", "cow", "cat"))):
        shared = build(dict.fromkeys(degrees, 9), Written(above), degrees, shared_levels=levels)
        assert {concept.name: concept.hard_negatives for concept in shared.concepts}["dog"] == expected


def test_a_hard_negative_is_above_the_threshold():
    pair, degrees = {"a": 9, "b": 9}, {"a": 0, "b": 10}
    assert not build(pair, degrees=degrees, negative_similarity=0.984808).concepts[0].hard_negatives
    assert build(pair, degrees=degrees, negative_similarity=0.984807).concepts[0].hard_negatives == ("b",)


def test_a_quantile_of_all_pairs_takes_the_place_of_the_threshold():
    names, points = [f"n{number:02}" for number in range(40)], vectors(40)

    class Points(Angles):
        def encode(self, names):
            return points

    hierarchy = build(dict.fromkeys(names, 9), degrees=Points({}), negative_quantile=0.9, max_negatives=2)
    cosines = np.round(points.astype(np.float64) @ points.astype(np.float64).T, 6)
    np.fill_diagonal(cosines, -1)
    lowest = sorted(cosines[np.triu_indices(40, 1)], reverse=True)[77]  # of a tenth of 780 pairs
    threshold = round(math.ceil(lowest * 1000) / 1000 - 0.001, 3)  # the highest of three digits that they exceed
    assert {concept.name: concept.hard_negatives for concept in hierarchy.concepts} == {
        name: tuple(names[place] for place in np.argsort(-row)[:2] if row[place] > threshold)
        for name, row in zip(names, cosines, strict=True)
    }


CHECKS = "hfcomp/factory/magic/building.py"


@pytest.mark.follows(CHECKS, "there are no two to compare. Use more images, or a smaller --min_images.")
@pytest.mark.follows(CHECKS, "share names. Pass --shared_levels 4.")
@pytest.mark.follows(CHECKS, "pass --negative_quantile 0.99{shared}, or --negative_similarity {lower:g}{shared}")
def test_a_hierarchy_without_a_hard_negative_is_refused_with_settings_that_give_some(advice):
    images, degrees = {"a": 9, "b": 9, "c": 9, "d": 4}, {"a": 0, "b": 50, "c": 120, "d": 200}
    source = Written({"a": ("top",), "b": ("top",)})

    def check(names: str = "abc", **settings) -> None:
        hierarchy = build({name: images[name] for name in names}, source, degrees, **settings)
        check_hard_negatives(hierarchy, GraphSettings(**settings))

    message = advice.of(check, shared_levels=0)
    assert "no cosine is above 0.85" in message and "0.643 at the median, 0.643 at most" in message
    lower = float(re.findall(r"--negative_similarity ([.\d]+)", message)[-1])
    assert message.endswith("and --shared_levels 4, which 2 concepts exceed.")
    check(negative_similarity=lower, shared_levels=4)
    check(negative_quantile=0.99, shared_levels=4)
    advice.of(check, negative_similarity=lower, shared_levels=0)  # a and b are below one name
    advice.of(check, "ad")
    check("ad", min_images=4, negative_quantile=0.99)


def test_its_own_parent_and_names_that_come_again_are_cut():
    source = Written(
        {
            "dog": ("dog", "animal"),  # its own parent
            "animal": ("dog", "being"),  # closes a cycle with a name of level 1
            "being": ("animal", "thing"),
            "cat": ("cat",),
            "fish": ("swimmer",),
            "swimmer": ("swimmer",),
        }
    )
    hierarchy = build({"dog": 9, "cat": 9, "fish": 9}, source)
    assert [concept.chain for concept in hierarchy.concepts] == [("dog", "animal", "being", "thing")]
    assert {*hierarchy.cuts} == {
        Cut(1, "dog", "dog", "its own parent"),
        Cut(1, "cat", "cat", "its own parent"),
        Cut(2, "animal", "dog", "the name of a concept below it"),
        Cut(2, "swimmer", "swimmer", "its own parent"),
        Cut(3, "being", "animal", "the name of a concept below it"),
    }
    assert [(removal.name, removal.reason) for removal in hierarchy.removed] == [
        ("cat", "no parent on level 2"),
        ("fish", "no parent on level 3"),  # the only one it had leads nowhere
    ]
    assert nx.is_directed_acyclic_graph(hierarchy.graph())


def test_the_reason_is_the_level_that_no_way_up_reaches():
    source = Written({"a": (), "b": ("x",), "x": (), "c": ("x", "y"), "y": ("z",), "z": (), "d": ("x", "ok")})
    hierarchy = build(dict.fromkeys("abcd", 9), source)
    assert [(removal.name, removal.reason[-1]) for removal in hierarchy.removed] == [
        ("a", "2"),
        ("b", "3"),
        ("c", "4"),
    ]
    assert hierarchy.parents == {"d": ("ok",)}


def test_a_concept_of_many_children_is_quick():
    names = {f"n{number}": 5 for number in range(20_000)}
    start = time.process_time()
    module.find_parents(names, Written(dict.fromkeys(names, ("all",))))
    assert time.process_time() - start < 3  # 9 s where each child copies the names before it


def test_several_parents_make_a_graph_and_the_first_that_leads_up_is_the_chain():
    source = Written({"wedding": ("nowhere", "celebration", "meal"), "nowhere": ("nowhere",)})
    hierarchy = build({"wedding": 5}, source)
    assert hierarchy.parents == {"wedding": ("celebration", "meal")}
    assert hierarchy.concepts[0].chain == ("wedding", "celebration", "b of celebration", "c of b of celebration")
    graph = hierarchy.graph()
    assert {*graph.predecessors((1, "wedding"))} == {(2, "celebration"), (2, "meal")}
    assert Node(2, "meal", ("b of meal",)) in hierarchy.nodes


def test_a_growing_source_is_offered_what_is_known_the_most_frequent_first(monkeypatch):
    monkeypatch.setattr(module, "CONCEPTS_PER_BLOCK", 2)
    source = Written({"b": ("y",), "c": ("x",), "d": ("y",)}, grows=True)
    build({"a": 5, "b": 8, "c": 9, "d": 6}, source)
    assert source.asked[:2] == [(1, ("c", "b"), ()), (1, ("d", "a"), ("x", "y"))]
    assert source.asked[2][:2] == (2, ("y", "x"))


def test_the_order_of_the_input_does_not_matter():
    images = {f"n{number}": 1 + number % 7 for number in range(40)}
    degrees = {name: float(number * 3) for number, name in enumerate(images)}
    first = build(images, degrees=degrees)
    second = build(dict(reversed(images.items())), degrees=degrees)
    assert first == second and first.merges and first.concepts[0].similarities


def test_many_images_in_one_node_and_names_of_any_script():
    hierarchy = build({"誕生日会": 10_000, "вечеринка": 5}, degrees={"誕生日会": 0, "вечеринка": 20})
    assert [(concept.name, concept.images) for concept in hierarchy.concepts] == [
        ("вечеринка", 5),
        ("誕生日会", 10_000),
    ]
    assert hierarchy.concepts[0].hard_negatives == ("誕生日会",)
    tested = draw_test_images({"誕生日会": [str(number) for number in range(10_000)]}, 0.2, 0)
    assert len(tested) == 2_000


def test_concepts_without_a_vector_are_removed_in_bounded_memory():
    points = vectors(4_000)
    points[:2_000] = 0
    names = [f"n{number:04}" for number in range(4_000)]
    tracemalloc.start()
    images = dict.fromkeys(names, 1) | {names[-1]: 9}
    outcome = merge_small(images, names, points, GraphSettings(merge_similarity=0.99))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(removal.nearest is None for removal in outcome.removed) == 2_000
    assert peak < 100e6  # 273 MB if each is compared with all others at once


def test_concepts_that_are_all_alike_take_bounded_memory():
    points = vectors(1)[[0] * 2_000]
    names = [f"n{number:04}" for number in range(2_000)]
    chains = {name: (name, f"b{name}", f"c{name}", f"d{name}") for name in names}
    tracemalloc.start()
    merged = merge_small(dict.fromkeys(names[:-1], 1) | {names[-1]: 9}, names, points, GraphSettings())
    rivals = hard_negatives(chains, names, points, GraphSettings(), 0.85)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not merged.removed and [rival for rival, _ in rivals["n0001"]] == ["n0000", *names[2:21]]
    assert peak < 100e6  # 600 MB with all pairs in a list


def test_a_vector_that_is_not_finite_names_its_concept():
    class Broken(Angles):
        def encode(self, names):
            matrix = super().encode(names)
            matrix[1] = np.nan
            return matrix

    with pytest.raises(ValueError, match="'b' .*not finite"):
        build({"a": 5, "b": 5}, degrees=Broken({"a": 0, "b": 1}))


def test_splits_depend_on_the_seed_alone():
    ids = {"a": [f"a{number}" for number in range(10)], "b": ["b0", "b1", "b2"], "c": ["c0"]}
    test_ids = draw_test_images(ids, 0.2, 3)
    assert sum(entry[0] == "a" for entry in test_ids) == 2 and sum(entry[0] == "b" for entry in test_ids) == 1
    assert test_ids == draw_test_images({name: image_ids[::-1] for name, image_ids in reversed(ids.items())}, 0.2, 3)
    assert any(test_ids != draw_test_images(ids, 0.2, seed) for seed in range(3))
    assert len(draw_test_concepts(["a", "b"], 0.2, 0)) == 1 and not draw_test_concepts(["a"], 0.9, 0)


def test_the_file_holds_all_of_it(tmp_path):
    source = Written({"dog": ("dog", "animal")})
    hierarchy = build(
        {"dog": 9, "cat": 9, "sofa": 1, "hound": 4}, source, {"dog": 0, "cat": 20, "sofa": 90, "hound": 1}
    )
    hierarchy = replace(hierarchy, facts={"settings": {"seed": 0}}, refused={"empty name": 2})
    write_hierarchy(tmp_path, hierarchy)
    first = (tmp_path / "hierarchy.json").read_bytes()
    assert read_hierarchy(tmp_path) == hierarchy
    write_hierarchy(tmp_path, read_hierarchy(tmp_path))
    assert (tmp_path / "hierarchy.json").read_bytes() == first
    content = json.loads(first)
    content["concepts"][0]["images"] = 3
    (tmp_path / "hierarchy.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"hierarchy\.json .*damaged"):
        read_hierarchy(tmp_path)
    with pytest.raises(ValueError, match=r"no hierarchy\.json"):
        read_hierarchy(tmp_path / "elsewhere")


def test_tables_have_the_paper_beside_ours():
    hierarchy = build({"dog": 9, "cat": 9, "sofa": 1}, degrees={"dog": 0, "cat": 20, "sofa": 90})
    numbers, outcomes, *_ = hierarchy_tables(hierarchy, 90)
    assert numbers.rows[0] == ["image-caption pairs", "90", "81,602"]
    assert numbers.rows[1] == ["concepts of level 1", "2", "1,071"]
    assert numbers.rows[-1][1] == "9.00"
    assert ["removed, fewer than 5 images", "1", "1"] in outcomes.rows


@pytest.mark.parametrize(
    ("name", "value"),
    [("min_images", 0), ("merge_similarity", 1.1), ("shared_levels", 5), ("test_share", 1.0), ("max_negatives", 0)],
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}: found {value}"):
        GraphSettings(**{name: value})


def test_place_of_an_unknown_name():
    assert isinstance(Hierarchy((Concept("a", ("a", "b", "c", "d"), 5),), {"a": ("b",)}, ()).place("x"), str)
