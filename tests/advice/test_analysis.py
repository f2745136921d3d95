"""Follows the advice of audits, galleries, analyses and the annotator's page."""

from __future__ import annotations

import json
import socket

import datasets
import pytest

from hfcomp import cli
from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.analysis.gallery.rows import choose_rows
from hfcomp.analysis.level_figure import draw_levels
from hfcomp.annotate.app.server import check_access, check_port
from hfcomp.annotate.options import PASSWORD, ServeOptions
from hfcomp.evaluation.stored import read_evaluation
from hfcomp.experiments.studies.embedding_distances import select_rows
from tests import tiny
from tests.analysis.gallery.pages import held
from tests.hub.built import write_build

ITEMS, AUDIT = "hfcomp/analysis/pairs/items.py", "hfcomp/analysis/audit/"
MARKS = "hfcomp/analysis/gallery/marks.py"
follows = pytest.mark.follows


@follows(
    "hfcomp/analysis/audit/images.py", "Pass --benchmarks A,B, or --data_dir with a folder that has benchmark data."
)
@follows("hfcomp/analysis/audit/probes.py", "needs a dual encoder: --model ID")
@follows(
    "hfcomp/analysis/audit/reading.py",
    "If one of them holds the negatives, pass --column_names negative_captions=NAME",
)
@follows(
    "hfcomp/analysis/audit/reading.py",
    "`hfcomp evaluate --list` lists the benchmarks; a Hub id has the form OWNER/NAME.",
)
def test_audit(advice, clip, photographs, tmp_path):
    words = ["audit", str(photographs), "--output_dir", str(tmp_path / "out"), "--overwrite", "--no_cache"]
    plain = [*words, "--column_names", "image=file,caption=text"]
    advice.command("audit", "sugarcrap", "--output_dir", str(tmp_path / "out"))
    cli.main(["evaluate", "--list"])
    lines = photographs.read_text().splitlines()
    photographs.write_text("\n".join([f"{lines[0]},odd", *(f"{line},another text" for line in lines[1:])]))

    def audit(*given: str) -> dict:
        cli.main([*given])
        return json.loads((tmp_path / "out/audit.json").read_text())

    report = audit(*plain)
    advice.read(json.dumps(report["notes"]))
    named = [*words, "--column_names", "image=file,caption=text,negative_captions=odd"]
    report = audit(*named)
    for name in ("true_negatives", "overlap"):
        advice.read(report["checks"][name]["note"])
    report = audit(*named, "--model", str(clip), "--benchmarks", "sandbox_zero_shot")
    assert report["checks"]["true_negatives"]["value"] is not None and "odd" not in json.dumps(report["notes"])
    assert "no benchmark is named" not in json.dumps(report)


@follows(MARKS, "Pass the marked dataset with its --config and --split, or make a new page.")
@follows(MARKS, "Make the page of this dataset again and mark the rows there.")
@follows("hfcomp/analysis/gallery/options.py", "`hfcomp compare` and `hfcomp evaluate` take more.")
@follows(
    "hfcomp/analysis/gallery/page.py",
    "exists and is not a folder, so the page cannot be written there. Pass another --output.",
)
@follows("hfcomp/analysis/gallery/rows.py", "has no rows in the split {options.split!r}. Check --split.")
@follows("hfcomp/analysis/gallery/rows.py", "Name the image column with --column_names image=...")
def test_gallery(advice, clip, pairs_file, splits, tmp_path):
    words = ["gallery", str(pairs_file), "--overwrite", "--output"]
    page = str(tmp_path / "page.html")
    advice.command(*words, str(pairs_file / "page.html"))
    cli.main([*words, page])
    models = [str(clip)] * 3
    advice.command(*words, page, "--models", *models)
    named = [f"{name}={clip}" for name in "abc"]
    out = ["--output_dir", str(tmp_path / "out"), "--no_page", "--device", "cpu"]
    cli.main(["evaluate", *named, "--benchmarks", "sandbox_zero_shot", *out])
    cli.main(["compare", str(tmp_path / "out"), "--no_page"])
    (tmp_path / "marks.json").write_text(json.dumps(marks(tmp_path / "page.html")))
    apply = ["--apply", str(tmp_path / "marks.json"), "--output", str(tmp_path / "applied")]
    advice.command("gallery", str(splits), *apply)
    cli.main(["gallery", str(pairs_file), *apply])
    changed = marks(tmp_path / "page.html")
    changed["marks"][0]["id"] = "sha256:0"
    (tmp_path / "marks.json").write_text(json.dumps(changed))
    advice.command("gallery", str(pairs_file), *apply[:3], str(tmp_path / "again"))
    cli.main([*words, page])
    (tmp_path / "marks.json").write_text(json.dumps(marks(tmp_path / "page.html")))
    cli.main(["gallery", str(pairs_file), *apply[:3], str(tmp_path / "again")])
    rows = datasets.load_from_disk(splits)
    advice.of(choose_rows, rows["test"].select([]), "rows", GalleryOptions(split="test"))
    assert choose_rows(rows["train"], "rows", GalleryOptions(split="train"))
    wrong = rows["train"].rename_column("image", "photo").remove_columns("negative_image")
    wrong = wrong.add_column("image", [[1]] * len(wrong))
    wrong.save_to_disk(tmp_path / "wrong")
    named = ["gallery", str(tmp_path / "wrong"), "--overwrite", "--output", page]
    advice.command(*named)
    cli.main([*named, "--column_names", "image=photo"])


