"""Preloaded by a fork server, whose processes then have the parser."""

from hfcomp.generation.text_negatives import cached_parser

cached_parser("rules")
