"""The builders: from a COCO folder to a dataset on the Hub, in one command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard

from hfcomp import cli
from hfcomp.data.loading import load_training_set
from hfcomp.factory.options import NegativeOptions
from hfcomp.reading import read_yaml
from hfcomp.testing import write_tiny_sdxl
from tests.factory.builds import png
from tests.factory.inpaintcoco import sets
from tests.factory.magic.sets import source
from tests.hub.repositories import READ_TOKEN, WRITE_TOKEN, WRONG_TOKEN
from tests.hub.running import ROOT, run_command, run_in_hub
from tests.negatives import language_models

BUILDERS = ROOT / "dataset_builders"
BUILDER = BUILDERS / "negatives"
CAPTIONS = ["A red dog and a blue cat.", "A dog on a bench."]


@pytest.fixture
def coco(tmp_path) -> Path:
    folder = tmp_path / "coco"
    (folder / "annotations").mkdir(parents=True)
    (folder / "train2017").mkdir()
    images = [{"id": number, "file_name": f"{number}.jpg", "license": 4 if number < 3 else 6} for number in (1, 2, 3)]
    captions = [{"image_id": number, "caption": text} for number in (1, 2, 3) for text in CAPTIONS]
    content = {"images": images, "annotations": captions}
    (folder / "annotations/captions_train2017.json").write_text(json.dumps(content))
    for number in (1, 2, 3):
        (folder / f"train2017/{number}.jpg").write_bytes(png(number))
    return folder


def run(hub, *words: object, builder: Path = BUILDER, fails: bool = False) -> str:
    return run_command([builder / "build.py", *words], hub.environment(), fails=fails)


@pytest.mark.slow
def test_both_configurations_are_built_and_pushed(hub, coco, tmp_path):
    model = language_models.roberta(tmp_path / "fill", {"Ġhorse": 0.0, "Ġgreen": -1.0, "Ġold": -2.0})
    words = ["--source", coco, "--output", tmp_path / "out", "--parser", "rules", "--fill_model", model]
    said = run(hub, *words, "--push_to_hub", "me/negatives")
    assert f"pushed to {hub.address}/datasets/me/negatives" in said
    pushed = hub.repository("datasets", "me/negatives").files
    card = DatasetCard(pushed["README.md"].content.decode())
    assert [config["config_name"] for config in card.data.configs] == ["paper", "released"]
    template = DatasetCard.load(BUILDER / "README.md").data
    assert card.data.configs == template.configs and card.data.pretty_name == template.pretty_name
    for name, number in (("paper", 2), ("released", 5)):
        rows = load_training_set(str(tmp_path / "out" / name))
        assert rows["caption"][:] == CAPTIONS * 2 and rows["image_id"][:] == ["1", "1", "2", "2"]
        assert {len(texts) for texts in rows["negative_captions"]} == {number}
        assert rows["negative_captions"][0][0] == "A red cat and a blue dog."
        assert pushed[f"{name}/data/train-00000-of-00001.parquet"].lfs
    assert "Attribution-NoDerivs License" in (tmp_path / "out/paper/set_aside.jsonl").read_text()


def test_the_configurations_are_options_of_the_build_and_of_the_card():
    configs = read_yaml(BUILDER / "config.yaml")
    for config in configs.values():
        NegativeOptions(source="x", output=Path("y"), **{**config, "kinds": tuple(config["kinds"])})
    assert [config["config_name"] for config in DatasetCard.load(BUILDER / "README.md").data.configs] == list(configs)


def test_an_unknown_configuration_is_one_line(hub, tmp_path):
    said = run(hub, "--source", "x", "--output", tmp_path, "--configs", "papers", fails=True)
    assert re.match("error: --configs: found 'papers', expected .*paper, released", said.splitlines()[-1])


def test_concretebatch_is_built_pushed_and_loaded_back(hub, coco, clip, tmp_path):
    pipeline = write_tiny_sdxl(tmp_path / "sdxl", clip)
    ratings = ["Word\tConc.M\tDom_Pos", "dog\t4.7\tNoun", "cat\t4.8\tNoun", "red\t4.1\tAdjective", ""]
    (tmp_path / "ratings.txt").write_text("\n".join(ratings))
    words = ["--source", coco, "--output", tmp_path / "out", "--parser", "rules", "--writer", "substitute"]
    words += ["--concreteness_ratings", tmp_path / "ratings.txt", "--image_pipeline", pipeline, "--image_size", "32"]
    said = run(hub, *words, "--push_to_hub", "me/pairs", builder=BUILDERS / "concretebatch")
    assert f"pushed to {hub.address}/datasets/me/pairs" in said
    pushed = hub.repository("datasets", "me/pairs").files
    card = DatasetCard(pushed["README.md"].content.decode())
    assert [config["config_name"] for config in card.data.configs] == [
        "high_concreteness",
        "low_concreteness",
        "random",
    ]
    assert card.data.configs[0]["default"] and card.data.pretty_name == "ConcreteBatch"
    assert not [name for name in pushed if name.startswith("steps")]
    code = """
        from datasets import load_dataset
        rows = load_dataset("me/pairs", split="train")
        assert rows["image_id"][:] == ["1", "2"] and rows[0]["negative_image"].size == (32, 32)
        streamed = load_dataset("me/pairs", "random", split="train", streaming=True)
        assert len(list(streamed)) == 2 and "negative_concreteness" not in rows.column_names
    """
    run_in_hub(hub, code)


@pytest.mark.parametrize("builder", sorted(path.parent.name for path in BUILDERS.glob("*/build.py")))
def test_a_builders_card_attributes_the_captions_and_cites_the_paper(builder):
    card = DatasetCard.load(BUILDERS / builder / "README.md").text
    assert "## License" in card and "CC BY 4.0" in card and "attribution to the COCO Consortium" in card
    assert "## Citation" in card and "arXiv preprint arXiv:" in card


@pytest.mark.slow
def test_magic_is_built_pushed_and_loaded_back(hub, tmp_path):
    place = source(tmp_path / "source", license={0: "Attribution-NoDerivs License"})
    words = ["--source", place, "--output", tmp_path / "out", "--writer", "taxonomy", "--encoder", "captions"]
    words += ["--taxonomy", tmp_path / "taxonomy.yaml", "--push_to_hub", "me/magic"]
    said = run(hub, *words, "--until", "captions", builder=BUILDERS / "magic", fails=True)
    assert "error: --push_to_hub" in said and "--until captions" in said
    said = run(hub, *words, builder=BUILDERS / "magic")
    assert f"pushed to {hub.address}/datasets/me/magic" in said
    card = DatasetCard(hub.repository("datasets", "me/magic").files["README.md"].content.decode())
    assert card.data.pretty_name == "MAGIC" and card.data.configs[0]["config_name"] == "captions"
    assert "concepts of level 1" in card.text and "--writer taxonomy" in card.text
    code = """
        from datasets import load_dataset
        rows = load_dataset("me/magic", "levels", split="train+test")
        assert len(rows) == 39 and {*rows["level_4"]} == {"living thing", "artifact"}
    """
    run_in_hub(hub, code)


def test_inpaintcoco_of_a_project_is_built_pushed_and_loaded_back(hub, tmp_path):
    project = sets.project(tmp_path / "project", 4)
    words = ["--source", project, "--output", tmp_path / "out", "--push_to_hub", "me/pairs"]
    said = run(hub, *words, builder=BUILDERS / "inpaintcoco")
    assert f"pushed to {hub.address}/datasets/me/pairs" in said
    pushed = hub.repository("datasets", "me/pairs").files
    card = DatasetCard(pushed["README.md"].content.decode())
    assert card.data.pretty_name == "InpaintCOCO" and "| annotator 1 | 2 | 2 |" in card.text
    assert not any(b"Meyer" in file.content for file in pushed.values())
    code = """
        from datasets import load_dataset
        rows = load_dataset("me/pairs", split="test")
        assert len(rows) == 4 and rows[0]["mask"].size == rows[0]["coco_image"].size
        assert len(list(load_dataset("me/pairs", split="test", streaming=True))) == 4
    """
    run_in_hub(hub, code)


def test_the_published_inpaintcoco_is_read_from_the_hub_and_pushed_with_flags(hub, connect, tmp_path):
    rows = [sets.row(number, **({"inpaint_caption": ""} if number == 1 else {})) for number in range(4)]
    source = sets.publish(tmp_path / "source", rows)
    api = connect(WRITE_TOKEN)
    api.create_repo("me/InpaintCOCO", repo_type="dataset")
    api.upload_folder(repo_id="me/InpaintCOCO", repo_type="dataset", folder_path=source)
    words = ["--source", "me/InpaintCOCO", "--output", tmp_path / "out", "--push_to_hub", "me/flagged"]
    run(hub, *words, builder=BUILDERS / "inpaintcoco")
    card = DatasetCard(hub.repository("datasets", "me/flagged").files["README.md"].content.decode())
    assert card.data.source_datasets == ["me/InpaintCOCO"] and "| empty caption | 1 |" in card.text
    code = """
        from datasets import load_dataset
        rows = load_dataset("me/flagged", split="test")
        assert rows["flags"][:] == [[], ["empty caption"], [], []] and {*rows["source"]} == {"me/InpaintCOCO"}
    """
    run_in_hub(hub, code)


@pytest.fixture
def build(coco, connect, monkeypatch, tmp_path):
    """Runs `hfcomp build negatives` with a token; returns the folder of the set."""

    def build(*words: str, token: str | bool = WRITE_TOKEN) -> Path:
        monkeypatch.setattr("huggingface_hub.HfApi", lambda: connect(token))
        given = ["--source", str(coco), "--output", str(tmp_path / "set"), "--split", "train2017"]
        cli.main(["build", "negatives", *given, "--kinds", "swap", "--parser", "rules", *words])
        return tmp_path / "set"

    return build


def test_a_set_is_built_and_pushed_by_one_command(hub, build):
    folder = build("--push_to_hub", "me/negatives", "--private", "--revision", "first", "--only_adaptable")
    pushed = hub.repository("datasets", "me/negatives")
    shard = "data/train-00000-of-00001.parquet"
    assert pushed.private and list(pushed.files) == [".gitattributes"]
    assert pushed.branches["first"][-1].files[shard].content == (folder / shard).read_bytes()
    assert "push_to_hub" not in (folder / "README.md").read_text()


@pytest.mark.parametrize("token", [WRONG_TOKEN, READ_TOKEN, False])
def test_without_the_right_to_write_nothing_is_built(hub, build, tmp_path, token):
    with pytest.raises(SystemExit, match="^error: dataset me/negatives .*not pushed: .*hf auth login") as stopped:
        build("--push_to_hub", "me/negatives", token=token)
    assert str(token) not in str(stopped.value) and not (tmp_path / "set").exists()


def test_a_set_that_may_not_be_published_is_built_and_kept(hub, build, tmp_path):
    with pytest.raises(SystemExit, match="^error: .*is built, but .*: 1 of 3 rows") as stopped:
        build("--push_to_hub", "me/negatives", "--private")
    assert "push-dataset" not in str(stopped.value), "a push that would be refused too"
    assert "`hfcomp build KIND --only_adaptable`" in str(stopped.value)
    assert (tmp_path / "set" / "manifest.json").is_file()


def test_options_of_a_push_need_one(build):
    with pytest.raises(SystemExit, match="--private .*--push_to_hub"):
        build("--private")
