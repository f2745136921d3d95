"""Captions to spaCy's `Doc`s: by any spaCy pipeline for English, or by rules that need no download.

* `load_parser`: the face of the package; a parser is anything with the methods of `Parser`.
* `rules`: the grammar of the parser without a model, behind the tagger of textblob.
* `noun_phrases`, `phrases`: what the generators of negatives and the columns of concepts read off a `Doc`.
* `words`, `captions`, `tokens`: small lists of words, which captions are read, and their length in tokens.
"""

from hfcomp.parsing.parsers import DEFAULT_PARSER, Parser, RuleParser, SpacyParser, cached_parser, load_parser

__all__ = ["DEFAULT_PARSER", "Parser", "RuleParser", "SpacyParser", "cached_parser", "load_parser"]
