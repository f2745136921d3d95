"""Serves a project of squares until it is killed: `python -m tests.annotate.app.serve FOLDER PORT`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from hfcomp.annotate.app.server import serving
from hfcomp.data.annotations.project import Project
from tests.annotate.app import stand_ins

if __name__ == "__main__":
    folder, port = sys.argv[1:]
    with serving(stand_ins.service(Project(Path(folder))), title="Boxes", port=int(port)) as address:
        print(address, flush=True)
        threading.Event().wait()
