"""From captioned images to a set of four parts: its rows and views, how it resumes, what it refuses (about 25 s)."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from datasets import Image, load_dataset

from hfcomp import cli
from hfcomp.data.built_sets.files import SET_ASIDE_FILE
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.data.columns import rename_columns
from hfcomp.data.concepts.level_names import level_columns
from hfcomp.data.loading import load_training_set
from hfcomp.data.sampling.groups import Groups
from hfcomp.factory.build import build_set
from hfcomp.factory.magic.hierarchy import read_hierarchy
from hfcomp.factory.magic.image_rows import image_rows
from tests.factory.builds import hashes, png
from tests.factory.kills import survive_kills
from tests.factory.magic.sets import ALLOWED, PER_CONCEPT, TAXONOMY, WORDS, build_magic, options, source
from tests.factory.writers.endpoint import closed_address, serving
from tests.factory.writers.test_embeddings import embeds

SERVED = {"encoder": "endpoint:m", "encoder_url": "http://b/v1"}
LEVELS = ["level_1", "level_2", "level_3", "level_4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return build_magic(tmp_path_factory.mktemp("magic")).folder


def test_rows_have_the_names_of_their_concepts_and_their_own_images(folder):
    rows = load_training_set(str(folder), config="levels").cast_column("image", Image(decode=False))
    assert len(rows) == 0.8 * len(WORDS) * PER_CONCEPT
    for row in rows:
        number = int(row["image_id"]) - 100
        assert row["image"]["bytes"] == png(number)
        assert row["group"] == row["level_1"] == WORDS[number % 4]
        assert row["caption"][1] == f"the {row['group']} number {number}"
        assert row["generalized_caption"] not in ("", *(row[level] for level in LEVELS))
        assert row["group"] not in row["hard_negative_groups"] and len(row["hard_negative_groups"]) == 3
        assert row["license"] == ALLOWED
    dog = next(row for row in rows if row["group"] == "dog")
    assert [dog[level] for level in LEVELS] == ["dog", "pet", "animal", "living thing"]


def test_splits_are_by_image_within_concepts_and_by_concept(folder):
    by_image = {split: load_training_set(str(folder), split=split, config="levels") for split in ("train", "test")}
    assert not {*by_image["train"]["image_id"]} & {*by_image["test"]["image_id"]}
    assert {name: by_image["test"]["group"][:].count(name) for name in WORDS} == dict.fromkeys(WORDS, 2)
    by_concept = {
        split: load_training_set(str(folder), split=split, config="levels_by_concept") for split in ("train", "test")
    }
    unseen = {*by_concept["test"]["group"]}
    assert len(unseen) == 1 and not unseen & {*by_concept["train"]["group"]}
    assert sum(map(len, by_concept.values())) == sum(map(len, by_image.values())) == len(WORDS) * PER_CONCEPT


def test_configurations_are_views_of_the_same_files(folder):
    captions, levels = (load_training_set(str(folder), config=name) for name in ("captions", "levels"))
    assert not {*captions.column_names} & {*LEVELS} and {*levels.column_names} - {*captions.column_names} == {*LEVELS}
    assert load_training_set(str(folder)).column_names == captions.column_names  # the default
    plain = load_dataset(str(folder), "levels_by_concept", split="test")  # by the card alone
    assert {*plain["group"]} == {concept.name for concept in read_hierarchy(folder).concepts if concept.unseen}
    assert len(list(folder.rglob("*.parquet"))) == len({*hashes(folder).values()} & {
        value for name, value in hashes(folder).items() if name.endswith(".parquet")
    })  # fmt: skip


def test_the_groups_are_those_of_the_trainer(folder):
    rows = load_training_set(str(folder))
    groups = Groups.from_columns(rows["group"][:], rows["hard_negative_groups"][:])
    assert (
        {*groups.names} == {*WORDS}
        and all(len(rivals) == 3 for rivals in groups.hard_negatives)
        and not groups.unknown
    )


def test_the_card_says_what_is_in_it(folder):
    card = (folder / "README.md").read_text()
    assert "| concepts of level 1 | 4 | 1,071 |" in card
    assert f"| image-caption pairs | {len(WORDS) * PER_CONCEPT} | 81,602 |" in card
    assert "--writer taxonomy" in card and str(folder.parent) not in card
    assert "taxonomy.yaml sha256:" in card and "ther configurations: `levels`" in card


def test_verify_reads_every_part(folder, tmp_path):
    lines: list[str] = []
    verify_set(folder, lines.append)
    named = {line.split()[1] for line in lines if line.startswith("ok  ")}
    assert len([name for name in named if name.endswith("manifest.json") and not name.startswith("steps")]) == 4
    assert named == {path.relative_to(folder).as_posix() for path in folder.rglob("[!.]*") if path.is_file()}
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in sorted(path for path in (copy / "steps").rglob("[!.]*") if path.stat().st_size and path.is_file()):
        content = path.read_bytes()
        path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
        with pytest.raises(ValueError, match=path.name):
            verify_set(copy, lines.append)
        path.write_bytes(content)
    shard = next((copy / "image_test_concept_test").rglob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=rf"{shard.name} .*damaged"):
        verify_set(copy, lines.append)
    with pytest.raises(ValueError, match="is damaged"):
        load_training_set(str(copy), split="test", config="levels")
    assert len(load_training_set(str(copy), config="captions_by_concept"))  # a split without that part
    shutil.rmtree(copy / "image_test_concept_test")
    with pytest.raises(ValueError, match="image_test_concept_test"):
        verify_set(copy, lines.append)


@pytest.mark.parametrize(
    ("place", "settings", "said"),
    [
        ("", {"config": "level"}, "'level'.*captions, levels, .*'levels'"),
        ("", {"config": "image_train_concept_train"}, "part .*not a configuration"),
        ("", {"split": "validation"}, "'validation'.* train, test"),
        ("image_train_concept_train", {}, "part .*configurations: captions, levels"),
    ],
)
def test_what_is_no_configuration_is_refused(folder, place, settings, said):
    with pytest.raises(ValueError, match=said):
        load_training_set(str(folder / place), **settings)


def test_rows_are_left_out_with_their_reason(tmp_path):
    source(
        tmp_path / "source",
        caption={0: ["nothing here"], 1: [], 2: ["\ud800"[:0] + " "], 3: ["pizza " * 2500]},
        image={4: None, 5: {"bytes": b"no image", "path": "5.png"}},
        license={6: "No license", 7: "Attribution-NoDerivs License"},
    )
    built_set = build_magic(tmp_path, only_adaptable=True)
    aside = [json.loads(line) for path in built_set.folder.rglob(SET_ASIDE_FILE) for line in path.open()]
    reasons = {record.get("source_row", record["row"]): record["reason"] for record in aside}
    assert reasons == {
        0: "no concept, no word of the taxonomy",
        **dict.fromkeys((1, 2, 3), "no caption"),
        4: "no image",
        5: "image cannot be decoded",
        6: "license unknown",
        7: "license forbids adaptation",
    }
    assert built_set.rows == len(WORDS) * PER_CONCEPT - 8


def test_small_concepts_and_their_images_are_left_out(tmp_path):
    captions = {row: ["a kitten"] for row in range(1, 33, 4)} | {row: ["unheard of"] for row in range(0, 28, 4)}
    source(tmp_path / "source", caption=captions)
    built_set = build_magic(tmp_path)
    hierarchy = read_hierarchy(built_set.folder)
    assert [concept.name for concept in hierarchy.concepts] == ["cake", "cat", "pizza"]
    assert [(removal.name, removal.images) for removal in hierarchy.removed] == [("dog", 3)]
    assert built_set.rows == 30
    with pytest.raises(ValueError, match=r"no concept .* 4: .* 50 images \(4\)"):
        build_set(options(tmp_path / "source", tmp_path / "none", min_images=50), log=lambda _: None)


def test_several_rows_of_an_image_have_one_concept():
    rows = load_rows([("a", "a dog"), ("b", "a cat"), ("a", "the sofa"), (None, "x"), (None, "y"), ("b", None)])
    merged_rows = image_rows(rows)
    assert merged_rows.images["image_id"][:] == ["a", "b", "row 3", "row 4"]
    assert merged_rows.images["caption"][:] == [["a dog", "the sofa"], ["a cat"], ["x"], ["y"]]
    assert merged_rows.image_of.tolist() == [0, 1, 0, 2, 3, 1]


def load_rows(pairs):
    from datasets import Dataset

    return Dataset.from_dict({"image_id": [image_id for image_id, _ in pairs], "caption": [text for _, text in pairs]})


def test_a_second_build_keeps_everything_and_deleted_steps_are_made_again(tmp_path):
    folder = build_magic(tmp_path).folder
    before = hashes(folder)
    again = build_magic(tmp_path)
    assert hashes(folder) == before and all(stage.made == 0 for stage in again.chains["default"])
    shutil.rmtree(folder / "steps")
    (folder / "hierarchy.json").unlink()
    build_magic(tmp_path)
    assert hashes(folder) == before
    with pytest.raises(ValueError, match="other settings: .*taxonomy"):
        (tmp_path / "taxonomy.yaml").write_text(TAXONOMY + "\n# another\n")
        build_magic(tmp_path)


def test_other_settings_leave_a_begun_dataset_with_its_own_hierarchy(tmp_path):
    folder = build_magic(tmp_path, until="captions").folder
    before = hashes(folder)
    for until in ("hierarchy", "parts"):
        with pytest.raises(ValueError, match=r"other settings: settings\.max_negatives: 20 -> 1\. Choose another"):
            build_magic(tmp_path, until=until, max_negatives=1)
        assert hashes(folder) == before


def test_steps_can_be_run_one_by_one(tmp_path):
    whole = hashes(build_magic(tmp_path / "whole").folder)
    (tmp_path / "steps").mkdir()
    source(tmp_path / "steps" / "source")
    for until in ("concepts", "hierarchy", "captions"):
        folder = build_magic(tmp_path / "steps", until=until).folder
        with pytest.raises(ValueError, match=r"views\.json.* missing.*`hfcomp build magic .*--until"):
            load_training_set(str(folder))
    assert hashes(build_magic(tmp_path / "steps").folder) == whole


def test_a_set_without_hard_negatives_is_refused_before_its_captions(tmp_path):
    given = {"negative_similarity": 1.0}
    with pytest.raises(ValueError, match="none of the 4 concepts has a hard negative"):
        build_magic(tmp_path, **given)
    folder = tmp_path / "magic"
    assert read_hierarchy(folder).cosines.pairs.total == 6 and not (folder / "steps" / "captions").exists()
    tables = build_magic(tmp_path, **given, until="hierarchy").facts
    assert ["of these, with a hard negative", "0", "0"] in tables[1].rows and "Cosines" in tables[2].title
    build_magic(tmp_path, negative_similarity=None, negative_quantile=0.99)
    assert sum(len(concept.hard_negatives) for concept in read_hierarchy(folder).concepts) == 12  # equal cosines


def test_a_server_embeds_the_names_once_and_its_address_is_not_recorded(tmp_path):
    pytest.importorskip("openai")
    given = {"encoder": "endpoint:m", "answer_cache": str(tmp_path / "answers")}
    with serving(embeds) as server:
        folder = build_magic(tmp_path, **given, encoder_url=server.base_url).folder
        assert sorted(server.bodies[0]["input"]) == sorted(WORDS) and len(server.bodies) == 1
    assert read_hierarchy(folder).facts["encoder"] == {"encoder": "endpoint:m"}
    texts = [path.read_text() for path in folder.rglob("*.[jm][sd]*")]
    assert "--encoder endpoint:m" in "".join(texts) and not [text for text in texts if "127.0.0.1" in text]
    before = (folder / "hierarchy.json").read_bytes()
    (folder / "hierarchy.json").unlink()
    build_magic(tmp_path, **given, encoder_url=closed_address())  # all names are in the cache
    assert (folder / "hierarchy.json").read_bytes() == before


@pytest.mark.parametrize("name", ["README.md", "steps/high_concreteness/x"])
def test_files_of_something_else_are_not_written_over(tmp_path, name):
    (tmp_path / "magic" / name).parent.mkdir(parents=True)
    (tmp_path / "magic" / name).write_text("mine")
    with pytest.raises(ValueError, match=f"other files .*{name.rpartition('/x')[0] or name}"):
        build_magic(tmp_path)
    assert (tmp_path / "magic" / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"writer": "endpoint", "taxonomy": None}, "--writer endpoint .*--base_url.*--writer taxonomy"),
        ({"writer": "transformers"}, "--taxonomy .*--writer taxonomy; .*--writer transformers"),
        ({"temperature": 0.1}, "--temperature .*--writer taxonomy"),
        ({"base_url": "http://127.0.0.1:1/v1"}, "--base_url .*--writer taxonomy"),
        ({"device": "cpu"}, "--device .*--writer taxonomy and --encoder captions"),
        ({"min_images": 0}, "min_images: found 0"),
        (SERVED | {"encoder_url": "http://a@b/v1"}, "--encoder_url contains .*HFCOMP_ENCODER_API_KEY"),
        (SERVED | {"base_url": "http://b/v1"}, "--base_url has no effect"),
        (SERVED | {"device": "cpu"}, "--device has no effect"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path, settings, said):
    with pytest.raises(ValueError, match=said):
        options(tmp_path / "source", tmp_path / "magic", **settings)


def test_the_command_prints_the_hierarchy(tmp_path, capsys):
    place = source(tmp_path / "source")
    words = ["--writer", "taxonomy", "--taxonomy", tmp_path / "taxonomy.yaml", "--encoder", "captions"]
    words += ["--negative_quantile", "0.99"]
    cli.main(["build", "magic", "--source", str(place), "--output", str(tmp_path / "out"), *map(str, words)])
    out = capsys.readouterr().out
    assert "the paper's" in out and "Cosines between concepts" in out and "40 rows read, 40 written to" in out


def _build(folder: Path, log: Path) -> None:
    with log.open("a") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    build_set(options(folder.parent / "source", folder, shard_size=4), log=lambda _: None)


@pytest.mark.slow
def test_a_killed_build_ends_with_the_same_bytes(tmp_path, context):
    """About a minute: 20 kills at random moments of all steps."""
    source(tmp_path / "source")

    def start(folder: Path) -> BaseProcess:
        process = context.Process(target=_build, args=(folder, tmp_path / "log"))
        process.start()
        end = time.monotonic() + 60
        while process.is_alive() and not (folder / "steps" / "concepts").is_dir() and time.monotonic() < end:
            time.sleep(0.01)
        return process

    finished = survive_kills(start, tmp_path, kills=20)
    assert len(finished) == 20


def test_groups_may_be_those_of_another_level(folder):
    rows = load_training_set(str(folder), config="levels")
    names = {"group": "level_2", "caption": "generalized_caption"}
    renamed = rename_columns(rows, names)
    assert renamed["group"][:] == renamed["level_2"][:] == rows["level_2"][:]
    assert renamed["caption"][:] == rows["generalized_caption"][:]
    assert level_columns(rows, names) == level_columns(renamed, None) == ["group", *LEVELS]
