"""Simultaneous annotators on the page of `hfcomp annotate`: latencies, lost decisions, items assigned twice.

python benchmarks_perf/annotators.py [--seconds 300] [--annotators 20] [--items 5000] [--think 1] [--model_seconds 0.1]

A separate process serves the page on loopback. Instant stand-ins replace the models, so this measures the page, its
queues and the store, not a GPU. Each annotator talks to the page over HTTP like a browser: signs in, requests a mask
with another threshold, paints, loads the images, chooses and rates one, then submits; one item in five is skipped.
Between two steps an annotator thinks for `--think` seconds on average. At the end, the database is compared with what
the page acknowledged: a lost decision, an item assigned to two people, or an error fails the run. So does a page that
is not ready within 2 seconds for a first visitor, measured on an idle machine.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from PIL import Image

from hfcomp.data.annotations.entries import Item

SKIPPED, PHOTOS, SIDES = 0.2, 40, (480, 360)
READY_SECONDS = 2.0
"""Seconds from a request to a page that shows an item."""
LONGEST_ANSWER = 120.0


class StandIn:
    """A segmentation and an inpainting model that take `seconds` each."""

    def __init__(self, seconds):
        self.seconds = seconds

    def probability_map(self, image, prompt):
        time.sleep(self.seconds)
        y, x = np.mgrid[: image.height, : image.width]
        away = np.hypot(y / image.height - 0.5, x / image.width - 0.5)
        return np.clip(1 - 2 * away, 0, 1).astype(np.float32)

    def paint(self, image, mask, prompt, seeds):
        from hfcomp.factory.images.editor import Edit

        time.sleep(self.seconds)
        colors = np.random.default_rng(seeds[0]).integers(0, 256, (len(seeds), 3))
        return [Edit(Image.new("RGB", image.size, tuple(map(int, color))), False) for color in colors]


def fill(project, number):
    """Adds photos and candidates to a project."""
    generator = np.random.default_rng(0)
    files = []
    for _ in range(PHOTOS):
        small = generator.integers(0, 256, (9, 12, 3), dtype=np.uint8)
        files.append(project.save(Image.fromarray(small).resize(SIDES, Image.Resampling.BICUBIC)))
    captions = ("a red bus in a street", "the red bus stops in front of a house")
    project.decisions.add_items(
        Item(f"{place}/color", files[place % PHOTOS], "color", captions, ("red", "red"), {"image_id": place})
        for place in range(number)
    )


def serve(folder, number, seconds):
    """Prints the address of the page and serves it until standard input closes."""
    from hfcomp.annotate.app.server import serving
    from hfcomp.annotate.service import AnnotationService
    from hfcomp.data.annotations.project import Project

    project = Project(folder)
    fill(project, number)
    service = AnnotationService(project, lambda: StandIn(seconds), lambda: StandIn(seconds))
    with serving(service, title="load") as address:
        print(address, flush=True)
        sys.stdin.read()
    service.close()


class Browser:
    """The state that a browser keeps: the values of the page's components, by the id of their element."""

    def __init__(self, address):
        self.client = httpx.Client(base_url=address, timeout=LONGEST_ANSWER)
        self.session = f"{random.getrandbits(64):x}"
        self.client.get("/").raise_for_status()
        config = self.client.get("/config").raise_for_status().json()
        self.events = {event["id"]: event for event in config["dependencies"]}
        components = config["components"]
        self.names = {component["props"].get("elem_id"): component["id"] for component in components}
        self.values = {component["id"]: component["props"].get("value") for component in components}

    def __getitem__(self, name):
        return self.values[self.names[name]]

    def __setitem__(self, name, value):
        self.values[self.names[name]] = value

    def load(self):
        """Fires the events of opening a page."""
        for number, event in self.events.items():
            if any(kind == "load" for _, kind in event["targets"]):
                self._run(number, None)

    def fire(self, name, kind):
        """Fires an element's event and those that follow. Returns the time of the first answer."""
        element, answered = self.names[name], 0.0
        for number, event in self.events.items():
            if [element, kind] in [list(target) for target in event["targets"]]:
                answered = self._run(number, element)
        return answered

    def image(self, name):
        """Loads a displayed image."""
        return len(self.client.get(self[name]["url"]).raise_for_status().content)

    def _run(self, number, element):
        event = self.events[number]
        values = [self.values[component] for component in event["inputs"]]
        join = {
            "data": values,
            "event_data": None,
            "fn_index": number,
            "trigger_id": element,
            "session_hash": self.session,
        }
        answer = self.client.post("/gradio_api/queue/join", json=join).raise_for_status().json()
        results = self._wait(answer["event_id"])
        for component, value in zip(event["outputs"], results, strict=True):
            if isinstance(value, dict) and value.get("__type__") == "update":
                if "value" in value:
                    self.values[component] = value["value"]
            else:
                self.values[component] = value
        answered = time.perf_counter()
        for after, other in self.events.items():
            if other.get("trigger_after") == number:
                self._run(after, element)
        return answered

    def _wait(self, event):
        """Returns an event's final values. A generator first sends complete values, then only the changes."""
        from gradio_client.utils import apply_diff

        last = None
        with self.client.stream("GET", "/gradio_api/queue/data", params={"session_hash": self.session}) as stream:
            for line in stream.iter_lines():
                message = json.loads(line[5:]) if line.startswith("data:") else {}
                if message.get("event_id") != event:
                    continue
                if message["msg"] == "process_generating":
                    data = message["output"]["data"]
                    last = data if last is None else [apply_diff(a, b) for a, b in zip(last, data, strict=True)]
                elif message["msg"] == "process_completed":
                    if not message["success"]:
                        raise RuntimeError(f"the page failed: {message['output']}")
                    return last or message["output"]["data"]
        raise RuntimeError("the page ended an event without an answer")


