"""CREPE in its authors' folders and archives (about 3 s)."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.older.crepe import COMPLEXITIES, CREPE, NEGATIVES, TRAINED_ON, WEB
from hfcomp.evaluation.benchmarks.readers.pools import NO_AREA
from hfcomp.evaluation.engine import run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders
from tests import tiny
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import (
    Sighted,
    check_chance,
    check_known_scorers,
    frame_photo,
    items,
    repositories,
    scores,
)

PRODUCTIVITY, LAION = CREPE[0], find_benchmarks(["crepe_systematicity_laion"])[0]
BOX = (10, 20)
TRUE = {number: [f"true {number}"] for number in range(2)}


def table(file: Path, number: int, **negatives: list[str]) -> None:
    """Region `number` of the image 2 or 3."""
    file.parent.mkdir(parents=True, exist_ok=True)
    size = tiny.image(number).size
    box = {"x": BOX[0], "y": BOX[1], "width": size[0], "height": size[1]}
    row = {"image_id": 2 + number, "region_id": 7, **box, "caption": f"true {number}"}
    row |= {name: repr(texts) for name, texts in negatives.items()}
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(row))
        writer.writeheader()
        writer.writerow(row)


def raw(folder: Path) -> Path:
    """Both folders and the images; the image 3 is in the second part of Visual Genome."""
    for kind in NEGATIVES:
        for atoms in COMPLEXITIES:
            name = f"prod_vg_hard_negs_{kind}_complexity_{atoms}.csv"
            table(folder / "prod_hard_negatives" / kind / name, atoms % 2, hard_negs=["it's false", 'a "b"'])
    for set_ in TRAINED_ON:
        for place, split in enumerate(("seen", "unseen")):
            kinds = {
                f"valid_hard_negs_{kind}": [f"{kind}, false"] * (1 + place) for kind in ("atom", "comp", "combined")
            }
            table(
                folder / "syst_hard_negatives" / f"syst_vg_hard_negs_{split}_compounds_in_{set_}.csv", place, **kinds
            )
    for number, part in enumerate(("VG_100K", "VG_100K_2")):
        (folder / "visual_genome" / part).mkdir(parents=True)
        (folder / "visual_genome" / part / f"{2 + number}.jpg").write_bytes(frame_photo(number, BOX))
    return folder


def pack(folder: Path) -> Path:
    raw(folder)
    for name in ("prod_hard_negatives", "syst_hard_negatives"):
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            for file in sorted((folder / name).rglob("*.csv")):
                archive.write(file, str(file.relative_to(folder)))
                archive.writestr(f"__MACOSX/{file.relative_to(folder)}", "")
        (folder / name).rename(folder / f"no {name}")
    return folder


@pytest.mark.parametrize("benchmark", [PRODUCTIVITY, LAION], ids=lambda benchmark: benchmark.name)
@pytest.mark.parametrize("layout", [raw, pack])
def test_known_scorers_on_regions_of_both_layouts(tmp_path, layout, benchmark):
    rows = items(benchmark, layout(tmp_path / "crepe"))
    assert len(rows.rows) == (27 if benchmark is PRODUCTIVITY else 6)
    check_known_scorers(benchmark, rows, TRUE)


def test_a_random_scorer_is_at_chance_whatever_the_number_of_negatives(tmp_path):
    texts = {"caption": [f"a {row}" for row in range(1500)]}
    check_chance(
        PRODUCTIVITY, texts | {"negative_captions": [[f"{n} {row}" for n in range(5)] for row in range(1500)]}
    )
    report = run_benchmark(LAION, items(LAION, raw(tmp_path)), Sighted(oracle.knowing(TRUE)))
    assert report.items.groupby("subset")["chance"].first().to_dict() == {
        f"{split} {kind}": chance
        for split, chance in (("seen", 1 / 2), ("unseen", 1 / 3))
        for kind in ("atom", "comp", "combined")
    }


def test_averages_over_numbers_of_atoms(tmp_path):
    """Right with an even number of atoms only, five of nine."""
    encoder = Sighted(oracle.knowing(TRUE | {1: []}))
    values = scores(PRODUCTIVITY, run_benchmark(PRODUCTIVITY, items(PRODUCTIVITY, raw(tmp_path)), encoder))
    assert values["atom", "caption choice"] == values["negate", "caption choice"] == pytest.approx(5 / 9)
    assert values["swap 4", "caption choice"] == 1 and values["swap 5", "caption choice"] == 0


def test_one_folder_serves_all_and_texts_come_by_themselves(tmp_path, monkeypatch):
    folder = pack(tmp_path / "crepe")
    assert [len(load_items(benchmark, Folders(root=tmp_path)).rows) for benchmark in CREPE] == [27, 6, 6, 6]
    asked = repositories(monkeypatch, {WEB: folder})
    assert len(items(LAION, None, visual_genome=folder / "visual_genome").rows) == 6
    assert asked == [(WEB, ("syst_hard_negatives.zip",))]


def test_what_is_wrong_is_named_or_left_out(tmp_path):
    folder = raw(tmp_path)
    file = folder / "prod_hard_negatives" / "swap" / "prod_vg_hard_negs_swap_complexity_4.csv"
    text = file.read_text()
    file.write_text(text.replace('"[', '"', 1))
    with pytest.raises(ValueError, match=r"complexity_4.csv, line 2: found 10, 20, .*'hard_negs'"):
        items(PRODUCTIVITY, folder)
    file.write_text(text.replace(",10,", ",inf,", 1))
    with pytest.raises(ValueError, match=r"complexity_4.csv, line 2: found inf, 20, .*expected numbers in x, y"):
        items(PRODUCTIVITY, folder)
    table(file, 0, hard_negs=["false"])
    width = str(tiny.image(0).size[0])
    file.write_text(file.read_text().replace(f",20,{width},", ",20,0,"))
    assert items(PRODUCTIVITY, folder).left_out == {NO_AREA: 1}
