"""Parses captions to spaCy `Doc`s, with any English spaCy pipeline or with rules that need no download.

* `load_parser`: main entry point; a parser is any object with the methods of `Parser`.
* `rules`: the grammar of the model-free parser, which follows the textblob tagger.
* `noun_phrases`, `phrases`: extract what negative generators and concept columns need from a `Doc`.
* `words`, `captions`, `tokens`: small word lists, checks of captions, and their length in tokens.
"""

from hfcomp.parsing.parsers import DEFAULT_PARSER, Parser, RuleParser, SpacyParser, cached_parser, load_parser

__all__ = ["DEFAULT_PARSER", "Parser", "RuleParser", "SpacyParser", "cached_parser", "load_parser"]
