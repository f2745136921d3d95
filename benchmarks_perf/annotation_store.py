"""Items assigned and decisions written per second by the store of `hfcomp annotate`, with few and many items.

python benchmarks_perf/annotation_store.py [--items 5000 100000] [--threads 1 20] [--decisions 2000] [--folder FOLDER]

Each thread is a person who takes an item, submits an edit, and takes the next. Half of the items are annotated before
the clock starts, as in the middle of a project, and one item in ten was sent back. Every submission is forced to disk,
so the times depend on the disk of `--folder`. Assigning an item may take 5 ms (median, one thread), and more items may
at most halve the speed. For comparison, the script prints the ratio to a bare `INSERT` of the same text into SQLite
with the same durability.
"""

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from hfcomp.data.annotations.decisions import Decisions
from hfcomp.data.annotations.entries import Edit, Item

TARGET_MS, SLOWEST = 5, 2


def item(number):
    """A candidate with five captions, as in COCO."""
    captions = tuple(f"a red bus in street {number} seen by person {place}" for place in range(5))
    return Item(f"{number}/color", f"ab/{number}.jpg", "color", captions, ("red",) * 5, {"image_id": number})


def edit(seed):
    """A person's edit."""
    texts = ("cd/edited.png", "ef/mask.png", "a blue bus in a street", "a red bus in a street", "the bus")
    return Edit(*texts, 0.45, (3, 5), True, "a blue bus", seed, "very good")


def fill(store, items):
    """Adds items, annotates the first half and sends back every tenth of those. Returns the seconds."""
    start = time.perf_counter()
    store.add_items(item(number) for number in range(items))
    seconds = time.perf_counter() - start
    content = json.dumps(asdict(edit(0)), sort_keys=True)
    submitted = [(1.0, "Ann", f"{number}/color", "submit", content) for number in range(items // 2)]
    returned = [
        (1.0, "Bob", f"{number}/color", "send back", '{"reason": "no"}') for number in range(0, items // 2, 10)
    ]
    with store._database.writing() as connection:  # the store's methods would force a write for each
        query = "INSERT INTO log (time, person, item, action, content) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(query, submitted + returned)
    store.rebuild()
    return seconds


def work(store, person, number):
    """Runs a person's steps and returns the milliseconds of each."""
    times = {"next_item": [], "peek_item": [], "submit": [], "counts": []}
    for seed in range(number):
        start = time.perf_counter()
        item = store.next_item(person)
        taken = time.perf_counter()
        store.peek_item(person)
        peeked = time.perf_counter()
        store.submit(person, item.id, edit(seed))
        submitted = time.perf_counter()
        store.counts()
        end = time.perf_counter()
        moments = (start, taken, peeked, submitted, end)
        for name, begin, finish in zip(times, moments, moments[1:], strict=False):
            times[name].append(1000 * (finish - begin))
    return times


def bare_insert_rate(folder, number):
    """Rows per second of a bare `INSERT`, each forced to disk."""
    connection = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, content TEXT)")
    content = json.dumps(asdict(edit(0)))
    start = time.perf_counter()
    for _ in range(number):
        connection.execute("INSERT INTO log (content) VALUES (?)", (content,))
    seconds = time.perf_counter() - start
    connection.close()
    return number / seconds


def measure(folder, items, threads, decisions):
    """Prints a line and returns the median milliseconds of `next_item` and the decisions per second."""
    store = Decisions(folder / f"{items}-{threads}.sqlite")
    filling = fill(store, items)
    people = [f"person {number}" for number in range(threads)]
    each = max(1, min(decisions, items // 3) // threads)
    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        runs = list(pool.map(lambda person: work(store, person, each), people))
    rate = threads * each / (time.perf_counter() - start)
    times = {name: sorted(time for run in runs for time in run[name]) for name in runs[0]}
    columns = " ".join(
        f"{statistics.median(values):8.2f} {values[int(0.95 * len(values))]:7.2f}" for values in times.values()
    )
    print(f"{items:8,} {threads:8} {columns} {rate:9.0f} {items / filling:9.0f}", flush=True)
    wrong = store.rebuild()
    store.close()
    if wrong:
        raise SystemExit(f"{wrong} states do not follow from the log")
    return statistics.median(times["next_item"]), rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", default=[5000, 100_000], help="numbers of items")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 20], help="numbers of threads")
    parser.add_argument("--decisions", type=int, default=2000, help="decisions over all threads")
    parser.add_argument("--folder", type=Path, help="folder for the databases (default: a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder, alone = Path(name), {}
        rate = bare_insert_rate(folder, args.decisions)
        print("milliseconds per step (median and 95th percentile), decisions per second, items added per second")
        print(
            "   items  threads        next_item        peek_item           submit           counts decisions     added"
        )
        for items in args.items:
            for threads in args.threads:
                middle, decided = measure(folder, items, threads, args.decisions)
                if threads == min(args.threads):
                    alone[items] = middle
                    print(f"{'':17} {decided / rate:.2f} x the {rate:.0f} bare rows per second", flush=True)
    slowdown = alone[max(alone)] / alone[min(alone)]
    print(f"next_item with {max(alone):,} items takes {slowdown:.2f} x the time with {min(alone):,}")
    if max(alone.values()) > TARGET_MS or slowdown > SLOWEST:
        raise SystemExit(f"missed the targets of {TARGET_MS} ms and {SLOWEST} x")


if __name__ == "__main__":
    main()
