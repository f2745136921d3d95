from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests import families
from tests.distributed.launch import Results


@pytest.fixture(scope="session")
def models(clip, siglip, siglip2, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, model in {"clip": clip, "siglip": siglip, "siglip2": siglip2}.items():
        (folder / name).symlink_to(model)
    families.write_family(folder / "naflex", "siglip2")
    return folder


@pytest.fixture(scope="session")
def one(models, tmp_path_factory) -> Results:
    """The same cases in this process."""
    # the Trainer collects garbage after each run, which would look through all imported modules
    gc.freeze()
    return Results(tmp_path_factory.mktemp("one"), models, 1)
