"""What `hfcomp evaluate`, `hfcomp compare` and their calls advise, done with small data and tiny models."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import pytest
from transformers import AutoModel, AutoProcessor

from hfcomp import cli
from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks
from hfcomp.evaluation.blind.captions import HOW_TO_FIX
from hfcomp.evaluation.callback import EvaluateBenchmarks
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.evaluate import choose_benchmarks
from hfcomp.evaluation.evaluation_results import EvaluationResults, evaluation_to_json
from hfcomp.evaluation.probes.fits import fit_adamw10
from hfcomp.evaluation.probes.linear import held_out_score, hold_out
from hfcomp.evaluation.sources import Pool, load_items
from hfcomp.evaluation.spec import Unavailable, data_folders, parse_folders
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.advice.markers import pattern
from tests.evaluation import small_sugarcrepe
from tests.evaluation.evaluations import benchmark_facts, crepe, recall, store_folder
from tests.trainers.runs import build

COMPARE = "hfcomp/evaluation/compare.py"
CALLBACK, PROBES = "hfcomp/evaluation/callback.py", "hfcomp/evaluation/probes/linear.py"
follows = pytest.mark.follows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_sugarcrepe.write(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(repo, *words, **options):
        raise ConnectionError("no network")

    monkeypatch.setattr(hub, "load_dataset", refuse)
    monkeypatch.setattr(hub, "_newest", lambda repo: None)


def pools_in(value: Any) -> Iterator[Pool]:
    """The pools of images in a module's constant, such as a benchmark or a tuple."""
    if isinstance(value, Pool):
        yield value
    elif isinstance(value, tuple) or (is_dataclass(value) and not isinstance(value, type)):
        for part in value if isinstance(value, tuple) else vars(value).values():
            yield from pools_in(part)


@follows(
    "hfcomp/evaluation/benchmarks/classification/linear_probes.py",
    "zips/train2017.zip and pass its folder as --data train2017=FOLDER.",
)
@follows(
    "hfcomp/evaluation/benchmarks/classification/linear_probes.py",
    "or pass a folder with COCO's annotations/, val2017/ and",
)
@follows(
    "hfcomp/evaluation/benchmarks/classification/linear_probes.py",
    "clip-benchmark/wds_imagenet1k as --data wds_imagenet1k=FOLDER.",
)
@follows(
    "hfcomp/evaluation/benchmarks/classification/linear_probes.py",
    "or pass a folder in that layout as --data {folder}=FOLDER.",
)
@follows("hfcomp/evaluation/benchmarks/classification/zero_shot_sets.py", "as --data wds_{repo}=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/composition/negbench.py", "pass its JPEGImages as --data voc2007=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/older/eqben.py", "pass the folder as --data {name}=FOLDER.")
@follows(
    "hfcomp/evaluation/benchmarks/papers/keywords.py",
    "Pass the folder of the downloaded files as --data sbu_images=FOLDER.",
)
@follows("hfcomp/evaluation/benchmarks/papers/keywords.py", "pass the folder as --data keywords_sbu=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/papers/magic.py", "and pass its folder as --data magic=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/readers/pools.py", "and pass its folder as --data {0}=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/retrieval/retrieval.py", "as --data flickr30k-images=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/older/vl_checklist.py", "as --data hake=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/readers/pools.py", "pass the folder as --data swig=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/retrieval/retrieval.py", "as --data flickr8k-images=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/composition/valse.py", "as --data visual7w=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/composition/valse.py", "as --data visdial_val2018=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/readers/pools.py", "as --data visual_genome=FOLDER.")
@follows("hfcomp/evaluation/benchmarks/retrieval/descriptions.py", "as --data {name.removesuffix('_full')}=FOLDER.")
@follows(
    "hfcomp/evaluation/sources.py", "Or pass --data {benchmark.folder or benchmark.name}=DIR, a folder with {forms}."
)
def test_every_folder_of_data_is_looked_for_under_the_name_that_is_advised(advice, tmp_path, monkeypatch):
    """What is in it is read by the tests of each benchmark; here it is found under the name that is advised."""
    known = benchmarks()
    modules = [vars(module) for name, module in sys.modules.items() if name.startswith("hfcomp.evaluation.benchmarks")]
    pools = {pool.name: pool for values in modules for value in values.values() for pool in pools_in(value)}
    with pytest.raises(Unavailable) as caught:
        load_items(known["sugarcrepe"])
    ways = {benchmark.obtain: {benchmark.name, benchmark.folder} for benchmark in known.values()}
    ways |= {pool.obtain: {pool.name} for pool in pools.values()} | {
        caught.value.how_to_fix: {"sugarcrepe", "val2017"}
    }
    for way, names in ways.items():
        for name in re.findall(r"--data ([\w-]+)=", way):
            assert name in names | pools.keys(), way
            folders = data_folders(parse_folders([f"{name}={tmp_path}"], option="data"), option="data")
            assert folders.of(name) == tmp_path
        if any(pattern(fragment).search(" ".join(way.split())) for _, fragment in advice.left):
            advice.read(way)


