"""What commit 8f0e31c wrote is read, compared, resumed and exported (`README.md`; about 8 s, more where slow)."""

from __future__ import annotations

import json
import shutil
import tarfile
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hfcomp import cli
from hfcomp.annotate import progress
from hfcomp.data.annotations.project import Project
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.evaluation.encoding.cache import select_models
from hfcomp.evaluation.stored import read_evaluation
from hfcomp.old_names import current_name, current_spelling
from tests.factory.builds import hashes
from tests.factory.writers.endpoint import right, serving

HERE = Path(__file__).parent
ALL = HERE / "8f0e31c.tar.xz"
LOADED = json.loads((HERE / "loaded.json").read_text(encoding="utf-8"))
NEGATIVES = "build negatives --source photos --shard_size 4 --kinds keyword:color,keyword:object --num_negatives 2"
MAGIC = (
    "build magic --source captioned --writer taxonomy --taxonomy taxonomy.yaml --encoder captions --min_images 2 "
    "--negative_similarity -1 --shared_levels 3"
)
NEIGHBORS = "build neighbours --source photos --model clip --number 2 --device cpu"
TRAIN = (
    "train slipform --config recipe.yaml --disable_tqdm true --page false --adam_epsilon 1e-4 --warmup_steps 0 "
    "--logging_steps 1"
)
SWEEP = f"{TRAIN} --controls none --max_steps 1 --save_strategy no"

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.fixture(scope="module")
def unpacked_folder(tmp_path_factory) -> Path:
    with tarfile.open(ALL) as archive:
        archive.extractall(tmp_path_factory.mktemp("unpacked"), filter="data")
    return next(tmp_path_factory.getbasetemp().glob("unpacked*/formats"))


@pytest.fixture
def here(unpacked_folder, tmp_path, monkeypatch) -> Path:
    """A copy of all files, which paths of commands begin at."""
    shutil.copytree(unpacked_folder, tmp_path / "formats")
    monkeypatch.chdir(tmp_path / "formats")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "formats"


def run(command: str) -> None:
    cli.main(command.split())


# Built sets


@pytest.mark.parametrize("name", LOADED)
def test_a_set_is_intact_and_loads_with_the_same_rows(here, name):
    place, config, split = name.split()
    run(f"build verify sets/{place}")
    config = None if config == "None" else config
    rows = undecoded(load_training_set(f"sets/{place}", config=config, split=split))
    assert [{column: _cell(value) for column, value in row.items()} for row in rows] == LOADED[name]


def _cell(value: object) -> object:
    return f"{len(value['bytes'])} bytes" if isinstance(value, dict) and "bytes" in value else value


@pytest.mark.parametrize(
    ("command", "name"), [(NEGATIVES, "negatives"), ("build inpaintcoco --source project", "inpaintcoco")]
)
def test_the_command_of_a_finished_set_changes_nothing_but_its_card(here, name, command):
    before = _data(here / "sets" / name)
    run(f"{command} --output sets/{name}")
    assert _data(here / "sets" / name) == before


def _data(folder: Path) -> dict[str, str]:
    """Hashes of the files of a set, but for its card; of its manifest what it states, however that is spelled."""
    files = {name: digest for name, digest in _files(folder).items() if not name.endswith("README.md")}
    stated = json.loads(current_spelling((folder / "manifest.json").read_text(encoding="utf-8")))
    return files | {"manifest.json": json.dumps({**stated, "checksum": None})}


def _files(folder: Path) -> dict[str, str]:
    return {name: digest for name, digest in hashes(folder).items() if not name.endswith(".lock")}


