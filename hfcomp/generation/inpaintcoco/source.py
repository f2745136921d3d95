"""The building of a challenge set."""

from __future__ import annotations

from hfcomp.generation.build import DatasetBuild
from hfcomp.generation.inpaintcoco.project_rows import project_inputs
from hfcomp.generation.inpaintcoco.published import published_inputs
from hfcomp.generation.sources import BuildInputs


class InpaintCocoBuild(DatasetBuild):
    """The building of InpaintCOCO, from an annotation project or the published set."""

    def inputs(self) -> BuildInputs:
        """The rows of an annotation project, or of the published set.

        Raises:
            ValueError: for a source that is neither, or has no row that fits.
        """
        read = project_inputs if self.options.is_project else published_inputs
        return read(self.options, self.log)
