"""Memory of this process, for the other scripts."""

import re
import resource
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_gigabytes() -> float:
    """Returns the largest resident size so far, in units of 1e9 bytes."""
    # ru_maxrss starts with the size of the process that started this one.
    match = re.search(r"^VmHWM:\s*(\d+) kB$", STATUS.read_text() if STATUS.exists() else "", re.M)
    kilobytes = int(match[1]) if match else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes * 1024 / 1e9
