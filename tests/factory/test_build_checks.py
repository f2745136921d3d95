"""What a build looks for in its source and its result: damaged images, other languages, lost images, no negatives."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from datasets import load_dataset
from PIL import Image

from hfcomp import cli
from hfcomp.data.built_sets.files import MANIFEST, SET_ASIDE_FILE, UNFINISHED
from hfcomp.factory.build import build_set
from hfcomp.factory.options import NegativeOptions
from hfcomp.factory.shards import BAD_IMAGE, DamagedSource
from tests.factory import builds

ENGLISH = ["a red ball on a wooden table", "a green dog near a window", "a blue cube and a cat", "a white horse"]
GERMAN = ["Ein großer roter Hund läuft über die Wiese", "Zwei Kinder spielen mit einem blauen Ball im Park"]
CHINESE = ["一只红色的狗在草地上奔跑", "两个孩子在公园里玩蓝色的球"]
SKIP = ("hfcomp/data/images.py", "Or skip and count such rows: --skip_damaged")


def table(folder: Path, captions=ENGLISH, *, damaged=(), names=("image", "caption"), photos: bool = True) -> str:
    """A CSV that lists photographs beside it."""
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    lines = [",".join(names)]
    for row, caption in enumerate(captions):
        path = folder / "photos" / f"{row}.jpg"
        if photos:
            noise = np.random.default_rng(row).integers(0, 256, (24, 32, 3), dtype=np.uint8)
            Image.fromarray(noise).save(path)
        if row in damaged:
            path.write_bytes(path.read_bytes()[:-100])
        lines.append(f'photos/{path.name},"{caption}"')
    (folder / "table.csv").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "table.csv")


def build(kind: str, source: str, output: Path, *more: str) -> None:
    own = {"negatives": ["--kinds", "keyword:color"], "concepts": ["--parser", "rules"], "neighbors": []}[kind]
    cli.main(["build", kind, "--source", source, "--output", str(output), *own, *more])


def refusal_text(kind: str, source: str, output: Path, *more: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        build(kind, source, output, *more)
    return str(stopped.value)


def manifest(folder: Path) -> dict:
    return json.loads((folder / MANIFEST).read_text())


# Damaged images


@pytest.mark.follows(*SKIP)
@pytest.mark.parametrize("kind", ["negatives", "concepts", "neighbors"])
def test_a_damaged_image_ends_the_build_or_is_left_out(kind, clip, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    source = table(tmp_path, damaged=(1,))
    more = ["--model", str(clip), "--number", "1", "--device", "cpu"] if kind == "neighbors" else []
    said = refusal_text(kind, source, tmp_path / "out", *more)
    assert "column 'image', row 1 (file" in said and "1.jpg" in said and "cannot be decoded" in said
    assert "--skip_damaged" in said and "Traceback" not in capsys.readouterr().err
    build(kind, source, tmp_path / "out", *more, "--skip_damaged")
    rows = load_dataset(str(tmp_path / "out"), split="train")
    assert rows["caption"][:] == [text for row, text in enumerate(ENGLISH) if row != 1]
    assert [row["image"].size for row in rows] == [(32, 24)] * 3
    assert manifest(tmp_path / "out")["set_aside"] == {BAD_IMAGE: 1}
    assert manifest(tmp_path / "out")["counts"]["images: decoded"] == 4
    (line,) = map(json.loads, (tmp_path / "out" / SET_ASIDE_FILE).read_text().splitlines())
    assert line["row"] == 1 and "1.jpg" in line["detail"] and str(tmp_path) not in line["detail"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "image cannot be decoded 1" in shown and "decoded 4" in shown


@pytest.mark.parametrize("num_workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_finished_shards_are_kept_and_the_bytes_are_those_of_one_run(num_workers, tmp_path, capfd):
    source = table(tmp_path, damaged=(3,))
    words = ["--shard_size", "1", "--num_workers", str(num_workers)]
    said = refusal_text("negatives", source, tmp_path / "out", *words)
    assert "row 3" in said and "repeat the command to resume" in said and "Traceback" not in capfd.readouterr().err
    assert list((tmp_path / "out" / UNFINISHED).glob("0*.json"))
    build("negatives", source, tmp_path / "out", *words, "--skip_damaged")
    build("negatives", source, tmp_path / "whole", "--shard_size", "1", "--skip_damaged")
    assert builds.hashes(tmp_path / "out") == builds.hashes(tmp_path / "whole")


@pytest.mark.follows(*SKIP)
def test_in_python_the_argument_has_the_same_name(tmp_path):
    given = {"source": table(tmp_path, damaged=(0,)), "output": tmp_path / "out", "kinds": ("keyword:color",)}
    with pytest.raises(DamagedSource, match=r"row 0 \(file '0.jpg'\).*skip_damaged=True"):
        build_set(NegativeOptions(**given), log=[].append)
    assert build_set(NegativeOptions(**given, skip_damaged=True), log=[].append).rows == 3


def test_images_that_are_not_written_are_not_decoded(tmp_path):
    build("negatives", table(tmp_path, damaged=(1,)), tmp_path / "out", "--columns", "caption")
    assert manifest(tmp_path / "out")["rows"] == 4 and "images: decoded" not in manifest(tmp_path / "out")["counts"]


# Languages


@pytest.mark.parametrize("captions", [GERMAN, CHINESE])
def test_another_language_is_said_at_the_start(captions, tmp_path, capsys):
    source = table(tmp_path, captions)
    build("concepts", source, tmp_path / "out")
    said = [line for line in capsys.readouterr().out.splitlines() if "English, such as" in line]
    assert len(said) == 1 and said[0].startswith("2 of 2 ") and captions[0][:20] in said[0]


def test_english_is_not_remarked_upon_nor_what_no_parser_reads(tmp_path, capsys):
    build("concepts", table(tmp_path), tmp_path / "out")
    assert "English" not in capsys.readouterr().out
    given = {"source": "x", "output": tmp_path, "writer": "transformers"}
    kinds = [("llm",), ("llm:replace_obj", "swap"), ("keyword",)]
    assert [NegativeOptions(kinds=kind, **given).reads_english for kind in kinds] == [False, True, True]


# Captions without a negative

SHARE = ("hfcomp/factory/kinds.py", "Or accept the share: repeat the command with")


@pytest.mark.follows(*SHARE)
def test_a_build_without_negatives_fails_and_its_advice_is_followed(tmp_path, capsys):
    source = table(tmp_path, [*CHINESE, "a red ball"])
    said = refusal_text("negatives", source, tmp_path / "out")
    assert "2 of 3 captions (66.7%)" in said and "--max_without_negative 0.5" in said
    assert not (tmp_path / "out" / MANIFEST).exists()
    advice = said[said.index("--max_without_negative", said.index("repeat the command")) :].partition(",")[0]
    build("negatives", source, tmp_path / "out", *shlex.split(advice))
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 of 3 captions 66.7%" in shown and "1 kept" in shown
    assert "| 2 of 3 captions | 66.7% |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.follows("hfcomp/factory/kinds.py", "and choose --kinds")
def test_another_kind_in_another_folder_is_the_other_way_out(tmp_path):
    source = table(tmp_path, ["a big dog is next to a small cat", "a big man is next to a small car"])
    assert "another output folder" in refusal_text("negatives", source, tmp_path / "out")
    given = ["--kinds", "swap", "--parser", "rules"]
    cli.main(["build", "negatives", "--source", source, "--output", str(tmp_path / "other"), *given])


def test_the_share_is_shown_where_all_have_one_and_counts_rows_set_aside(tmp_path, capsys):
    build("negatives", table(tmp_path), tmp_path / "out")
    assert "0 of 4 captions 0.0%" in " ".join(capsys.readouterr().out.split())
    source = table(tmp_path / "few", ["a red ball", "nothing here", "no color", "a dog"])
    said = refusal_text("negatives", source, tmp_path / "fewer", "--only_with_negative")
    assert "3 of 4 captions (75.0%)" in said
    build("negatives", source, tmp_path / "fewer", "--only_with_negative", "--max_without_negative", "0.75")
    assert manifest(tmp_path / "fewer")["rows"] == 1


def test_a_share_outside_0_to_1_is_refused():
    with pytest.raises(ValueError, match="max_without_negative: found 50.* 0 .* 1"):
        NegativeOptions(source="x", output=Path("y"), max_without_negative=50)


# Images that would be lost

NAMED = ("hfcomp/factory/sources.py", "built dataset would have no images")
TEXTS = ("hfcomp/factory/sources.py", "Or build a dataset of texts: --columns caption")


@pytest.mark.follows(*NAMED)
@pytest.mark.parametrize("given", [[], ["--column_names", "caption=words"]])
def test_images_of_a_source_are_not_lost(given, tmp_path):
    source = table(tmp_path, names=("photo_path", "words" if given else "description"))
    said = refusal_text("negatives", source, tmp_path / "out", *given)
    assert "'photo_path'" in said and "'photos/0.jpg'" in said
    advice = shlex.split(said[said.index("--column_names") :].partition(", in Python")[0])
    build("negatives", source, tmp_path / "out", *advice)
    assert [row["image"].size for row in load_dataset(str(tmp_path / "out"), split="train")] == [(32, 24)] * 4


@pytest.mark.follows(*TEXTS)
def test_a_set_of_texts_is_built_on_request(tmp_path):
    source, names = table(tmp_path, names=("photo_path", "words")), ["--column_names", "caption=words"]
    assert refusal_text("concepts", source, tmp_path / "out", *names).endswith(
        "Or build a dataset of texts: --columns caption"
    )
    build("concepts", source, tmp_path / "out", *names, "--columns", "caption")
    assert load_dataset(str(tmp_path / "out"), split="train").column_names == ["caption", "concepts", "concept_spans"]


def test_texts_that_name_no_files_are_texts(tmp_path):
    source = table(tmp_path, names=("photo_path", "caption"), photos=False)
    build("concepts", source, tmp_path / "out")
    assert "photo_path" in load_dataset(str(tmp_path / "out"), split="train").column_names
