"""A small foreign package brings a command, a builder, a benchmark, a study and an objective, each in one file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hfcomp import cli
from hfcomp.evaluation.benchmarks import benchmarks
from hfcomp.experiments.recipe_files import studies
from hfcomp.factory.builder import builders
from tests import tiny

ROOT = Path(__file__).parents[1]


def page_block(page: str, language: str = "python", holding: str = "") -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    return next(block for block in blocks if holding in block)


@pytest.fixture
def foreign(install) -> None:
    """Modules and entry points as the pages show them."""
    modules = {
        "loud": page_block("docs/adding_a_builder.md"),
        "my_module": page_block("docs/adding_a_benchmark.md"),
        "my_objective": page_block("docs/adding_an_objective.md"),
        "count_words": page_block("docs/design.md", holding="USAGE"),
        "warmups": page_block("docs/design.md", holding="StudyKind"),
    }
    pages = ("docs/adding_a_builder.md", "docs/adding_a_benchmark.md", "docs/design.md")
    groups: dict[str, dict[str, str]] = {}
    for line in "\n".join(page_block(page, "text", "entry-points") for page in pages).splitlines():
        if header := re.fullmatch(r'\[project\.entry-points\."(.*)"\]', line):
            group = groups.setdefault(header[1], {})
        elif line:
            name, place = line.split(" = ")
            group[name] = place.strip('"')
    assert groups.keys() == {f"hfcomp.{name}" for name in ("commands", "builders", "studies", "benchmarks")}
    install(modules, groups)


@pytest.fixture
def pair_folder(tmp_path) -> Path:
    rows = tiny.pairs(8, ragged=False)
    kept = rows.select_columns(["image", "caption"]).add_column("kind", ["a", "b"] * 4)
    (tmp_path / "pairs").mkdir()
    kept = kept.add_column("negatives", rows["negative_captions"][:])
    kept.to_parquet(tmp_path / "pairs" / "test-00000-of-00001.parquet")
    return tmp_path / "pairs"


@pytest.mark.usefixtures("foreign")
def test_the_command_runs_and_is_listed(tmp_path, capsys):
    (tmp_path / "captions.txt").write_text("a dog\ntwo cats sleep\n")
    cli.main(["count-words", str(tmp_path / "captions.txt")])
    assert capsys.readouterr().out == "5 words\n"
    cli.main(["--help"])
    assert "  hfcomp count-words FILE\n      " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="'count-word'.*'count-words'"):
        cli.main(["count-word"])
    with pytest.raises(SystemExit, match="error: missing.txt: no such"):
        cli.main(["count-words", "missing.txt"])


@pytest.mark.usefixtures("foreign")
def test_the_builder_builds(tmp_path, capsys):
    """tests/factory/test_builder.py looks at all that it makes."""
    (tmp_path / "texts.jsonl").write_text('{"caption": "a dog"}\n')
    cli.main(["build", "loud", "--source", str(tmp_path / "texts.jsonl"), "--output", str(tmp_path / "out")])
    assert "letters" in capsys.readouterr().out and "Loud captions" in (tmp_path / "out/README.md").read_text()


@pytest.mark.usefixtures("foreign")
def test_the_benchmark_is_listed_and_scored(clip, pair_folder, tmp_path, capsys):
    cli.main(["evaluate", "--list"])
    assert re.search(r"^  mine +My pairs$", capsys.readouterr().out, re.MULTILINE)
    words = ["--benchmarks", "mine", "--data", f"mine={pair_folder}", "--output_dir", str(tmp_path / "out")]
    cli.main(["evaluate", str(clip), *words, "--device", "cpu", "--no_cache"])
    assert "mean of kinds" in capsys.readouterr().out
    assert benchmarks()["sugarcrepe"].name == "sugarcrepe"


@pytest.fixture
def training(pair_folder, tmp_path) -> list[str]:
    """Words of a recipe of our own, which names no objective, and scores the foreign benchmark."""
    (tmp_path / "mine.yaml").write_text("{method: Mine, dataset: sandbox, primary: 'My pairs: caption choice'}")
    size = "--dataset_rows 16 --batch_size 4 --max_steps 1 --max_grad_norm 1 --controls none --page false"
    scored = f"--evaluation benchmarks --evaluation_benchmarks mine --evaluation_data mine={pair_folder}"
    return ["train", str(tmp_path / "mine.yaml"), *f"{size} {scored} --disable_tqdm true".split()]


@pytest.mark.usefixtures("foreign", "without_figures")
def test_a_recipe_trains_the_objective_and_scores_the_benchmark(training, tmp_path, capsys):
    cli.main([*training, "--objective", "my_objective:MyTrainer", "--output_dir", str(tmp_path / "run")])
    assert "mean of kinds" in capsys.readouterr().out
    assert (tmp_path / "run/method/objective_state.safetensors").is_file()


@pytest.mark.usefixtures("foreign")
def test_the_study_trains_what_its_file_says(training, tmp_path, capsys):
    study = tmp_path / "short.yaml"
    study.write_text("warmups: [0, 1]\n")
    words = [*training, "--objective", "my_objective:MyTrainer", "--output_dir", str(tmp_path / "study")]
    with pytest.raises(SystemExit, match="short.yaml .*--report"):
        cli.main([*words, "--search", str(study)])
    with pytest.raises(SystemExit, match="--warmup_steps .*short.yaml: warmups"):
        cli.main([*words, "--warmup_steps", "3", "--report", str(study)])
    cli.main([*words, "--report", str(study)])
    assert re.search(r"^warmup 1 +0\.\d+$", capsys.readouterr().out, re.MULTILINE)
    assert (tmp_path / "study/warmup 1/model.safetensors").is_file()


BROKEN = [
    ("hfcomp.commands", "other", "loud:THING", "THING = 3", ".*hfcomp.cli.Command"),
    ("hfcomp.commands", "train", "loud", "USAGE = SUMMARY = ''", ".*taken.* other than train, "),
    ("hfcomp.benchmarks", "other", "loud:THING", "THING = 3", ".*hfcomp.evaluation.spec.Benchmark"),
    ("hfcomp.benchmarks", "sugarcrepe", "loud:THING", "THING = 3", ".*taken"),
    ("hfcomp.benchmarks", "other", "loud:NONE", "", ".*AttributeError: .*NONE"),
    ("hfcomp.studies", "other", "loud:THING", "import no_such_package", ".*ModuleNotFoundError: No"),
    ("hfcomp.studies", "variants", "loud:THING", "THING = 3", ".*taken"),
    ("hfcomp.builders", "other", "loud:THING", "THING = 3", ".*hfcomp.factory.builder.Builder"),
    (*("hfcomp.builders", "mine", "loud:MAGIC", "from hfcomp.factory.magic.options import MAGIC"), ".*'magic'"),
]
USES = {
    "hfcomp.commands": lambda: cli.main(["other"]),
    "hfcomp.benchmarks": lambda: cli.main(["evaluate", "--list"]),
    "hfcomp.studies": lambda: studies(),
    "hfcomp.builders": lambda: builders(),
}


@pytest.mark.parametrize(("group", "name", "place", "text", "message"), BROKEN)
def test_a_broken_entry_point_is_an_error_that_names_package_and_entry_point(
    install, group, name, place, text, message
):
    install({"loud": text}, {group: {name: place}})
    place = f"package loud: entry point {name} = {place} in the group {group}"
    with pytest.raises((ValueError, SystemExit), match=f"{place}:? {message}"):
        USES[group]()


def test_the_help_shows_a_broken_command_and_all_others(install, capsys):
    install({"loud": "THING = 3"}, {"hfcomp.commands": {"other": "loud:THING"}})
    cli.main(["--help"])
    shown = capsys.readouterr().out
    assert "  hfcomp train RECIPE" in shown and "error: package loud: entry point other" in shown


def test_commands_of_ours_need_no_package_of_others(install, capsys):
    install({}, {"hfcomp.commands": {"other": "loud:THING"}})
    cli.main(["cache"])
    assert "package loud" not in capsys.readouterr().out
