"""What launchers start as `python`: asks a server to fork the process, and ends as it does.

A launcher (`torchrun`, `accelerate launch`) starts its processes itself, each a new interpreter. Where the variable
PYTHON_EXEC names a file of `write_interpreter`, it starts that, which has the words, environment, folder, output and
exit of the process that the server forks.
"""

import contextlib
import json
import os
import signal
import socket
import sys

UNBUFFERED = "-u"  # of torchrun; a fork writes line by line in any case


def write_interpreter(path: str, address: str) -> str:
    """Writes an executable that runs its words by the server at an address, and returns its path."""
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\nexec {sys.executable} -IS {__file__} {address} "$@"\n')
    os.chmod(path, 0o755)
    return path


def ask(address: str, words: list[str]) -> int:
    """Exit status of `python WORDS`, as `subprocess` has it; a signal to end is passed on."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        socket.send_fds(server, [b"x"], [1, 2])
        asked = {"words": words, "environment": dict(os.environ), "folder": os.getcwd()}
        server.sendall(json.dumps(asked).encode() + b"\n")
        stream = server.makefile("rb", buffering=0)
        process = int(stream.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: os.kill(process, number))
        return int(stream.readline())


if __name__ == "__main__":
    _, address, *words = sys.argv
    status = ask(address, words[1:] if words[0] == UNBUFFERED else words)
    if status < 0:
        with contextlib.suppress(OSError):  # that one cannot be ignored
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
