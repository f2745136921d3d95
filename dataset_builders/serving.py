"""Serves a model with `transformers serve` on this machine: an endpoint for tests, not for large builds."""

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
"""Seconds allowed for the server to start."""
_NEEDED = ("fastapi", "uvicorn", "openai", "pydantic")


def check_transformers_serve() -> None:
    """Raises ImportError, with the command to install it, if `transformers serve` is not installed."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"`transformers serve` needs {', '.join(missing)}, which is not installed. Run: pip install "
            "'transformers[serving]'"
        )


@contextmanager
def transformers_serve(model: Path) -> Iterator[str]:
    """Serves a model folder on the CPU, on a free loopback port; the server stops at the end of the block.

    Args:
        model: Folder of a causal language model; its path is the model's name in requests.

    Yields:
        The address, for `base_url`.

    Raises:
        ImportError: If the server is not installed.
        OSError: If the server does not start. The message contains the last line of its output.
    """
    check_transformers_serve()
    port = _free_port()
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            if not _answers(f"http://127.0.0.1:{port}/health", process):
                output.seek(0)
                lines = output.read().decode(errors="replace").strip().splitlines() or ["nothing"]
                raise OSError(f"`transformers serve {model}` did not start. Its last line of output: {lines[-1]}")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(address: str, process: subprocess.Popen[bytes]) -> bool:
    """Whether a server answers before it exits or the time is over."""
    deadline = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(address, timeout=1):
                return True
        except OSError:
            time.sleep(0.2)
    return False
