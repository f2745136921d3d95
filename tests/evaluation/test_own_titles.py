"""A recipe's own held-out rows and an evaluation of the same file are one benchmark."""

import pytest

from hfcomp import compare
from tests.evaluation.evaluations import outcomes, stored

FACTS = {"version": 1, "data": {"place": "data/negatives", "commit": None, "pools": []}}


@pytest.fixture
def run(tmp_path):
    benchmarks = {"evaluation": {**FACTS, "title": "own"}}
    config = {"evaluation_split": "train[90%:]"}
    return stored(
        tmp_path / "run", outcomes("plain", [1, 0, 1], benchmark="own"), benchmarks=benchmarks, config=config
    )


def evaluated(folder, items=3):
    benchmarks = {"data/negatives": {**FACTS, "title": "negatives"}}
    return stored(folder, outcomes("clip", [1, 1, 1, 0][:items], benchmark="negatives"), benchmarks=benchmarks)


def test_the_same_rows_are_compared_under_one_title(run, tmp_path):
    results = compare([str(run), str(evaluated(tmp_path / "evaluation"))])
    (line,) = [line for line in results.lines if line["metric"] == "caption choice"]
    assert line["benchmark"] == "negatives"
    assert line["differences"]["clip"]["plain"]["value"] == pytest.approx(1 / 3)
    assert any("are both data/negatives" in note for note in results.notes)


@pytest.mark.follows("hfcomp/evaluation/compare.py", "on the same rows: --benchmarks")
def test_other_rows_of_it_are_named_with_the_split_to_evaluate(run, tmp_path):
    match = r"3 images of data/negatives and .* has 4: .*--benchmarks data/negatives --split 'train\[90%:\]'"
    with pytest.raises(ValueError, match=match):
        compare([str(run), str(evaluated(tmp_path / "evaluation", items=4))])


def test_what_has_no_benchmark_in_common_is_listed_once_a_file(tmp_path):
    both = [outcomes(name, [1, 0], benchmark="SPEC") for name in ("base", "tuned")]
    other = stored(tmp_path / "other", outcomes("clip", [1, 0], benchmark="COLA"))
    with pytest.raises(ValueError, match="no benchmark in common") as caught:
        compare([str(stored(tmp_path / "both", *both)), str(other)])
    assert str(caught.value).count("items.parquet") == 2
