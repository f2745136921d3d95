"""What a build costs beside its stages: CPU time for each row, and memory from 10,000 to 1,000,000 rows.

python benchmarks_perf/runner.py [--repeats 3] [--rows 10000] [--most_rows 1000000]

A stage that takes a known time for a row adds up its own CPU time, which is taken from that of the whole `run_stages`:
what is left is reading, checking, writing, hashing and recording. Both are of one run, so that other work on the
machine slows both; the best of several runs counts. Under 5% of the stage's time is asked of stages of 300
microseconds a row, about that of a parse, and more.

For memory, each size is built in a process of its own from a memory-mapped source: its own memory (anonymous pages),
and all that is resident, with the pages of the source's file, which the system takes back when it needs them. One
stage keeps all rows, the other sets every second one aside. Flat means that no size needs 20 MB more of its own than
100,000 rows.
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path

MICROSECONDS, TARGET_FROM, TARGET = (100, 300, 1000), 300, 0.05
SIZES, FLAT = (10_000, 100_000, 300_000, 1_000_000), 20_000_000
WORDS = ("a", "man", "riding", "wave", "on", "top", "of", "surfboard", "while", "two", "birds", "sit", "near", "water")


spent = []  # CPU seconds of each call of `busy` in this process


def caption(row):
    """A text of 5 to 20 words."""
    return " ".join(WORDS[(row + 7 * place) % len(WORDS)] for place in range(5 + row % 16)) + f" {row}"


def make_busy(*, loops=0):
    """A stage that counts for a while in each row."""

    def busy(batch):
        start = time.process_time()
        for _ in batch["caption"]:
            for _ in range(loops):
                pass
        found = batch | {"negative": [text[::-1] for text in batch["caption"]]}
        spent.append(time.process_time() - start)
        return found

    return busy


def make_halving():
    """A stage that sets every second row aside, with a detail."""

    def halve(batch):
        captions = batch["caption"]
        reasons = [f"odd: {text}" if row % 2 else None for row, text in zip(batch["_row"], captions, strict=True)]
        return batch | {"negative": captions, "_set_aside": reasons}

    return halve


def source(rows, folder):
    """Captions in a memory-mapped file."""
    from datasets import Dataset, Features, Value, disable_progress_bars

    disable_progress_bars()
    features = Features({"caption": Value("string")})
    return Dataset.from_generator(
        lambda: ({"caption": caption(row)} for row in range(rows)), features=features, cache_dir=str(folder)
    )


def build(dataset, folder, stage):
    """The build."""
    from datasets import Features, Value

    from hfcomp.factory.runner import run_stages

    features = Features({"caption": Value("string"), "negative": Value("string")})
    return run_stages(dataset, [stage], folder, features=features)


def overhead(rows, repeats, folder):
    """Prints the overhead for stages of several costs; returns whether the target was met."""
    from hfcomp.factory.runner import Stage

    dataset = source(rows, folder / "source")
    make_busy(loops=10_000)({"caption": dataset["caption"][:1000]})
    per_microsecond = 10_000 * 1000 / spent[-1] / 1e6
    print(f"{rows:,} captions; CPU microseconds a row\n{'wanted':>8} {'stage':>8} {'beside':>8} {'share':>7}")
    met = True
    for wanted in MICROSECONDS:
        stage, runs = Stage("busy", make_busy, {"loops": round(wanted * per_microsecond)}), []
        for turn in range(repeats):
            spent.clear()
            start = time.process_time()
            build(dataset, folder / f"{wanted}-{turn}", stage)
            runs.append((time.process_time() - start - sum(spent), sum(spent)))
        beside, inside = min(runs, key=lambda run: run[0] / run[1])
        print(f"{wanted:8} {inside / rows * 1e6:8.1f} {beside / rows * 1e6:8.1f} {beside / inside:7.1%}", flush=True)
        met &= wanted < TARGET_FROM or beside / inside < TARGET
    return met


def resident(kind):
    """Bytes of this process now: RssAnon, its own, or VmRSS, all."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(text.partition(f"{kind}:")[2].split()[0]) * 1024


def measure(rows, folder, make, sender):
    """Builds in this process and sends the most memory that was resident meanwhile, and the seconds."""
    from hfcomp.factory.runner import Stage

    dataset, most, done = source(rows, folder / f"source-{rows}"), [0, 0], threading.Event()
    build(dataset.select(range(1000)), folder / f"first-{rows}-{make.__name__}", Stage("first", make))
    before = resident("RssAnon")

    def watch():
        while not done.wait(0.02):
            most[:] = [max(most[0], resident("RssAnon")), max(most[1], resident("VmRSS"))]

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    build(dataset, folder / f"out-{rows}-{make.__name__}", Stage("stage", make))
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    sender.send((before, *most, seconds))


def memory(most_rows, folder):
    """Prints the memory of builds of all sizes; returns whether it is flat."""
    context, met = multiprocessing.get_context("spawn"), True
    print(f"\nMB of a build{'rows':>14} {'at start':>9} {'own, most':>10} {'resident, most':>15} {'seconds':>8}")
    for name, make in (("all kept", make_busy), ("half set aside", make_halving)):
        first = None
        for rows in (size for size in SIZES if size <= most_rows):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=measure, args=(rows, folder, make, sender))
            process.start()
            before, own, every, seconds = receiver.recv()
            process.join()
            megabytes = " ".join(
                f"{number / 1e6:{width}.0f}" for number, width in ((before, 9), (own, 10), (every, 15))
            )
            print(f"{name:14}{rows:13,} {megabytes} {seconds:8.1f}", flush=True)
            if rows >= SIZES[1]:
                first = first or own
                met &= own < first + FLAT
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="builds of each stage; the best are compared")
    parser.add_argument("--rows", type=int, default=10_000, help="of the builds that are timed")
    parser.add_argument("--most_rows", type=int, default=SIZES[-1], help="of the builds whose memory is read")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        met = overhead(args.rows, args.repeats, Path(folder))
        met &= memory(args.most_rows, Path(folder))
    print(f"under {TARGET:.0%} from {TARGET_FROM} microseconds a row, and flat memory")
    if not met:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