@follows(
    "hfcomp/evaluation/evaluate.py",
    "name the benchmarks: --suite compositional, or --benchmarks sugarcrepe,winoground",
)
@follows("hfcomp/options.py", "name at least one model: a Hub id such as openai/clip-vit-base-patch32, or a")
@follows(
    "hfcomp/evaluation/benchmarks/__init__.py",
    "`hfcomp evaluate --list` lists them. Your own benchmark is package.module:NAME",
)
@follows("hfcomp/evaluation/benchmarks/__init__.py", "Add it to benchmarks, or leave {option} out.")
@follows(
    "hfcomp/evaluation/benchmarks/own.py",
    "the image is missing: {_describe(cell)}. Remove the row or give it an image.",
)
@follows("hfcomp/evaluation/evaluate.py", "blind_captions has no effect with blind={NO_RULES}. Remove one of the two.")
@follows(
    "hfcomp/evaluation/blind/captions.py",
    "Pass --blind_captions FILE (one caption per line, COCO's captions_*.json, or a dataset",
)
def test_evaluate(advice, clip, data, pairs_file, tmp_path, capsys):
    words = ["evaluate", str(clip), "--data_dir", str(data), "--device", "cpu", "--no_page", "--overwrite"]
    words += ["--output_dir", str(tmp_path / "out"), "--blind", "none"]
    message = advice.command(*words)
    first, second = re.findall(r"--\w+ \w+(?:,\w+)*", message)
    assert choose_benchmarks(first.split()[1], [], None, print)
    cli.main([*words, *second.split()])
    named = [*words, "--benchmarks", "sugarcrepe"]
    advice.command(*named[:1], *named[2:])
    cli.main(named)
    advice.command(*words, "--benchmarks", "sugarcrap")
    cli.main(["evaluate", "--list"])
    cli.main([*words, "--benchmarks", "hfcomp.evaluation.benchmarks.composition.sugarcrepe:SUGARCREPE"])
    cli.main([*words, "--benchmarks", str(pairs_file)])
    advice.command(*named, "--column_names", "caption=text")
    lines = pairs_file.read_text().replace('"caption"', '"text"').splitlines()
    pairs_file.write_text("\n".join(lines))
    cli.main([*words, "--benchmarks", f"sugarcrepe,{pairs_file}", "--column_names", "caption=text"])
    pairs_file.write_text(
        "\n".join([*lines, json.dumps({"image": None, "text": "a cube", "negative_captions": ["x"]})])
    )
    with pytest.raises(ValueError) as caught:
        load_items(find_benchmarks([str(pairs_file)], {"caption": "text"})[0])
    advice.read(str(caught.value))
    pairs_file.write_text("\n".join(lines))
    load_items(find_benchmarks([str(pairs_file)], {"caption": "text"})[0])
    captions = tmp_path / "captions.txt"
    captions.write_text("a red cube on a ball\na dog\n")
    advice.command(*named, "--blind_captions", str(captions))
    bigram = [word for word in named if word not in ("--blind", "none")]
    capsys.readouterr()
    cli.main(bigram)
    advice.read(capsys.readouterr().out)
    cli.main([*bigram, "--blind_captions", str(captions)])
    (tmp_path / "coco").mkdir()
    listed = [{"image_id": 1, "caption": "a dog on a table", "id": 1}]
    (tmp_path / "coco/captions_val2017.json").write_text(json.dumps({"images": [], "annotations": listed}))
    folder = re.search(r"--data ([\w-]+)=", " ".join(HOW_TO_FIX.split()))[1]
    cli.main([*bigram, "--data", f"{folder}={tmp_path / 'coco'}"])


@follows(COMPARE, "Choose with --tie {' or '.join(TIE_RULES)}.")
@follows(COMPARE, "Evaluate both with the same hfcomp on the same data, or exclude this benchmark with --benchmarks.")
@follows(COMPARE, "or pass --common to compare the items with the same name and image.")
@follows(COMPARE, "no items in common. Exclude them with --benchmarks.")
@follows(COMPARE, "Evaluate both on the same data, or pass --common to compare the")
@follows(
    "hfcomp/evaluation/stored.py",
    "found no such folder. Pass a folder written by `hfcomp evaluate` or a recipe, or folder:",
)
@follows(
    "hfcomp/evaluation/stored.py",
    "for a model, run `hfcomp evaluate {folder} --benchmarks NAMES --output_dir FOLDER` first.",
)
def test_compare(advice, clip, tmp_path):
    def save(name: str, *tables, facts=None, **changes) -> str:
        folder = store_folder(tmp_path / name, *tables, benchmarks=benchmark_facts(**(facts or {})), **changes)
        return str(folder)

    def words(*folders: str) -> list[str]:
        return ["compare", "--no_page", *folders]

    base = save("base", crepe("clip", 0.5), recall("clip", 0.5))
    other = save("other", crepe("b", 0.5), recall("b", 0.4), tie="half")
    advice.command(*words(base, other))
    cli.main([*words(base, other), "--tie", "wrong"])
    version = save("version", crepe("c", 0.5), recall("c", 0.5), facts={"version": 2})
    advice.command(*words(base, version))
    cli.main([*words(base, version), "--benchmarks", "COCO"])
    place = {"place": "somebody/crepe", "commit": "b" * 40, "pools": []}
    commit = save("commit", crepe("d", 0.5), recall("d", 0.5), facts={"data": place})
    advice.command(*words(base, commit))
    cli.main([*words(base, commit), "--common"])
    table = crepe("e", 0.5)
    less = save("less", table[table["item"] != "swap/7"], recall("e", 0.5))
    advice.command(*words(base, less))
    cli.main([*words(base, less), "--common"])
    none = save("none", table.assign(image_id="x" + table["image_id"]), recall("e", 0.5))
    advice.command(*words(base, none), "--common")
    cli.main([*words(base, none), "--common", "--benchmarks", "COCO"])
    advice.command(*words(base, str(tmp_path / "nowhere")))
    cli.main(words(base, f"{less}:e", "--common"))
    message = advice.command(*words(base, str(clip)))
    advised = shlex.split(message.rpartition("run `")[2].partition("`")[0])
    out = str(tmp_path / "evaluated")
    advised = [{"NAMES": "sandbox_zero_shot", "FOLDER": out}.get(word, word) for word in advised]
    cli.main([*advised[1:], "--device", "cpu", "--no_page"])


