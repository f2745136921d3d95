"""Means over benchmarks: the rows of the papers' tables, and both means from data on disk."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pandas as pd
import pytest

import hfcomp
from hfcomp.evaluation.benchmarks import benchmarks
from hfcomp.evaluation.benchmarks.classification.linear_probes import VTAB
from hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUBSETS_PP
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.evaluation.evaluation_results import EvaluationResults
from hfcomp.experiments.program import run
from hfcomp.experiments.recipes import read_recipe
from hfcomp.statistics.summary import summarize
from tests import tiny
from tests.evaluation import small_sugarcrepe
from tests.evaluation.benchmarks.classification.test_linear_probes import raw_folder
from tests.evaluation.benchmarks.composition.test_image_pairs import raw
from tests.evaluation.benchmarks.retrieval.test_retrieval import FLICKR30K, karpathy
from tests.evaluation.webdatasets import encode_image, write_set

pytestmark = pytest.mark.usefixtures("without_figures")

COMPOSITIONAL, GENERAL = "Im et al. 2026, Table 2", "Im et al. 2026, Table 3"
# SugarCrepe, SCpp-I2T, SCpp-T2I, WG-txt, WG-img, WG-grp, M.Avg
TABLE_2 = """
CLIP          75.38 59.41 46.84 29.00  9.00 7.50 47.89
NegCLIP       82.50 62.75 58.15 30.50 11.00 8.00 53.15
TSVLC         79.07 55.30 50.05 21.25  8.50 4.75 47.75
TSVLC+        72.38 52.49 49.00 24.00  8.00 4.75 45.13
TripletCLIP   82.47 58.43 53.00 25.75 11.00 7.00 50.92
CE-CLIP       85.25 47.66 53.18 18.50 11.25 5.00 49.08
DeGLA         89.23 62.84 54.94 24.50 10.00 7.25 54.01
lc+InfoNCE    78.01 63.38 60.59 31.25  9.25 7.75 52.03
wo+InfoNCE    78.28 63.42 60.26 32.25  9.75 8.00 52.26
hc+InfoNCE    81.70 65.09 60.68 31.75 10.75 8.75 53.89
lc+Cement     82.85 65.62 61.05 29.00  9.75 6.25 53.72
wo+Cement     81.76 64.93 60.79 30.25 12.00 8.25 53.82
Inverse       80.68 64.41 60.12 30.75  9.75 7.00 52.92
Static        82.31 65.81 60.14 32.50  9.75 8.50 54.07
Slipform      83.00 66.24 60.21 31.00 10.25 7.75 54.18
"""
# COCO mAP, ImageNet top-1 and top-5, T2I R@1 and R@5, I2T R@1 and R@5, VTAB, M.Avg
TABLE_3 = """
CLIP          24.43 43.12 70.26 21.15 40.51 37.04 61.00 33.08 38.53
NegCLIP       26.57 43.37 71.04 28.84 51.14 42.18 65.95 34.11 41.23
TSVLC         25.53 43.98 71.08 23.55 43.84 23.82 45.01 33.77 37.72
TSVLC+        25.48 43.89 71.15 23.94 44.36 26.40 48.95 33.83 38.19
TripletCLIP   25.08 40.70 67.84 19.25 37.59 16.67 35.77 32.11 34.69
CE-CLIP       24.74 46.02 74.91 26.19 47.34 22.71 45.28 39.33 39.98
DeGLA         25.81 44.24 71.60 30.13 52.70 37.04 60.95 34.26 40.80
lc+InfoNCE    26.42 43.96 71.34 30.29 52.70 48.02 71.09 34.15 42.19
wo+InfoNCE    26.44 44.00 71.45 30.35 52.67 47.96 71.08 34.15 42.18
hc+InfoNCE    26.21 42.41 69.68 29.43 51.46 45.09 68.45 33.18 41.01
lc+Cement     26.00 42.27 69.72 29.17 51.42 42.92 66.78 33.42 40.75
wo+Cement     26.24 42.28 69.52 29.79 52.05 46.35 69.68 33.15 41.19
Inverse       26.27 42.46 69.81 29.82 51.90 46.55 69.63 33.33 41.30
Static        26.19 42.67 70.09 28.97 50.93 43.56 66.96 33.45 40.91
Slipform      26.16 43.11 70.57 28.44 50.42 42.05 65.58 33.64 40.82
"""
# Columns and mean are rounded to 0.01. The weights of the columns have the sum 1: the mean of rounded columns is off
# by half of that at most, and the printed mean by another half.
ROUNDING = 0.005 + 0.005
MISFIT = {(GENERAL, "wo+InfoNCE"): 0.0275}
"""How far a row's mean is above the printed one where rounding cannot be why: that row is misprinted somewhere."""