@pytest.mark.follows("hfcomp/factory/manifest.py", "Choose another output folder to build it again")
@pytest.mark.parametrize(
    ("command", "name", "columns"),
    [
        (NEIGHBORS, "neighbours", ("neighbour_ids", "neighbor_ids")),
        (MAGIC, "magic", ("generalised_caption", "generalized_caption")),
    ],
)
def test_a_set_with_an_old_column_is_kept_and_built_again_elsewhere(here, capsys, name, command, columns):
    before = _files(here / "sets" / name)
    with pytest.raises(SystemExit) as stop:
        run(f"{command} --output sets/{name}")
    assert all(column in str(stop.value) for column in columns)
    assert _files(here / "sets" / name) == before
    run(f"{command} --output again")
    old, new = (load_training_set(place) for place in (f"sets/{name}", "again"))
    assert columns[1] in new.column_names and undecoded(old).to_list() == undecoded(new).to_list()


@pytest.mark.parametrize(
    ("command", "unfinished", "finished"), [(NEGATIVES, "stopped", "negatives"), (MAGIC, "hierarchy", "magic")]
)
def test_an_unfinished_set_is_finished_with_the_same_rows(here, capsys, command, unfinished, finished):
    run(f"{command} --output sets/{unfinished}")
    assert unfinished != "stopped" or "shards: 1 kept, 1 made" in capsys.readouterr().out
    tables, expected = (
        {path.relative_to(folder): _table(path) for path in folder.rglob("*.parquet")}
        for folder in (here / "sets" / unfinished, here / "sets" / finished)
    )
    assert tables == expected


def _table(path: Path) -> pa.Table:
    table = pq.read_table(path).replace_schema_metadata()
    return table.rename_columns([current_name(name) for name in table.column_names])


@pytest.mark.slow
def test_answers_of_a_language_model_are_not_asked_for_again(here):
    words = "--parser rules --shard_size 4 --kinds llm --llm m --answer_cache caches/answers --output again"
    with serving(right) as server:
        run(f"build negatives --source photos --base_url {server.base_url} {words}")
    assert len(server.bodies) == 1  # of 6: one was refused, which that commit kept too
    written, again = (load_training_set(name)["negative_captions"][:] for name in ("sets/written", "again"))
    assert written == again


def test_a_store_of_pixels_is_read(here, capsys):
    if json.loads((here / "sets/pixels/pixels.json").read_text())["transform"]["pillow"] != version("pillow"):
        pytest.skip("a store is of one version of Pillow")
    run("build pixels --source rows --model clip --output sets/pixels")
    assert "0 decoded and added" in capsys.readouterr().out


def test_a_set_is_checked_before_a_push(here, capsys):
    run("push-dataset sets/concretebatch --repo me/x --dry_run")
    assert "random: 5 rows of sets/concretebatch/random, verified" in capsys.readouterr().out


def test_marks_of_a_gallery_drop_rows(here):
    run("gallery sets/negatives --apply marks.json --output again")
    assert load_training_set("again").to_list() == load_training_set("sets/kept").to_list()


@pytest.mark.slow
def test_sets_are_analysed(here):
    run("analyze sets/concretebatch --models none --image_model none --text_model none --gallery 0 --output pairs")
    sets = json.loads((here / "pairs" / "results.json").read_text())["sets"]
    assert {name: pair_set["pairs"] for name, pair_set in sets.items()} == {"high_concreteness": 5, "random": 5}
    run("analyze magic sets/magic --output page")
    assert "living thing" in next((here / "page").glob("*.html")).read_text()


# Annotation


def test_a_project_goes_on(here, capsys):
    project = Project(here / "project")
    decisions = project.decisions
    states = {item.id: decisions.state(item.id) for item in decisions.items()}
    assert states == {
        **{"0/object": "accepted", "1/color": "accepted", "2/size": "accepted"},
        **{"3/object": "skipped", "4/color": "open", "5/size": "open"},
    }
    assert decisions.draft("Bo Larsen", "5/size") == {"caption": "so far"}
    assert decisions.edit("1/color").caption == "A blue dog number 1."
    decisions.skip("Bo Larsen", "5/size", "a face")
    assert decisions.undo("Bo Larsen").id == "5/size" and decisions.state("5/size") == "open"
    lines = progress.progress_report(decisions)
    decisions.close()
    assert lines.sections
    run("annotate progress project")
    assert "Bo Larsen   Ann Meyer" in capsys.readouterr().out


