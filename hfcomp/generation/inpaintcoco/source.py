"""Where the rows of a challenge set come from."""

from __future__ import annotations

from hfcomp.generation.inpaintcoco.options import InpaintCocoOptions
from hfcomp.generation.inpaintcoco.project_rows import project_inputs
from hfcomp.generation.inpaintcoco.published import published_inputs
from hfcomp.generation.sources import BuildInputs, Log


def inpaintcoco_inputs(options: InpaintCocoOptions, log: Log) -> BuildInputs:
    """The rows of an annotation project, or of the published set.

    Raises:
        ValueError: for a source that is neither, or has no row that fits.
    """
    return project_inputs(options, log) if options.is_project else published_inputs(options, log)
