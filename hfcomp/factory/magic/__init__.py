"""MAGIC (CLEAR GLASS, section 3.1): a hierarchy of abstract concepts over captioned images."""
