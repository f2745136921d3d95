"""Audits a benchmark or a training set before any model is blamed: blind rules, probes, duplicates, overlap.

* `options`, `reading`: load the data as tables of captions and caption/negative pairs, with notes on missing parts.
* `checks`: results of checks, chance levels, and limits such as `blind>60` for CI. The checks themselves are functions
  of the data in `texts`, `probes` and `images`.
* `audit`: runs all checks. `report`: the tables and the HTML page.
"""
