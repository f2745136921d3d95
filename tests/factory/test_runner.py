"""Builds that are killed, resumed, refused and disturbed (about 8 s)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset, Features, Image, Value, load_dataset
from filelock import FileLock

from hfcomp.data.loading import load_training_set
from hfcomp.factory import runner, shards
from hfcomp.factory.manifest import MANIFEST, SET_ASIDE_FILE, UNFINISHED
from hfcomp.factory.runner import ROW, Stage, StageError
from hfcomp.writing import LOCK_FILE
from tests.factory import builds
from tests.factory.builds import build


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A build that nothing disturbed. Never write into this folder."""
    return build(tmp_path_factory.mktemp("whole") / "out").folder


def die_at(folder: str, call: str, number: int) -> None:
    """Builds in this process, which kills itself with SIGKILL before a call of the operating system."""
    original = getattr(os, call)
    left = number

    def patched(*arguments, **keywords):
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **keywords)

    setattr(os, call, patched)
    build(Path(folder))


def test_the_set_is_what_stages_made(whole):
    rows = load_dataset(str(whole), split="train")
    assert rows["loud"][:3] == ["CAPTION 0!", "CAPTION 1!", "CAPTION 2!"] and len(rows) == 9
    assert [row["image"].getpixel((0, 0))[0] for row in rows] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    manifest = json.loads((whole / MANIFEST).read_text())
    assert manifest["counts"] == {"letters": 81} and manifest["set_aside"] == {"empty": 1}
    assert [shard["source_rows"] for shard in manifest["shards"]] == [[0, 4], [4, 8], [8, 10]]
    aside = json.loads((whole / SET_ASIDE_FILE).read_text())
    assert aside == {"row": 5, "reason": "empty", "detail": "no text at all"}


def test_images_keep_their_bytes_and_lose_their_folder(whole):
    rows = load_dataset(str(whole), split="train").cast_column("image", Image(decode=False))
    assert rows[5]["image"] == {"bytes": builds.png(6), "path": "6.png"}


@pytest.mark.parametrize("rows", [[0, 1, 2], [1], [0, 0, 2, 1, 2, 2]])
def test_stages_may_leave_out_repeat_and_move_rows(rows, tmp_path):
    stage = Stage("pick", builds.make_picked, {"rows": rows})
    build(tmp_path, builds.source(3), [stage])
    made = load_dataset(str(tmp_path), split="train")
    assert made["loud"][:] == [str(row) for row in rows]
    assert [row["image"].getpixel((0, 0))[0] for row in made] == rows


def test_a_kill_at_any_moment_changes_nothing(whole, tmp_path, context):
    # what is moved into its place, what is synced before, and what is removed at the end, each in turn
    moments = [*(("replace", number) for number in range(9)), ("fsync", 0), ("fsync", 2), ("unlink", 0), ("unlink", 3)]
    for call, number in moments:
        folder = tmp_path / f"{call}-{number}"
        process = context.Process(target=die_at, args=(str(folder), call, number))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, (call, number)
        done = build(folder)
        assert done.kept + done.made == 3
        assert builds.hashes(folder) == builds.hashes(whole), (call, number)
    assert done.kept == 3


def build_slowly(folder: str) -> None:
    build(Path(folder), stages=builds.loud_stages(seconds=0.3), rows_per_shard=1, num_workers=2)


def test_a_killed_build_of_several_processes_goes_on(tmp_path, context):
    folder = tmp_path / "out"
    process = context.Process(target=build_slowly, args=(str(folder),))
    process.start()
    while len(list((folder / UNFINISHED).glob("0*.json"))) < 3:
        assert process.is_alive()
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    done = build(folder, rows_per_shard=1)
    assert 3 <= done.kept < 10
    time.sleep(0.5)  # a worker that lived on would write its shard now
    assert builds.hashes(folder) == builds.hashes(build(tmp_path / "other", rows_per_shard=1).folder)


def test_a_second_run_makes_nothing(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "out")
    done = build(folder, stages=[Stage("loud", None, {"mark": "!"})])
    assert (done.kept, done.made) == (3, 0) and done.manifest["rows"] == 9
    assert builds.hashes(folder) == builds.hashes(whole)