class Annotator:
    """A person who works until a given time.

    Attributes:
        given: Items that the page showed, in order.
        decided: Acknowledged decisions: person, action and item.
        times: Seconds by step.
        errors: Error messages of the page.
    """

    def __init__(self, number, address, think):
        self.name, self.address, self.think = f"person {number}", address, think
        self.random = random.Random(number)
        self.given, self.decided, self.times, self.errors = [], [], defaultdict(list), []

    def work(self, end):
        """Annotates items until `end`."""
        start = time.perf_counter()
        page = Browser(self.address)
        page.load()
        self.times["open"].append(time.perf_counter() - start)
        page["name"] = self.name
        self.act(page, "sign in, first item", "begin", "click")
        self.given.append(page["item"])
        while time.monotonic() < end:
            self.annotate(page)
            if not page["item"] or page["item"] == self.given[-1]:
                return
            self.given.append(page["item"])

    def act(self, page, step, name, kind):
        """Fires an event, records its seconds, then thinks."""
        start = time.perf_counter()
        answered, end = page.fire(name, kind), time.perf_counter()
        self.times[step].append(answered - start)
        if end > answered + 0.001:  # includes the new item's mask
            self.times["mask of the next item"].append(end - answered)
        if "error" in (page["message"] or ""):
            self.errors.append(f"{step}: {page['message']}")
        time.sleep(self.random.expovariate(1 / self.think) if self.think else 0)

    def annotate(self, page):
        """Annotates one item, from its mask to the decision."""
        item, skips = page["item"], self.random.random() < SKIPPED
        if skips:
            page["reason"] = "a face"
        else:
            page["threshold"] = round(self.random.uniform(0.3, 0.7), 2)
            self.act(page, "mask", "segment", "click")
            self.act(page, "paint", "paint", "click")
            start = time.perf_counter()
            for number in range(1, 4):
                page.image(f"candidate-{number}")
            self.times["load 3 images"].append(time.perf_counter() - start)
            for name, value in (("chosen", self.random.choice("123")), ("quality", "okay")):
                page[name] = value
                self.act(page, "choose", name, "input")
        action = "skip" if skips else "submit"
        self.act(page, f"{action}, next item", action, "click")
        if page["item"] != item:
            self.decided.append((self.name, action, item))


