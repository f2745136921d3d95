"""The numeric tests under every capability of this CPU, with 1 and 2 threads: `python -m tests.numerics`.

ATen takes other kernels by ATEN_CPU_CAPABILITY, and other parts of a sum go to each thread, so that every cell adds up
in another order; what is equal up to rounding passes in all of them (`tests/tolerances.py`). Arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
TESTS = (
    "tests/test_numerics.py",
    "tests/test_tolerances.py",
    "tests/test_distributed.py",
    "tests/test_modeling.py",
    "tests/test_modeling_tokens.py",
    "tests/analysis",
    "tests/data/test_collators.py",
    "tests/data/pixels",
    "tests/distributed",
    "tests/evaluation",
    "tests/losses",
    "tests/metrics",
    "tests/negatives/test_filters.py",
    "tests/sandbox",
    "tests/statistics",
    "tests/trainers",
)
CAPABILITIES = ("default", "avx2", "avx512")
THREADS = (1, 2)


def capabilities() -> dict[str, str]:
    """Each capability, and why it is left out or nothing. ATen would run kernels that the CPU does not have."""
    environment = {name: value for name, value in os.environ.items() if name != "ATEN_CPU_CAPABILITY"}
    command = [sys.executable, "-c", "import torch; print(torch.backends.cpu.get_cpu_capability())"]
    own = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip().lower()
    has = CAPABILITIES[: CAPABILITIES.index(own) + 1] if own in CAPABILITIES else ("default", own)
    return {name: "" if name in has else f"this CPU has {own}" for name in dict.fromkeys((*CAPABILITIES, *has))}


def header() -> str:
    """The line of pytest's head that says what a cell runs on."""
    return f"torch: {torch.backends.cpu.get_cpu_capability().lower()}, {threads_of(torch.get_num_threads())}"


def threads_of(number: int) -> str:
    return f"{number} thread{'s' * (number > 1)}"


def run(capability: str, threads: int, arguments: list[str]) -> tuple[bool, str, str]:
    """Whether a cell passed, pytest's last line, and all it wrote."""
    settings = {
        "ATEN_CPU_CAPABILITY": capability,
        "HFCOMP_TEST_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }
    # threads that wait leave the core to others; spinning, they take minutes on a machine that does something else too
    environment = os.environ | settings | {"OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-m", "pytest", "--tb=short", *TESTS, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = done.stdout.strip().splitlines() or [""]
    wanted = f"torch: {capability}, {threads_of(threads)}"
    if wanted not in lines:
        return False, f"pytest's head does not say '{wanted}' (with -q it says nothing)", done.stdout
    return done.returncode == 0, lines[-1].strip("= "), done.stdout


def main() -> None:
    """A line for each cell; the exit status is 1 when one of them fails."""
    failed = 0
    for capability, missing in capabilities().items():
        for threads in THREADS:
            name = f"{capability}, {threads_of(threads)}"
            if missing:
                print(f"{name:20} skipped: {missing}", flush=True)
                continue
            start = time.monotonic()
            passed, verdict, output = run(capability, threads, sys.argv[1:])
            failed += not passed
            if not passed:
                print(output[-8000:])
            print(
                f"{name:20} {'passed' if passed else 'FAILED'}: {verdict} [{time.monotonic() - start:.0f} s]",
                flush=True,
            )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