@follows("hfcomp/evaluation/evaluation_results.py", "compares these models from the output FOLDER")
def test_outcomes_that_not_all_models_have(advice, tmp_path):
    folder = store_folder(
        tmp_path / "runs", crepe("a", 0.5), crepe("b", 0.6), recall("a", 0.5), recall("b", 0.4), crepe("c", 0.5)
    )
    (said,) = evaluation_to_json(EvaluationResults.load(folder))["notes"]
    advice.read(said)
    words = shlex.split(said.partition("`")[2].partition("`")[0].replace("FOLDER", str(folder)))
    cli.main([*words[1:], "--no_page"])


@follows(
    "hfcomp/evaluation/encoding/evaluated_model.py",
    "Pass EmbeddingCache() or no cache, or save the model and pass its",
)
def test_files_and_caches(advice, clip, tmp_path):
    model, processor = AutoModel.from_pretrained(clip), AutoProcessor.from_pretrained(clip)
    advice.of(Embedder, model, processor, device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
    Embedder(model, processor, device="cpu", cache=EmbeddingCache())
    Embedder(model, processor, device="cpu")
    model.save_pretrained(tmp_path / "saved"), processor.save_pretrained(tmp_path / "saved")
    Embedder(tmp_path / "saved", device="cpu", cache=EmbeddingCache(tmp_path / "cache"))


@follows(CALLBACK, "expected at least 1, or leave it out.")
@follows(CALLBACK, "Pass EvaluateBenchmarks(..., steps=N), or set eval_strategy and give the trainer an eval_dataset.")
@follows(CALLBACK, "Remove `steps`, or set eval_strategy='no'.")
def test_callback(advice, clip, data, tmp_path):
    rows = tiny.pairs(8)

    def train(scoring: dict | None = None, **settings):
        trainer = build(InfoNCETrainer, clip, rows, tmp_path, max_steps=1, **settings)
        trainer.add_callback(
            EvaluateBenchmarks(trainer, ["sugarcrepe"], folders=data, at_start=False, **(scoring or {}))
        )
        trainer.train()

    advice.of(train, {"steps": 0})
    advice.of(train)
    train({"steps": 1})
    every = {"eval_strategy": "steps", "eval_steps": 1, "eval_dataset": rows}
    train(**every)
    best = {"save_strategy": "steps", "save_steps": 1, "metric_for_best_model": "eval_sugarcrepe_caption_choice"}
    advice.of(train, {"steps": 1}, **every, **best)
    train(**every, **best)
    train({"steps": 1}, **best)


@follows(PROBES, "Number the classes without gaps, or pass allow_missing=True: such a class is then never predicted.")
@follows(PROBES, "choosing a strength needs images on both sides. Pass a single strength, or a different held_out.")
@follows(PROBES, "the remaining images have only one class. Pass a different held_out.")
@follows(PROBES, "no class has both positives and negatives there. Pass held_out yourself.")
def test_probes(advice):
    features = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    labels = np.array([0, 2] * 4)

    def fit(labels, classes=2, **settings):
        return fit_adamw10(features[: len(labels)], labels, classes=classes, **settings)

    advice.of(fit, labels, 3, weight_decay=0.01)
    fit(labels, 3, weight_decay=0.01, allow_missing=True)
    fit(labels // 2, weight_decay=0.01)
    few = np.array([0, 1])
    advice.of(fit, few, weight_decay=[0.01, 0.1])
    fit(few, weight_decay=0.01)
    halves = np.array([True, True, False, False] * 2)
    fit(labels // 2, weight_decay=[0.01, 0.1], held_out=halves)
    advice.of(hold_out, labels, 0, labels == 0)
    hold_out(labels, 0, halves)
    many = np.array([[True, False]] * 4)
    advice.of(held_out_score, np.zeros((4, 2), np.float32), many)
    held_out_score(np.zeros((4, 2), np.float32), np.array([[True, False], [False, True]] * 2))
