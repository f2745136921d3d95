"""The kinds of set that `hfcomp build` makes, by name. Options only: the command line loads no library for them."""

from __future__ import annotations

from hfcomp.generation.concretebatch.options import ConcreteBatchOptions
from hfcomp.generation.inpaintcoco.options import InpaintCocoOptions
from hfcomp.generation.magic.options import MagicOptions
from hfcomp.generation.options import BuildOptions, ConceptOptions, NegativeOptions, NeighbourOptions

KINDS: dict[str, type[BuildOptions]] = {
    kind.what: kind
    for kind in (
        *(NegativeOptions, ConceptOptions, NeighbourOptions, InpaintCocoOptions),
        *(ConcreteBatchOptions, MagicOptions),
    )
}
