"""Every family trains on two processes as on one, with whole weights and with sharded ones."""

from __future__ import annotations

import pytest

from tests import families
from tests.distributed.launch import Results, launch
from tests.distributed.test_sharded_weights import assert_split
from tests.distributed.test_two_processes import assert_same_training
from tests.recipes.accelerate_files import fsdp_environment

NAMES = families.dual_encoders()
KINDS = {"whole": {}, "sharded": fsdp_environment()}


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> Results:
    folder = tmp_path_factory.mktemp("families")
    for name in NAMES:
        families.write_family(folder / "models" / name, name)
    return Results(folder / "single", folder / "models", 1)


@pytest.fixture(scope="module", params=KINDS)
def two(single, request) -> Results:
    folder = single.folder.with_name(request.param)
    return launch(2, single.models, folder, NAMES, **KINDS[request.param])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_family_trains_on_two_processes_as_on_one(name, two, single):
    assert_same_training(two[name], single[name])
    if two.folder.name == "sharded":
        assert_split(two[name])
