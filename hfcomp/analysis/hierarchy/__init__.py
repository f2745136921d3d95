"""A hierarchy of concepts as one page to look at (`hfcomp analyze magic`)."""
