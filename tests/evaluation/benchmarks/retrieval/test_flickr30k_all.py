"""All of Flickr30k, from its authors' file and from the Hub (about 2 s)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks import suite
from hfcomp.evaluation.benchmarks.retrieval.retrieval import FLICKR30K, FLICKR30K_ALL
from tests.evaluation.benchmarks.oracle import HubOnDisk, constant, knowing, means, parquet, photo, random, run

TRUTH = {number: [f"caption {place} of {number}" for place in range(5)] for number in range(24)}


def raw(folder: Path) -> Path:
    (folder / "flickr30k-images").mkdir(parents=True)
    for number in TRUTH:
        (folder / "flickr30k-images" / f"{number}.jpg").write_bytes(photo(number))
    lines = [f"{number}.jpg#{place}\t{text}" for number, texts in TRUTH.items() for place, text in enumerate(texts)]
    (folder / "results_20130124.token").write_text("\n".join(lines) + "\n")
    return folder


def on_hub(folder: Path) -> Path:
    columns = {"image": [photo(number) for number in TRUTH], "caption": list(TRUTH.values())}
    names = {"filename": [f"{number}.jpg" for number in TRUTH], "split": ["train"] * 23 + ["test"]}
    return parquet(folder, "test-00000-of-00001", columns | names, images="image")


@pytest.mark.parametrize("layout", [raw, on_hub])
def test_known_scorers_on_images_of_every_split(tmp_path, layout):
    folder = layout(tmp_path / "flickr30k_all")
    scorers = (knowing(TRUTH), knowing(TRUTH, 0, 1), constant(24))
    perfect, inverted, ties = (means(run(FLICKR30K_ALL, folder, scorer)) for scorer in scorers)
    assert len(perfect) == 6 and set(perfect.values()) == {1}
    assert set(inverted.values()) == set(ties.values()) == {0}
    chance = run(FLICKR30K_ALL, folder, random(24)).items.groupby("metric")[["value", "chance"]].mean()
    assert chance["value"].to_numpy() == pytest.approx(chance["chance"].to_numpy(), abs=0.2)


def test_from_the_hub_all_images_are_its_test_split(tmp_path, monkeypatch):
    found = HubOnDisk(monkeypatch, **{"lmms-lab/flickr30k": on_hub(tmp_path / "f")})
    assert len(run(FLICKR30K_ALL, None, knowing(TRUTH)).items) == 3 * 24 + 3 * 120
    assert found.asked == [("lmms-lab/flickr30k", {"split": "test", "revision": None})]


def test_the_suite_has_the_test_images_only():
    assert FLICKR30K in suite("general") and FLICKR30K_ALL not in suite("general")
