"""Requests per second of the endpoint client, concurrently against one after the other.

python benchmarks_perf/endpoint_requests.py [--seconds 0.1] [--requests 2000] [--concurrency 64] [--sequential 30]

A server in a separate process on loopback answers each request correctly after `--seconds`, like a language model that
is never the bottleneck. Both sides use the whole path: prompt, request, checks of the body, answer on disk. The
sequential rate is measured on `--sequential` requests, which is more than enough if each takes 0.1 s.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hfcomp.factory.writers.answer_cache import AnswerCache, CachedWriter
from hfcomp.factory.writers.endpoint import EndpointWriter
from hfcomp.factory.writers.llm_client import LlmClient, Question
from hfcomp.factory.writers.prompts import keyword_prompt

RATIO_TARGET = 20
ROOT = Path(__file__).resolve().parents[1]


def rate(base_url, number, concurrency, folder):
    """Returns captions per second and the number of correct answers."""
    writer = EndpointWriter(base_url, model="m", concurrency=concurrency)
    client = LlmClient(CachedWriter(writer, AnswerCache(folder)), plain=False, temperature=0.7)
    captions = [f"a dog runs in street {place}" for place in range(number)]
    questions = [Question(keyword_prompt(caption, "dog", "object"), caption, ("dog",)) for caption in captions]
    start = time.perf_counter()
    answers = client.answers(questions, 0, lambda _, text: text)
    seconds = time.perf_counter() - start
    return number / seconds, sum(isinstance(answer, str) for answer in answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.1, help="seconds the server takes per answer")
    parser.add_argument("--requests", type=int, default=2000, help="concurrent requests in total")
    parser.add_argument("--concurrency", type=int, default=64, help="requests at a time")
    parser.add_argument("--sequential", type=int, default=30, help="sequential requests in total")
    args = parser.parse_args()
    command = [sys.executable, "-m", "tests.factory.writers.endpoint", "--seconds", str(args.seconds)]
    server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        base_url = server.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as folder:
            sequential, right = rate(base_url, args.sequential, 1, Path(folder) / "sequential")
            print(f"one at a time: {sequential:8.1f} per second ({right} of {args.sequential} right)", flush=True)
            many, right = rate(base_url, args.requests, args.concurrency, Path(folder) / "concurrent")
            print(f"{args.concurrency} at a time: {many:9.1f} per second ({right} of {args.requests} right)")
            again, _ = rate(base_url, args.requests, args.concurrency, Path(folder) / "concurrent")
            print(f"from the cache: {again:7.1f} per second")
    finally:
        server.stdin.close()
        server.wait()
    print(f"{many / sequential:.1f} times as fast (target: at least {RATIO_TARGET})")
    if many / sequential < RATIO_TARGET:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
