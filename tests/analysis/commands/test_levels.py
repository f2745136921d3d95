"""`hfcomp levels` from its words to tables, pictures and files (8 s)."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from hfcomp import cli
from hfcomp.analysis.group_figure import joint_embeddings, nearest_own_centroid
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.sandbox import levels_set
from hfcomp.writing import locked
from tests.analysis.figures import texts_of
from tests.evaluation.benchmarks.oracle import photo

ROWS = 24
LEVELS = [f"level {number}" for number in (1, 2, 3, 4)]


def words(folder, *more: str) -> list[str]:
    return ["--output_dir", str(folder / "out"), "--device", "cpu", *more]


def test_two_models_on_the_sandbox(clip, siglip, tmp_path, monkeypatch, capsys):
    written = texts_of(monkeypatch)
    cli.main(
        ["levels", f"before={clip}", f"after={siglip}", *words(tmp_path, "--rows", str(ROWS), "--candidates", "2,all")]
    )
    out = capsys.readouterr().out
    for name in ("levels.png", "groups.png", "figure.png"):
        with Image.open(tmp_path / "out" / name) as picture:
            assert picture.format == "PNG"
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    kinds = [f"{name} image {kind}" for kind in ("choice of 2", "retrieval") for name in ("caption", *LEVELS)]
    assert [line["metric"] for line in results["results"]] == kinds
    assert results["benchmarks"]["sandbox_levels"]["data"]["place"] == f"the sandbox: levels_set({ROWS}, 0)"
    assert any(note.startswith("sandbox_levels: level_2: ") for note in results["notes"])
    items = pd.read_parquet(tmp_path / "out" / "items.parquet")
    assert len(items) == 2 * len(kinds) * ROWS and set(items["arm"]) == {"before", "after"}
    assert "after minus before" in out and f"drawn: {tmp_path / 'out' / 'groups.png'}" in out
    rows = levels_set(ROWS, 0)
    sizes = pd.Series(rows["group"][:]).value_counts(sort=False)
    chosen = [row for row in range(ROWS) if rows["group"][row] in set(sizes[sizes > 1].nlargest(6).index)]
    part = rows.select(chosen)
    embedder = Embedder(clip, device="cpu")
    joint = joint_embeddings(embedder.images(part["image"]), embedder.texts(part["caption"]).vectors)
    share = 100 * nearest_own_centroid(joint, part["group"][:]).mean()
    assert f"before: nearest to own group {share:.1f}%" in written


def test_a_folder_without_groups_captions_and_matplotlib(clip, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    rows = levels_set(ROWS, 0).select_columns(["image", "image_id", *(name.replace(" ", "_") for name in LEVELS)])
    (tmp_path / "data").mkdir()
    rows.to_parquet(tmp_path / "data" / "a.parquet")
    folder = ["--data", str(tmp_path / "data"), "--rows", "20", "--candidates", "3"]
    cli.main(["levels", str(clip), *words(tmp_path, *folder, "--seed", "3")])
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "groups.png is not drawn" in out and "hard" not in out
    assert "levels.png needs matplotlib" in out
    assert not list((tmp_path / "out").glob("*.png"))
    items = pd.read_parquet(tmp_path / "out" / "items.parquet")
    assert set(items["metric"]) == {f"{name} image choice of 3" for name in LEVELS}
    drawn = set(np.random.default_rng(3).choice(ROWS, 20, replace=False))
    assert set(items["image_id"]) == {rows["image_id"][int(row)] for row in drawn}
    with pytest.raises(SystemExit, match=r"results\.json.*--overwrite"):
        cli.main(["levels", str(clip), *words(tmp_path)])


def test_a_folder_in_use_is_named(clip, tmp_path, monkeypatch):
    monkeypatch.setattr("hfcomp.writing.LOCK_SECONDS", 0)
    with locked(tmp_path / "out"), pytest.raises(SystemExit, match="^error: .*out .*in use"):
        cli.main(["levels", str(clip), *words(tmp_path, "--rows", "4", "--candidates", "2")])
    assert not (tmp_path / "out").exists()


def test_hierarcaps_by_level_where_images_lie_beside_the_table(clip, tmp_path):
    (tmp_path / "data" / "val2017").mkdir(parents=True)
    lines = []
    for number in range(6):
        (tmp_path / "data" / "val2017" / f"{number:012}.jpg").write_bytes(photo(number))
        texts = " => ".join(["thing", f"kind {number % 2}", f"name {number % 3}", f"caption {number}"])
        lines.append(f'{number},"{texts}",http://x/val2014/COCO_val2014_{number:012}.jpg')
    (tmp_path / "data" / "hierarcaps_test.csv").write_text("\n".join(["id,captions,image_url", *lines, ""]))
    more = ["--benchmark", "hierarcaps_levels", "--data", str(tmp_path / "data"), "--rows", "5", "--candidates", "2"]
    cli.main(["levels", str(clip), *words(tmp_path, *more)])
    items = pd.read_parquet(tmp_path / "out" / "items.parquet")
    # level 4 has one name, which leaves no other image
    assert list(items["metric"].unique()) == [f"level {number} image choice of 2" for number in (1, 2, 3)]
    drawn = np.random.default_rng(0).choice(6, 5, replace=False)
    assert set(items["image_id"]) == {f"{number:012}.jpg" for number in drawn}
    assert (tmp_path / "out" / "levels.png").is_file()


@pytest.mark.parametrize(
    ("models", "more", "message"),
    [
        ([], [], "name at least one model"),
        (["x"], ["--rows", "1"], "rows: found 1, expected 2 or more"),
        (["x"], ["--groups", "1"], "groups: found 1, expected 2 or more"),
        (["x"], ["--candidates", "2,one"], "--candidates: found 'one', expected a whole number or one of all"),
        (["x"], ["--candidates", "1"], "candidates: found 1, expected a number of at least 2"),
        (["x"], ["--candidates", ","], "candidates: found none, expected numbers"),
        (["x"], ["--data", "nowhere"], "data: nowhere is not a folder"),
        (["x"], ["--data", ".", "--benchmark", "sandbox_levels"], "data: sandbox_levels is synthetic"),
        (["x"], ["--benchmark", "magic"], "benchmark magic is unavailable: MAGIC is not released"),
        (["x"], ["--device", "quantum"], "device: 'quantum' cannot be used here"),
        (["nowhere/model"], ["--rows", "4"], "nowhere/model is not a local folder, and as a Hub id:"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(models, more, message, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SystemExit) as ended:
        cli.main(["levels", *models, *words(tmp_path, *more)])
    assert str(ended.value).startswith("error: ") and message in str(ended.value)
