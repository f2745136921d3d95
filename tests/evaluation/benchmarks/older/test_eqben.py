"""EqBen's full set, with its four combinations in any order, and its subset (about 2 s)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hfcomp.evaluation.benchmarks.older.eqben import EQBEN
from hfcomp.evaluation.engine import NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import groups, oracle
from tests.evaluation.encoders import Sighted, check_chance, check_known_scorers, items, photos, scores

FULL, SUBSET = EQBEN
SETS = ("eqbenag", "eqbenyoucook2", "eqbengebc", "eqbenkubric_loc", "eqbenkubric_attr", "eqbenkubric_cnt", "eqbensd")
TRUE = groups.true_of(len(SETS))


def name_of(number: int) -> str:
    """Photo `number` is side `number % 2` of the only group of a set."""
    ending = "npy" if SETS[number // 2] == "eqbenyoucook2" else "png"
    return f"{SETS[number // 2]}/v{number // 2}/frame{number % 2}.{ending}"


def write(folder: Path) -> Path:
    """The images; YouCook2's frames are arrays with blue first."""
    for number in TRUE:
        file = folder / name_of(number)
        photos(file.parent, {file.with_suffix(".png").name: number})
        if file.suffix == ".npy":
            np.save(file, np.asarray(Image.open(file.with_suffix(".png")).convert("RGB"))[:, :, ::-1])
            file.with_suffix(".png").unlink()
    return folder


def full(folder: Path) -> Path:
    write(folder / "image")
    records = [
        {
            "image": name_of(2 * group + image),
            "caption": say(2 * group + caption),
            "private_info": {"dataset": subset, "name": f"c{caption}i{image}", "sample_cnt": 0},
        }
        for group, subset in enumerate(SETS)
        for caption in (0, 1)
        for image in (1, 0)
    ]
    order = np.random.default_rng(0).permutation(len(records))
    (folder / "ann_json_finegrained_random.json").write_text(json.dumps([records[place] for place in order]))
    return folder


def subset(folder: Path) -> Path:
    write(folder / "image_subset")
    sides = [(side, what, of) for side in (0, 1) for what, of in (("image", name_of), ("caption", say))]
    records = [{f"{what}{side}": of(2 * group + side) for side, what, of in sides} for group in range(len(SETS))]
    (folder / "eqben_subset_10percent_final.json").write_text(json.dumps(records))
    return folder


def say(number: int) -> str:
    return f"caption {number}"


@pytest.mark.parametrize(("benchmark", "layout"), [(FULL, full), (SUBSET, subset)])
def test_known_scorers(tmp_path, benchmark, layout):
    rows = items(benchmark, layout(tmp_path))
    assert len(rows.rows) == len(SETS)
    assert set(rows.rows["subset"]) == (set(SETS) if benchmark is FULL else {"all"})
    assert sorted(rows.rows["image_id"])[0] == "eqbenag/v0"  # a cluster is a video
    check_known_scorers(benchmark, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    check_chance(FULL, groups.TEXTS)


def test_the_three_parts_of_kubric_count_as_one(tmp_path):
    known = {number: own if SETS[number // 2].startswith("eqbenkubric") else [] for number, own in TRUE.items()}
    rows = items(FULL, full(tmp_path))
    values = scores(FULL, run_benchmark(FULL, rows, Sighted(oracle.knowing(known))))
    assert values["mean of 5 sets", "group"] == 1 / 5


def test_the_light_form_has_other_endings(tmp_path):
    """Names in the list stay PNG, the files are JPEG; what is in neither form is left out."""
    folder = full(tmp_path)
    (folder / "image").rename(folder / "image_jpg")
    first, second = (folder / "image_jpg" / name_of(number) for number in (0, 4))
    first.rename(first.with_suffix(".jpg"))
    second.unlink()
    rows = items(FULL, folder)
    assert rows.left_out == {NO_IMAGE: 1} and len(rows.rows) == len(SETS) - 1


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(Unavailable, match=r"ann_json_finegrained_random.json .*--data eqben=FOLDER"):
        load_items(FULL)
    file = full(tmp_path) / "ann_json_finegrained_random.json"
    content = json.loads(file.read_text())
    lost = {"dataset": "eqbensd", "name": "c1i1", "sample_cnt": 0}
    kept = [record for record in content if record["private_info"] != lost]
    file.write_text(json.dumps(kept))
    with pytest.raises(ValueError, match="group 0 .*eqbensd .*only c0i0,.* c1i1"):
        items(FULL, tmp_path)