@pytest.mark.parametrize("name", ["data/train-00001-of-00003.parquet", SET_ASIDE_FILE])
@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_damage_is_seen_and_mended(whole, tmp_path, name, damage):
    folder = shutil.copytree(whole, tmp_path / "out")
    if damage == "removed":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    assert build(folder).made == 1
    assert builds.hashes(folder) == builds.hashes(whole)


def test_a_kill_while_damage_is_mended_changes_nothing(whole, tmp_path, context):
    for number in (1, 3, 5):
        folder = shutil.copytree(whole, tmp_path / str(number))
        (folder / "data/train-00001-of-00003.parquet").unlink()
        process = context.Process(target=die_at, args=(str(folder), "replace", number))
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        build(folder)
        assert builds.hashes(folder) == builds.hashes(whole), number


def test_other_settings_are_refused(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "out")
    with pytest.raises(ValueError, match=r'stages\.0 loud\.mark: "!" -> "\?"'):
        build(folder, stages=builds.loud_stages("?"))
    with pytest.raises(ValueError, match=r"rows_per_shard: 4 -> 5"):
        build(folder, rows_per_shard=5)
    assert builds.hashes(folder) == builds.hashes(whole)


def test_a_build_without_a_finished_shard_may_begin_anew(tmp_path):
    with pytest.raises(StageError):
        build(tmp_path, stages=[Stage("fails", builds.make_failing, {"at": "caption 0"})])
    assert build(tmp_path).made == 3


def test_another_source_under_the_same_name_is_noticed(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "out")
    with pytest.raises(ValueError, match=r"other settings: source\.fingerprint"):
        build(folder, builds.source(first="another"))
    with pytest.raises(ValueError, match=r"other settings: source\.fingerprint.*; source\.rows: 10 -> 11"):
        build(folder, builds.source(11))
    images = [{"bytes": b"other", "path": "0.png"}, *builds.source()["image"][1:]]
    other = builds.source().remove_columns("image").add_column("image", images, feature=Image(decode=False))
    with pytest.raises(ValueError, match=r"other settings: source\.fingerprint"):
        build(folder, other)


def test_every_written_column_identifies_the_source(tmp_path):
    columns = {"image_id": ["7"] * 10, "license": ["cc-by"] * 10, "other": ["x"] * 10}
    source, features = builds.source(), {**builds.FEATURES, "image_id": Value("string"), "license": Value("string")}
    for name, values in columns.items():
        source = source.add_column(name, values)
    options = {"features": Features(features)}
    with pytest.raises(StageError):
        build(
            tmp_path,
            source,
            [*builds.loud_stages(), Stage("fails", builds.make_failing, {"at": "caption 7"})],
            **options,
        )
    assert list((tmp_path / UNFINISHED).glob("0*.json"))  # a shard is there, to be kept by a build of the same source

    def begun(changed: Dataset) -> None:
        build(
            tmp_path,
            changed,
            [*builds.loud_stages(), Stage("fails", builds.make_failing, {"at": "caption 7"})],
            **options,
        )

    for name in ("image_id", "license"):
        changed = source.remove_columns(name).add_column(name, ["another", *columns[name][1:]])
        with pytest.raises(ValueError, match=r"other settings: source\.fingerprint"):
            begun(changed.select_columns(source.column_names))
    images = source["image"][:]
    images[0] = {**images[0], "bytes": images[0]["bytes"][:-1] + b"?"}  # of the same size
    changed = source.remove_columns("image").add_column("image", images, feature=Image(decode=False))
    with pytest.raises(ValueError, match=r"other settings: source\.fingerprint"):
        begun(changed.select_columns(source.column_names))
    unwritten = source.remove_columns("other").add_column("other", ["y"] * 10)
    with pytest.raises(StageError):  # goes on to the row that fails
        begun(unwritten)


