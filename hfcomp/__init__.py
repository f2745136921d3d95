"""Compositional fine-tuning of CLIP and SigLIP.

`import hfcomp` is cheap: the public names, listed in `__init__.pyi`, are loaded from their modules on first use.
"""

from hfcomp._lazy import attach

__version__ = "0.1.0.dev0"
__all__, __getattr__, __dir__ = attach(__name__)
__all__ += ["__version__"]
