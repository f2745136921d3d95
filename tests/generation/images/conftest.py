"""A tiny pipeline on disk, built once for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.generation.images import pipelines


@pytest.fixture(scope="session")
def sdxl(tmp_path_factory, clip) -> Path:
    """A tiny random SDXL. Never write into this folder."""
    return pipelines.sdxl(tmp_path_factory.mktemp("pipelines") / "sdxl", clip)
