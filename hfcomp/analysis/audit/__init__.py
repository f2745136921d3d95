"""What is wrong with a benchmark or a training set before any model is blamed: blind rules, probes, copies, overlap.

* `options`, `reading`: which data, as a table of pairs of a caption and a negative, and what is absent.
* `checks`: what a check finds, chance, and limits such as `blind>60` for CI; `texts`, `probes`, `images`: the checks,
  functions of the data.
* `audit`: all checks; `report`: the tables and the HTML page.
"""
