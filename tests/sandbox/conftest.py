"""Datasets made anew where a test counts on it."""

import datasets
import pytest


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """An empty cache of datasets: everything under it is built again."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
