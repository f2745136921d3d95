"""Captions to spaCy's `Doc`s: by any spaCy pipeline for English, or by rules that need no download.

* `load_parser`: the face of the package; a parser is anything with the methods of `Parser`.
* `rules`: the parser without a model, the tagger of textblob and a grammar for captions.
* `noun_phrases`, `phrases`: what the generators of negatives and the columns of concepts read off a `Doc`.
* `words`, `captions`, `tokens`: small lists of words, how long a caption may be, and its length in tokens.
"""

from hfcomp.parsing.parsers import DEFAULT_PARSER, Parser, SpacyParser, cached_parser, load_parser
from hfcomp.parsing.rules import RuleParser

__all__ = ["DEFAULT_PARSER", "Parser", "RuleParser", "SpacyParser", "cached_parser", "load_parser"]
