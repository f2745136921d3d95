"""A model behind `transformers serve` on this machine: an endpoint for trials, not for large builds."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

SECONDS = 120
"""For the server to start."""
_NEEDED = ("fastapi", "uvicorn", "openai", "pydantic")


def check_transformers_serve() -> None:
    """Raises ImportError where `transformers serve` is not installed, naming how to get it."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"`transformers serve` needs {', '.join(missing)}, which is not installed: pip install "
            "'transformers[serving]'"
        )


@contextmanager
def transformers_serve(model: Path) -> Iterator[str]:
    """Serves a model's folder on a free port of the loopback interface, on the CPU; the server ends with the block.

    Args:
        model: folder of a causal language model; its path is the model's name in requests.

    Yields:
        The address, for `base_url`.

    Raises:
        ImportError: where the server is not installed.
        OSError: for a server that does not start, with the last line that it wrote.
    """
    check_transformers_serve()
    port = _free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        try:
            if not _answers(f"http://127.0.0.1:{port}/health", process):
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines() or ["nothing"]
                raise OSError(f"`transformers serve {model}` did not start; the last line that it wrote: {lines[-1]}")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether a server answers before it ends or its time is over."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=1):
                return True
        except OSError:
            time.sleep(0.2)
    return False
