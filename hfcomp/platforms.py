"""Features that only some operating systems have, and what is done on the others. Only this file imports them."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None


def max_resident_bytes() -> int:
    """Returns the largest resident memory of this process so far, in bytes."""
    if resource is None:
        import psutil

        info = psutil.Process().memory_info()
        return getattr(info, "peak_wset", info.rss)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


def hold_at_fork(lock: threading.Lock) -> None:
    """Holds a lock while the process forks; a child forked while another thread holds it would wait forever."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def link_or_copy(file: str | Path, link: Path) -> None:
    """Gives a file a second name; where links are not allowed, as on Windows for ordinary users, copies it."""
    try:
        link.symlink_to(file)
    except OSError:
        shutil.copyfile(file, link)


def is_own(path: Path) -> bool:
    """Returns whether a file belongs to this user; on Windows, whose temporary folders are private, always true."""
    return not hasattr(os, "getuid") or path.stat().st_uid == os.getuid()
