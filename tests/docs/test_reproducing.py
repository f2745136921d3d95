"""The registry of the papers' tables, figures, equations and algorithms: complete, and every command of it can run.

`python -m tests.docs.test_reproducing` prints its counts.
"""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name

import pytest

from hfcomp import cli
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.experiments import command as train_command
from hfcomp.experiments.recipes import read_recipe
from hfcomp.factory.builder import find_builder
from hfcomp.factory.command import parser as build_parser
from hfcomp.options import make_options
from tests import tiny
from tests.docs.snippets import ROOT
from tests.evaluation import small_sugarcrepe
from tests.factory.magic.sets import build_magic

SPEC = spec_from_file_location("reproducing", ROOT / "docs/site/reproducing.py")
GENERATOR = module_from_spec(SPEC)
SPEC.loader.exec_module(GENERATOR)
PAPERS = GENERATOR.read_registry()["papers"]

# The last number of each kind of item in the papers. An appendix of C2LIP numbers its tables anew.
LAST = {
    "slipform": {"Figure ": 7, "Table ": 3, "Eq. ": 12},
    "hard_negatives": {"Figure ": 7, "Table ": 8, "Eq. ": 2},
    "ahnpl": {"Figure ": 3, "Table ": 5, "Eq. ": 12},
    "c2lip": {"Figure ": 2, "Table ": 6, "Table A": 6, "Eq. ": 8},
    "clear_glass": {"Figure ": 4, "Table ": 3, "Eq. ": 8, "Algorithm ": 1},
}
ITEMS = [(paper, numbers, item) for paper in LAST for numbers, item in PAPERS[paper]["items"].items()]
COMMANDS = {(paper, name): command for paper in LAST for name, command in PAPERS[paper]["commands"].items()}
# The others have large batches or many kinds of runs.
QUICK = {
    ("hard_negatives", "train"),
    *(("clear_glass", name) for name in ("align", "train_aligned", "baseline", "search")),
}
AT_SCALE = {key: command for key, command in COMMANDS.items() if "rows" in command}
ANALYSIS, BENCHMARKS, FACTORY = "tests/analysis/commands", "tests/evaluation/benchmarks", "tests/factory"
STUDIES, TRADEOFF = "tests/experiments/studies", "tests/analysis/test_tradeoff.py"
PHRASES = "test_a_build_asks_again_counts_and_gives_the_same_bytes_from_the_cache"
LLAVA = "test_the_projector_is_trained_then_the_language_model_and_the_result_is_scored"
PLANS = (
    *("slipform table2", "slipform batch_study", "ahnpl ablation", "c2lip ablation", "c2lip lambdas"),
    *("clear_glass table3", "clear_glass ablation"),
)
# The test that runs a command, or its like on other data, from end to end. Those of `TINY` are run here.
RUN_BY = {
    "slipform build": f"{FACTORY}/concretebatch/test_chain.py::test_the_command_builds_and_reports",
    "slipform analyze": f"{ANALYSIS}/test_analyze.py::test_a_set_with_ratings_of_a_file",
    "slipform probe": f"{ANALYSIS}/test_probe.py::test_photographs_and_first_negatives",
    "slipform general": f"{BENCHMARKS}/test_means.py::test_the_general_mean_of_probes_and_retrieval",
    "slipform margins": f"{STUDIES}/test_sweep.py::test_an_interrupted_sweep_goes_on_and_repeats_nothing",
    "hard_negatives study": f"{TRADEOFF}::test_a_study_that_was_killed_goes_on_and_finds_the_same",
    "hard_negatives further": f"{BENCHMARKS}/papers/test_keywords.py::test_each_set_is_read_in_the_layout_of_the_hub",
    "hard_negatives captions": f"{FACTORY}/test_command.py::test_the_set_can_be_loaded",
    "hard_negatives inpaintcoco": f"{FACTORY}/inpaintcoco/test_published.py::test_the_folder_loads_and_streams",
    "hard_negatives score": f"{BENCHMARKS}/papers/test_inpaintcoco.py::test_from_the_hub_with_a_real_model",
    "hard_negatives annotate": "tests/annotate/test_command.py::test_it_serves_and_a_signal_ends_it",
    "hard_negatives sandbox": f"{TRADEOFF}::test_a_study_that_was_killed_goes_on_and_finds_the_same",
    "ahnpl build": f"{FACTORY}/test_command.py::test_parsed_kinds_record_parser_and_model",
    "ahnpl examples": "tests/cli/test_evaluate.py::test_every_model_and_blind_scorer_is_a_column",
    "c2lip build": f"{FACTORY}/test_command.py::test_shards_with_a_file_of_captions_become_a_set_with_concepts",
    "c2lip others": "tests/evaluation/pairs/test_models.py::test_the_configuration_says_what_scores_a_model",
    "c2lip blip": "tests/evaluation/pairs/test_models.py::test_the_configuration_says_what_scores_a_model",
    "c2lip attention": f"{ANALYSIS}/test_attention.py::test_two_models_are_shown_for_each_phrase",
    "c2lip vqa": "tests/convert/test_llava.py::test_the_result_is_scored_by_vqascore",
    "c2lip build_llm": f"{FACTORY}/writers/test_phrases.py::{PHRASES}",
    "c2lip projector": f"tests/recipes/test_llava.py::{LLAVA}",
    "c2lip instructions": f"tests/recipes/test_llava.py::{LLAVA}",
    "clear_glass build": f"{FACTORY}/magic/test_chain.py::test_the_command_prints_the_hierarchy",
    "clear_glass counts": "tests/analysis/hierarchy/test_page.py::test_a_set_from_the_command_line",
    "clear_glass search": f"{STUDIES}/test_search.py::test_the_best_is_a_recipe_and_keeps_its_model",
    "clear_glass levels": f"{ANALYSIS}/test_levels.py::test_two_models_on_the_sandbox",
    **dict.fromkeys(PLANS, "tests/recipes/test_paper_plans.py::test_a_plan_on_stand_in_data"),
}
GROUPED = ("clear_glass train", "clear_glass train_aligned")
KINDS = ["replace_rel", "replace_att", "replace_obj", "swap_obj", "other"]  # of the authors' negatives of AHNPL
TINY = (
    *("slipform train", "hard_negatives train", "ahnpl train", "ahnpl released", "c2lip train"),
    *("clear_glass align", "clear_glass baseline", *GROUPED),
)


