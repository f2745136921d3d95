"""Negative captions without a model: a keyword becomes another word of its group, in the keyword's form.

* `lexicon.yaml`, `lexicon`: groups of mutually exclusive words, replacements for prepositions, plurals and verb forms.
* `choice`: the substitutes of a keyword, in a seeded random order.
"""
