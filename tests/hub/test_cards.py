"""Model cards: what the Hub reads from them, what a reader sees, and what must not leave the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results

from hfcomp.data.publishing import without_local_paths
from hfcomp.experiments.report import run_report
from hfcomp.hub.cards import write_model_card
from hfcomp.reporting.saving import render_markdown
from tests.experiments.lines import GROUP, all_lines, facts, line, stages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "method").mkdir()
    return tmp_path


def card(folder: Path, place: str = "README.md", lines: list[dict] | None = None, **changes) -> ModelCard:
    lines = all_lines() if lines is None else lines
    known = facts(**changes)
    write_model_card(
        folder,
        report=render_markdown(run_report(lines, stages(), {**known, "config": {}}, brief=False)),
        facts=known,
        lines=lines,
    )
    return ModelCard.load(folder / place)


def results(read: ModelCard) -> list:
    metadata = yaml.safe_load(read.content.split("---")[1])
    name, found = model_index_to_eval_results(metadata["model-index"])
    assert name == "Slipform"
    assert found == read.data.eval_results
    return found


@pytest.mark.parametrize("place", ["README.md", "method/README.md"])
def test_every_line_of_the_method_comes_back_from_the_metadata(folder, place):
    found = results(card(folder, place))
    assert len(found) == len(all_lines())
    values = {(one.dataset_config, one.metric_name): one.metric_value for one in found}
    assert values["swap_att", "group"] == 0.94 and values["all", "text-to-image recall@1"] == 0.576
    assert {one.task_type for one in found} == {"image-text-matching", "image-text-retrieval"}


def test_results_of_the_sandbox_are_called_synthetic(folder):
    for one in results(card(folder)):
        assert "synthetic" in one.dataset_name and one.dataset_type.startswith("hfcomp-sandbox")
    (other,) = results(card(folder, lines=[line("swap_att", "group", GROUP["swap_att"], benchmark="SugarCrepe")]))
    assert (other.dataset_name, other.dataset_type) == ("SugarCrepe", "sugarcrepe")


@pytest.mark.parametrize(
    ("source", "kind"), [("my-org/my-pairs", "my-org/my-pairs"), ("/home/somebody/my pairs", "own")]
)
def test_a_set_of_the_user_s_own_is_named_without_its_place(folder, source, kind):
    lines = [line("all", "caption choice", GROUP["swap_att"], benchmark="own")]
    (found,) = results(card(folder, lines=lines, config={"dataset": "x", "evaluation_dataset": source}))
    assert found.dataset_type == kind
    assert source.split("/")[-1] in found.dataset_name and "/home" not in found.dataset_name


def test_the_metadata_names_base_and_data_only_where_they_are_on_the_hub(folder):
    config = {"model": "openai/clip-vit-base-patch32", "dataset": "my-org/my-pairs"}
    data = card(folder, config=config).data
    assert (data.base_model, data.datasets) == ("openai/clip-vit-base-patch32", ["my-org/my-pairs"])
    data = card(folder, config={"model": str(folder), "dataset": "$DATA/pairs"}).data
    assert data.base_model is None and data.datasets is None
    assert (data.library_name, data.pipeline_tag) == ("transformers", "zero-shot-image-classification")


def test_a_method_of_two_words_is_one_tag(folder):
    assert "clear-glass" in card(folder, method="CLEAR GLASS").data.tags


SECRET = "hf_" + "a1B2" * 8


def test_no_path_and_no_token_leaves_the_machine(folder):
    config = {
        "dataset": "/home/somebody/data/my pairs.jsonl",
        "column_names": {"image": "/home/somebody/x"},
        "model": "~/models/clip",
        "evaluation_data": ["val2017=C:\\Users\\somebody\\coco"],
        "output_dir": str(folder),
        "hub_token": SECRET,
        "run_name": f"with {SECRET}",
    }
    notes = ["8,000 rows of /home/somebody/data/my pairs.jsonl", "files of /home/somebody/runs/a b/plain and more"]
    for place in ("README.md", "method/README.md"):
        text = card(folder, place, config=config, notes=notes).content
        assert "somebody" not in text and str(folder) not in text and SECRET not in text and "~/" not in text
        assert "hub_token" not in text
        assert "files of LOCAL/plain and more" in text
        assert "8,000 rows of LOCAL/my pairs.jsonl" in text
        assert "dataset: LOCAL/my pairs.jsonl" in text


PLAIN = (
    "openai/clip-vit-base-patch32",
    "https://arxiv.org/abs/2604.13313",
    "$HFCOMP_REAL_DATA/pairs/x",
    "${DATA}/pairs/x",
    "runs/slipform/1",
    "and/or",
    "1/2 /",
)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_absolute_path_stays(text):
    assert without_local_paths(text, known=["/or", "/slipform"]) == text


def test_the_recipe_can_be_read_back_whatever_it_holds(folder):
    config = {"method": "a: b", "dataset": "x", "column_names": {"caption": "te`xt ``` "}, "controls": ["plain"]}
    text = card(folder, config=config).content
    fence = "````"
    start = text.rindex(f"{fence}yaml\n") + len(f"{fence}yaml\n")
    assert yaml.safe_load(text[start : text.rindex(fence)]) == config


def test_the_figure_is_shown_where_it_is_beside_the_card(folder):
    assert "figure.png" not in card(folder).text
    (folder / "figure.png").write_bytes(b"picture")
    for place in ("README.md", "method/README.md"):
        text = card(folder, place).text
        assert "](figure.png)" in text and (folder / place).with_name("figure.png").read_bytes() == b"picture"
        assert text.index("figure.png") < text.index("## ")
    (folder / "figure.png").unlink()
    assert "figure.png" not in card(folder, "method/README.md").text
    assert not (folder / "method" / "figure.png").exists()


def test_texts_of_data_sets_do_not_end_the_metadata(folder):
    lines = [line("a: 'b'\n---\n| c", "group", GROUP["swap_att"])]
    read = card(folder, lines=lines, method="Slipform")
    (found,) = read.data.eval_results
    assert found.dataset_config == "a: 'b'\n---\n| c"
    assert read.text.lstrip().startswith("# Slipform")