def numbered(text: str) -> Iterator[str]:
    """The items that a key of the registry names: `Tables 2, A3-A6` is `Table 2`, `Table A3`, ..."""
    kind, _, places = text.partition(" ")
    for part in places.split(", "):
        first, _, last = part.partition("-")
        letter = first.rstrip("0123456789")
        for number in range(int(first[len(letter) :]), int((last or first)[len(letter) :]) + 1):
            yield f"{kind.removesuffix('s').replace('Eqs.', 'Eq.')} {letter}{number}"


def words_of(command: dict) -> list[str]:
    return shlex.split(command["run"])[1:]


def test_the_page_is_made_from_the_registry():
    made = GENERATOR.page(GENERATOR.read_registry())
    assert GENERATOR.PAGE.read_text(encoding="utf-8") == made, "run: python docs/site/reproducing.py"


@pytest.mark.parametrize("paper", LAST)
def test_every_number_of_a_paper_is_there_once(paper):
    listed = [name for numbers in PAPERS[paper]["items"] for name in numbered(numbers)]
    assert sorted(listed) == sorted(f"{kind}{n}" for kind, last in LAST[paper].items() for n in range(1, last + 1))


@pytest.mark.parametrize(
    ("paper", "numbers", "item"), ITEMS, ids=[f"{paper} {numbers}" for paper, numbers, _ in ITEMS]
)
def test_every_item_has_commands_or_a_function_or_is_no_result(paper, numbers, item):
    (kind,) = item.keys() - {"differs"}
    if kind == "by":
        assert item["by"] and set(item["by"]) <= PAPERS[paper]["commands"].keys()
    elif kind == "function":
        assert item["function"] and all(resolve_name(name) is not None for name in item["function"])
    else:
        assert item[kind] and (kind == "drawing" or kind == "derivation" and numbers.startswith("Eq"))


@pytest.mark.parametrize(("key", "command"), COMMANDS.items(), ids=[" ".join(key) for key in COMMANDS])
def test_gated_benchmarks_are_named(key, command, monkeypatch, tmp_path):
    monkeypatch.setenv("HFCOMP_REAL_DATA", str(tmp_path))
    kind, *words = words_of(command)
    names = words[words.index("--benchmarks") + 1].split(",") if "--benchmarks" in words else []
    if kind == "train" and "rows" in command:
        names = read_recipe(words[0]).experiment.evaluation_benchmarks
    gated = {benchmark.title for benchmark in find_benchmarks(names) if benchmark.gated} if names else set()
    # Skipped otherwise, and a plan that shows it would fail.
    assert "magic" not in names or kind != "train" or "--evaluation_data magic=data/magic" in command["run"]
    needs = command.get("needs", "")
    assert all(f"{title} (gated)" in needs for title in gated), f"needs: found {needs!r}, expected {gated}"