def with_columns(columns: dict[tuple[str, str, str], float]) -> pd.DataFrame:
    """Two items of every line below a part of the mean, with the part's column as their value."""
    titled = {benchmark.title: benchmark for benchmark in benchmarks().values()}
    tables = []
    for (title, subset, metric), column in columns.items():
        averages = {average.name: average.groups or (("Object", "Both"),) for average in titled[title].averages}
        for own in [name for group in averages.get(subset, ((subset,),)) for name in group]:
            names = [f"{title}/{own}/{number}" for number in range(2)]
            facts = {"benchmark": title, "subset": own, "metric": metric, "aspect": "general", "arm": "m"}
            tables.append(pd.DataFrame({"item": names, "image_id": names, "value": column / 100}).assign(**facts))
    return pd.concat(tables, ignore_index=True)


@pytest.mark.parametrize(("source", "table"), [(COMPOSITIONAL, TABLE_2), (GENERAL, TABLE_3)])
def test_the_rows_of_the_papers_tables(source, table):
    mean = MEANS[source][0]
    printed, items = {}, []
    for name, row in (line.split(maxsplit=1) for line in table.strip().splitlines()):
        *columns, printed[name] = map(float, row.split())
        items.append(with_columns(dict(zip(mean.parts, columns, strict=True))).assign(arm=name))
    averages = {benchmark.title: benchmark.averages for benchmark in benchmarks().values()} | MEANS
    line = summarize(pd.concat(items), averages=averages, intervals=False, references=[])[0]
    assert (line["benchmark"], line["metric"]) == (source, mean.name)
    assert line["models"].keys() == printed.keys() and len(printed) == 15
    for name, cell in line["models"].items():
        off = 100 * cell["value"] - printed[name]
        if (source, name) in MISFIT:
            assert off == pytest.approx(MISFIT[source, name]) and off > ROUNDING, name
        else:
            assert abs(off) <= ROUNDING + 1e-9, name


def write_sugarcrepe_pp(folder: Path) -> None:
    """Items about the photographs of the small SugarCrepe, more in each subset than in the last."""
    (folder / "sugarcrepe_pp").mkdir()
    captions, keys = tiny.captions(), ("caption", "caption2", "negative_caption")
    for place, subset in enumerate(SUBSETS_PP):
        records = []
        for row in range(3 + 4 * place):
            texts = [captions[(37 * row + place + shift) % len(captions)] for shift in (0, 7, 11)]
            records.append({"id": row, "filename": f"{row}.png", **dict(zip(keys, texts, strict=True))})
        (folder / "sugarcrepe_pp" / f"{subset}.json").write_text(json.dumps(records))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = small_sugarcrepe.write(tmp_path_factory.mktemp("compositional"))
    write_sugarcrepe_pp(root)
    (root / "winoground").mkdir()
    raw(root / "winoground")
    return root


@pytest.fixture(scope="module")
def results(folder, clip) -> EvaluationResults:
    models = {"clip": str(clip), "other": str(tiny.clip(folder / "other", seed=5))}
    names = ["sugarcrepe", "sugarcrepe_pp", "winoground"]
    return hfcomp.evaluate(models, benchmarks=names, data_dir=folder, device="cpu", cache=False)


def test_the_compositional_mean_is_shown_above_its_parts_with_the_difference_of_models(results):
    mean = results.lines[0]
    assert (mean["benchmark"], mean["metric"], mean["aspect"]) == (COMPOSITIONAL, "compositional mean", "composition")
    by_name = {(line["benchmark"], line["subset"], line["metric"]): line["models"] for line in results.lines}
    pp, winoground = ("SugarCrepe++", "macro of 5 subsets"), ("Winoground", "all items")
    for model, cell in mean["models"].items():

        def value(*line: str, model: str = model) -> float:
            return by_name[line][model]["value"]

        tasks = (value(*pp, "image-to-text") + value(*pp, "text only")) / 2
        matches = sum(value(*winoground, metric) for metric in ("text", "image", "group")) / 3
        expected = (value("SugarCrepe", "macro of 7 subsets", "caption choice") + tasks + matches) / 3
        assert cell["value"] == pytest.approx(expected) and cell["low"] < cell["value"] < cell["high"]
    values = [cell["value"] for cell in mean["models"].values()]
    change = mean["differences"]["other"]["clip"]
    assert change["value"] == pytest.approx(values[1] - values[0]) and {"p", "q", "smallest"} < change.keys()
    # the 20 photographs of SugarCrepe are those of SugarCrepe++; Winoground has 4 pairs
    assert mean["images"] == 20 + 4
    assert f"{COMPOSITIONAL} compositional mean" in " ".join(str(results).split())
    assert results.missing == []


