"""Follows the advice of `hfcomp build`: options, sources and folders; no step needs a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest

from hfcomp import cli
from hfcomp.data.built_sets.files import UNFINISHED, check_finished
from hfcomp.data.loading import load_training_set
from hfcomp.evaluation.benchmarks import benchmarks
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import data_folders
from hfcomp.factory.concretebatch.chain import ConcreteBatchOptions
from hfcomp.factory.images.options import denoising_steps
from hfcomp.factory.magic.hierarchy import read_hierarchy
from hfcomp.factory.magic.options import MagicOptions
from hfcomp.factory.magic.similarity import check_vectors
from hfcomp.factory.options import NegativeOptions
from hfcomp.factory.runner import Stage
from hfcomp.factory.writers.endpoint import check_base_url
from hfcomp.hub.datasets import PushOptions, push_built_sets
from tests.factory import builds
from tests.factory.inpaintcoco import sets as challenge
from tests.factory.magic import sets as magic

OPTIONS, LOCAL = "hfcomp/factory/options.py", "hfcomp/factory/sources.py"
WRITER = "hfcomp/factory/writer_options.py"
CONCRETE, MAGIC = "hfcomp/factory/concretebatch/options.py", "hfcomp/factory/magic/options.py"
NAMES = "image=file,caption=text"
RATED = {"writer": "substitute", "concreteness_ratings": "ratings.txt"}
URL = "http://127.0.0.1:8000/v1"
case, follows = pytest.param, pytest.mark.follows


NEEDS = ("hfcomp/options.py", "--{name} needs --{needs.option}")


def make_options(kind, **settings):
    return kind(**{"source": "rows.csv", "output": Path("out")} | settings)


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        case(ConcreteBatchOptions, RATED | {"grammar_tolerance": 0.5},
             [RATED | {"grammar_tolerance": 0.5, "grammar_model": "openai-community/gpt2"}],
             marks=follows(*NEEDS)),
        case(ConcreteBatchOptions, RATED | {"executor": "ray"},
             [RATED | {"executor": "ray", "image_dtype": "float16"}],
             marks=follows(CONCRETE, "--executor ray needs --image_dtype, such as float16")),
        case(ConcreteBatchOptions, {"writer": "substitute"},
             [RATED, {"download_ratings": True, "writer": "substitute"}],
             marks=follows("hfcomp/factory/concretebatch/options.py",
                           "expected --concreteness_ratings FILE or --download_ratings.")),
        case(MagicOptions, {"writer": "taxonomy", "temperature": 0.1}, [{"writer": "taxonomy"}],
             marks=follows(WRITER, "uses no language model. Remove it.")),
        case(MagicOptions, {"writer": "taxonomy", "encoder": "endpoint:m"},
             [{"writer": "taxonomy", "encoder": "endpoint:m", "encoder_url": URL}],
             marks=follows(MAGIC, "needs --encoder_url, such as")),
        case(MagicOptions, {"writer": "taxonomy", "encoder_url": URL},
             [{"writer": "taxonomy"},
              {"writer": "taxonomy", "encoder_url": URL, "encoder": "endpoint:text-embedding-3-small"}],
             marks=follows(MAGIC, "Remove it, or name the server's model, such as")),
        case(MagicOptions, {"writer": "taxonomy", "negative_similarity": 0.8, "negative_quantile": 0.9},
             [{"writer": "taxonomy", "negative_quantile": 0.9}, {"writer": "taxonomy", "negative_similarity": 0.8}],
             marks=follows(MAGIC, "has no effect with --negative_quantile. Remove one of them.")),
        case(NegativeOptions, {"key_column": "url"}, [{"key_column": "url", "captions_file": "captions.csv"}],
             marks=follows(*NEEDS)),
        case(NegativeOptions, {"kinds": ("llm",)},
             [{"kinds": ("llm",), "base_url": URL}, {"kinds": ("llm",), "writer": "transformers"}],
             marks=follows(WRITER, "--writer endpoint needs --base_url, such as http://127.0.0.1:8000/v1 of vLLM.")),
        case(NegativeOptions, {"grammar_tolerance": 0.5}, [{"grammar_tolerance": 0.5, "grammar_model": "gpt2"}],
             marks=follows(*NEEDS)),
        case(NegativeOptions, {"false_negative_margin": 0.1},
             [{"false_negative_margin": 0.1, "false_negative_model": "openai/clip-vit-base-patch32"}],
             marks=follows(*NEEDS)),
        case(NegativeOptions, {"kinds": ("llm",), "writer": "substitute"}, [{"kinds": ("keyword",)}],
             marks=follows(OPTIONS, "not with llm. Use --kinds keyword.")),
        case(NegativeOptions, {"kinds": ("swap",), "fill_model": "m"},
             [{"kinds": ("swap", "mask"), "fill_model": "m"}],
             marks=follows(OPTIONS, "--{name} needs --kinds to include {generator}.")),
    ],
)  # fmt: skip
def test_options(advice, kind, wrong, right):
    advice.of(make_options, kind, **wrong)
    for settings in right:
        make_options(kind, **settings)


@follows("hfcomp/factory/images/options.py", "raise image_strength to {math.ceil(1000 / steps) / 1000:g} or")
@follows("hfcomp/factory/magic/similarity.py", "Choose another --encoder.")
@follows("hfcomp/factory/writers/endpoint.py", "Remove it, and put a key into {key}.")
def test_calls(advice):
    message = advice.of(denoising_steps, 3, 0.2)
    strength, steps = message.partition("image_strength to ")[2].rstrip(".").split(" or image_steps to ")
    assert denoising_steps(3, float(strength)) == denoising_steps(int(steps), 0.2) == 1
    advice.of(check_vectors, np.array([[np.nan, 1.0]]), ["dog"])
    check_vectors(np.array([[0.5, 1.0]]), ["dog"])
    advice.of(check_base_url, "http://me:secret@127.0.0.1:8000/v1")
    check_base_url(URL)


@follows("hfcomp/factory/executors.py", "Or set num_workers=1.")
def test_builds_in_python(advice, tmp_path):
    local = [Stage("local", lambda: lambda batch: batch | {"loud": batch["caption"]})]
    advice.of(builds.build, tmp_path / "a", stages=local, num_workers=2)
    builds.build(tmp_path / "a", stages=local, num_workers=1)


@follows(LOCAL, "to a folder of their own, or, if all of them are intended, pass")
@follows(LOCAL, "Remove the rows, move the files to the source's folder or, if all of them are intended, pass")
@follows("hfcomp/factory/sources.py", "download the dataset and pass its folder as ")
@follows("hfcomp/factory/sources.py", "and this build makes them again. Remove them from --columns.")
@follows("hfcomp/factory/pixels.py", "Name it with --column_names image=<its name>.")
def test_sources(advice, clip, photographs, tmp_path, monkeypatch):
    def words(kind: str, source: object, output: str, *more: str) -> list[str]:
        parser = ["--parser", "rules"] if kind == "concepts" else []
        return ["build", kind, "--source", str(source), "--output", str(tmp_path / output), *parser, *more]

    outside = tmp_path / "list"
    outside.mkdir()
    (outside / "rows.jsonl").write_text(
        json.dumps({"image": str(photographs.parent / "0.png"), "caption": "a red dog"})
    )
    wrong = words("concepts", outside / "rows.jsonl", "outside")
    advice.command(*wrong)
    cli.main([*wrong, "--allow_outside_files"])
    (outside / "0.png").write_bytes((photographs.parent / "0.png").read_bytes())
    (outside / "rows.jsonl").write_text(json.dumps({"image": "0.png", "caption": "a red dog"}))
    cli.main(words("concepts", outside / "rows.jsonl", "moved"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "home", lambda: photographs.parent)
        home = words("concepts", photographs, "home", "--column_names", NAMES)
        advice.command(*home)
        cli.main([*home, "--allow_outside_files"])
        advised = words("concepts", outside / "rows.jsonl", "of its own")
        cli.main(advised)
    again = words("concepts", tmp_path / "moved", "again", "--columns")
    advice.command(*again, "image,concepts")
    cli.main([*again, "image"])
    with monkeypatch.context() as patch:
        of_hub = datasets.Dataset.from_dict({"image": ["0.png"], "caption": ["a red dog"]})
        patch.setattr("hfcomp.data.pair_table.load_source", lambda *_, **__: of_hub)
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        texts = words("concepts", "her/set", "texts")
        advice.command(*texts)
        cli.main([*texts, "--columns", "caption"])
    pixels = words("pixels", photographs, "pixels", "--model", str(clip))
    advice.command(*pixels)
    cli.main([*pixels, "--column_names", "image=file"])


@follows("hfcomp/factory/magic/chain.py", "Use more images, or a smaller --min_images.")
@follows("hfcomp/factory/magic/hierarchy.py", "Delete it and repeat the `hfcomp build magic` command that made it")
@follows(
    "hfcomp/data/built_sets/views.py", "Re-run the `hfcomp build` command of the dataset, which rewrites the file"
)
@follows("hfcomp/data/built_sets/files.py", "command without --until; finished steps are kept.")
def test_magic(advice, tmp_path):
    magic.source(tmp_path / "source")
    words = ["build", "magic", "--source", str(tmp_path / "source"), "--output", str(tmp_path / "magic")]
    words += ["--writer", "taxonomy", "--encoder", "captions", "--taxonomy", str(tmp_path / "taxonomy.yaml")]
    words += ["--negative_quantile", "0.99"]
    few = [word.replace(str(tmp_path / "magic"), str(tmp_path / "few")) for word in words]
    advice.command(*few, "--min_images", "99")
    cli.main([*few[:5], str(tmp_path / "fewer"), *few[6:], "--min_images", "2"])
    cli.main([*words, "--until", "hierarchy"])
    advice.of(load_training_set, str(tmp_path / "magic"))
    cli.main(words)
    rows = len(load_training_set(str(tmp_path / "magic")))
    for name, read in (("hierarchy.json", lambda: read_hierarchy(tmp_path / "magic")),
                       ("views.json", lambda: load_training_set(str(tmp_path / "magic"))),
                       ("steps/.chain.json", lambda: check_finished(tmp_path / "magic"))):  # fmt: skip
        (tmp_path / "magic" / name).write_text("damaged")
        advice.of(read)
        if name == "hierarchy.json":
            (tmp_path / "magic" / name).unlink()
        cli.main(words)
        read()
    assert len(load_training_set(str(tmp_path / "magic"))) == rows


@follows("hfcomp/factory/inpaintcoco/options.py", "Remove --quality.")
@follows("hfcomp/factory/inpaintcoco/project_rows.py", ", or remove --quality and --concepts")
@follows(
    "hfcomp/evaluation/benchmarks/papers/inpaintcoco.py",
    "`hfcomp annotate` and `hfcomp build inpaintcoco` make another.",
)
def test_challenge_sets(advice, tmp_path):
    project = challenge.project(tmp_path / "project", 3, edits={number: {"quality": "okay"} for number in range(3)})
    words = ["build", "inpaintcoco", "--source", str(project), "--output", str(tmp_path / "set")]
    advice.command(*words, "--quality", "very good")
    cli.main(words)
    published = challenge.publish(tmp_path / "published", [challenge.row(number) for number in range(3)])
    words = ["build", "inpaintcoco", "--source", str(published), "--output", str(tmp_path / "copy")]
    advice.command(*words, "--quality", "okay")
    cli.main(words)
    advice.read(benchmarks()["inpaintcoco"].obtain)
    folders = data_folders({"inpaintcoco": tmp_path / "set"}, option="data")
    assert len(load_items(benchmarks()["inpaintcoco"], folders).rows)


@follows(
    "hfcomp/data/built_sets/files.py",
    "Delete the folder and re-run {_command(folder)}, or download the dataset again.",
)
@follows(
    "hfcomp/data/built_sets/files.py",
    "re-run {_command(folder)}, which recreates this file, or download the dataset again.",
)
@follows("hfcomp/data/built_sets/files.py", "does not list it. Remove it.")
@follows("hfcomp/data/built_sets/files.py", "Re-run its `hfcomp build` command to resume it, then load the dataset.")
@follows("hfcomp/hub/dataset_cards.py", "it writes the card and keeps everything else.")
def test_damaged_sets(advice, photographs, tmp_path):
    folder = tmp_path / "built"
    words = ["build", "concepts", "--source", str(photographs), "--output", str(folder), "--column_names", NAMES]
    words += ["--parser", "rules"]

    def load() -> int:
        return len(load_training_set(str(folder)))

    cli.main(words)
    rows, (shard,) = load(), (folder / "data").glob("*.parquet")
    whole = shard.read_bytes()
    shard.unlink()
    advice.of(load)
    cli.main(words)
    assert load() == rows and shard.read_bytes() == whole
    (folder / "data/more.parquet").write_bytes(whole)
    advice.of(load)
    (folder / "data/more.parquet").unlink()
    assert load() == rows
    (folder / "README.md").unlink()
    advice.of(push_built_sets, folder, PushOptions(repo="me/set", allow_unknown_licenses=True), api=object())
    cli.main(words)
    assert (folder / "README.md").is_file()
    (folder / "manifest.json").unlink()
    advice.of(load)
    shutil.rmtree(folder)
    cli.main(words)
    assert load() == rows
    (folder / UNFINISHED).mkdir()
    advice.of(load)
    cli.main(words)
    assert load() == rows
