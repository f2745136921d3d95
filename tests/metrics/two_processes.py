"""One of several processes that compute every module together: CACHE NUMBER OF_HOW_MANY; the first prints results."""

import json
import sys

from hfcomp.metrics.modules import MODULES, module_path
from tests.metrics.evaluate_cache import evaluate
from tests.metrics.module_rows import every


def main(cache: str, number: int, processes: int) -> None:
    results = {}
    for name, (columns, options) in every().items():
        metric = evaluate.load(
            str(module_path(name)), num_process=processes, process_id=number, experiment_id="test", cache_dir=cache
        )
        metric.add_batch(**{key: column[number::processes] for key, column in columns.items()})
        results[name] = metric.compute(**options)
    if number == 0:
        print(json.dumps(results))
    elif results != dict.fromkeys(MODULES):
        raise SystemExit(f"process {number} has results: {results}")


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
