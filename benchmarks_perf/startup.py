"""CPU time of `import hfcomp` and of commands' help, against `import torch` in the same run.

python benchmarks_perf/startup.py [--rounds 5]

Every start is a separate process with this interpreter, and the commands take turns, so a slowdown of the machine
affects all of them. The script prints CPU seconds (user and system, over all threads) as the median over rounds, and
the ratio to `import torch` in the same round as median (smallest to largest). A first round, in which files are read
from disk and compiled, is not counted.
"""

import argparse
import os
import statistics
import subprocess
import sys

TORCH = "import torch"
STARTS = {
    "nothing": "pass",
    TORCH: TORCH,
    "import hfcomp": "import hfcomp",
    **{
        " ".join(["hfcomp", *words]): f"from hfcomp.cli import main; main({words})"
        for words in (["--help"], ["evaluate", "--help"], ["build", "--help"])
    },
}


def cpu_seconds(program: str) -> float:
    """Returns the CPU seconds of a process that runs a program."""
    # -P: uses the interpreter's hfcomp, not one in the current folder
    command = [sys.executable, "-P", "-c", program]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed: {program}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="counted starts per command")
    rounds = parser.parse_args().rounds
    seconds = {name: [] for name in STARTS}
    for turn in range(rounds + 1):
        for name, program in STARTS.items():
            used = cpu_seconds(program)
            if turn:
                seconds[name].append(used)
    print(f"{'':24}{'cpu s':>8}{'over import torch':>24}")
    for name, values in seconds.items():
        ratios = [value / torch for value, torch in zip(values, seconds[TORCH], strict=True)]
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        print(f"{name:24}{statistics.median(values):8.2f}{spread:>24}")


if __name__ == "__main__":
    main()