@pytest.mark.parametrize(
    "key", [key for key in COMMANDS if COMMANDS[key]["run"].startswith("hfcomp build")], ids=" ".join
)
def test_the_options_of_a_build_are_checked(key):
    given = vars(build_parser().parse_args(words_of(COMMANDS[key])[1:]))
    make_options(find_builder(given.pop("what")).options, given)


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[pytest.mark.slow] * (key not in QUICK), id=" ".join(key)) for key in AT_SCALE]
)
def test_it_is_planned_at_scale_without_data_network_or_gpu(key, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was used"))
    command = AT_SCALE[key]
    _, name, *words = words_of(command)
    train_command.main(name, [*words, "--dry_run", "--rows", str(command["rows"]), "--disable_tqdm", "true"])
    printed = " ".join(capsys.readouterr().out.split())
    assert f"{command['rows']:,} rows" in printed and list(tmp_path.iterdir()) == []
    hours = seconds_of(re.search(r"about (.+?) of training", printed)[1]) / 3600
    assert hours == pytest.approx(command["hours"], rel=0.05, abs=0.05)


def seconds_of(text: str) -> float:
    """The seconds of a duration such as `1 h 05 min`."""
    sizes = {"s": 1, "min": 60, "h": 3600}
    return sum(float(number) * sizes[unit] for number, unit in re.findall(r"(\d+) (s|min|h)\b", text))


def test_every_command_is_run_at_tiny_size():
    assert {*RUN_BY, *TINY} == {" ".join(key) for key in COMMANDS}
    for place in RUN_BY.values():
        file, _, name = place.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), place


@pytest.fixture(scope="module")
def folder(clip, tmp_path_factory) -> Path:
    """A working directory with small data in the layouts of the papers, under the names of the commands."""
    folder = tmp_path_factory.mktemp("papers")
    (folder / "data").mkdir()
    rows = tiny.pairs(24, ragged=False, concepts=True)
    further = {
        "coco": rows.select_columns("image").add_column(
            "caption", [[caption, "a cat"] for caption in rows["caption"]]
        ),
        "data/coco-ahnpl-released": tiny.pairs(24, negatives=5, ragged=False).map(
            lambda row: {"negative_kinds": KINDS}
        ),
    }
    rows = rows.add_column("negative_keywords", [caption.split()[1:3] for caption in rows["caption"]])
    configurations = ("high_concreteness", "low_concreteness", "random")
    places = [*further, "data/coco-ahnpl", "data/cc3m-concepts"]
    for name in (*places, *(f"data/concretebatch/{name}" for name in configurations)):
        (folder / name).mkdir(parents=True)
        further.get(name, rows).to_parquet(folder / name / "train.parquet")
    configs = "".join(f"- config_name: {name}\n  data_files: {name}/*.parquet\n" for name in configurations)
    (folder / "data/concretebatch/README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    listed = "".join(f"{word}\t4.5\tNoun\n" for word in (*tiny.COLORS, *tiny.SHAPES))
    (folder / "Concreteness_ratings_Brysbaert_et_al_BRM.txt").write_text(f"Word\tConc.M\tDom_Pos\n{listed}")
    build_magic(folder / "data")
    small_sugarcrepe.write(folder / "scored", per_subset=2)
    (folder / "runs/text-alignment-vit-b32").mkdir(parents=True)
    (folder / "runs/text-alignment-vit-b32/method").symlink_to(clip)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_it_runs_on_tiny_data_in_the_papers_layout(name, folder, clip, siglip, monkeypatch, tmp_path, without_figures):
    monkeypatch.chdir(folder)
    command = COMMANDS[tuple(name.split())]
    # Of 24 rows, 8 are held out in the place of 1,000.
    words = [word.replace("1000", "8") for word in words_of(command)]
    words += ["--model", str(siglip if name.startswith("c2lip") else clip)] if "--model" not in words else []
    words += ["--groups_per_batch", "2", "--pairs_per_group", "2"] if name in GROUPED else []
    words += ["--batch_size", "4", "--mini_batch_size", "4", "--max_steps", "1", "--overlap", "allow"]
    words += ["--evaluation_benchmarks", "sugarcrepe"]
    words += ["--evaluation_data", "sugarcrepe=scored/sugarcrepe", "val2017=scored/val2017", "--page", "false"]
    words += ["--bf16", "false", "--fp16", "false", "--dataloader_num_workers", "0", "--disable_tqdm", "true"]
    words += ["--output_dir", str(tmp_path / "run"), "--controls", "none"]
    cli.main(words)
    assert (tmp_path / "run" / "finished").is_file()
    assert "SugarCrepe" in (tmp_path / "run" / "report.md").read_text()


def print_counts() -> None:
    kinds = [(kind, name) for _, numbers, item in ITEMS for kind in item for name in numbered(numbers)]
    counts = {kind: sum(found == kind for found, _ in kinds) for kind in ("by", "function", "drawing", "derivation")}
    print(f"entries: {sum(counts.values())}, with commands: {counts['by']}, with a function: {counts['function']}")
    print(f"drawings: {counts['drawing']}, derivations: {counts['derivation']}")
    print(f"commands: {len(COMMANDS)}; dry-run at scale: {len(AT_SCALE)}; ", end="")
    print(f"run at tiny size: {len(TINY)} here, {len(COMMANDS) - len(TINY)} by other tests")


if __name__ == "__main__":
    print_counts()
