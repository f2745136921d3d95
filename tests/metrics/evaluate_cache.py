"""`evaluate` with a cache of this process's own: it keeps copies of modules and what was added to them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import ModuleType

_FOLDER = tempfile.TemporaryDirectory(prefix="hfcomp-evaluate-")


def _evaluate() -> ModuleType:
    # its evaluators, which no test needs, load all pipelines of transformers where there are any: seconds
    loaded = sys.modules.pop("transformers", None)
    sys.modules["transformers"] = None
    try:
        import evaluate
    finally:
        del sys.modules["transformers"]
        if loaded is not None:
            sys.modules["transformers"] = loaded
    evaluate.config.HF_MODULES_CACHE = str(Path(_FOLDER.name) / "modules")
    evaluate.config.HF_METRICS_CACHE = str(Path(_FOLDER.name) / "metrics")
    return evaluate


evaluate = _evaluate()
