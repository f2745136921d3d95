"""Datasets made anew where a test counts on it."""

import datasets
import pytest


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """What is made under it is made anew."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
