"""Which files of this machine a source may bring into a set that is built of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset, Features, Image

from hfcomp.factory import sources
from hfcomp.factory.sources import check_local_files

FEATURES = Features({"image": Image(decode=False)})


def check(source: str, names: list[str], **options) -> list[str]:
    """The lines that are logged of a source whose images are files of these names."""
    logged: list[str] = []
    dataset = Dataset.from_dict({"image": [{"path": name, "bytes": None} for name in names]}, features=FEATURES)
    check_local_files(dataset, ["image"], source, **{"allow_outside": False, "log": logged.append} | options)
    return logged


@pytest.fixture
def caches(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(sources, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    return tmp_path


def test_a_set_of_the_hub_may_name_files_of_its_own_folder_alone(caches):
    own = [str(caches / "hub/datasets--her--set" / name) for name in ("snapshots/1/a.png", "blobs/2")]
    for name in (
        "hub/datasets--me--private/snapshots/1/a.png",
        "hub/datasets--her--set2/a.png",
        "datasets/me___x/a.png",
    ):
        with pytest.raises(ValueError, match="her/set .*1 image files outside"):
            check("her/set", [own[0], str(caches / name)])
    with pytest.raises(ValueError, match="1 image files outside"):
        check(str(caches), ["/elsewhere/a.png"])
    logged, _ = check("her/set", [*own, f"zip://a.png::{own[0]}", str(caches / "datasets/her___set/a.png")])
    assert logged.startswith("copying 4 image files that her/set names into the dataset: 4 from ")


@pytest.mark.parametrize("place", ["home/me", "home", "/"])
def test_a_file_in_a_home_directory_may_name_no_files_there(tmp_path, monkeypatch, place):
    home = tmp_path / "home/me"
    home.mkdir(parents=True)
    monkeypatch.setattr(Path, "home", lambda: home)
    folder = tmp_path / place
    source = str(folder / "rows.jsonl") if place != "/" else "/"
    if place != "/":
        Path(source).write_text("")
    names = [str(home / "private/passport.jpg")]
    with pytest.raises(ValueError, match="1 image files, .*passport.jpg"):
        check(source, names)
    logged, _ = check(source, names, allow_outside=True)
    assert logged.endswith("0 from no folder of its own and its subfolders, 1 from elsewhere")
    assert check(source, ["http://host/a.png"]) == [
        f"{source} references 1 images by URL, which are copied into the dataset if fetching is allowed"
    ]


def test_a_file_below_a_home_directory_may_name_those_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    (tmp_path / "set/images").mkdir(parents=True)
    (tmp_path / "set/rows.jsonl").write_text("")
    (tmp_path / "set/images/a.png").write_bytes(b"")
    (logged,) = check(str(tmp_path / "set/rows.jsonl"), [str(tmp_path / "set/images/a.png")])
    assert logged.endswith(f": 1 from {tmp_path / 'set'} and its subfolders, 0 from elsewhere")


def test_missing_files_are_counted_before_the_build_begins(tmp_path):
    names = [str(tmp_path / f"{row}.png") for row in range(6)]
    Path(names[2]).write_bytes(b"")
    _, logged = check(str(tmp_path), names)
    assert logged.startswith(f"5 of them are missing, such as {names[0]} (row 0), {names[1]} (row 1), {names[3]} (row")
    assert "set_aside.jsonl" in logged
