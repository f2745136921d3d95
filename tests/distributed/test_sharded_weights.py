"""FSDP2 on two processes, as `accelerate launch` starts it, trains as one process does."""

from __future__ import annotations

import pytest

from tests.distributed.launch import Results, launch
from tests.distributed.test_two_processes import assert_same_training

FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
NAMES = ["info_nce", "cement"]


@pytest.fixture(scope="module")
def sharded(models, tmp_path_factory) -> Results:
    return launch(2, models, tmp_path_factory.mktemp("sharded"), NAMES, **FSDP)


@pytest.mark.parametrize("name", NAMES)
def test_sharded(sharded, one, name):
    assert_same_training(sharded[name], one[name])
