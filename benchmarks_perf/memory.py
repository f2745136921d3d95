"""Memory of this process, for the scripts beside it."""

import resource


def peak_gigabytes() -> float:
    """The largest resident size so far, in units of 1e9 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
