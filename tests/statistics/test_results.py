"""Lines and files of results: what a reader of `results.json` relies on."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pandas as pd
import pytest

from hfcomp.statistics import ImageBootstrap, items_hash, sign_flip_test, smallest_difference, summarize
from hfcomp.statistics.outcomes import write_table
from hfcomp.statistics.results import RESULTS_SCHEMA_VERSION, versions, write_results

MODELS = ["base", "plain", "method"]


def table(model, values, *, benchmark="sugar", subset="swap", metric="choice", aspect="composition", chance=0.5):
    names = [f"{subset}/{index}" for index in range(len(values))]
    facts = {"benchmark": benchmark, "subset": subset, "metric": metric, "aspect": aspect, "chance": chance}
    images = [f"photo {index // 2}" for index in range(len(values))]
    columns = {"item": names, "image_id": images, "value": np.asarray(values, float)}
    return pd.DataFrame({**columns, "tie": [index == 0 for index in range(len(values))]}).assign(**facts, arm=model)


@pytest.fixture
def items():
    generator = np.random.default_rng(0)
    tables = []
    for model, share in zip(MODELS, (0.5, 0.6, 0.8), strict=True):
        for subset in ("swap", "add"):
            tables.append(table(model, generator.random(60) < share, subset=subset))
        tables.append(
            table(model, generator.random(20) < share, benchmark="shop", metric="r@1", aspect="general", chance=np.nan)
        )
    return pd.concat(tables, ignore_index=True)


def test_a_line_holds_each_model_and_its_paired_differences(items):
    lines = summarize(items, models=MODELS, references=["base", "plain"])
    assert [(line["benchmark"], line["subset"], line["metric"]) for line in lines] == [
        ("sugar", "swap", "choice"),
        ("sugar", "add", "choice"),
        ("shop", "swap", "r@1"),
    ]
    first = lines[0]
    assert (first["items"], first["images"], first["chance"], first["aspect"]) == (60, 30, 0.5, "composition")
    assert (lines[2]["chance"], lines[2]["aspect"]) == (None, "general")
    part = items[(items["benchmark"] == "sugar") & (items["subset"] == "swap")]
    values = {name: group["value"].to_numpy() for name, group in part.groupby("arm")}
    images = part[part["arm"] == "base"]["image_id"].to_numpy()
    bootstrap = ImageBootstrap(items[items["benchmark"] == "sugar"]["image_id"].to_numpy())
    for name in MODELS:
        low, high = bootstrap.interval(values[name], images)
        expected = {"value": values[name].mean(), "low": low, "high": high, "ties": 1, "tie_rate": 1 / 60}
        assert first["models"][name] == pytest.approx(expected)
    assert {name: list(others) for name, others in first["differences"].items()} == {
        "plain": ["base"],
        "method": ["base", "plain"],
    }
    gain = values["method"] - values["plain"]
    low, high = bootstrap.interval(gain, images, difference=True)
    difference = first["differences"]["method"]["plain"]
    assert difference["p"] <= difference.pop("q") <= 1
    assert difference == pytest.approx(
        {
            "value": gain.mean(),
            "low": low,
            "high": high,
            "p": sign_flip_test(gain, images),
            "smallest": smallest_difference(gain, images),
        }
    )


def test_the_order_of_rows_changes_no_number(items):
    lines = summarize(items, models=MODELS, references=["base"])
    mixed = items.sample(frac=1, random_state=3)
    again = {
        (line["benchmark"], line["subset"]): line for line in summarize(mixed, models=MODELS, references=["base"])
    }
    for line in lines:
        other = again[line["benchmark"], line["subset"]]
        for name in MODELS:
            assert other["models"][name] == pytest.approx(line["models"][name])
        assert other["differences"]["method"]["base"] == pytest.approx(line["differences"]["method"]["base"])


def test_chosen_subjects_and_values_that_are_no_shares(items):
    items = items.assign(value=items["value"] * 30)  # ranks, for example
    line = summarize(items, models=["base", "method"], references=["method"], subject=["base"])[0]
    assert list(line["models"]) == ["base", "method"]
    assert list(line["differences"]) == ["base"]
    alone = summarize(items, models=["base", "method"], references=["method"])[0]
    assert alone["differences"] == {"method": {}}  # nothing but itself to compare with
    assert 1 < line["models"]["base"]["low"] < line["models"]["base"]["value"] < line["models"]["base"]["high"] < 30


def test_models_whose_items_differ_are_refused_by_name(items):
    def assert_refused(table, match, models=MODELS, references=()):
        with pytest.raises(ValueError, match=match):
            summarize(table, models=models, references=list(references))

    method = (items["arm"] == "method") & (items["item"] == "swap/7") & (items["benchmark"] == "sugar")
    base = (items["arm"] == "base") & (items["item"] == "swap/7") & (items["benchmark"] == "sugar")
    assert_refused(items[~method], "item 'swap/7' .*'base' .*'method'")
    assert_refused(items[~base], "item 'swap/7' .*'plain' .*'base' \\(1 ")
    assert_refused(
        pd.concat([items, items[method]]), "sugar / swap / choice: item 'swap/7' of model 'method' is duplicated"
    )
    assert_refused(
        items.assign(image_id=items["image_id"].mask(method, "photo 9")), "'swap/7' has .*image for 'method'"
    )
    assert_refused(items.assign(value=items["value"].mask(method)), "'swap/7' of model 'method' has no finite value")
    assert_refused(items, "'other' has no items", models=["base", "other"])
    assert_refused(items, "references: 'other' is not one of the models", references=["other"])
    assert_refused(items.drop(columns="aspect"), r"\['aspect'\] are missing")


def test_results_are_json_that_any_reader_parses(tmp_path):
    path = tmp_path / "results.json"
    line = {"low": math.nan, "value": np.float64(0.5), "ties": np.int64(2), "high": np.inf, "share": (True, None)}
    write_results(path, {"notes": ["é"], "models": {"base": {"path": tmp_path}}, "results": [line]})
    read = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert list(read)[:2] == ["schema_version", "versions"] and read["schema_version"] == RESULTS_SCHEMA_VERSION == 5
    assert read["results"] == [{"low": None, "value": 0.5, "ties": 2, "high": None, "share": [True, None]}]
    assert read["models"]["base"]["path"] == str(tmp_path) and read["notes"] == ["é"]
    assert read["versions"] == versions() and {"hfcomp", "torch", "numpy", "device", "threads"} <= set(versions())


def test_a_failed_write_leaves_the_file_that_was_there(tmp_path):
    write_results(tmp_path / "results.json", {"results": [1]})
    with pytest.raises(TypeError):
        write_results(tmp_path / "results.json", {"results": [object()]})
    assert json.loads((tmp_path / "results.json").read_text())["results"] == [1]


def test_the_hash_of_items_is_of_their_content(tmp_path, items):
    write_table(tmp_path / "items.parquet", items)
    own = items_hash(items)
    assert items_hash(pd.read_parquet(tmp_path / "items.parquet")) == own
    assert items_hash(items.sample(frac=1, random_state=1)[sorted(items.columns)]) == own
    changed = items.copy()
    changed.loc[5, "value"] = 1 - changed.loc[5, "value"]
    assert items_hash(changed) != own
    assert items_hash(items.iloc[1:]) != own


def test_the_hash_of_items_is_that_of_their_sorted_rows():
    # files hold it, so that another way to find it must find the same
    odd = ["a", "ab", "a'", 'a"', "a'\"", "a', 'b", "a\n", "é", "\u2028", "日本", "nan", "", "\\", "a)", " a"]
    numbers = [0.0, -0.0, 1.0, 0.5, 0.55, math.nan, 1e-5, math.inf]
    generator = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "item": generator.choice(odd, 200),
            "stratum": generator.choice(np.array(["a", None], dtype=object), 200),
            "mixed": generator.choice(np.array([1, True, 1.0, "1", None], dtype=object), 200),
            "seed": generator.integers(-1, 12, 200),
            "tie": generator.random(200) < 0.5,
            "value": generator.choice(numbers, 200),
        }
    )
    for columns in (sorted(table.columns), ["item"], ["value"]):
        lines = []
        for row in table[columns].astype(object).itertuples(index=False, name=None):
            cells = (
                value if name == "value" else math.nan if pd.isna(value) else str(value)
                for name, value in zip(columns, row, strict=True)
            )
            lines.append(repr(tuple(cells)))
        content = repr(columns) + "".join(f"{line}\n" for line in sorted(lines))
        expected = hashlib.sha256(content.encode()).hexdigest()[:16]
        assert items_hash(table[columns]) == f"sha256:{expected}"
