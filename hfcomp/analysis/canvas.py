"""Empty figures of matplotlib, and PNG files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hfcomp.writing import replacing


def new_figure(path: Path, size: tuple[float, float] | None = None) -> Any:
    """An empty figure that lays itself out.

    Args:
        path: that errors name.
        size: in inches; set later where it is `None`.

    Raises:
        ImportError: without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"{path} needs matplotlib: pip install 'hfcomp[plots]'") from error
    return Figure(figsize=size, layout="constrained")


def save_figure(figure: Any, path: Path, **settings: Any) -> Path:
    """Writes a PNG, whole or not at all, into a folder that is made where it is missing.

    Args:
        figure: of `new_figure`.
        path: of the file.
        settings: of matplotlib's `savefig`.
    """
    with replacing(path) as part:
        figure.savefig(part, dpi=150, format="png", **settings)
    return path
