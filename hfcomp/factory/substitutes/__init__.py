"""Negative captions without a model: a keyword becomes another word of its group, in the keyword's form.

* `lexicon.yaml`, `lexicon`: words in groups of which one excludes the others, what may stand for a preposition, and
  plurals and forms of verbs.
* `choice`: what may stand in a keyword's place, in an order that a seed draws.
"""
