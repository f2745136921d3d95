"""Code that talks to the stand-in Hub: in a process of its own, as clients read the Hub's address when imported.

```python
# in a conftest.py: the fixtures
from tests.hub.running import connect as connect, hub as hub, only_hub as only_hub


def test_something(hub):
    run_in_hub(hub, "from huggingface_hub import create_repo; create_repo('me/set', repo_type='dataset')")
    assert hub.repository("datasets", "me/set").files
```
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants

from tests import processes
from tests.hub.repositories import WRITE_TOKEN
from tests.hub.stand_in import StandInHub

ROOT = Path(__file__).resolve().parents[2]
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
CACHES = ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_XET_CACHE", "HF_TOKEN_PATH")


class Hub(StandInHub):
    """A stand-in Hub whose clients keep their caches in a folder."""

    def __init__(self, home: Path) -> None:
        super().__init__()
        self.home = home

    def environment(self, token: str | None = WRITE_TOKEN) -> dict[str, str]:
        """That of a process which uses this Hub; it reaches no other."""
        own = {key: value for key, value in os.environ.items() if key not in (*OFFLINE, *CACHES, "HF_TOKEN")}
        flags = ("HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS")
        own |= {"HF_ENDPOINT": self.address, "HF_HOME": str(self.home), **dict.fromkeys(flags, "1")}
        own |= {"NO_PROXY": "127.0.0.1,localhost", "PYTHONPATH": str(ROOT)}
        return own if token is None else own | {"HF_TOKEN": token}


@pytest.fixture
def connect(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bool], HfApi]:
    """Makes clients of the Hub in this process, by token or False for none; they cost no start of another."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return lambda token: HfApi(endpoint=hub.address, token=token)


@pytest.fixture(scope="session")
def only_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """One address and one `HF_HOME` for all tests: clients read them when imported, once (see `tests.processes`)."""
    with Hub(tmp_path_factory.mktemp("hub") / "hf_home") as running:
        processes.share(running.environment())
        yield running


@pytest.fixture
def hub(only_hub: Hub) -> Hub:
    """An empty stand-in Hub; `hub.home`, empty too, is the `HF_HOME` of its clients."""
    only_hub.reset()
    shutil.rmtree(only_hub.home, ignore_errors=True)
    return only_hub


def run_in_hub(
    hub: Hub, code: str, *arguments: object, token: str | None = WRITE_TOKEN, fails: bool = False, **more: str
) -> str:
    """Runs Python code in a process that uses the Hub.

    Args:
        hub: from the fixture.
        code: of the process.
        arguments: of the process, in `sys.argv[1:]`.
        token: that it has; None for none.
        fails: whether it has to end with a status other than 0.
        more: environment variables.

    Returns:
        What it printed; with `fails` also what it wrote to its standard error.
    """
    return run_command(["-c", textwrap.dedent(code), *arguments], {**hub.environment(token), **more}, fails=fails)


def run_command(words: Sequence[object], environment: Mapping[str, str], *, fails: bool = False) -> str:
    """The output of `python WORDS`; see `run_in_hub`."""
    done = processes.run(words, env=environment)
    if (done.returncode != 0) != fails:
        raise AssertionError(f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr if fails else done.stdout
