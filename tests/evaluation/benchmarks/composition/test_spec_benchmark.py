"""SPEC in its archive and unpacked, both directions (about 3 s)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import datasets
import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.composition.spec_benchmark import REPO, REVISION, SPEC, SUBSETS
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import Drawn, Sighted, check_chance, check_known_scorers, items, photos, scores

CAPTIONS, IMAGES = SPEC
SETS = {
    "absolute_size": 3,
    "relative_size": 3,
    "absolute_spatial": 9,
    "relative_spatial": 4,
    "existence": 2,
    "count": 9,
}
"""Images in each set of a subset; one set a subset here."""
TRUE = {number: [f"of {number}"] for number in range(sum(SETS.values()))}


def write_folders(folder: Path, prefix: str = "") -> Path:
    """The authors' folders; candidates are listed from another one on, so that labels differ."""
    first = 0
    for subset in SUBSETS:
        place, size = folder / prefix / subset, SETS[subset]
        photos(place / "images", {f"{number}.jpg": first + number for number in range(size)})
        texts, names = [f"of {first + n}" for n in range(size)], [f"./images/{n}.jpg" for n in range(size)]

        def questions(queries, keys, size=size):
            turned = [keys[1:] + keys[:1]] * size
            return [
                {"query": query, "keys": turned[n], "label": turned[n].index(keys[n])}
                for n, query in enumerate(queries)
            ]

        (place / "image2text.json").write_text(json.dumps(questions(names, texts)))
        (place / "text2image.json").write_text(json.dumps(questions(texts, names)))
        first += size
    return folder


def pack(folder: Path, prefix: str = "data") -> Path:
    """Everything in `data.zip`, inside a folder."""
    write_folders(folder / "files", prefix)
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        for file in sorted((folder / "files").rglob("*.*")):
            archive.write(file, str(file.relative_to(folder / "files")))
    return folder


@pytest.mark.parametrize("benchmark", SPEC, ids=lambda benchmark: benchmark.name)
@pytest.mark.parametrize("layout", [write_folders, pack])
def test_known_scorers_on_both_layouts(tmp_path, layout, benchmark):
    rows = items(benchmark, layout(tmp_path / "spec"))
    assert len(rows.rows) == sum(SETS.values())
    check_known_scorers(benchmark, rows, TRUE)


def test_a_random_scorer_is_at_chance_whatever_the_size_of_the_set():
    nine = {"caption": [f"a {row}" for row in range(1500)]}
    check_chance(CAPTIONS, nine | {"negative_captions": [[f"{n} {row}" for n in range(8)] for row in range(1500)]})
    images = [{"bytes": f"{row}".encode(), "path": None} for row in range(1800)]
    # 100 sets of 9, 225 of 4
    names = [f"nine {row // 9}" for row in range(900)] + [f"four {row // 4}" for row in range(900)]
    table = datasets.Dataset.from_dict(
        {"caption": [f"a {row}" for row in range(1800)], "candidates": names, "subset": [n[:4] for n in names]}
    )
    rows = validate(IMAGES, BenchmarkData(table, Origin("memory"), images={"image": images}))
    for subset, part in run_benchmark(IMAGES, rows, Drawn()).items.groupby("subset"):
        chance = {"nine": 1 / 9, "four": 1 / 4}[subset]
        assert set(part["chance"]) == {chance}
        assert part["value"].mean() == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 900) ** 0.5)


def test_an_image_that_is_no_texts_own_is_still_a_candidate(tmp_path):
    """The third image of a set has no text of its own here; one that scores as high as the right one makes a tie."""
    file = write_folders(tmp_path / "spec") / "absolute_size" / "text2image.json"
    file.write_text(json.dumps(json.loads(file.read_text())[:2]))
    rows = items(IMAGES, tmp_path / "spec")
    assert rows.rows["caption"][:].count("") == 1
    both = TRUE | {2: ["of 0", "of 1"]}
    report = run_benchmark(IMAGES, rows, Sighted(oracle.knowing(both)))
    part = report.items[report.items["subset"] == "absolute_size"]
    assert part["value"].tolist() == [0, 0] and part["tie"].all() and set(part["chance"]) == {1 / 3}
    assert scores(IMAGES, report)["mean of 6 subsets", "image choice"] == pytest.approx(5 / 6)
    assert set(part["image_id"]) == {"absolute_size/0"}  # one cluster


def test_from_the_hub_at_the_pinned_commit(tmp_path, monkeypatch, clip):
    folder, asked = pack(tmp_path / REVISION), {}

    def download(repo, **how):
        asked.update(how, repo=repo)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", download)
    rows = items(IMAGES, None)
    assert (asked["repo"], asked["revision"]) == (REPO, REVISION) and "data.zip" in asked["allow_patterns"]
    assert rows.origin.commit == REVISION
    values = run_benchmark(IMAGES, rows, Embedder(clip)).items["value"]
    assert values.tolist() == run_benchmark(IMAGES, items(IMAGES, folder), Embedder(clip)).items["value"].tolist()


def test_both_directions_share_a_folder(tmp_path):
    write_folders(tmp_path / "spec")
    assert all(len(load_items(benchmark, Folders(root=tmp_path)).rows) == sum(SETS.values()) for benchmark in SPEC)


def test_what_is_wrong_is_named(tmp_path):
    file = write_folders(tmp_path / "spec") / "count" / "image2text.json"
    content = json.loads(file.read_text())
    content[1]["label"] = 9
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="count/image2text.json, entry '1': found .* 9.* 0 to 8"):
        items(CAPTIONS, tmp_path / "spec")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("readme.txt", "")
    with pytest.raises(ValueError, match="data.zip: .*absolute_size/image2text.json"):
        items(CAPTIONS, tmp_path)
