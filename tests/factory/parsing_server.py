"""Preloaded by a fork server, whose processes then have the parser."""

from hfcomp.parsing import cached_parser

cached_parser("rules")
