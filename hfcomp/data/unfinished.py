"""The mark of a data set that is still being built; whatever reads or builds sets looks for it."""

UNFINISHED = ".build"
"""In the folder of a build that is not finished; `hfcomp.generation` writes it."""
