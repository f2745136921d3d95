"""The README's command that makes C2LIP's training set, on files laid out as those on the Hub."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

from datasets import load_dataset

from hfcomp.cli import main
from hfcomp.experiments.recipe_files import recipes_folder
from tests.evaluation.benchmarks.oracle import photo
from tests.evaluation.webdatasets import write_tar
from tests.real_models import pipeline as pipeline  # a fixture

CAPTIONS = ["A white cat sleeps on a small blanket.", "Two men ride a red motorcycle past a shop.", "Rain."]
DREAMLIP = [
    "Image Path",
    "raw_caption",
    *(f"{kind}{by}_captions" for by in ("IB", "SV", "LLA") for kind in ("short", "long")),
]


def url(number: int) -> str:
    return f"https://images.example/{number}.jpg?size=a,b"


def write_shards(folder: Path) -> None:
    """Four training samples, the last of which DreamLIP lacks, and a validation sample, as in pixparse/cc3m-wds."""
    for name, numbers in (("train-0000", (0, 1)), ("train-0001", (2, 3)), ("validation-0000", (4,))):
        members = {}
        for number in numbers:
            facts = {"caption": "an alt text", "url": url(number), "key": f"{number:09}", "status": "success"}
            files = {"jpg": photo(number), "json": json.dumps(facts).encode(), "txt": b"an alt text"}
            members |= {f"{number:09}.{ending}": content for ending, content in files.items()}
        write_tar(folder / f"cc3m-{name}.tar", members)


def write_captions(path: Path) -> None:
    """DreamLIP's file, with a caption whose image is gone."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, DREAMLIP, restval="another caption")
        writer.writeheader()
        rows = dict(enumerate(CAPTIONS)) | {9: "A caption without an image."}
        writer.writerows({"Image Path": url(number), "shortLLA_captions": text} for number, text in rows.items())


def test_the_command_of_the_readme_joins_shards_with_dreamlips_captions_and_their_phrases(
    pipeline, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    readme = (recipes_folder() / "c2lip" / "README.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^hfcomp (build concepts --source cc3m-shards .*)$", readme, re.M)
    write_shards(tmp_path / "cc3m-shards")
    write_captions(tmp_path / "cc3m_3long_3short_1raw_captions_url.csv")
    main(shlex.split(command.replace("--num_workers 8", "--num_workers 1")))
    rows = load_dataset(str(tmp_path / "data" / "cc3m-concepts"), split="train")
    assert rows["caption"][:] == CAPTIONS
    assert rows["concepts"][:2] == [["A white cat", "a small blanket"], ["Two men", "a red motorcycle", "a shop"]]
    assert {"image", "concept_spans"} <= {*rows.column_names} and "json" not in rows.column_names
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 rows from cc3m-shards" in shown  # without the validation split
    assert "3 rows have one; 1 have none and are left out" in shown and "_url.csv without a row: 1" in shown
