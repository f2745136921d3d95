"""What is wrong with a benchmark or a training set before any model is blamed: blind rules, probes, copies, overlap.

* `options`, `reading`, `notes`: which data, as a table of pairs of a caption and a negative, and what is absent.
* `checks`, `decided`: what a check finds, and chance; `texts`, `choices`, `probes`, `models`, `images`: the checks,
  functions of the data.
* `limits`: rules such as `blind>60` for CI; `audit`: all checks; `report`, `page`: the tables and the HTML page.
"""
