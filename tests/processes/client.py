"""Starts processes by the servers of this session of pytest, and waits for them as `subprocess` does."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from tests.processes.interpreter import write_interpreter

ROOT = Path(__file__).resolve().parents[2]
SOCKETS = tempfile.TemporaryDirectory(prefix="hfcomp-servers-")
NUMBERS = itertools.count()
ASKED: Counter[tuple[tuple[str, str], ...]] = Counter()


class Process:
    """A Python process whose output is a pipe; its methods are those of `subprocess.Popen`."""

    def __init__(self, address: str, asked: dict[str, Any], errors: bool) -> None:
        """Asks the server at an address to start it; `errors` go to a pipe of their own, else into the output."""
        self.returncode: int | None = None
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(address)
        output, errors_pipe = os.pipe(), os.pipe() if errors else None
        written = [output[1], errors_pipe[1] if errors_pipe else output[1]]
        socket.send_fds(self._server, [b"x"], written)
        for descriptor in {*written}:
            os.close(descriptor)
        self.stdout = os.fdopen(output[0], encoding="utf-8", errors="replace")
        self.stderr = os.fdopen(errors_pipe[0], encoding="utf-8", errors="replace") if errors_pipe else None
        self._output = {stream: b"" for stream in (self.stdout, self.stderr) if stream}
        self._server.sendall(json.dumps(asked).encode() + b"\n")
        self._stream = self._server.makefile("rb", buffering=0)  # nothing is read ahead of what `select` sees
        self.pid = int(self._stream.readline())

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self.returncode = int(self._stream.readline())
        return self.returncode

    def poll(self) -> int | None:
        ready = self.returncode is None and select.select([self._server], [], [], 0)[0]
        return self.wait() if ready else self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """All output and errors, once it has ended; after a timeout, another call goes on where this one stopped."""
        output = self._output
        left = {stream.fileno(): stream for stream in output if not stream.closed}
        while left:
            ready, _, _ = select.select([*left], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            for number in ready:
                if piece := os.read(number, 65536):
                    output[left[number]] += piece
                else:
                    left.pop(number).close()
        self.wait(timeout)
        said = [output.get(stream, b"").decode("utf-8", "replace") for stream in (self.stdout, self.stderr)]
        return said[0], said[1]


def start(words: Sequence[object], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT, errors: bool = False):
    """Starts `python WORDS`; its standard input is empty.

    Args:
        words: after `python`: `-m MODULE`, `-c CODE` or a script, and what follows.
        env: the whole environment; that of the tests by default. The repository is on the search path in any case.
        cwd: working directory.
        errors: whether the errors have a pipe of their own; else they are part of the output.
    """
    environment = dict(os.environ if env is None else env)
    asked = {"words": [str(word) for word in words], "environment": environment, "folder": str(cwd)}
    return Process(_server(environment), asked, errors)


def run(
    words: Sequence[object], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT, timeout: float = 300
) -> subprocess.CompletedProcess:
    """Runs `python WORDS` to its end; see `start`."""
    started = start(words, env=env, cwd=cwd, errors=True)
    try:
        said = started.communicate(timeout)
    finally:
        started.kill()
    return subprocess.CompletedProcess([*words], started.wait(), *said)


def launch(
    processes: int, words: Sequence[object], *, env: Mapping[str, str], cwd: Path = ROOT, threads: int = 1
) -> list[Process]:
    """Starts processes of one group with the variables that torchrun sets; none watches the others."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": str(threads)}
    shared |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "TOKENIZERS_PARALLELISM": "false"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(processes)]
    return [start(words, env={**env, **shared, **own}, cwd=cwd) for own in ranks]


def outputs(started: Sequence[Process], timeout: float) -> list[str]:
    """The output of each, read at once: one that waits for a reader of its output makes the others wait for it."""
    with ThreadPoolExecutor(len(started)) as pool:
        return list(pool.map(lambda process: process.communicate(timeout)[0], started))


def interpreter() -> str:
    """For the variable PYTHON_EXEC: what launchers then start as `python` is forked as well; see `interpreter.py`."""
    return write_interpreter(f"{SOCKETS.name}/python{next(NUMBERS)}", _server(dict(os.environ)))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def share(env: Mapping[str, str]) -> None:
    """Says that several processes will have the settings of an environment: even the first shares what is imported."""
    ASKED[_settings(env)] += 1


def _server(environment: dict[str, str]) -> str:
    """The address of the server whose libraries were imported with the settings of an environment.

    Places of a single test, such as a home of its own, are not worth a server: the first process of its settings
    imports transformers itself. A token is no such setting, it is read when it is needed.
    """
    settings = _settings(environment)
    ASKED[settings] += 1
    own = {(key, value) for key, value in os.environ.items() if _is_read_once(key)}
    if ASKED[settings] == 1 and any(not key.endswith("_OFFLINE") for key, _ in own ^ {*settings}):
        return _numeric_server()[1]
    return _server_of(settings)[1]


def _settings(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, value) for key, value in environment.items() if _is_read_once(key)))


def _is_read_once(name: str) -> bool:
    return name.startswith("HF_") and name != "HF_TOKEN"


@cache
def _numeric_server() -> tuple[subprocess.Popen, str]:
    address = _address()
    command = [sys.executable, "-m", "tests.processes.server", address]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout.readline() == "ready\n", "the server of processes did not start; its error is above"
    atexit.register(server.communicate)  # its standard input ends, and with it all servers
    return server, address


@cache
def _server_of(settings: tuple[tuple[str, str], ...]) -> tuple[Process, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    address = _address()
    asked = {"serve": address, "environment": own | dict(settings), "folder": str(ROOT)}
    server = Process(_numeric_server()[1], asked, errors=False)
    said = server.stdout.readline()
    assert said == "ready\n", f"the server of processes did not start: {said}{server.stdout.read()}"
    return server, address


def _address() -> str:
    return f"{SOCKETS.name}/{next(NUMBERS)}"