def test_an_image_file_of_another_size_is_another_source(tmp_path):
    rows = builds.source(2).remove_columns("image")

    def facts() -> str:
        images = [{"bytes": None, "path": str(tmp_path / "0.png")}, {"bytes": None, "path": "https://x.org/1.png"}]
        return runner.fingerprint(rows.add_column("image", images, feature=Image(decode=False)), ["image"])

    (tmp_path / "0.png").write_bytes(b"0")
    before = facts()
    assert facts() == before
    (tmp_path / "0.png").write_bytes(b"01")
    assert facts() != before


@pytest.mark.parametrize("place", [f"{UNFINISHED}/plan.json", f"{UNFINISHED}/00000.json"])
def test_damage_in_an_unfinished_build_is_named_or_made_again(whole, tmp_path, place):
    folder = tmp_path / "out"
    with pytest.raises(StageError):
        build(folder, stages=[Stage("loud", builds.make_failing, {"at": "caption 6"}, {"mark": "!"})])
    (folder / place).write_text((folder / place).read_text().replace("4", "5", 1))
    if place.endswith("plan.json"):
        with pytest.raises(ValueError, match=r"plan\.json .*damaged: .*sha256"):
            build(folder)
        (folder / place).unlink()
        with pytest.raises(ValueError, match=r"plan\.json .*missing"):
            build(folder)
    else:
        assert build(folder).made == 3


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"other files \(thesis.tex\)"):
        build(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK_FILE, "thesis.tex"]


def test_two_builds_in_one_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.writing.LOCK_SECONDS", 0)
    with FileLock(tmp_path / LOCK_FILE), pytest.raises(ValueError, match="in use"):
        build(tmp_path)


def test_workers_and_shards_change_no_row(whole, tmp_path, quick_workers):
    several = build(tmp_path / "several", num_workers=2)
    assert builds.hashes(several.folder) == builds.hashes(whole)
    rows = load_dataset(str(whole), split="train")
    other = load_dataset(str(build(tmp_path / "other", rows_per_shard=3).folder), split="train")
    assert other["loud"][:] == rows["loud"][:]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_exception_names_stage_shard_and_rows_and_loses_nothing(tmp_path, num_workers, quick_workers):
    stages = [Stage("fails", builds.make_failing, {"at": "caption 9"}, {})]
    message = r"^stage 'fails', shard 2 of 3 \(rows 8 to 9\): KeyError: 'cannot do caption 9'$"
    with pytest.raises(StageError, match=message):
        build(tmp_path, stages=stages, num_workers=num_workers)
    assert not (tmp_path / MANIFEST).exists()
    fixed = [Stage("fails", builds.make_failing, {"at": "nothing"}, {})]
    assert build(tmp_path, stages=fixed).kept == 2


def die(*_) -> None:
    os._exit(7)


def make_dying():
    return die


def test_a_worker_that_dies_is_reported(tmp_path, quick_workers):
    with pytest.raises(StageError, match="process ended.*workers"):
        build(tmp_path, stages=[Stage("dies", make_dying)], num_workers=2)


def test_what_cannot_be_pickled_is_refused(tmp_path):
    stages = [Stage("local", lambda: lambda batch: batch)]
    with pytest.raises(ValueError, match="'local' .*num_workers=1"):
        build(tmp_path, stages=stages, num_workers=2)


def make_pairs():
    """Two rows of one, and none of the first."""

    def pairs(batch):
        places = [place for place, row in enumerate(batch[ROW]) if row for _ in range(2)]
        columns = {name: [values[place] for place in places] for name, values in batch.items()}
        return columns | {"loud": [f"copy {index % 2}" for index in range(len(places))]}

    return pairs


def test_a_stage_may_make_several_rows_of_one_or_none(tmp_path):
    done = build(tmp_path / "out", stages=[Stage("pairs", make_pairs)])
    rows = load_dataset(str(done.folder), split="train")
    assert len(rows) == 18 and rows["loud"][:2] == ["copy 0", "copy 1"]
    assert [row["image"].getpixel((0, 0))[0] for row in rows] == [number for number in range(1, 10) for _ in range(2)]