def check(database, people):
    """Compares the database with what the page acknowledged and returns the violations."""
    from hfcomp.data.annotations.decisions import Decisions

    store, wrong = Decisions(database), []
    logged = Counter((entry.person, entry.action, entry.item) for entry in store.log())
    acknowledged = Counter(decision for person in people for decision in person.decided)
    wrong += [f"lost: {decision}" for decision in acknowledged - logged]
    wrong += [f"not acknowledged: {decision}" for decision in logged - acknowledged]
    holders = defaultdict(set)
    for person in people:
        for item in person.given:
            holders[item].add(person.name)
    wrong += [f"assigned to {sorted(names)}: {item}" for item, names in holders.items() if len(names) > 1]
    if store.rebuild():
        wrong.append("states do not follow from the log")
    store.close()
    return wrong + [f"{person.name}: {error}" for person in people for error in person.errors]


def run(address, args):
    """Runs the annotators and returns them with the elapsed seconds."""
    people = [Annotator(number, address, args.think) for number in range(args.annotators)]
    start = time.monotonic()
    with ThreadPoolExecutor(args.annotators) as pool:
        for task in [pool.submit(person.work, start + args.seconds) for person in people]:
            task.result()
    return people, time.monotonic() - start


def show(people, seconds):
    """Prints decisions and latencies."""
    decided = Counter(action for person in people for _, action, _ in person.decided)
    total = decided.total()
    print(
        f"{len(people)} annotators, {seconds:.0f} s: {dict(decided)}, {60 * total / seconds:.0f} decisions per minute"
    )
    print(f"{'milliseconds per step':24} {'number':>7} {'median':>7} {'95%':>7} {'longest':>8}")
    for step in dict.fromkeys(step for person in people for step in person.times):
        times = sorted(1000 * seconds for person in people for seconds in person.times[step])
        late = times[int(0.95 * len(times))] if times else float("nan")
        print(f"{step:24} {len(times):7} {statistics.median(times):7.0f} {late:7.0f} {times[-1]:8.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300, help="time after which nobody starts another item")
    parser.add_argument("--annotators", type=int, default=20, help="number of annotators")
    parser.add_argument("--items", type=int, default=5000, help="number of items")
    parser.add_argument("--think", type=float, default=1.0, help="mean seconds between two steps")
    parser.add_argument("--model_seconds", type=float, default=0.1, help="seconds per segmentation or inpainting")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.items, args.model_seconds)
        return
    options = ["--items", str(args.items), "--model_seconds", str(args.model_seconds)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--serve", folder, *options]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        guard = threading.Timer(args.seconds + 3 * LONGEST_ANSWER, server.kill)  # makes sure that the run ends
        guard.start()
        try:
            address = server.stdout.readline().strip()
            first_visitor = Annotator("who is first", address, 0)
            first_visitor.work(0)
            times = first_visitor.times
            opened, signed_in = times["open"][0], times["sign in, first item"][0]
            ready = opened + signed_in
            parts = f"{opened:.2f} s to open and {signed_in:.2f} s to sign in"
            print(f"page ready with {args.items:,} candidates, first visitor: {ready:.2f} s, {parts}", flush=True)
            people, seconds = run(address, args)
        finally:
            guard.cancel()
            server.stdin.close()
            server.wait(60)
        show(people, seconds)
        wrong = check(Path(folder) / "annotations.sqlite", [first_visitor, *people])
    for violation in wrong[:20]:
        print(violation)
    print(f"{len(wrong)} violations" if wrong else "no decision lost, no item assigned to two people, no error")
    if wrong or ready > READY_SECONDS:
        raise SystemExit(f"missed the target of no violations and a page that is ready in {READY_SECONDS:g} s")


if __name__ == "__main__":
    main()
