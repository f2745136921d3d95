"""Models side by side from stored outcomes."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from hfcomp import cli, compare
from hfcomp.checksums import read_checked, with_checksum
from hfcomp.evaluation.stored import read_evaluation, read_stored
from hfcomp.statistics.outcomes import items_hash, write_table
from hfcomp.statistics.results import write_results
from hfcomp.writing import locked
from tests.evaluation.evaluations import benchmark_facts, crepe, outcomes, recall, store_folder


@pytest.fixture
def folders(tmp_path):
    base = store_folder(tmp_path / "base", crepe("clip", 0.5), recall("clip", 0.6), benchmarks=benchmark_facts())
    shuffled = crepe("clip", 0.75).sample(frac=1, random_state=0)
    tuned = store_folder(tmp_path / "tuned", shuffled, recall("clip", 0.5), benchmarks=benchmark_facts())
    return base, tuned


def main(words) -> None:
    cli.main(["compare", *words])


def assert_refused(match, *arguments):
    with pytest.raises(SystemExit, match=match) as ended:
        main([str(argument) for argument in arguments])
    assert str(ended.value).startswith("error: ")


def test_models_are_compared_item_by_item_with_their_averages(folders, capsys):
    main([str(folder) for folder in folders])
    text = capsys.readouterr().out
    assert re.search(r"clip \(tuned\) minus clip \(base\): SugarCrepe.*\n(.*\n)*?macro of 2 +\+25\.0", text)
    report = compare([str(folder) for folder in folders], reference="clip (base)")
    lines = {(line["benchmark"], line["subset"]): line for line in report.lines}
    assert list(lines)[:2] == [("SugarCrepe", "macro of 2"), ("SugarCrepe", "micro")]
    change = lines["SugarCrepe", "macro of 2"]["differences"]["clip (tuned)"]["clip (base)"]
    assert change["value"] == pytest.approx(0.25) and change["low"] < 0.25 < change["high"] and change["p"] < 0.05
    assert lines["COCO", "all"]["differences"]["clip (tuned)"]["clip (base)"]["value"] == pytest.approx(-0.1)
    assert report.notes == [] and report.missing == []
    assert report.models["clip (tuned)"] == {"path": "models/clip", "results": str(folders[1])}


def test_the_order_of_stored_items_does_not_matter(folders):
    names = ("clip (base)", "clip (tuned)")
    first, second = (
        compare([str(folder) for folder in order], reference=names[0]).lines[0] for order in (folders, folders[::-1])
    )
    assert first["differences"][names[1]][names[0]] == pytest.approx(second["differences"][names[1]][names[0]])


def test_a_folder_stands_for_all_of_its_models_or_one(tmp_path):
    folder = store_folder(tmp_path / "runs", crepe("base", 0.5), crepe("a:b", 0.6), crepe("c", 0.7))
    assert [model.name for model in read_stored([str(folder)])] == ["base", "a:b", "c"]
    assert [model.name for model in read_stored([f"{folder}:a:b", f"{folder}:base"])] == ["a:b", "base"]
    other = store_folder(tmp_path / "more" / "runs", crepe("c", 0.4))
    names = [model.name for model in read_stored([f"{folder}:c", str(other), f"{folder}:base"])]
    assert names == [f"c ({folder})", f"c ({other})", "base"]


def test_the_reference_is_chosen_by_name_or_as_it_was_given(folders, capsys):
    base, tuned = map(str, folders)
    for wanted in ("clip (tuned)", tuned):
        main([base, tuned, "--reference", wanted])
        assert "clip (base) minus clip (tuned)" in capsys.readouterr().out
    both = r"clip \(base\), clip \(tuned\)"
    assert_refused(f"reference: 'clip' is ambiguous: it matches {both}. Name", base, tuned, "--reference", "clip")
    assert_refused(f"reference: no model is called 'zz'; found {both}", base, tuned, "--reference", "zz")


def test_files_are_written_without_the_versions_of_this_machine_s_device(folders, tmp_path, capsys):
    main([*map(str, folders), "--output_dir", str(tmp_path / "out")])
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["reference"] == "clip (base)" and "device" not in results["versions"]
    assert set(results["benchmarks"]) == {"sugarcrepe"} and results["results"][0]["average"]
    report = (tmp_path / "out" / "report.md").read_text()
    assert "### clip (tuned) minus clip (base)" in report and "](figure.png)" in report
    assert f"written to: {tmp_path / 'out'}" in capsys.readouterr().out


def test_ties_are_counted_anew_from_what_is_stored(tmp_path):
    tied = crepe("a", 0.5)
    tied["tie"] = tied["value"] == 0
    folder = store_folder(tmp_path / "a", tied, crepe("b", 0.5))
    values = {
        rule: compare([str(folder)], reference="b", tie=rule).lines[0]["models"]["a"]["value"]
        for rule in ("wrong", "half", "win")
    }
    assert values == {"wrong": 0.5, "half": 0.75, "win": 1.0}


def test_benchmarks_are_chosen_by_name_or_title_and_others_named(folders, tmp_path):
    base, tuned = map(str, folders)
    third = store_folder(tmp_path / "third", crepe("clip", 0.5), benchmarks=benchmark_facts())
    report = compare([base, str(third)], reference="clip (base)")
    assert {line["benchmark"] for line in report.lines} == {"SugarCrepe"}
    (note,) = report.notes
    assert note.startswith("COCO is not compared") and note.endswith("only for clip (base)")
    for wanted in ("sugarcrepe", "SugarCrepe"):
        chosen = compare([base, tuned], reference="clip (base)", benchmarks=[wanted])
        assert {line["benchmark"] for line in chosen.lines} == {"SugarCrepe"}
    assert_refused("third.*no benchmark 'COCO'; it has SugarCrepe", base, third, "--benchmarks", "COCO")
    alone = store_folder(tmp_path / "alone", recall("d", 0.5))
    assert_refused("no benchmark in common: .*third.* has SugarCrepe; .*alone.* has COCO", third, alone)


def test_items_that_differ_are_refused_or_left_out_and_counted(folders, tmp_path):
    table = crepe("less", 0.5)
    moved = table.assign(image_id=table["image_id"].mask(table["item"] == "add/3", "99.jpg"))
    less = store_folder(tmp_path / "less", table[table["item"] != "swap/7"])
    other = store_folder(tmp_path / "other", moved)
    base = folders[0]
    assert_refused(
        r"base.items\.parquet .*item 'swap/7' \(SugarCrepe, swap, caption choice\) .*less.items\.parquet lacks it "
        r"\(1 such .* pass --common to compare the 79 outcomes",
        base,
        less,
    )
    assert_refused(r"item 'add/3' .* image '3.jpg', but .*other.* image '99.jpg'", base, other)
    report = compare([str(base), str(less), str(other)], reference="clip", common=True)
    assert {line["subset"]: line["items"] for line in report.lines} == {
        "macro of 2": 78,
        "micro": 78,
        "add": 39,
        "swap": 39,
    }
    dropped = [
        re.findall(r"SugarCrepe: (\d+) outcomes of (.*) were dropped.*; (\d+) are", note) for note in report.notes
    ]
    counts = [("2", "clip", "78"), ("1", "less (less)", "78"), ("2", "less (other)", "78")]
    assert [one for found in dropped for one in found] == counts


def test_an_average_is_never_computed_on_fewer_subsets(folders, tmp_path):
    table = crepe("less", 0.5)
    less = store_folder(tmp_path / "less", table[table["subset"] == "add"])
    report = compare([str(folders[0]), str(less)], reference="clip", common=True)
    assert [line["subset"] for line in report.lines] == ["add"]
    assert [(entry["average"], entry["absent"]) for entry in report.missing] == [
        ("macro of 2", ["swap"]),
        ("micro", ["swap"]),
    ]


def test_data_of_another_version_or_commit_is_refused(folders, tmp_path):
    base = folders[0]
    newer = store_folder(tmp_path / "newer", crepe("x", 0.5), benchmarks=benchmark_facts(version=2))
    assert_refused("SugarCrepe: .*version is 1 in .*base but 2 in .*newer.*--benchmarks", base, newer)
    assert_refused("version", base, newer, "--common")
    data = {"place": "somebody/crepe", "commit": "b" * 40, "pools": []}
    moved = store_folder(tmp_path / "moved", crepe("x", 0.5), benchmarks=benchmark_facts(data=data))
    assert_refused("somebody/crepe was read at commit a{40} for .*base, b{40} for .*moved.*--common", base, moved)
    report = compare([str(base), str(moved)], reference="clip", common=True)
    assert any("read at commit" in note for note in report.notes)
    local = store_folder(tmp_path / "local", crepe("x", 0.5), benchmarks=benchmark_facts(data={"place": "data/crepe"}))
    report = compare([str(base), str(local)], reference="clip")
    assert any("read from somebody/crepe, coco and from data/crepe" in note for note in report.notes)


def vtab(**changes):
    """Two benchmarks of one title; changes are of the second."""
    data = {"place": "somebody/svhn", "commit": "c" * 40, "pools": []}
    first = benchmark_facts(title="VTAB")["sugarcrepe"]
    return {"vtab_dtd": first, "vtab_svhn": {**first, "data": data, **changes}}


def test_every_benchmark_of_a_title_is_checked(tmp_path):
    def folder(name, **changes):
        tables = [outcomes(name, np.arange(20) < 10, benchmark="VTAB", subset=subset) for subset in ("dtd", "svhn")]
        return store_folder(tmp_path / name, *tables, benchmarks=vtab(**changes))

    base, newer = folder("base"), folder("newer", version=2)
    moved = folder("moved", data={"place": "somebody/svhn", "commit": "d" * 40, "pools": []})
    assert_refused("VTAB, vtab_svhn: .*version is 1 in .*base but 2 in .*newer", base, newer)
    assert_refused(
        "VTAB, vtab_svhn: somebody/svhn was read at commit c{40} for .*base, d{40} for .*moved", base, moved
    )
    local = folder("local", data={"place": "data/svhn"})
    report = compare([str(base), str(local)], reference="base")
    (note,) = report.notes
    assert note.startswith("VTAB, vtab_svhn: read from somebody/svhn and from data/svhn")
    results = json.loads((base / "results.json").read_text())
    results["benchmarks"] = dict(reversed(results["benchmarks"].items()))
    (base / "results.json").write_text(json.dumps(results))
    assert compare([str(base), str(folder("same"))], reference="base").notes == []


def test_runs_of_recipes_are_compared_when_they_say_the_same_evaluation(tmp_path):
    def run(name, dataset):
        folder = store_folder(tmp_path / name, outcomes(name, np.arange(20) < 10, benchmark="own"))
        results = json.loads((folder / "results.json").read_text())
        results |= {"schema_version": 2, "data": {"evaluation": {"name": "own", "dataset": dataset}}}
        for line in results["results"]:
            del line["average"]
        for key in ("benchmarks", "tie_rule", "skipped", "models", "checksum"):  # as an earlier hfcomp wrote it
            del results[key]
        (folder / "results.json").write_text(json.dumps(results))
        return folder

    one, two, three = run("one", "x/pairs"), run("two", "x/pairs"), run("three", "y/pairs")
    report = compare([str(one), str(two)], reference="one")
    assert len(report.lines) == 1
    assert [note.partition(": its results contain no hash")[0] for note in report.notes] == [str(one), str(two)]
    assert_refused("own: .*evaluation is own x/pairs in .*one but own y/pairs in .*three", one, three)


def test_items_of_version_4_call_the_model_by_another_name(folders, tmp_path):
    tables = [crepe("clip", 0.5), recall("clip", 0.6)]
    older = store_folder(tmp_path / "older", *tables, benchmarks=benchmark_facts())
    items = pd.concat(tables, ignore_index=True).rename(columns={"arm": "model"})
    items.to_parquet(older / "items.parquet", index=False)
    results = {**read_checked(older / "results.json", ""), "data": {"items": items_hash(items)}}
    (older / "results.json").write_text(json.dumps(with_checksum({**results, "schema_version": 4})))
    outcomes, _ = read_evaluation(older)
    pd.testing.assert_frame_equal(outcomes.table, read_evaluation(folders[0])[0].table)
    report = compare([str(older), str(folders[1])], reference="clip (older)")
    assert report.lines[0]["differences"]["clip (tuned)"]["clip (older)"]["value"] == pytest.approx(0.25)


def test_mistakes_name_the_file_and_how_to_fix_it(folders, tmp_path):
    base = folders[0]
    assert_refused("nowhere: found no such folder", tmp_path / "nowhere", base)
    assert_refused(r"base.items\.parquet: found one model, 'clip'. Pass a second folder", base)
    assert_refused(r"base.items\.parquet has no model 'other'.* clip", f"{base}:other", base)
    assert_refused("model 'clip' is given 2 times", base, f"{base}:clip")
    twice = store_folder(tmp_path / "twice", crepe("x", 0.5))
    items = pd.read_parquet(twice / "items.parquet")
    items = pd.concat([items, items.iloc[:1]])
    write_table(twice / "items.parquet", items)
    results = {**read_checked(twice / "results.json", ""), "data": {"items": items_hash(items)}}
    write_results(twice / "results.json", results)
    assert_refused(r"twice.items\.parquet: item 'add/0' \(SugarCrepe, .* is duplicated", base, twice)


@pytest.mark.parametrize("name", ["items.parquet", "results.json"])
def test_a_flipped_bit_is_an_error_that_names_the_file_or_changes_nothing(tmp_path, name):
    table = crepe("clip", 0.5)
    folder = store_folder(
        tmp_path, table.assign(stratum=table["subset"]), recall("clip", 0.6), benchmarks=benchmark_facts(), tie="half"
    )
    expected, (path, refused) = read_evaluation(folder), (folder / name, 0)
    whole = path.read_bytes()
    for place in random.Random(0).sample(range(8 * len(whole)), 250):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            items, results = read_evaluation(folder)
        except ValueError as error:
            assert str(path) in str(error), place
            refused += 1
        else:
            pd.testing.assert_frame_equal(items.table, expected[0].table)
            assert {key: results[key] for key in expected[1]} == expected[1], place
    assert refused > 50


def test_damage_ends_the_command_with_what_was_expected_and_found(folders, tmp_path):
    base, tuned = folders
    path = tuned / "items.parquet"
    items = pd.read_parquet(path)
    items.assign(value=1 - items["value"]).to_parquet(path)
    assert_refused(r"tuned.items\.parquet is damaged, .*: expected items .*sha256:\w{16}, found "
            r"sha256:\w{16}\. Evaluate again", base, tuned)  # fmt: skip
    path.write_bytes(path.read_bytes()[:99])
    assert_refused(r"tuned.items\.parquet: not a Parquet file, or damaged .*Evaluate again", base, tuned)
    results = base / "results.json"
    results.write_text(results.read_text().replace('"tie_rule": "wrong"', '"tie_rule": "half"'))
    assert_refused(
        r"base.results\.json is damaged: expected content with sha256:\w{64}, found .*Evaluate again", base, tuned
    )


def test_an_output_folder_in_use_is_named(folders, tmp_path):
    given = ["compare", *map(str, folders), "--output_dir", str(tmp_path / "out")]
    with locked(tmp_path / "out"), pytest.raises(SystemExit, match="^error: .*out .*in use"):
        cli.main(given)
    cli.main(given)
    assert (tmp_path / "out" / "results.json").is_file()


def test_no_model_library_is_loaded():
    code = "import sys, hfcomp; hfcomp.compare; print({'torch', 'transformers', 'datasets'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


FACTS = {"version": 1, "data": {"place": "data/negatives", "commit": None, "pools": []}}


@pytest.fixture
def run(tmp_path):
    benchmarks = {"evaluation": {**FACTS, "title": "own"}}
    config = {"evaluation_split": "train[90%:]"}
    return store_folder(
        tmp_path / "run", outcomes("plain", [1, 0, 1], benchmark="own"), benchmarks=benchmarks, config=config
    )


def evaluate_folder(folder, items=3):
    benchmarks = {"data/negatives": {**FACTS, "title": "negatives"}}
    return store_folder(folder, outcomes("clip", [1, 1, 1, 0][:items], benchmark="negatives"), benchmarks=benchmarks)


def test_the_same_rows_are_compared_under_one_title(run, tmp_path):
    results = compare([str(run), str(evaluate_folder(tmp_path / "evaluation"))])
    (line,) = [line for line in results.lines if line["metric"] == "caption choice"]
    assert line["benchmark"] == "negatives"
    assert line["differences"]["clip"]["plain"]["value"] == pytest.approx(1 / 3)
    assert any("are both data/negatives" in note for note in results.notes)


@pytest.mark.follows("hfcomp/evaluation/compare.py", "on the same rows: --benchmarks")
def test_other_rows_of_it_are_named_with_the_split_to_evaluate(run, tmp_path):
    match = r"3 images .*data/negatives .* 4\. .*--benchmarks data/negatives --split 'train\[90%:\]'"
    with pytest.raises(ValueError, match=match):
        compare([str(run), str(evaluate_folder(tmp_path / "evaluation", items=4))])


def test_what_has_no_benchmark_in_common_is_listed_once_a_file(tmp_path):
    both = [outcomes(name, [1, 0], benchmark="SPEC") for name in ("base", "tuned")]
    other = store_folder(tmp_path / "other", outcomes("clip", [1, 0], benchmark="COLA"))
    with pytest.raises(ValueError, match="no benchmark .*common") as caught:
        compare([str(store_folder(tmp_path / "both", *both)), str(other)])
    assert str(caught.value).count("items.parquet") == 2