def marks(page) -> dict:
    row = held(page, "data")[0]
    return held(page, "about")["set"] | {"marks": [{"row": row["row"], "id": row["id"], "mark": "drop"}]}


@follows(ITEMS, "Give one another name, for example second={place}.")
@follows(ITEMS, "Pass a dataset built by `hfcomp build`, or name the columns: --column_names negative_captions=...")
@follows("hfcomp/data/pair_table.py", "Name the caption column: --column_names caption=...")
def test_analyze(advice, tmp_path):
    options = [
        "--output_dir",
        str(tmp_path / "out"),
        "--overwrite",
        "--models",
        "none",
        "--image_model",
        "none",
        "--text_model",
        "none",
    ]
    sets = [str(write_build(tmp_path / name / "set")) for name in ("one", "two")]
    message = advice.command("analyze", *sets, *options)
    cli.main(["analyze", sets[0], message.partition("for example ")[2].rstrip("."), *options])
    bare = datasets.Dataset.from_dict({"caption": ["a red dog"], "negative_captions": [[]], "odd": [["a red cat"]]})
    bare.to_parquet(tmp_path / "bare.parquet")
    advice.command("analyze", str(tmp_path / "bare.parquet"), *options)
    cli.main(["analyze", sets[0], *options])
    cli.main(["analyze", str(tmp_path / "bare.parquet"), *options, "--column_names", "negative_captions=odd"])
    numbers = {"caption": [7], "text": ["a red dog"], "negative_captions": [["a red cat"]]}
    datasets.Dataset.from_dict(numbers).to_parquet(tmp_path / "numbers.parquet")
    advice.command("analyze", str(tmp_path / "numbers.parquet"), *options)
    cli.main(["analyze", str(tmp_path / "numbers.parquet"), *options, "--column_names", "caption=text"])


@follows(
    "hfcomp/experiments/studies/embedding_distances.py",
    "Choose another evaluation_split or evaluation_dataset, or leave",
)
@follows("hfcomp/analysis/level_figure.py", "Evaluate with `hfcomp levels`, the benchmark magic or a sandbox recipe.")
@follows("hfcomp/analysis/levels.py", "is synthetic and has no data folder. Remove it, or choose another benchmark.")
def test_levels(advice, clip, tmp_path):
    rows = tiny.pairs(4, ragged=False)
    without = rows.map(lambda row: {"negative_captions": []})
    advice.of(select_rows, without, 2, "train")
    assert len(select_rows(rows, 2, "test").captions) == 2
    advice.of(draw_levels, tmp_path / "levels.png", [])
    words = ["levels", str(clip), "--output_dir", str(tmp_path / "out"), "--device", "cpu", "--rows", "24"]
    advice.command(*words, "--benchmark", "sandbox_levels", "--data", str(tmp_path))
    cli.main([*words, "--benchmark", "sandbox_levels"])
    draw_levels(tmp_path / "levels.png", read_evaluation(tmp_path / "out")[1]["results"])


@follows("hfcomp/annotate/app/server.py", "Choose an address of this machine and a free --port, or omit both.")
@follows(
    "hfcomp/annotate/app/server.py", "Set HFCOMP_ANNOTATE_PASSWORD, pass --password_file or --people, or omit --host."
)
def test_page(advice, tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        advice.of(check_port, "127.0.0.1", taken.getsockname()[1])
        check_port("127.0.0.1", None)
    monkeypatch.delenv(PASSWORD, raising=False)
    advice.of(check_access, "0.0.0.0", ServeOptions().password())
    (tmp_path / "password").write_text("correct horse battery")
    check_access("0.0.0.0", ServeOptions(password_file=str(tmp_path / "password")).password())
    check_access(ServeOptions().host, None)
    monkeypatch.setenv(PASSWORD, "correct horse battery")
    check_access("0.0.0.0", ServeOptions().password())
