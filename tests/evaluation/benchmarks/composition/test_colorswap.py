"""ColorSwap as Parquet, which the Hub gives after consent (about 2 s)."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.composition.image_pairs import COLORSWAP
from hfcomp.evaluation.engine import EMPTY_CAPTION
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import groups, oracle
from tests.evaluation.encoders import check_chance, check_known_scorers, hub_folder, items

GROUPS = 3
TRUE = groups.true_of(GROUPS)


def on_hub(folder: Path, **changes: list) -> Path:
    more = {"id": list(range(GROUPS)), "image_source": ["dalle3"] * GROUPS, "caption_source": ["human"] * GROUPS}
    columns = groups.columns(GROUPS, 1, **more) | changes
    return hub_folder(folder, "test", columns, images=["image_1", "image_2"], named=False)


def test_known_scorers(tmp_path):
    rows = items(COLORSWAP, on_hub(tmp_path / "c"))
    assert rows.rows["item"][:] == ["0", "1", "2"] and set(rows.rows["subset"]) == {"all"}
    check_known_scorers(COLORSWAP, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    check_chance(COLORSWAP, groups.TEXTS)


def test_without_consent_it_says_where_to_give_it(monkeypatch):
    def refused(name, **options):
        raise datasets.exceptions.DatasetNotFoundError("'stanfordnlp/colorswap' is a gated dataset on the Hub.")

    monkeypatch.setattr(hub, "load_dataset", refused)
    monkeypatch.setattr(hub, "_newest", lambda repo: None)
    with pytest.raises(Unavailable, match="is gated.*Accept its terms at https://huggingface.co/datasets/stanfordnlp"):
        load_items(COLORSWAP)


def test_from_the_hub_the_test_split_alone(tmp_path, monkeypatch):
    found = oracle.HubOnDisk(
        monkeypatch, **{"stanfordnlp/colorswap": on_hub(tmp_path / "c", caption_2=["", "b", "c"])}
    )
    assert items(COLORSWAP, None).left_out == {EMPTY_CAPTION: 1}
    assert found.asked == [("stanfordnlp/colorswap", {"split": "test", "revision": None})]
