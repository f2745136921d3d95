"""Tiny models on disk, built once for all tests of a process."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

# before datasets is imported, and for the processes that tests start
CACHE = tempfile.TemporaryDirectory(prefix="hfcomp-tests-")
os.environ["HF_DATASETS_CACHE"] = CACHE.name
# tests pass no --use_cpu, as the README does not: they are of a machine without an accelerator, wherever they run
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ["HF_HOME"] = os.path.join(CACHE.name, "home")  # where hashes of images are kept

import datasets
import pytest
import torch
import transformers

from tests import numerics, tiny
from tests.figures import no_figures
from tests.foreign import install as install  # a fixture

# one, as workers of pytest-xdist share the cores; `make test-numerics` chooses others
THREADS = int(os.environ.get("HFCOMP_TEST_THREADS", "1"))


def pytest_report_header() -> str:
    return numerics.header()


def pytest_configure():
    torch.set_num_threads(THREADS)
    datasets.disable_progress_bars()
    # a stream of files waits five seconds for its threads at the end of every pass; those of local files are done
    datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0.05
    transformers.utils.logging.disable_progress_bar()


def pytest_collection_finish():
    no_longer_collected()


def pytest_runtest_teardown(item, nextitem):
    if nextitem is None or nextitem.path != item.path:
        no_longer_collected()


def no_longer_collected() -> None:
    """Every run of a Trainer collects garbage: half a second each time to look at all that was imported before."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def without_figures():
    with no_figures():
        yield


@pytest.fixture(scope="session")
def clip(tmp_path_factory) -> Path:
    """A tiny CLIP. Never write into this folder, nor into those of the fixtures below."""
    return tiny.clip(tmp_path_factory.mktemp("models") / "clip")


@pytest.fixture(scope="session")
def clip_with_dropout(tmp_path_factory) -> Path:
    return tiny.clip(tmp_path_factory.mktemp("models") / "clip_with_dropout", dropout=0.2)


@pytest.fixture(scope="session")
def old_clip(tmp_path_factory) -> Path:
    return tiny.old_clip(tmp_path_factory.mktemp("models") / "old_clip")


@pytest.fixture(scope="session")
def siglip(tmp_path_factory) -> Path:
    return tiny.siglip(tmp_path_factory.mktemp("models") / "siglip")


@pytest.fixture(scope="session")
def siglip2(tmp_path_factory) -> Path:
    return tiny.siglip2(tmp_path_factory.mktemp("models") / "siglip2")


@pytest.fixture(scope="session")
def metaclip2(tmp_path_factory) -> Path:
    return tiny.metaclip2(tmp_path_factory.mktemp("models") / "metaclip2")


@pytest.fixture(params=["clip", "metaclip2", "siglip", "siglip2"])
def model_folder(request) -> Path:
    """Each of the tiny models in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def pairs() -> datasets.Dataset:
    """20 rows with 2 negative captions and concepts; some lack a negative image, a negative caption or a rating."""
    return tiny.pairs(20, concepts=True)


@pytest.fixture
def advice(request, capsys):
    """Provokes the messages that the test's markers `follows` name; every one has to appear."""
    from tests.advice.markers import Advice  # which imports the command line

    instance = Advice(request, capsys)
    yield instance
    assert not instance.left, f"no message had {[fragment for _, fragment in instance.left]}"