def test_a_project_is_exported(here):
    run("build inpaintcoco --source project --output exported")
    exported, before = (undecoded(load_training_set(name, split="test")) for name in ("exported", "sets/inpaintcoco"))
    assert exported.to_list() == before.to_list()


# Runs and evaluations


def test_a_run_and_an_evaluation_are_compared(here):
    run("compare runs/finished:base runs/finished:Slipform evaluation:method --output compared")
    lines = json.loads((here / "compared/results.json").read_text())["results"]
    values = [{name: cell["value"] for name, cell in line["models"].items()} for line in lines]
    assert len(values) == 3 and all([*row] == ["base", "Slipform", "method"] for row in values)
    assert all(row["Slipform"] == row["method"] for row in values)


def test_cached_embeddings_are_used(here, capsys):
    assert {entry.model for entry in select_models(here / "caches/embeddings")} == {"clip", "runs/finished/method"}
    fingerprint = json.loads(next((here / "caches/embeddings").glob("*/fingerprint.json")).read_text())
    run(
        "evaluate base=clip method=runs/finished/method --benchmarks rows --device cpu --cache caches/embeddings "
        "--no_page --output again"
    )
    if all(fingerprint[name] == version(name) for name in ("torch", "transformers")):
        assert capsys.readouterr().out.count("4 images and 8 texts, 12 of them cached") == 2
    before, after = (read_evaluation(here / name)[0].table for name in ("evaluation", "again"))
    assert before["value"].tolist() == after["value"].tolist()


def test_a_run_is_checked_before_a_push(here, capsys):
    run("push runs/finished --repo me/x --dry_run")
    assert "runs/finished/method: verified" in capsys.readouterr().out


def test_an_interpolated_model_is_read(here):
    run("merge clip merged --alpha 0.5 --output again")
    assert json.loads((here / "again/merge.json").read_text())["tuned"]["path"] == "merged"


@pytest.mark.slow
def test_a_stopped_run_goes_on_from_its_checkpoint(here, capsys):
    trained = (here / "runs/stopped/controls/plain/model.safetensors").stat().st_mtime_ns
    run(f"{TRAIN} --seed 1 --max_steps 4 --save_strategy steps --save_steps 2 --output_dir runs/stopped")
    assert "resuming the unfinished run in runs/stopped" in capsys.readouterr().out
    assert (here / "runs/stopped/controls/plain/model.safetensors").stat().st_mtime_ns == trained
    history = json.loads((here / "runs/stopped/method/history.json").read_text())
    state = json.loads((here / "runs/stopped/method/checkpoint-4/trainer_state.json").read_text())
    assert history and [line["step"] for line in state["log_history"] if "loss" in line] == [1, 2, 3, 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "results"),
    [("sweep", "--report sweep.yaml", "sweep.json"), ("search", "--search search.yaml", "search.json")],
)
def test_an_unfinished_study_trains_nothing_twice(here, capsys, name, words, results):
    folder = here / "runs" / name
    before = json.loads((folder / results).read_text())
    for file in ("finished", results, "report.md"):
        (folder / file).unlink()
    run(f"{SWEEP} {words} --output_dir runs/{name}")
    shown = capsys.readouterr().out
    assert f"resuming the unfinished run in runs/{name}" in shown and "1 process x" not in shown
    after = json.loads((folder / results).read_text())
    left_out = {"config", "versions", "checksum", "plan", "caveat", "notes", "sweep_schema_version"}
    for results in (before, after):  # sentences are not compared
        for record in results.get("overlap", ()):
            record.pop("note")
    assert {key: after[key] for key in before if key not in left_out} == {
        key: value for key, value in before.items() if key not in left_out
    }
