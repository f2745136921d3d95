"""`hfcomp build` from the command line to a dataset that trains (about 9 s)."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields

import pytest
from datasets import Dataset, Image, load_dataset
from huggingface_hub import DatasetCard

from hfcomp import cli
from hfcomp.data.built_sets.files import SET_ASIDE_FILE
from hfcomp.factory import shards
from hfcomp.factory.command import quiet_logs
from hfcomp.factory.concretebatch.chain import ConcreteBatchOptions
from hfcomp.factory.options import ConceptOptions, NegativeOptions, NeighborOptions
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.evaluation.webdatasets import write_tar
from tests.factory import builds
from tests.negatives import language_models
from tests.trainers.runs import build, history

CAPTIONS = ["a red cube", "a red ball | ![x](http://evil.example/x.png) <b>", "nothing here", "", None, "a blue dog"]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    """JSON lines that name images beside them; two rows lack a caption, one an image."""
    folder = tmp_path_factory.mktemp("source")
    for row in range(len(CAPTIONS)):
        (folder / f"{row}.png").write_bytes(builds.png(40 * row))
    lines = [
        {"image": f"{row}.png", "text": text, "photo_id": row, "file": "a.png"} for row, text in enumerate(CAPTIONS)
    ]
    lines.append({"image": "gone.png", "text": "a red horse", "photo_id": 9, "file": "b.png"})
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return str(folder / "rows.jsonl")


def words(source: str, output, *more: str) -> list[str]:
    given = ["--source", source, "--column_names", "caption=text,image_id=photo_id", "--shard_size", "3"]
    return ["negatives", *given, "--output", str(output), *more]


@pytest.fixture(scope="module")
def built_folder(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "out"
    cli.main(["build", *words(source, folder, "--kinds", "keyword:color,keyword:object", "--num_negatives", "2")])
    return folder


def test_the_set_can_be_loaded(built_folder):
    rows = load_dataset(str(built_folder), split="train")
    assert rows["caption"][:] == [CAPTIONS[0], CAPTIONS[1], CAPTIONS[2], CAPTIONS[5]]
    assert rows["image_id"][:] == [0, 1, 2, 5] and [row["image"].size for row in rows] == [(4, 4)] * 4
    assert rows["negative_kinds"][:] == [
        ["keyword_color"] * 2,
        ["keyword_color"] * 2,
        ["", ""],
        rows["negative_kinds"][3],
    ]
    assert sorted(rows["negative_kinds"][3]) == ["keyword_color", "keyword_object"]
    raw = rows.cast_column("image", Image(decode=False))
    assert raw["image"][0] == {"bytes": builds.png(0), "path": "0.png"}


def test_what_was_set_aside_is_counted_and_listed(built_folder):
    lines = [json.loads(line) for line in (built_folder / "set_aside.jsonl").read_text().splitlines()]
    assert [(line["row"], line["reason"]) for line in lines] == [
        (3, "no caption"),
        (4, "no caption"),
        (6, "image file cannot be read"),
    ]
    assert json.loads((built_folder / "manifest.json").read_text())["set_aside"] == {
        "image file cannot be read": 1,
        "no caption": 2,
    }


def test_the_card_says_what_it_is_and_shows_texts_as_data(built_folder, source):
    card = DatasetCard.load(built_folder / "README.md")
    assert card.data.license == "unknown" and "hard-negative-captions" in card.data.tags
    assert card.data.size_categories == ["n<1K"]
    assert "It is unknown" in card.text or "it is unknown" in card.text
    assert "hfcomp build negatives --source LOCAL/rows.jsonl" in card.text and "keyword:color" in card.text
    assert "| keyword color | 5 |" in card.text and "| no caption | 2 |" in card.text
    assert "](" not in card.text.partition("**Examples**")[2] and "<b>" not in card.text
    for file in ("README.md", "manifest.json", "set_aside.jsonl"):
        assert source.rpartition("/")[0] not in (built_folder / file).read_text()


def test_counts_are_printed(source, tmp_path, capsys):
    cli.main(["build", *words(source, tmp_path, "--only_with_negative")])
    shown = " ".join(capsys.readouterr().out.split())
    assert "7 rows from" in shown and "7 rows read, 3 written to" in shown
    assert re.search(r"without a negative 1 .*rows set aside, in set_aside.jsonl", shown)
    assert "no negative 1" in shown and "no caption 2" in shown
    assert load_dataset(str(tmp_path), split="train")["caption"][:] == [CAPTIONS[0], CAPTIONS[1], CAPTIONS[5]]


def test_an_interrupted_build_resumes_to_the_same_bytes(source, built_folder, tmp_path, monkeypatch, capsys):
    given = words(source, tmp_path, "--kinds", "keyword:color,keyword:object", "--num_negatives", "2")
    original = shards.ShardMaker.make

    def interrupt(self, index):
        if index == 1:
            raise KeyboardInterrupt
        return original(self, index)

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
        patch.setattr(shards.ShardMaker, "make", interrupt)
        cli.main(["build", *given])
    assert stopped.value.code == 130 and "repeat the command to resume" in capsys.readouterr().err
    cli.main(["build", *given])
    assert "shards: 1 kept, 2 made" in capsys.readouterr().out
    assert builds.hashes(tmp_path) == builds.hashes(built_folder)


def test_other_settings_in_the_same_folder_are_refused(source, built_folder):
    with pytest.raises(SystemExit, match=r"^error: .*stages.1 negatives.kinds"):
        cli.main(["build", *words(source, built_folder)])


def test_a_model_drops_false_negatives_and_bad_images_are_set_aside(clip, tmp_path, capsys):
    images = [{"bytes": tiny_png, "path": None} for tiny_png in (builds.png(9), builds.png(99), b"no image")]
    rows = Dataset.from_dict({"image": images, "caption": ["a red cube", "a blue ball", "a green cone"]})
    rows.cast_column("image", Image(decode=False)).save_to_disk(tmp_path / "rows")
    given = ["negatives", "--source", str(tmp_path / "rows"), "--kinds", "keyword:color", "--device", "cpu"]
    given += ["--columns", "", "--false_negative_model", str(clip), "--skip_damaged"]
    given += ["--max_without_negative", "1", "--false_negative_margin"]
    cli.main(["build", *given, "2.5", "--output", str(tmp_path / "kept")])
    kept = load_dataset(str(tmp_path / "kept"), split="train")
    assert all(texts[0] for texts in kept["negative_captions"]) and len(kept) == 2
    cli.main(["build", *given, "-2.5", "--output", str(tmp_path / "none")])
    none = load_dataset(str(tmp_path / "none"), split="train")
    assert none["negative_captions"][:] == [[""], [""]]
    manifest = json.loads((tmp_path / "none" / "manifest.json").read_text())
    assert manifest["set_aside"] == {"image cannot be decoded": 1}
    assert manifest["counts"]["dropped: false_negative"] == 16  # both captions, each with the 8 other colors
    assert manifest["plan"]["stages"]["2 negatives"]["false_negative_model"].startswith("LOCAL/clip (sha256:")
    assert str(tmp_path) not in (tmp_path / "none" / "README.md").read_text()


def test_parsed_kinds_record_parser_and_model(source, tmp_path):
    model = language_models.roberta(tmp_path / "fill", {"Ġdog": 0.0, "Ġblue": -1.0})
    given = ["--kinds", "swap:nouns,mask:adjective", "--parser", "rules", "--fill_model", str(model), "--limit", "2"]
    cli.main(["build", *words(source, tmp_path / "out", "--device", "cpu", *given)])
    stage = json.loads((tmp_path / "out" / "manifest.json").read_text())["plan"]["stages"]["1 negatives"]
    assert stage["parser"].startswith("rules (textblob ") and stage["fill_model"].startswith("LOCAL/fill (sha256:")
    rows = load_dataset(str(tmp_path / "out"), split="train")
    assert rows["negative_captions"][0] == ["a blue cube"] and rows["negative_kinds"][0] == ["mask_adj"]


def test_the_built_set_trains(clip, tmp_path):
    tiny.pairs(8).to_parquet(tmp_path / "rows.parquet")
    given = ["--kinds", "keyword:color", "--num_negatives", "2", "--output", str(tmp_path / "out")]
    cli.main(["build", "negatives", "--source", str(tmp_path / "rows.parquet"), *given])
    built = load_dataset(str(tmp_path / "out"), split="train")
    assert "negative_concreteness" not in built.column_names and "negative_image" not in built.column_names
    run = {"per_device_train_batch_size": 4, "max_steps": 2, "num_negatives": 2}
    trainer = build(InfoNCETrainer, clip, built, tmp_path / "trained", **run)
    trainer.train()
    assert len(history(trainer, "hard_negative_accuracy")) == 2


def test_a_set_built_anew_in_its_folder_is_read_anew(source, tmp_path):
    def texts(seed):
        cli.main(["build", *words(source, tmp_path / "out", "--seed", seed)])
        return load_dataset(str(tmp_path / "out"), split="train")["negative_captions"][:]

    first = texts("0")
    shutil.rmtree(tmp_path / "out")
    assert texts("1") != first


def test_lists_of_captions_give_a_row_each(tmp_path):
    rows = [{"caption": ["a red dog", "a cat and a dog"]}, {"caption": ["a car", ""]}, {"caption": []}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["negatives", "--source", str(tmp_path / "rows.jsonl"), "--output"]
    cli.main(["build", *given, str(tmp_path / "all"), "--captions", "all"])
    every = load_dataset(str(tmp_path / "all"), split="train")
    assert every["caption"][:] == ["a red dog", "a cat and a dog", "a car"]
    assert every["image_id"][:] == ["row 0", "row 0", "row 1"]
    cli.main(["build", *given, str(tmp_path / "longest")])
    assert load_dataset(str(tmp_path / "longest"), split="train")["caption"][:] == ["a cat and a dog", "a car"]


def test_image_ids_of_the_source_go_with_its_captions(tmp_path):
    rows = [{"texts": ["a red dog", "a cat"], "image_id": "first"}, {"texts": ["a car"], "image_id": "second"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ["--source", str(tmp_path / "rows.jsonl"), "--column_names", '{"caption": "texts"}', "--captions", "all"]
    cli.main(["build", "negatives", *given, "--columns", "caption", "--output", str(tmp_path / "out")])
    assert load_dataset(str(tmp_path / "out"), split="train")["image_id"][:] == ["first", "first", "second"]


def test_neighbors_become_a_column(clip, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    tiny.pairs(6).to_parquet(tmp_path / "rows.parquet")
    given = ["--number", "2", "--device", "cpu", "--output", str(tmp_path / "out"), "--columns", "image,caption"]
    for _ in range(2):  # the second time all is there
        cli.main(["build", "neighbors", "--source", str(tmp_path / "rows.parquet"), "--model", str(clip), *given])
    rows = load_dataset(str(tmp_path / "out"), split="train")
    assert rows.column_names == ["image", "caption", "image_id", "neighbor_ids"]
    assert all(len(set(row["neighbor_ids"]) - {row["image_id"]}) == 2 for row in rows)
    assert "NegCLIP" in (tmp_path / "out" / "README.md").read_text()


# Concepts


NAMES = ["it is a dog with a man", "hello", "", "a red dog and a dog"]


@pytest.fixture(scope="module")
def with_phrases(tmp_path_factory):
    """Built from JSON lines that have concepts of something else."""
    folder = tmp_path_factory.mktemp("concepts")
    lines = [{"text": text, "concepts": ["old"], "url": str(row)} for row, text in enumerate(NAMES)]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = ["--source", str(folder / "rows.jsonl"), "--column_names", "caption=text", "--parser", "rules"]
    cli.main(["build", "concepts", *given, "--max_concepts", "1", "--output", str(folder / "out")])
    return folder / "out"


def test_concepts_become_columns_beside_those_of_the_source(with_phrases):
    rows = load_dataset(str(with_phrases), split="train")
    assert rows.column_names == ["caption", "url", "concepts", "concept_spans"]
    assert rows.to_dict() == {
        "caption": [NAMES[0], NAMES[1], NAMES[3]],
        "url": ["0", "1", "3"],
        "concepts": [["a dog"], [], ["a red dog"]],
        "concept_spans": [[[[6, 11]]], [], [[[0, 9]]]],
    }


def test_counts_of_concepts_are_in_the_card_and_the_manifest(with_phrases):
    card = DatasetCard.load(with_phrases / "README.md")
    assert "noun-phrases" in card.data.tags and "`concept_spans`" in card.text
    for line in ("written | 2", "cut by max concepts | 2", "without a phrase | 1", "pronoun | 1", "no caption | 1"):
        assert f"| {line} |" in card.text
    assert "| a red dog and a dog | a red dog |" in card.text
    manifest = json.loads((with_phrases / "manifest.json").read_text())
    stage = manifest["plan"]["stages"]["1 concepts"]
    assert stage["parser"].startswith("rules (textblob ") and stage["max_concepts"] == 1
    assert manifest["counts"]["captions: without a phrase"] == 1


def test_shards_with_a_file_of_captions_become_a_set_with_concepts(tmp_path, capsys):
    members = {
        f"00000{row}.{end}": png for row in range(3) for end, png in (("png", builds.png(row)), ("txt", b"alt"))
    }
    write_tar(tmp_path / "shards" / "00000.tar", members)
    (tmp_path / "short.json").write_text(json.dumps({"000002": "a red dog", "000000": "hello"}))
    given = [
        "--source",
        str(tmp_path / "shards"),
        "--captions_file",
        str(tmp_path / "short.json"),
        "--parser",
        "rules",
    ]
    given += ["--column_names", "image=png,image_id=__key__", "--output", str(tmp_path / "out")]
    cli.main(["build", "concepts", *given])
    assert "2 rows have one; 1 have none" in capsys.readouterr().out
    rows = load_dataset(str(tmp_path / "out"), split="train")
    assert rows.column_names == ["caption", "image", "txt", "image_id", "concepts", "concept_spans"]
    assert rows["image_id"][:] == ["000000", "000002"] and rows["concepts"][:] == [[], ["a red dog"]]
    assert [image.getpixel((0, 0))[0] for image in rows["image"]] == [0, 2]
    aside = json.loads((tmp_path / "out" / "set_aside.jsonl").read_text())
    assert (aside["row"], aside["reason"]) == (1, "no caption")
    assert "--captions_file LOCAL/short.json" in (tmp_path / "out" / "README.md").read_text()


def test_counts_of_concepts_and_dropped_columns_are_printed(with_phrases, tmp_path, capsys):
    source = str(with_phrases.parent / "rows.jsonl")
    given = ["--column_names", "caption=text", "--parser", "rules", "--output", str(tmp_path / "out")]
    cli.main(["build", "concepts", "--source", source, *given])
    shown = " ".join(capsys.readouterr().out.split())
    assert "columns concepts: " in shown
    assert "written 4" in shown and "without a phrase 1" in shown and "4 rows read, 3 written to" in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max_concepts", "0"], "max_concepts: found 0,.* 1"),
        (["--parser", "stanza"], "parser 'stanza'"),
        (["--key_column", "url"], "--key_column .*--captions_file"),
        (["--captions_file", "none.csv"], "none.csv"),
        (["--parser", "spacy:en_none"], "spacy download en_none"),
        (["--column_names", "caption=url", "--columns", "none"], "--columns .*'none'"),
    ],
)
def test_mistakes_with_concepts_end_in_a_line_and_leave_nothing(with_phrases, tmp_path, more, message):
    source = str(with_phrases.parent / "rows.jsonl")
    given = ["concepts", "--source", source, "--parser", "rules", "--output", str(tmp_path / "out"), *more]
    with pytest.raises(SystemExit, match=f"^error: (?s:.*){message}"):
        cli.main(["build", *given])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--kinds", "keywords"], "'keywords'.*'keyword'"),
        (["--num_negatives", "0"], "num_negatives: found 0,.* 1"),
        (["--shard_size", "0"], "shard_size: found 0,.* 1"),
        (["--limit", "0"], "limit: found 0,.* 1"),
        (["--column_names", "text"], "--column_names: found 'text'"),
        (["--column_names", '{"caption": 3}'], "--column_names: found .*JSON"),
        (["--column_names", "{caption: text}"], "--column_names: .*not JSON"),
        (["--column_names", "image_id=text"], "no column 'caption'; .*--column_names caption="),
        (["--column_names", "caption=photo_id"], "'caption' .*int64"),
        (["--columns", "nowhere"], "--columns .*'nowhere'"),
        (["--split", "test"], "'test'.*--split"),
        (["--grammar_tolerance", "1"], "--grammar_tolerance .*--grammar_model"),
        (["--false_negative_margin", "1"], "--false_negative_margin .*--false_negative_model"),
        (["--fill_model", "x"], "--fill_model .*mask"),
        (["--column_names", "caption=text,image=file"], "row 0: .*not exist.* 7 of 7 rows"),
        (["--device", "gpu"], "device: 'gpu'"),
        (["--keyword_table", "no.yaml"], "no.yaml"),
        (["--kinds", "swap", "--parser", "spacy:en_none"], "spacy download en_none"),
        (["--kinds", "swap", "--parser", "stanza"], "parser 'stanza'"),
        (["--source", "nothing/at/all.jsonl"], "nothing/at/all"),
    ],
)
def test_mistakes_end_in_a_line_and_leave_nothing(source, tmp_path, monkeypatch, more, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SystemExit, match=f"^error: (?s:.*){message}"):
        cli.main(["build", *words(source, tmp_path / "out", *more)])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [NegativeOptions, ConceptOptions, NeighborOptions, ConcreteBatchOptions])
def test_help_describes_every_field_with_its_default(kind, capsys):
    with pytest.raises(SystemExit):
        cli.main(["build", kind.what, "--help"])
    shown = " ".join(capsys.readouterr().out.partition("options:")[2].split())
    if kind is ConcreteBatchOptions:
        assert "--captions " not in shown, "of several captions it takes the longest"
    for field in (entry for entry in fields(kind) if entry.init):
        other = " DIR, --output_dir" if field.name == "output" else ""
        assert re.search(rf"--{field.name}{other} [^-]*[a-z]{{3}}", shown), field.name
        if field.type == "int":
            assert re.search(rf"--{field.name} N [^-]*\(default: {field.default}\)", shown)


def test_workers_of_a_build_write_no_bars_into_a_log(capfd):
    seen = "from transformers.utils import logging; print(logging.get_verbosity(), logging.is_progress_bar_enabled())"
    before = dict(os.environ)
    with quiet_logs():
        subprocess.run([sys.executable, "-c", seen], check=True)
    assert capfd.readouterr().out.split() == [str(logging.ERROR), "False"] and dict(os.environ) == before


@pytest.mark.parametrize(("word", "near"), [("negativs", "negatives"), ("pixel", "pixels"), ("verfy", "verify")])
def test_an_unknown_kind_is_one_line_with_the_nearest(word, near):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["build", word, "--source", "x"])
    line = str(stopped.value.code)
    assert line.startswith(f"error: KIND: found {word!r}, expected one of negatives, ")
    assert line.endswith(f"verify. Did you mean {near!r}?") and "\n" not in line


@pytest.mark.parametrize("given", [[], ["negatives", "--source", "x"], ["negatives", "--nonsense"]])
def test_a_wrong_command_line_ends_with_2(given, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["build", *given])
    assert stopped.value.code == 2 and "usage: hfcomp build" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--num_wokers", "Did you mean '--num_workers'?"),
        ("--zzz", "`hfcomp build concretebatch --help` lists the options."),
    ],
)
def test_an_unknown_option_is_named_with_the_nearest(word, hint, capsys):
    with pytest.raises(SystemExit):
        cli.main(["build", "concretebatch", "--source", "x", "--output", "y", f"{word}=3"])
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[1] == f"hfcomp build concretebatch: error: '{word}' is not an option. {hint}"


@pytest.mark.parametrize(("content", "message"), [("no json", "error: "), ("", "error: .*rows.jsonl .*no rows")])
def test_a_file_without_rows_is_refused(tmp_path, content, message):
    (tmp_path / "rows.jsonl").write_text(content)
    with pytest.raises(SystemExit, match=f"^{message}"):
        cli.main(["build", "negatives", "--source", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out")])


def test_a_failing_stage_is_reported_with_its_traceback(source, tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise ZeroDivisionError("deep down")

    monkeypatch.setattr("hfcomp.factory.text_negatives.keyword_negatives", fail)
    with pytest.raises(SystemExit, match=r"error: .*'negatives', shard 0 of 3 \(rows 0 to 2\): ZeroDivisionError"):
        cli.main(["build", *words(source, tmp_path)])
    assert "in fail" in capsys.readouterr().err


def test_a_set_left_empty_is_an_error(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"caption": "hello"}')
    given = ["--source", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out"), "--only_with_negative"]
    with pytest.raises(SystemExit, match="error: no row .*set_aside.jsonl"):
        cli.main(["build", "negatives", *given])


def sources_of_others(tmp_path):
    """A source that names a picture outside of its folder: by its path, by dots and by a symbolic link."""
    secret, folder = tmp_path / "private" / "passport.png", tmp_path / "downloaded"
    secret.parent.mkdir()
    folder.mkdir()
    secret.write_bytes(builds.png(1))
    (folder / "own.png").write_bytes(builds.png(2))
    (folder / "link.png").symlink_to(secret)
    names = ["own.png", str(secret), "../private/passport.png", "link.png"]
    lines = [json.dumps({"image": name, "text": "a red cube"}) for name in names]
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return str(folder / "rows.jsonl")


def test_files_outside_of_the_source_are_refused_by_number_and_name(tmp_path, capsys):
    source = sources_of_others(tmp_path)
    given = ["concepts", "--source", source, "--column_names", "caption=text", "--parser", "rules"]
    with pytest.raises(SystemExit, match="3 image files outside.*passport.png.*row 1.*row 2"):
        cli.main(["build", *given, "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    cli.main(["build", *given, "--output", str(tmp_path / "out"), "--allow_outside_files"])
    assert "4 image files that" in capsys.readouterr().out
    assert len(load_dataset(str(tmp_path / "out"), split="train")) == 4


def test_urls_and_long_captions_are_set_aside_with_their_reason(tmp_path):
    (tmp_path / "own.png").write_bytes(builds.png(2))
    rows = [("own.png", "a red cube"), ("http://127.0.0.1:9/a.png", "a ball"), ("own.png", "a red dog " * 1000)]
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(json.dumps({"image": image, "caption": text}) for image, text in rows))
    out = tmp_path / "out"
    cli.main(["build", "concepts", "--source", str(source), "--parser", "rules", "--output", str(out)])
    assert load_dataset(str(out), split="train")["concepts"][:] == [["a red cube"]]
    lines = [json.loads(line) for line in (out / SET_ASIDE_FILE).read_text().splitlines()]
    assert [(line["row"], line["reason"]) for line in lines] == [(1, shards.NO_IMAGE), (2, "caption too long")]
    assert "--allow_urls" in lines[0]["detail"] and "3,000 words" in lines[1]["detail"]
