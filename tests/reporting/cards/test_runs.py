"""Cards of runs: what the Hub reads from them, what a reader sees, and what must not leave the machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries
from huggingface_hub.repocard import metadata_load
from huggingface_hub.repocard_data import model_index_to_eval_results

from hfcomp.data.publishing import without_local_paths
from hfcomp.reporting.cards.runs import write_run_cards
from hfcomp.statistics.results import write_results
from tests.evaluation.evaluations import benchmark_facts
from tests.experiments.lines import GENERAL, GROUP, MODELS, all_lines, facts, line, stages, without

PLACES = ("README.md", "method/README.md")
VERSIONS = {"hfcomp": "0.0", "torch": "2.13"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "method").mkdir()
    return tmp_path


def card(folder: Path, place: str = "README.md", lines: list[dict] | None = None, **changes) -> ModelCard:
    costs = [asdict(stage) for stage in stages()]
    contents = {"versions": VERSIONS, "stages": costs, **facts(**changes), "results": lines or all_lines()}
    write_results(folder / "results.json", contents)
    write_run_cards(folder)
    return ModelCard.load(folder / place)


def results(read: ModelCard) -> list:
    metadata = yaml.safe_load(read.content.split("---")[1])
    name, entries = model_index_to_eval_results(metadata["model-index"])
    assert name == "Slipform"
    assert entries == read.data.eval_results
    return entries


def section(text: str, title: str) -> str:
    """The text below a heading, up to the next one of its level."""
    level = title.partition(" ")[0]
    return text.partition(f"\n{title}\n")[2].partition(f"\n{level} ")[0]


@pytest.mark.parametrize("place", PLACES)
def test_every_line_of_the_method_comes_back_from_the_metadata(folder, place):
    entries = results(card(folder, place))
    assert len(entries) == len(all_lines())
    values = {(entry.dataset_config, entry.metric_name): entry.metric_value for entry in entries}
    assert values["swap_att", "group"] == 0.94 and values["all", "text-to-image recall@1"] == 0.576
    assert {entry.task_type for entry in entries} == {"image-text-matching", "image-text-retrieval"}
    assert metadata_load(folder / place)["model-index"]


def test_results_of_the_sandbox_are_called_synthetic(folder):
    for entry in results(card(folder)):
        assert "synthetic" in entry.dataset_name and entry.dataset_type.startswith("hfcomp-sandbox")
    (other,) = results(card(folder, lines=[line("swap_att", "group", GROUP["swap_att"], benchmark="SugarCrepe")]))
    assert (other.dataset_name, other.dataset_type, other.dataset_revision) == ("SugarCrepe", "sugarcrepe", None)


@pytest.mark.parametrize(
    ("source", "kind"), [("my-org/my-pairs", "my-org/my-pairs"), ("/home/somebody/my pairs", "own")]
)
def test_a_set_of_the_user_s_own_is_named_without_its_place(folder, source, kind):
    lines = [line("all", "caption choice", GROUP["swap_att"], benchmark="own")]
    (entry,) = results(card(folder, lines=lines, config={"dataset": "x", "evaluation_dataset": source}))
    assert entry.dataset_type == kind
    assert source.split("/")[-1] in entry.dataset_name and "/home" not in entry.dataset_name


def test_results_on_data_of_the_hub_are_filed_by_its_id_and_commit(folder):
    lines = [line("swap_att", "group", GROUP["swap_att"], benchmark="SugarCrepe"), *all_lines()]
    read = card(folder, lines=lines, benchmarks=benchmark_facts())
    first = results(read)[0]
    assert (first.dataset_type, first.dataset_revision) == ("somebody/crepe", "a" * 40)
    for place in (folder, folder / "method"):
        (path,) = (place / ".eval_results").iterdir()
        (entry,) = parse_eval_result_entries(yaml.safe_load(path.read_text()))  # the sandbox's are on no Hub
        assert (entry.dataset_id, entry.task_id, entry.value) == ("somebody/crepe", "swap-att-group", 0.94)
        assert entry.dataset_revision == "a" * 40 and "400 items" in entry.notes
    assert "SugarCrepe (version 1, somebody/crepe at " + "a" * 40 in read.text
    card(folder)
    assert list((folder / ".eval_results").iterdir()) == []  # of another evaluation


def test_the_metadata_names_base_and_data_only_where_they_are_on_the_hub(folder):
    config = {"model": "openai/clip-vit-base-patch32", "dataset": "my-org/my-pairs"}
    read = card(folder, config=config)
    assert (read.data.base_model, read.data.datasets) == ("openai/clip-vit-base-patch32", ["my-org/my-pairs"])
    assert read.data.base_model_relation == "finetune"
    assert "hfcomp evaluate base=openai/clip-vit-base-patch32" in read.text
    data = card(folder, config={"model": str(folder), "dataset": "$DATA/pairs"}).data
    assert data.base_model is None and data.datasets is None and data.get("base_model_relation") is None
    assert (data.library_name, data.pipeline_tag) == ("transformers", "zero-shot-image-classification")


def test_a_method_of_two_words_is_one_tag_and_has_its_papers(folder):
    read = card(folder, method="CLEAR GLASS")
    assert "clear-glass" in read.data.tags
    assert "@article{suissa2025clearglass" in section(read.text, "## Citation")


def test_a_method_of_the_user_s_own_cites_the_trainer_that_it_derives_from(folder):
    read = card(folder, method="Mine", trainer_classes=["MyTrainer", "CementTrainer"])
    assert "im2026concretejungle" in section(read.text, "## Citation")
    alone = card(folder, method="Mine", trainer_classes=["MyTrainer"]).text
    assert "not part of hfcomp" in section(alone, "## Method")
    assert "bibtex" not in alone


def test_the_tables_have_intervals_of_base_controls_and_method(folder):
    text = section(card(folder).text, "## Results")
    assert "### Gain vs. forgetting" in text and "### Composition" in text and "### General abilities" in text
    (row,) = re_rows(section(text, "### Composition"), "swap_att", "group")
    assert len(row) == len(MODELS) + 2  # name, chance, models
    assert row[2] == "3.5 [1.4, 5.6]" and row[-1] == "94.0 [91.9, 96.1]"
    differences = section(text, "### Differences")
    assert all(f"| {name} |" in differences for name in MODELS[:-1])
    assert "There are no ties" in text


def re_rows(text: str, label: str, metric: str) -> list[list[str]]:
    """The cells of the rows of a label in the table of a metric."""
    table = next(part for part in text.split("#### ") if f": {metric}" in part.partition("\n")[0])
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith(f"| {label} ")
    ]


def test_ties_have_a_table(folder):
    lines = [line("all", metric, row, general=True) for metric, row in GENERAL.items()]
    lines[0]["models"]["base"] |= {"ties": 7, "tie_rate": 7 / 500}
    assert "1.4 (7)" in section(card(folder, lines=lines).text, "### Ties")


def test_a_run_without_a_base_has_a_card_too(folder):
    assert "# Slipform" in card(folder, lines=without(all_lines(), "base", "plain")).text


def test_the_verdict_stands_in_front_and_the_limits_behind(folder):
    text = card(folder, verdict=["Slipform beats same-batch here."], skipped=[skipped_benchmark()]).text
    assert text.index("**Slipform beats same-batch here.**") < text.index("## Use")
    limits = section(text, "## Limits")
    assert "drawn scenes" in limits and "not between seeds" in limits
    assert "1.2% of the training texts" in limits
    assert "Not scored: Winoground, gated" in limits


def skipped_benchmark() -> dict[str, str]:
    return {"benchmark": "Winoground", "reason": "gated", "how_to_fix": "accept its terms"}


def test_every_value_says_whose_it_is(folder):
    config = {"dataset": "x", "batch_size": 8, "margin": "static", "learning_rate": 1e-5, "weight_decay": 0.1}
    sources = {
        "batch_size": "paper, section 3",
        "learning_rate": "ours: tried on the sandbox",
        "margin": "set, on the command line",
        "weight_decay": "",
    }
    text = card(folder, config=config, sources=sources, defaults={"static_margin": 1.0}).text
    rows = {
        cells[0]: cells[1:]
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
        if len(cells) == 4
    }
    assert rows["batch_size"] == ["8", "paper's", "section 3"]
    assert rows["learning_rate"] == ["1.0e-05", "ours", "tried on the sandbox"]
    assert rows["margin"] == ["static", "user's", "on the command line"]
    assert rows["weight_decay"] == ["0.1", "not stated", ""]
    assert rows["static_margin"] == ["1.0", "default", ""]


def test_base_data_command_environment_and_overlap_are_stated(folder):
    models = {name: {"path": name, "weights": f"revision {'b' * 40}"} for name in MODELS}
    data = {
        "training": {"dataset": "me/pairs", "split": "train", "commit": "c" * 40, "rows": 8000, "captions": "sha256:1"}
    }
    overlap = [{"policy": "exclude", "note": "overlap: 3 of 8,000 rows left out"}]
    config = {"model": "openai/clip-vit-base-patch32", "dataset": "me/pairs", "batch_size": 64}
    known = {"models": models, "data": data, "overlap": overlap, "config": config, "processes": 2}
    text = card(folder, **known, command="hfcomp train slipform --seed 3", recipe="slipform/real").text
    training = section(text, "## Training")
    assert f"revision {'b' * 40}" in training
    assert f"me/pairs, split train, commit {'c' * 40}, 8,000 rows, captions sha256:1" in training
    assert "64 rows, 12,500 steps, 2 processes" in training and "slipform/real" in training
    assert "```bash\nhfcomp train slipform --seed 3\n```" in training
    assert "| torch | 2.13 |" in training
    assert "- 3 of 8,000 rows left out" in section(text, "## Overlap of training and evaluation images")
    assert "Not checked" in section(card(folder).text, "## Overlap of training and evaluation images")


def test_a_replay_set_is_data_of_the_model(folder):
    replay = {"dataset": "me/general", "split": "train", "rows": 8000, "rows_per_batch": 64}
    read = card(folder, data={"training": {"dataset": "me/pairs"}, "replay": replay}, config={"dataset": "me/pairs"})
    assert read.data.datasets == ["me/pairs", "me/general"]
    training = section(read.text, "## Training")
    assert (
        "| replay | me/general, split train, 8,000 rows, 64 in each batch in addition to the task's rows |" in training
    )
    replay["dataset"] = "/home/somebody/general"
    text = card(
        folder, data={"training": {"dataset": "me/pairs"}, "replay": replay}, config={"dataset": "x/y"}
    ).content
    assert "somebody" not in text


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
    command = f"hfcomp train slipform --dataset '/home/somebody/data/my pairs.jsonl' --run_name {SECRET}"
    for place in PLACES:
        text = card(folder, place, config=config, notes=notes, command=command).content
        assert "somebody" not in text and str(folder) not in text and SECRET not in text and "~/" not in text
        assert "hub_token" not in text
        assert "files of LOCAL/plain and more" in text
        assert "8,000 rows of LOCAL/my pairs.jsonl" in text
        assert "dataset: LOCAL/my pairs.jsonl" in text
        assert "--dataset 'LOCAL/my pairs.jsonl'" in text


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
    start = text.index(f"{fence}yaml\n") + len(f"{fence}yaml\n")
    assert yaml.safe_load(text[start : text.index(f"\n{fence}", start)]) == config


def test_the_figure_is_shown_where_it_is_beside_the_card(folder):
    assert "figure.png" not in card(folder).text
    (folder / "figure.png").write_bytes(b"picture")
    for place in PLACES:
        text = card(folder, place).text
        assert "](figure.png)" in text and (folder / place).with_name("figure.png").read_bytes() == b"picture"
    (folder / "figure.png").unlink()
    assert "figure.png" not in card(folder, "method/README.md").text
    assert not (folder / "method" / "figure.png").exists()


HOSTILE = "a: 'b'\n---\n| c </table><script>alert(1)</script> ![p](https://x.test/p.png) `d"


def test_texts_of_data_sets_are_neither_metadata_nor_cells_html_or_links(folder):
    lines = [line(HOSTILE, "group", GROUP["swap_att"])]
    config = {"dataset": "x", "column_names": {"caption": HOSTILE}}
    read = card(folder, lines=lines, notes=[HOSTILE], config=config, sources={"column_names": HOSTILE})
    (entry,) = read.data.eval_results
    assert entry.dataset_config == HOSTILE
    outside = "".join(read.text.split("````")[::2])  # the recipe, in a block of its own, is as it was
    body = "\n".join(part for number, part in enumerate(outside.split("```")) if number % 2 == 0)
    assert "<script" not in body and "</table" not in body and "](https://x.test" not in body
    widths = {row.count("|") for row in body.splitlines() if "alert" in row and row.startswith("|")}
    heads = {row.count("|") for row in body.splitlines() if row.startswith("| ---")}
    assert widths and widths <= heads


def test_new_cards_are_made_of_the_results_of_a_finished_run(folder):
    card(folder)
    before = (folder / "README.md").read_text()
    (folder / "README.md").unlink()
    assert write_run_cards(folder, place="me/slipform") == [folder, folder / "method"]
    text = (folder / "README.md").read_text()
    assert text == before.replace("<this model's id or folder>", "me/slipform")
    content = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps(content | {"method": "Other"}))
    with pytest.raises(ValueError, match="results.json .*damaged"):
        write_run_cards(folder)


def test_the_adapter_of_a_run_has_the_runs_card_with_the_code_that_loads_an_adapter(folder):
    (folder / "method" / "adapter").mkdir()
    adapter, merged = card(folder, "method/adapter/README.md"), card(folder, "method/README.md")
    assert results(adapter) == results(merged)
    assert (adapter.data.library_name, merged.data.library_name) == ("peft", "transformers")
    assert "PeftModel.from_pretrained" in adapter.text and "PeftModel" not in merged.text
    assert "differ only by rounding" in section(adapter.text, "## Notes")


def test_a_card_that_was_changed_by_hand_stays(folder, caplog):
    card(folder)
    text = (folder / "README.md").read_text()
    mark = next(line for line in text.splitlines() if line.startswith("<!--"))
    (folder / "README.md").write_text(text.replace(mark, "").replace("## Limits", "## What I found"))
    assert write_run_cards(folder) == [folder / "method"]
    assert "## What I found" in (folder / "README.md").read_text()
    assert f"{folder / 'README.md'} was edited by hand" in caplog.text
