"""Imports libraries, and then forks a process for each connection: `python -m tests.processes.server ADDRESS`.

A connection brings two descriptors (output, errors) and a line of JSON: the words after `python`, the environment and
the folder. It gets the process's id, and at the end its exit status, as `subprocess` has them. The server ends when
its standard input does, which the tests hold open.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any, NoReturn, TextIO

# what the commands and trainers of hfcomp import, and what reads no setting of a Hub
NUMERIC = (
    *("torch", "torch._dynamo", "torch._inductor.test_operators", "torch.distributed.checkpoint"),
    *("torch.distributed.fsdp", "torch.distributed.nn", "torch.distributed.tensor", "scipy.optimize", "scipy.stats"),
    *("pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "sympy", "PIL.Image", "rich", "psutil"),
)
HUGGING_FACE = (
    *("transformers.trainer", "transformers.models.clip.modeling_clip", "transformers.models.siglip.modeling_siglip"),
    *("datasets", "hfcomp.experiments.command", "hfcomp.experiments.study", "hfcomp.evaluation.engine"),
)


def import_all(names: tuple[str, ...]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # one that this version lacks; who needs it imports it again
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(address: str) -> dict[str, Any]:
    """Forks until the standard input ends; only a process that has something to run returns, with what that is."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [], 1)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if sys.stdin in readable:
                finish()
            if listener in readable:
                connection, _ = listener.accept()
                if not os.fork():
                    break
                connection.close()
    _, descriptors, *_ = socket.recv_fds(connection, 1, 2)
    stream = connection.makefile("rw")
    asked = json.loads(stream.readline())
    if pid := os.fork():
        watch(pid, descriptors, stream)
    connection.close()
    stream.close()
    for descriptor, number in zip(descriptors, (1, 2), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    return asked


def finish() -> None:
    """Ends this server after those that it started, a few seconds later at most."""
    signal.alarm(5)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


def watch(pid: int, descriptors: list[int], stream: TextIO) -> None:
    """Sends the process's id to the client and waits for its end here, so that its CPU time counts as the server's."""
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(BrokenPipeError):  # tests that were stopped
        print(pid, file=stream, flush=True)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status, file=stream, flush=True)
    os._exit(0)


def become(words: list[str], environment: dict[str, str], folder: str) -> None:
    """Environment and search path of an interpreter that starts with these words."""
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = environment.get("PYTHON_EXEC", sys.executable)  # torchrun reads it, accelerate does not
    os.chdir(folder)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.stdout.reconfigure(line_buffering=True)
    kind = words[0]
    first = "" if kind == "-c" else folder if kind == "-m" else os.path.dirname(os.path.abspath(kind))
    own = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [first, *own, *(path for path in sys.path[1:] if path not in own)]
    sys.argv = words[1:] if kind in ("-m", "-c") else words
    if (threads := environment.get("OMP_NUM_THREADS")) and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(threads))


def run(words: list[str]) -> object:
    """Runs a module, code or a script as `__main__`; returns what keeps its objects."""
    kind = words[0]
    if kind == "-m":
        return runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    if kind == "-c":
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
        return main
    return runpy.run_path(kind, run_name="__main__")


def run_to_the_end(words: list[str]) -> NoReturn:
    """Ends as an interpreter does, but releases no object: torch's gloo can wait for itself in that for ever."""
    kept: list[object] = []
    status: Any = 0
    try:
        kept.append(run(words))
    except SystemExit as end:
        kept.append(end)
        status = end.code
        if not isinstance(status, int | None):
            print(status, file=sys.stderr)
            status = 1
    except BaseException as error:
        kept.append(error)
        status = 1
        traceback.print_exc()
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 0xFF)


if __name__ == "__main__":
    import_all(NUMERIC)
    asked = serve(sys.argv[1])
    if "serve" in asked:  # a server of the settings in this environment; it ends with the same standard input
        os.environ.clear()
        os.environ.update(asked["environment"])
        import_all(HUGGING_FACE)
        asked = serve(asked["serve"])
    become(asked["words"], asked["environment"], asked["folder"])
    run_to_the_end(asked["words"])
