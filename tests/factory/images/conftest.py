"""A tiny pipeline on disk, built once for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.testing import write_tiny_sdxl


@pytest.fixture(scope="session")
def sdxl(tmp_path_factory, clip) -> Path:
    """A tiny random SDXL. Never write into this folder."""
    return write_tiny_sdxl(tmp_path_factory.mktemp("pipelines") / "sdxl", clip)