def test_stored_results_have_it_and_name_what_it_lacks(results, tmp_path):
    results.save(tmp_path / "stored")
    assert EvaluationResults.load(tmp_path / "stored").lines[0] == results.lines[0]
    compared = hfcomp.compare([tmp_path / "stored"])
    assert compared.lines[0]["differences"]["other"]["clip"] == results.lines[0]["differences"]["other"]["clip"]
    partly = hfcomp.compare([tmp_path / "stored"], benchmarks=["sugarcrepe", "winoground"])
    absent = [f"SugarCrepe++: macro of 5 subsets {metric}" for metric in ("image-to-text", "text only")]
    entry = {"benchmark": COMPOSITIONAL, "metric": "compositional mean", "average": "compositional mean"}
    assert partly.missing == [{**entry, "absent": absent}]
    partly.save(tmp_path / "partly")
    text = (tmp_path / "partly" / "report.md").read_text()
    assert f"{COMPOSITIONAL}, compositional mean, needs {absent[0]}" in text
    alone = hfcomp.compare([tmp_path / "stored"], benchmarks=["sugarcrepe"])
    assert alone.missing == [] and all(line["benchmark"] == "SugarCrepe" for line in alone.lines)


@pytest.mark.parametrize("whole", [True, False])
def test_a_recipe_is_judged_by_it_or_by_the_mean_without_winoground_which_says_so(folder, tmp_path, whole):
    names = ["sugarcrepe", "sugarcrepe_pp", *["winoground"] * whole]
    data = [f"{name}={folder / name}" for name in ("val2017", *names)]
    small = "--dataset_rows 32 --batch_size 8 --max_steps 1 --disable_tqdm true --save_strategy no"
    small += " --controls same-batch --page false --seed 42"
    scored = ["--evaluation", "benchmarks", "--evaluation_benchmarks", *names, "--evaluation_data", *data]
    scored += ["--primary", f"{COMPOSITIONAL}: compositional mean"]
    run(read_recipe("slipform", [*small.split(), *scored, "--output_dir", str(tmp_path / "run")]))
    report = json.loads((tmp_path / "run" / "results.json").read_text())
    lines = {f"{line['benchmark']}: {line['metric']}": line for line in report["results"]}
    mean = f"{COMPOSITIONAL}: compositional mean{'' if whole else ' without Winoground'}"
    assert [line["primary"] for line in report["results"] if "primary" in line] == [mean]
    assert [name for name in lines if name.startswith(COMPOSITIONAL)] == [mean]
    if not whole:
        parts = [
            line["models"]["Slipform"]["value"]
            for line in report["results"]
            if line["subset"] in ("macro of 7 subsets", "macro of 5 subsets")
        ]
        crepe, matches, text_only = parts[0], *parts[-2:]
        assert lines[mean]["models"]["Slipform"]["value"] == pytest.approx((crepe + (matches + text_only) / 2) / 2)
    absent = f"{COMPOSITIONAL}: no compositional mean, which needs Winoground: all items text"
    assert any(note.startswith(absent) for note in report["notes"]) is not whole


def test_without_one_of_the_other_parts_no_mean_stands_in(folder, tmp_path):
    data = [f"{name}={folder / name}" for name in ("val2017", "sugarcrepe")]
    words = ["--evaluation", "benchmarks", "--evaluation_benchmarks", "sugarcrepe", "--evaluation_data", *data]
    words += ["--primary", f"{COMPOSITIONAL}: compositional mean", "--dataset_rows", "32", "--batch_size", "8"]
    with pytest.raises(ValueError, match=r"needs lines .*: SugarCrepe\+\+: macro of 5 subsets image-to-text"):
        run(read_recipe("slipform", [*words, "--output_dir", str(tmp_path / "run")]))


def sun397(folder: Path) -> None:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list("abcd"))})
    (folder / "data").mkdir(parents=True)
    for split in ("train", "test"):
        cells = [{"image": {"bytes": encode_image(row % 4, row)}, "label": row % 4} for row in range(12)]
        datasets.Dataset.from_list(cells, features).to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")


def test_the_general_mean_of_probes_and_retrieval(tmp_path, clip):
    labels = [row % 7 for row in range(28)]
    tasks = write_set(tmp_path / "tasks", labels[:14], labels, classes=list("abcdefg"))
    sun397(tmp_path / "vtab_sun397")
    folders = {benchmark.folder: tasks for benchmark in VTAB if benchmark.folder != "vtab_sun397"} | {
        "wds_imagenet1k": tasks
    }
    raw_folder(tmp_path / "coco_labels")
    karpathy(FLICKR30K, tmp_path / "flickr30k")
    names = ["coco_labels_adamw10", "imagenet1k_probe_adamw10", "flickr30k", "vtab"]
    where = {"data": folders, "data_dir": tmp_path, "device": "cpu", "cache": False}
    results = hfcomp.evaluate(str(clip), benchmarks=names, **where)
    assert results.skipped == [] and results.missing == []
    mean = results.lines[0]
    assert (mean["benchmark"], mean["metric"], mean["aspect"]) == (GENERAL, "general mean", "general")
    # mAP is no percentage, which the report says
    assert f"| {GENERAL} general mean (x 100, several metrics) |" in results._repr_markdown_()