def make_broken(*, how: str):
    def broken(batch):
        batches = {"without": {"caption": []}, "uneven": batch | {"loud": ["one"]}, "lacking": batch}
        return (batches | {"typed": batch | {"loud": [[1]] * 4}})[how]

    return broken


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("without", ".*no column '_row'"),
        ("uneven", r'.*unequal .*{"_row": 4, "loud": 1}'),
        ("typed", ".*'loud' .*string"),
        ("lacking", "no column 'loud' .*: caption, _row"),
    ],
)
def test_a_stage_that_breaks_its_contract_is_named(tmp_path, how, message):
    with pytest.raises(StageError, match=f"'broken', shard 0 of 3 \\(rows 0 to 3\\): {message}"):
        build(tmp_path, stages=[Stage("broken", make_broken, {"how": how})])


def test_files_come_in_and_rows_without_a_readable_one_are_set_aside(tmp_path):
    (tmp_path / "good.png").write_bytes(builds.png(7))
    (tmp_path / "secret.txt").write_text("not for a dataset")
    paths = [str(tmp_path / name) for name in ("good.png", "gone.png", "secret.txt")]
    features = Features({"image": Image(decode=False), "caption": Value("string")})
    images = [{"bytes": None, "path": path} for path in paths]
    dataset = Dataset.from_dict({"image": [*images, None], "caption": ["a", "b", "c", "d"]}, features=features)
    done = build(tmp_path / "out", dataset)
    rows = load_dataset(str(done.folder), split="train").cast_column("image", Image(decode=False))
    assert rows["image"][:] == [{"bytes": builds.png(7), "path": "good.png"}, None]
    assert done.manifest["set_aside"] == {shards.NO_IMAGE: 2}
    details = [json.loads(line)["detail"] for line in (done.folder / SET_ASIDE_FILE).read_text().splitlines()]
    assert details == ["image 'gone.png', which does not exist", "image 'secret.txt' (UnidentifiedImageError)"]


def test_what_may_be_secret_in_a_url_is_not_written_into_a_set():
    url = "https://user:word@host/a/b.png?signature=a/s3cret"
    images = pa.array([{"bytes": None, "path": url}, {"bytes": b"x", "path": url}], Image().pa_type)
    cells, failed = shards.embed_bytes(pa.chunked_array([images]))
    assert cells.to_pylist() == [{"bytes": None, "path": "b.png"}, {"bytes": b"x", "path": "b.png"}]
    assert failed == {0: "'b.png' is a URL, which is not fetched without --allow_urls"}


def test_a_shard_left_empty_can_still_be_read(tmp_path):
    dataset = builds.source(10).select([5, 5, 1])
    done = build(tmp_path / "out", dataset, rows_per_shard=1)
    assert load_dataset(str(done.folder), split="train")["loud"][:] == ["CAPTION 1!"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows_per_shard": 0}, "rows_per_shard: found 0,.* 1 "),
        ({"num_workers": 0}, "num_workers: found 0,.* 1 "),
        ({"stages": []}, "no stages"),
        ({"reads": ("text",)}, "source .*no column 'text'; .*: image, caption"),
        ({"dataset": builds.source().select([])}, "source .*no rows"),
        ({"dataset": builds.source().rename_column("image", ROW)}, "'_row' .*reserved"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        build(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_order_of_rows_is_part_of_the_source():
    rows = builds.source()
    assert runner.fingerprint(rows, ["caption"]) == runner.fingerprint(builds.source(), ["caption"])
    assert runner.fingerprint(rows.select(range(9, -1, -1)), ["caption"]) != runner.fingerprint(rows, ["caption"])


def test_a_set_of_another_split_is_named_by_it_everywhere(tmp_path):
    """Plans of training sets do not name their split, so that builds of an earlier version still resume."""
    built = builds.build(tmp_path / "set", split="test")
    assert [shard["file"] for shard in built.manifest["shards"]][0] == "data/test-00000-of-00003.parquet"
    assert built.manifest["plan"]["split"] == "test"
    assert len(load_training_set(str(tmp_path / "set"), split="test")) == built.manifest["rows"]
    with pytest.raises(ValueError, match=r"'train'.* test"):
        load_training_set(str(tmp_path / "set"))
    with pytest.raises(ValueError, match='split: "test" -> null'):
        builds.build(tmp_path / "set")
    assert "split" not in builds.build(tmp_path / "other").manifest["plan"]
