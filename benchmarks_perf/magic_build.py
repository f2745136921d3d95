"""CPU time and memory of a whole `hfcomp build magic` at several sizes, with an endpoint that answers at once.

python benchmarks_perf/magic_build.py [--images 28000 56000 113000] [--captions 5] [--concepts 17000]

The data is synthetic: the word of a concept is drawn by Zipf's law and occurs in each caption of its image. The
endpoint answers `--prompts ours` with that word, parents by its number, and a generalized caption. All rows share one
small image. `--encoder captions` compares the concepts. Each build is a separate process. Its peak memory is reported
as its own (anonymous) pages and as all resident pages, including file pages that the system reclaims when needed. The
endpoint's process is not counted. Memory counts as bounded if twice the images need less than twice as much own
memory, and 113,000 images need less than 4 GB.
"""

import argparse
import http.server
import io
import json
import multiprocessing
import re
import string
import tempfile
import threading
import time
from pathlib import Path

LIMIT = 4e9
WORDS = ("man", "street", "near", "large", "table", "water", "small", "group", "white", "sitting", "standing", "green")


def name(number):
    """A made-up word of four letters, by number."""
    letters = string.ascii_lowercase
    return "q" + "".join(letters[number // 26**place % 26] for place in (2, 1, 0)) + "o"


def parse_number(word):
    """Returns the number of a made-up word."""
    return sum(26**place * (ord(letter) - 97) for place, letter in zip((2, 1, 0), word[1:4], strict=True))


def answer(text):
    """Returns the endpoint's answer to a prompt."""
    if "You sort photographs" in text:
        return {"concept": re.findall(r"\bq[a-z]{3}o\b", text)[-1]}
    if "You build a hierarchy" in text:
        level = next(level for level, word in enumerate(("activities", "wide class", "a few"), 1) if word in text)
        own = re.search(r"Concept: (.*)\n", text[text.index("Rules") :])[1]
        nodes = (281, 113, 87)[level - 1]
        return {"concept": f"{'bcd'[level - 1]} class {name(parse_number(own.rpartition(' ')[2]) % nodes)}"}
    return {"caption": "People and things are seen together in a place outdoors."}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, -1

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": json.dumps(answer(body["messages"][-1]["content"]))}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": choices}
        content = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def serve(sender):
    """Serves an endpoint in this process and sends its address."""

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size, daemon_threads = 512, True

    server = Server(("127.0.0.1", 0), Handler)
    sender.send(f"http://127.0.0.1:{server.server_port}/v1")
    server.serve_forever()


def source(images, captions, concepts, folder):
    """Writes captioned images to Parquet files."""
    import numpy as np
    from datasets import Dataset, Features, Image, List, Value, disable_progress_bars
    from PIL import Image as Picture

    disable_progress_bars()
    picture = io.BytesIO()
    Picture.new("RGB", (32, 32), "gray").save(picture, "PNG")
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, concepts + 1)
    drawn = rng.choice(concepts, images, p=share / share.sum())
    rows = [
        {
            "image": {"bytes": picture.getvalue(), "path": None},
            "caption": [
                f"a {' '.join(WORDS[(row + turn * step) % len(WORDS)] for step in range(1, 6))} with {name(number)}"
                for turn in range(captions)
            ],
            "image_id": row,
            "license": "Attribution License",
        }
        for row, number in enumerate(drawn)
    ]
    text = Value("string")
    features = {"image": Image(), "caption": List(text), "image_id": Value("int64"), "license": text}
    folder.mkdir()
    Dataset.from_list(rows, features=Features(features)).to_parquet(folder / "train.parquet")


def memory(kind):
    """Returns this process's bytes: RssAnon (own pages) or VmRSS (all resident pages)."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(text.partition(f"{kind}:")[2].split()[0]) * 1024


def measure(place, output, address, sender):
    """Runs a build and sends its cost."""
    from datasets import disable_progress_bars

    from hfcomp.factory.build import build_set
    from hfcomp.factory.magic.options import MagicOptions

    disable_progress_bars()
    most, done = {"RssAnon": 0, "VmRSS": 0}, threading.Event()

    def watch():
        while not done.wait(0.05):
            most.update({kind: max(value, memory(kind)) for kind, value in most.items()})

    watcher = threading.Thread(target=watch)
    watcher.start()
    endpoint = {"base_url": address, "llm": "m", "answer_cache": f"{output}-answers", "prompts": "ours"}
    options = MagicOptions(source=str(place), split="train", encoder="captions", output=output, **endpoint)
    wall, cpu = time.perf_counter(), time.process_time()
    built = build_set(options, log=lambda _: None)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    done.set()
    watcher.join()
    sender.send({"seconds": wall, "cpu": cpu, "rows": built.rows, **most})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[28_000, 56_000, 113_000])
    parser.add_argument("--captions", type=int, default=5, help="captions per image")
    parser.add_argument("--concepts", type=int, default=17_000, help="number of concepts to draw from, at most 17,576")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")

    def start(target, *values):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(*values, sender))
        process.start()
        return process, receiver

    server, receiver = start(serve)
    address = receiver.recv()
    print(f"{'images':>9} {'rows':>9} {'seconds':>8} {'CPU s':>8} {'own MB':>8} {'resident MB':>12}", flush=True)
    own = {}
    with tempfile.TemporaryDirectory() as folder:
        for images in args.images:
            place = Path(folder) / str(images)
            writing = context.Process(target=source, args=(images, args.captions, args.concepts, place))
            writing.start()
            writing.join()
            process, receiver = start(measure, place, Path(folder) / f"set-{images}", address)
            cost = receiver.recv()
            process.join()
            own[images] = cost["RssAnon"]
            sizes = f"{cost['RssAnon'] / 1e6:8.0f} {cost['VmRSS'] / 1e6:12.0f}"
            print(f"{images:9,} {cost['rows']:9,} {cost['seconds']:8.0f} {cost['cpu']:8.0f} {sizes}", flush=True)
    server.kill()
    sizes = sorted(own)
    flat = all(own[b] < own[a] * b / a for a, b in zip(sizes, sizes[1:], strict=False))
    print("targets met" if flat and max(own.values()) < LIMIT else "targets missed")


if __name__ == "__main__":
    main()
