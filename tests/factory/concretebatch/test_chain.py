"""The chain that makes ConcreteBatch: from captions and images to pairs in three configurations, and kills."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import datasets
import pytest
import transformers
from datasets import Image, load_dataset

from dataset_builders.concretebatch.selection import selection_table
from hfcomp import cli
from hfcomp.analysis.pairs.analyze import analyze
from hfcomp.analysis.pairs.items import named_sets
from hfcomp.analysis.pairs.options import AnalyzeOptions
from hfcomp.data.built_sets.files import SET_ASIDE_FILE, UNFINISHED, step_names
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.data.loading import load_training_set
from hfcomp.data.negatives import with_concreteness
from hfcomp.factory import build
from hfcomp.factory.build import build_set
from hfcomp.factory.concretebatch.chain import STEPS, ConcreteBatchOptions
from hfcomp.factory.concretebatch.targets import balance_targets
from hfcomp.factory.runner import run_stages
from hfcomp.factory.targets.candidates import CATEGORIES
from hfcomp.testing import write_tiny_sdxl
from hfcomp.writing import locked
from tests import tiny
from tests.factory.builds import hashes
from tests.factory.concretebatch import sets
from tests.factory.concretebatch.sets import WORDS
from tests.factory.kills import survive_kills
from tests.factory.writers.endpoint import Answer, right, serving


@pytest.fixture(scope="module")
def ratings(tmp_path_factory) -> Path:
    return sets.ratings(tmp_path_factory.mktemp("ratings") / "ratings.txt")


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory, clip) -> Path:
    return write_tiny_sdxl(tmp_path_factory.mktemp("pipeline") / "sdxl", clip)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return sets.photos(tmp_path_factory.mktemp("source") / "photos")


@pytest.fixture
def options(source, ratings, pipeline, tmp_path):
    def make(**changes) -> ConcreteBatchOptions:
        own = {"source": source, "ratings": ratings, "pipeline": pipeline, "output": tmp_path / "pairs"}
        return sets.options(**own | changes)

    return make


@pytest.fixture
def command(source, ratings, pipeline, tmp_path):
    """The command with these and further words."""

    def run(*more) -> None:
        words = ["--source", source, "--output", tmp_path / "out", "--concreteness_ratings", ratings]
        words += ["--parser", "rules", "--writer", "substitute", "--image_pipeline", pipeline, "--image_size", 32]
        words += ["--image_batch_size", 2, "--shard_size", 5]
        cli.main(["build", "concretebatch", *map(str, [*words, *more])])

    return run


def test_pairs_of_three_configurations_are_built_verified_and_loaded(options, ratings, tmp_path):
    configs = ("high_concreteness", "low_concreteness", "random")
    few = tmp_path / "without_pizza.txt"
    few.write_text("\n".join(line for line in ratings.read_text().splitlines() if "pizza" not in line))
    made = options(configs=configs, only_adaptable=True, concreteness_ratings=str(few))
    built = build_set(made, log=[].append)
    assert built.rows == 3 * 9
    lines = []
    verify_set(made.output, log=lines.append)
    files = {path.relative_to(made.output).as_posix() for path in made.output.rglob("[!.]*") if path.is_file()}
    assert {line.split()[1] for line in lines if line.startswith("ok  ")} == files
    shard = next((made.output / "steps" / "random" / "targets").rglob("*.parquet"))
    content = shard.read_bytes()
    shard.write_bytes(content[:99] + b"?" + content[100:])
    with pytest.raises(ValueError, match=f"steps/random/targets/data/{shard.name}"):
        verify_set(made.output)
    shard.write_bytes(content)
    for config in configs:
        rows = load_training_set(str(made.output), config=config)
        assert rows.cast_column("image", Image(decode=False))["image_id"][:] == [
            str(row) for row in range(12) if row not in (4, 5, 7)
        ]
        for row in rows:
            (text,), (keyword,), (((start, end),),) = (
                row["negative_captions"],
                row["negative_keywords"],
                row["negative_spans"],
            )
            assert row["caption"][start:end].endswith(keyword) and text != row["caption"]
            assert row["negative_image"].size == (32, 32)
            assert row["negative_categories"][0] in ("attribute", "object", "relation")
    alone = AnalyzeOptions(models=("none",), image_model="none", text_model="none")
    analysis = analyze([str(made.output)], alone)
    assert {name: (pair_set.pairs.config, len(pair_set.pairs.items)) for name, pair_set in analysis.sets.items()} == {
        config: (config, 9) for config in configs
    }
    words = {config: load_training_set(str(made.output), config=config)["negative_rated_words"] for config in configs}
    high, low = (sum(WORDS[row_words[0]] for row_words in words[config]) for config in configs[:2])
    assert high > low
    same = load_dataset(str(made.output), "low_concreteness", split="train", cache_dir=str(tmp_path / "cache"))
    assert same["caption"][:] == load_training_set(str(made.output), config="low_concreteness")["caption"][:]
    default = load_dataset(str(made.output), split="train", cache_dir=str(tmp_path / "cache"))
    assert default["negative_captions"][:] == rows_of(made.output, "high_concreteness")
    aside = [json.loads(line) for line in (made.output / "steps" / "random" / "targets" / "set_aside.jsonl").open()]
    assert {record["reason"] for record in aside} == {"license forbids adaptation", "no word to change"}
    card = (made.output / "README.md").read_text()
    assert "mean concreteness" in card and "| high_concreteness | 9 | " in card and "&#" not in card
    assert "\nlicense: other\n" in card and "\nlicense_name: per-row\n" in card
    assert "| of these, without a rating | 1 |" in card and "| random | 'pizza' 1 |" in card
    (words,) = (part for section in built.report().sections for part in section.parts if "Most frequent" in part.title)
    assert words.rows[0] == ["high_concreteness", "'pizza' 1"]
    assert str(tmp_path) not in card and "Negative images were made by" in card


def rows_of(folder: Path, config: str) -> list[list[str]]:
    return load_training_set(str(folder), config=config)["negative_captions"][:]


def test_steps_run_one_by_one_give_the_bytes_of_the_whole(options, tmp_path, quick_workers):
    whole = options(output=tmp_path / "whole")
    build_set(whole, log=[].append)
    parts = options(output=tmp_path / "parts", until="targets")
    assert build_set(parts, log=[].append).rows == 11 and not (tmp_path / "parts" / "high_concreteness").exists()
    build_set(options(output=tmp_path / "parts", until="captions", num_workers=2), log=[].append)
    for share in (0.1, 0.499):  # which decides other categories, or the same
        with pytest.raises(ValueError, match=rf"keywords.attribute_share: 0.5 -> {share}"):
            build_set(options(output=tmp_path / "parts", attribute_share=share), log=[].append)
    build_set(options(output=tmp_path / "parts"), log=[].append)
    assert hashes(tmp_path / "parts") == hashes(tmp_path / "whole")


def test_an_unfinished_set_says_what_it_lacks_and_how_to_make_it(options, tmp_path):
    configs = ("high_concreteness", "random")
    build_set(options(configs=configs, until="targets"), log=[].append)
    build_set(options(configs=configs[:1], until="captions"), log=[].append)
    folder = tmp_path / "pairs"
    lacks = "the images of high_concreteness, the captions of random"
    for words in (["build", "verify", folder], ["push-dataset", folder, "--repo", "me/pairs"]):
        with pytest.raises(SystemExit, match=f"{lacks}.*`hfcomp build concretebatch --output .*until images"):
            cli.main(list(map(str, words)))
    with pytest.raises(ValueError, match=lacks):
        load_training_set(str(folder), config="random")
    build_set(options(), log=[].append)
    assert load_training_set(str(folder), config="high_concreteness").num_rows == 10
    with pytest.raises(ValueError, match="lacks the captions of random"):
        load_training_set(str(folder), config="random")
    with pytest.raises(ValueError, match="lacks the captions of random"):
        verify_set(folder)


def test_a_step_without_rows_ends_the_chain_and_names_the_file_of_reasons(command, options, tmp_path):
    rows = tiny.pairs(2).select_columns(["image", "image_id"]).add_column("caption", ["12", "..."])
    rows.save_to_disk(tmp_path / "empty")
    built = build_set(options(source=str(tmp_path / "empty")), log=[].append)
    assert built.empty == [tmp_path / "pairs" / "steps" / "high_concreteness" / "targets"]
    with pytest.raises(ValueError, match="pairs .*targets/set_aside.jsonl"):
        verify_set(tmp_path / "pairs")
    with pytest.raises(SystemExit, match="no row .*targets/set_aside.jsonl"):
        command("--source", tmp_path / "empty", "--output", tmp_path / "pairs")


def test_a_folder_with_files_of_the_user_is_refused_and_one_of_an_earlier_build_is_not(command, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("README.md", "notes.txt"):
        (folder / name).write_text("# my project")
    with pytest.raises(SystemExit, match=r"^error: .*out .*\(README.md, notes.txt\)"):
        command()
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "notes.txt"]
    (folder / "README.md").unlink()
    (folder / "notes.txt").unlink()
    command("--until", "targets")
    (folder / "notes.txt").write_text("of this build")
    command("--until", "targets")


def test_configurations_of_two_sources_get_no_common_card(options, tmp_path):
    build_set(options(limit=3), log=[].append)
    folder = options().output
    before = hashes(folder)
    for configs in (("random",), ("random", "high_concreteness")):
        with pytest.raises(ValueError, match="high_concreteness .*has 3 .*has 4"):
            build_set(options(limit=4, configs=configs), log=[].append)
        assert hashes(folder) == before, "nothing is built"
    build_set(options(limit=4, configs=("random",), output=tmp_path / "other"), log=[].append)
    for place in ("random", "steps/random"):
        shutil.copytree(tmp_path / "other" / place, folder / place)
    for words in (["build", "verify", folder], ["push-dataset", folder, "--repo", "me/pairs", "--dry_run"]):
        with pytest.raises(SystemExit, match=r"high_concreteness \(3 rows\) and random \(4 rows\)"):
            cli.main(list(map(str, words)))


def test_the_card_has_the_command_that_repairs_each_configuration(command, tmp_path, ratings):
    folder = tmp_path / "out"
    command("--limit", 3)
    command("--limit", 3, "--configs", "random")
    command("--limit", 3, "--configs", "low_concreteness", "--seed", 7, "--image_strength", 0.5)
    command("--limit", 3, "--configs", "low_concreteness", "--seed", 7, "--until", "targets")
    card = (folder / "README.md").read_text()
    known = {line.partition("--configs ")[2].split()[0]: line for line in card.splitlines() if "hfcomp build " in line}
    assert list(known) == ["high_concreteness,random", "low_concreteness"], "the same options are one command"
    before = hashes(folder)
    path = next((folder / "low_concreteness" / "data").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=rf"low_conc.* damaged: .*{folder}/README.md"):
        verify_set(folder, log=[].append)
    words = shlex.split(known["low_concreteness"])
    given = dict(zip(words[3::2], words[4::2], strict=True))
    for name in ("--source", "--concreteness_ratings", "--image_pipeline", "--output"):
        del given[name]  # places of this machine
    command(*(word for pair in given.items() for word in pair))
    assert hashes(folder) == before
    verify_set(folder, log=[].append)


def test_ratings_are_joined_by_the_word_that_was_found(options, ratings):
    build_set(options(), log=[].append)
    place = f"{options().output}::high_concreteness"
    assert named_sets([str(options().output)]) == {"high_concreteness": place}, "the only one, too"
    lines: list[str] = []
    rows = with_concreteness(rows_with_texts(options().output / "high_concreteness"), str(ratings), lines.append)
    word_ratings = [WORDS[words[0]] for words in rows["negative_rated_words"]]
    assert [value for (value,) in rows["negative_concreteness"]] == word_ratings
    assert "negative_concreteness" not in load_training_set(str(options().output / "high_concreteness")).column_names


def rows_with_texts(folder: Path):
    return load_training_set(str(folder)).remove_columns(["image", "negative_image"])


def test_keywords_of_captions_alone_are_shown_in_all_orders_beside_the_papers(options, source):
    rows = load_training_set(str(source)).remove_columns("image")
    chosen = options(configs=("high_concreteness", "random"))
    table = selection_table(rows, chosen, log=[].append)
    shown = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    orders = ["top_k *", "category_first", "sample"], ["top_k", "category_first", "sample *"]
    assert [row["order"] for row in shown] == [*orders[0], *orders[1]]
    assert [row["in the paper"] for row in shown] == ["4.77 / 4.85"] * 3 + ["4.29 / 4.63"] * 3
    build_set(options(configs=chosen.configs, until="targets"), log=[].append)
    for config, row in zip(chosen.configs, [entry for entry in shown if "*" in entry["order"]], strict=True):
        built, tally = balance_targets(
            load_training_set(str(step_names(chosen.output).folder(chosen.output, config, "targets")))
        )
        assert row["targets"] == str(len(built))
        assert [row[name] for name in CATEGORIES] == [
            f"{tally.categories[name] / len(built):.1%}" for name in CATEGORIES
        ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"configs": ("high",)},
            "configs: found 'high',.* high_concreteness, low_",
        ),
        ({"configs": ()}, "configs: found none"),
        ({"writer": "endpoint"}, "--writer endpoint .*--base_url.*--writer substitute"),
        ({"concreteness_ratings": None}, "--concreteness_ratings FILE or --download_ratings"),
        ({"executor": "ray"}, "--executor ray .*--image_dtype, .*float16"),
        ({"image_strength": 0.1}, "to 0 steps"),
        ({"grammar_tolerance": 1.0}, "--grammar_tolerance .*--grammar_model"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_once(options, changes, message):
    with pytest.raises(ValueError, match=message):
        options(**changes)


@pytest.fixture
def bars():
    """As a user has them; tests/conftest.py keeps them from the other tests."""
    datasets.enable_progress_bars()
    transformers.utils.logging.enable_progress_bar()
    yield
    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()


def test_the_command_builds_and_reports(command, bars, capfd):
    command()
    out, err = capfd.readouterr()
    assert err == "", "no bars or warnings of libraries in a log"
    assert "12 rows read, 10 written" in " ".join(out.split()) and "no word to change" in out
    command()
    assert "shards: 9 kept, 0 made" in capfd.readouterr().out


BAD_ROWS = {
    "A brown dog is sitting on a red couch.": None,
    "犬が公園で走る。": ("targets", "caption not in Latin script"),
    "12": ("targets", "no word to change"),
    "A zorb.": ("targets", "no word with a rating"),
    "": ("targets", "no caption"),
    "A child eating pizza.": ("images", "image cannot be decoded"),
    "Two men riding horses.": ("images", "image file cannot be read"),
    "A woman holding a blue umbrella.": ("images", "image file cannot be read"),
}


def test_bad_rows_are_set_aside_with_the_number_that_they_have_in_the_source(options, tmp_path):
    """Captions without candidates, ratings or Latin script; images cut short, of something else, and missing."""
    folder = tmp_path / "bad"
    folder.mkdir()
    for row in range(7):
        tiny.image(row).save(folder / f"{row}.png")
    (folder / "5.png").write_bytes((folder / "5.png").read_bytes()[:-40])
    (folder / "6.png").write_bytes(b"<html>")
    rows = [{"image": f"{row}.png", "caption": caption} for row, caption in enumerate(BAD_ROWS)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert build_set(options(source=str(folder / "rows.jsonl")), log=[].append).rows == 1
    reasons = {}
    for step in STEPS:
        aside = step_names(options().output).folder(options().output, "high_concreteness", step) / SET_ASIDE_FILE
        for line in map(json.loads, aside.read_text().splitlines()):
            reasons[line.get("source_row", line["row"])] = step, line["reason"]
            assert step == "targets" or f"{line['source_row']}.png" in line["detail"]
    assert reasons == {row: reason for row, reason in enumerate(BAD_ROWS.values()) if reason}


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("openai", ["--writer", "endpoint", "--base_url", "http://127.0.0.1:1/v1"], "generate"),
        ("diffusers", [], "generate"),
        ("ray", ["--executor", "ray", "--image_dtype", "float32"], "ray"),
    ],
)
def test_a_missing_package_is_named_before_the_first_step(command, tmp_path, monkeypatch, package, words, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=rf"^error: [^\n]*: pip install 'hfcomp\[{extra}\]'\.$"):
        command(*words)
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_a_missing_pipeline_is_named_before_the_first_step(command, tmp_path):
    with pytest.raises(SystemExit, match=r"^error: image_pipeline=.*/none: no such"):
        command("--image_pipeline", tmp_path / "none")
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_an_endpoint_that_fails_is_reported_in_two_lines_and_costs_nothing_that_is_done(command, tmp_path, capfd):
    def failing_later(body):
        return right(body) if len(server.bodies) <= 3 else Answer(b"<html>", 502, kind="text/html")

    words = ["--until", "captions", "--writer", "endpoint", "--answer_cache", tmp_path / "answers"]
    words += ["--shard_size", 2, "--concurrency", 1, "--retries", 0, "--base_url"]
    with serving(failing_later) as server, pytest.raises(SystemExit) as stopped:
        command(*words, server.base_url)
    said, resume = str(stopped.value).splitlines()
    assert "shard 1 of 6 (rows 2 to 3): EndpointError" in said and "code 502" in said and ". Start it" in said
    assert resume == "Finished shards are kept; repeat the command to resume."
    assert "Traceback" not in capfd.readouterr().err
    with serving(right) as again:
        command(*words, again.base_url)
    assert "shards: 7 kept, 5 made" in " ".join(capfd.readouterr().out.split())
    assert all(body not in server.bodies[:3] for body in again.bodies)


def test_a_second_run_in_the_folder_is_refused(command, tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.writing.LOCK_SECONDS", 0)
    with locked(tmp_path / "out"), pytest.raises(SystemExit, match="out .*in use"):
        command()


@pytest.mark.parametrize("column", ["negative_captions", "mask", "source_row"])
def test_columns_of_an_earlier_build_are_refused_where_they_are_asked_for(options, tmp_path, column):
    rows = tiny.pairs(2).select_columns(["image", "caption", "image_id"])
    if column == "mask":
        rows = rows.map(lambda row: {column: row["image"]})
    else:
        rows = rows.add_column(column, ["a", "b"])
    rows.save_to_disk(tmp_path / "source")
    asked = {"source": str(tmp_path / "source"), "until": "targets"}
    with pytest.raises(ValueError, match=f"--columns .*{column}, "):
        build_set(options(**asked, columns=f"image_id,{column}"), log=[].append)
    lines: list[str] = []
    build_set(options(**asked), log=lines.append)
    assert any(f"columns {column}: " in line for line in lines)


def build_and_say_when_the_last_step_begins(options: ConcreteBatchOptions, sender: Connection) -> None:
    last = step_names(options.output).folder(options.output, options.configs[0], options.until)

    def run(rows, stages, folder, **settings):
        if folder == last:
            sender.send_bytes(b"begun")
        return run_stages(rows, stages, folder, **settings)

    build.run_stages = run
    build_set(options, log=[].append)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_killed_at_any_moment_has_the_same_bytes(step, options, tmp_path, context):
    """20 kills of each step, while it runs and not while Python loads. Captions are asked of a server."""

    def late(body):
        response = right(body)
        response.seconds = 0.02
        return response

    with serving(late) as server:

        def choose_options(folder: Path, until: str) -> ConcreteBatchOptions:
            asked = {"writer": "endpoint", "base_url": server.base_url, "answer_cache": f"{folder} answers"}
            return options(output=folder, until=until, shard_size=1, concurrency=1, **asked)

        def start(folder: Path) -> BaseProcess:
            if not folder.exists():
                shutil.copytree(tmp_path / "before", folder)
            receiver, sender = context.Pipe(duplex=False)
            arguments = (choose_options(folder, step), sender)
            process = context.Process(target=build_and_say_when_the_last_step_begins, args=arguments)
            process.start()
            sender.close()
            receiver.poll(None)
            return process

        (tmp_path / "before").mkdir()
        for before in STEPS[: STEPS.index(step)][-1:]:
            build_set(choose_options(tmp_path / "before", before), log=[].append)
        finished = survive_kills(start, tmp_path, kills=20)
    assert sum(number > 0 for number in finished) >= 5  # in the middle too


@pytest.fixture
def ray_cluster():
    ray = pytest.importorskip("ray", reason="pip install 'hfcomp[ray]'")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_ray_gives_the_bytes_of_one_machine_and_a_killed_worker_costs_its_shards_only(options, tmp_path, ray_cluster):
    """About a minute: each step starts its actors anew."""

    def kill_a_worker() -> dict[Path, int]:
        """Kills one of the images' two actors once a shard is finished; returns the finished ones and their times."""
        deadline = time.monotonic() + 300
        while not (finished := list(folder.glob(f"{UNFINISHED}/[0-9]*.json"))) and time.monotonic() < deadline:
            time.sleep(0.01)
        actors = [actor for actor in ray_cluster._private.state.actors().values() if actor["State"] == "ALIVE"]
        os.kill(next(actor["Pid"] for actor in actors if "ShardActor" in actor["ActorClassName"]), signal.SIGKILL)
        files = [next(folder.glob(f"data/train-{path.stem}-*.parquet")) for path in finished]
        return {path: path.stat().st_mtime_ns for path in files}

    folder = tmp_path / "ray" / "high_concreteness"
    settings = {"image_dtype": "float32", "shard_size": 1}
    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_a_worker)
        built = build_set(options(output=tmp_path / "ray", executor="ray", num_workers=2, **settings), log=[].append)
        finished = killing.result()
    assert 0 < len(finished) < built.chains["high_concreteness"][-1].made - 1
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    build_set(options(output=tmp_path / "local", **settings), log=[].append)
    assert hashes(tmp_path / "ray") == hashes(tmp_path / "local")
