"""Benchmarks that are loaded once and score one model after another, in one or several processes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import pyarrow as pa

from hfcomp.data.images import SKIP_ADVICE, DamagedImage
from hfcomp.data.overlap import ScoredImages
from hfcomp.distributed import fail_together, first_process_first, gather_objects, rank
from hfcomp.evaluation.engine import (
    DamagedProbeImage,
    Encoder,
    NoModel,
    Prior,
    Report,
    find_damaged,
    run_benchmark,
    without_damaged,
)
from hfcomp.evaluation.loaded import Loaded, load_or_explain
from hfcomp.evaluation.spec import FAILED, Benchmark, Folders, Unavailable
from hfcomp.statistics.outcomes import COLUMNS, Outcomes


@dataclass(frozen=True)
class DetailedScores:
    """The scores of one or several models on all benchmarks.

    Attributes:
        items: One row per item and metric, with the columns of `hfcomp.evaluation.engine.Report.items`.
        scores: Texts and cosines behind them, from `hfcomp.evaluation.item_scores`, if kept.
        prior: The same rows for the model's choices without the image; empty if not requested.
        seconds: Seconds by model and benchmark.
    """

    items: pd.DataFrame
    scores: pa.Table | None
    prior: pd.DataFrame
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @classmethod
    def join(
        cls,
        items: Sequence[pd.DataFrame],
        scores: Sequence[pa.Table],
        priors: Sequence[pd.DataFrame],
        seconds: Mapping[str, Mapping[str, float]] | None = None,
    ) -> DetailedScores:
        """Joins the scores of several benchmarks. Without any, as in all processes but the first, tables are empty."""
        table = pd.concat(items, ignore_index=True) if items else pd.DataFrame(columns=list(COLUMNS))
        prior = pd.concat(priors, ignore_index=True) if priors else table.iloc[:0]
        return cls(table, pa.concat_tables(scores) if scores else None, prior, seconds or {})


@dataclass
class Evaluator:
    """Benchmarks with their data, which score one model after another.

    All processes must load together. If they share the encoding, they must also score together, inside
    `fail_together`.

    Attributes:
        log: Function that receives each line of `notes` on the first process.
        loaded: The benchmarks that were loaded.
        images: Images that are scored and could be in a training set.
        notes: Notes that a reader of the scores must know, without duplicates: models of a run share a tokenizer.
        skipped: `benchmark`, `reason` and `how_to_fix` of each benchmark that was not scored, as in `results.json`.
        skip_damaged: Whether items with a damaged image are left out and counted. Otherwise they are an error when
            they are scored.
    """

    log: Callable[[str], None]
    loaded: list[Loaded] = field(default_factory=list)
    images: list[ScoredImages] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    skip_damaged: bool = False

    def note(self, note: str) -> None:
        # Several models produce the same note about a benchmark.
        if note not in self.notes:
            self.notes.append(note)
            if rank() == 0:
                self.log(note)

    def load(self, benchmarks: Iterable[Benchmark], folders: Folders | None = None, *, strict: bool = True) -> None:
        """Adds benchmarks with their data, and skips those whose data is unavailable.

        Wrong data is an error; unless `strict`, only if it is the user's own.
        """
        for benchmark in benchmarks:
            with first_process_first():  # the other processes read what the first one downloaded
                loaded = load_or_explain(benchmark, folders or Folders(), strict)
            problems = gather_objects(None if isinstance(loaded, Loaded) else loaded)
            problems = [problem for problem in problems if problem is not None]
            if problems or not isinstance(loaded, Loaded):  # all processes do the same
                self._skip(benchmark, *problems[0])
                continue
            loaded = self._without_damaged(loaded) if self.skip_damaged else loaded
            self.loaded.append(loaded)
            for remark in loaded.remarks():
                self.note(remark)

    def score(
        self,
        encoder: Encoder,
        *,
        model: str = "",
        progress: bool | None = None,
        keep_going: bool = False,
        prior: Prior | None = None,
        keep_scores: bool = False,
    ) -> Iterator[tuple[Loaded, Report]]:
        """Yields each benchmark with its report. Only the first process has outcomes.

        Notes name the `model`. By default, bars are shown for benchmarks that are not synthetic. With `keep_going`, a
        failure skips only that benchmark, on all processes that share the encoding. `prior` and `keep_scores` are
        arguments of `run_benchmark`.
        """
        how = {"score": (main := rank() == 0), "keep_scores": keep_scores, "prior": prior}
        for loaded in self.loaded:
            benchmark, protocol = loaded.benchmark, loaded.benchmark.protocol
            bars = not benchmark.synthetic if progress is None else progress
            try:
                with fail_together() if keep_going else nullcontext():
                    report = run_benchmark(benchmark, loaded.data, encoder, progress=main and bars, **how)
            except Unavailable as error:  # the same on all processes
                self._skip(benchmark, f"{model}: {error.reason}" if model else error.reason, error.how_to_fix)
                continue
            except Exception as error:
                if not keep_going:
                    raise
                self._skip(benchmark, f"{FAILED}{model}: {error}", self._advice(error))
                continue
            # Noted per model, because each has its own tokenizer and its own text length.
            counts = {"truncated": report.truncated, "merged": report.merged, "tiny": report.tiny}
            self.note_inputs(benchmark.name, counts, f"{model}'s text tower" if model else "")
            if report.pairs and protocol.pairs(loaded.data) and protocol.beyond_pairs:
                unscored = f"{protocol.beyond_pairs} is not scored for {model or 'the model'}"
                self.note(f"{benchmark.name}: {unscored}, which scores pairs of an image and a text")
            yield loaded, report

    def __call__(self, encoder: Encoder) -> pd.DataFrame:
        """Returns one row per item and metric, with the columns of `hfcomp.evaluation.engine.Report.items`."""
        return pd.concat([report.items for _, report in self.score(encoder)], ignore_index=True)

    def score_with_details(self, encoder: Encoder, *, keep_scores: bool, prior: Prior | None) -> DetailedScores:
        reports = [report for _, report in self.score(encoder, keep_scores=keep_scores, prior=prior)]
        scores = [report.scores for report in reports if report.scores is not None]
        priors = [report.prior for report in reports if report.prior is not None]
        return DetailedScores.join([report.items for report in reports], scores, priors)

    def check_names(self, check: Callable[[Outcomes], Any]) -> None:
        """Runs a check on outcomes without a model, before one is scored.

        Nothing is checked without benchmarks, if a probe would have to be fitted first, or if a protocol cannot score
        equal vectors. The check then has to wait for the outcomes of a model.
        """
        if not self.loaded or any(loaded.data.train is not None for loaded in self.loaded):
            return
        try:
            # Names of lines depend only on the items, so equal vectors give these names without encoding anything.
            scored = [report.items for _, report in self.score(NoModel(), progress=False)]
        except Exception:  # a user's protocol may need real vectors
            return
        check(Outcomes(pd.concat(scored, ignore_index=True).assign(arm="")))

    def select_benchmarks(self, titles: Sequence[str]) -> Evaluator:
        return replace(self, loaded=[loaded for loaded in self.loaded if loaded.benchmark.title in titles])

    def select_concept(self, concept: str) -> Evaluator:
        """Selects each benchmark's items of a concept if it has any, else all. Other concepts are not encoded."""
        return replace(self, loaded=[loaded.select_concept(concept) for loaded in self.loaded])

    def _without_damaged(self, loaded: Loaded) -> Loaded:
        """Removes items with a damaged image, which the first process finds."""
        # One process decodes, and all leave out the rows that it finds, because their batches must be the same.
        benchmark, data = loaded.benchmark, loaded.data
        damaged = find_damaged(benchmark, data, progress=sys.stderr.isatty()) if rank() == 0 else None
        return replace(loaded, data=without_damaged(benchmark, data, gather_objects(damaged)[0]))

    def _advice(self, error: Exception) -> str:
        """Returns what to do about a failed benchmark. Prints the traceback of an unexpected error."""
        others = "The other benchmarks were scored." if len(self.loaded) > 1 else ""
        if isinstance(error, DamagedImage | OSError):  # their message is enough
            no_skip = self.skip_damaged or isinstance(error, DamagedProbeImage | OSError)
            return " ".join(filter(None, ("" if no_skip else SKIP_ADVICE, others)))
        # It may be a bug in hfcomp, which a sentence in a report does not explain.
        traceback.print_exc(file=sys.stderr)
        return " ".join(filter(None, ("See the error above.", others)))

    def _skip(self, benchmark: Benchmark, reason: str, how_to_fix: str) -> None:
        self.skipped.append({"benchmark": benchmark.name, "reason": reason, "how_to_fix": how_to_fix})

    def note_inputs(self, name: str, counts: Mapping[str, int], tower: str = "") -> None:
        if counts["truncated"]:
            merged = f", {counts['merged']:,} of them to the tokens of another text" if counts["merged"] else ""
            texts = f"{counts['truncated']:,} texts are longer than {tower or 'the text tower'}"
            self.note(f"{name}: {texts} and were cut{merged}")
        if counts["tiny"]:
            self.note(f"{name}: {counts['tiny']:,} images are one pixel wide or high, as failed downloads are")
